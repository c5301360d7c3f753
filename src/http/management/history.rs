//! What happened to a dataset: the attempts to refresh it, the webhooks that were sent, how much it was read.

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use serde::Serialize;
use serde_json::json;
use strata_catalog::{Attempt, DayUsage, SentDelivery};
use strata_types::ids::AttemptId;
use strata_types::limits;
use strata_types::scope::Scope;
use strata_types::version::VersionNumber;
use utoipa::ToSchema;

use super::records::{AttemptRecord, answers, time};
use super::{Caller, Fields, Identified, JsonResult, fields, webhooks};
use crate::AppState;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input};
use crate::error::CallError;

pub(super) const ENDPOINTS: &[&Endpoint] = &[&ATTEMPTS, &DELIVERIES, &USAGE];

const DAYS: u64 = 30;

const AFTER: Field = Field::optional("after", FieldKind::Positive, || json!(1000))
    .about("Returns only entries that are older than the entry with this `id`.");
const LIMIT: Field = Field::optional("limit", FieldKind::Positive, || json!(100))
    .about("The maximum number of entries to return. The default and the maximum are both 1,000.");

fn limit(fields: &Fields) -> Result<u32, CallError> {
    const MAX_ENTRIES: u32 = limits::HISTORY as u32;
    fields.limit(MAX_ENTRIES, MAX_ENTRIES)
}

static ATTEMPTS: Endpoint = Endpoint::get("/dataset/attempts", "listAttempts", Group::Versions, || get(attempts))
    .summary("Lists the last 1,000 refresh attempts of a dataset, newest first")
    .description(
        "A failed attempt has an `error`. A successful attempt has the number of the new version, and `warnings` \
         if there are any.",
    )
    .input(Input::Query(&[fields::DATASET_ID, AFTER, LIMIT]))
    .answer(Answer::record::<AttemptsAnswer>(
        "A page of attempts. To get the next page, pass the last `id` as `after`.",
    ))
    .errors(&[404]);

async fn attempts(
    Caller(user): Caller,
    State(services): State<AppState>,
    fields: Fields,
) -> JsonResult<AttemptsAnswer> {
    let id = fields.dataset_id()?;
    let limit = limit(&fields)?;
    let after = fields.optional_positive("after")?.map(AttemptId::new);
    let attempts = services.datasets.attempts(&user, id, after, limit).await?;
    let past = |attempt: &Attempt| PastAttempt { id: attempt.id.get(), attempt: attempt.into() };
    Ok(Json(AttemptsAnswer::new(attempts.iter().map(past).collect())))
}

static DELIVERIES: Endpoint =
    Endpoint::get("/webhook/deliveries", "listDeliveries", Group::Webhooks, || get(deliveries))
        .summary("Lists the last 1,000 webhook deliveries of a dataset, newest first")
        .description(
            "strata sends each webhook once and does not retry it. If no response arrived, `status` is null and \
             `error` contains the reason. The list remains available after you delete the webhook.",
        )
        .input(Input::Query(&[fields::DATASET_ID, AFTER, LIMIT]))
        .answer(Answer::record::<DeliveriesAnswer>(
            "A page of deliveries. To get the next page, pass the last `id` as `after`.",
        ))
        .errors(&[404]);

async fn deliveries(
    caller: Identified,
    State(services): State<AppState>,
    fields: Fields,
) -> JsonResult<DeliveriesAnswer> {
    let id = fields.dataset_id()?;
    let limit = limit(&fields)?;
    let after = fields.optional_positive("after")?.map(VersionNumber::new);
    let deliveries = services.webhooks.deliveries(&caller.user, id, after, limit).await?;
    let deliveries = deliveries.into_iter().map(|delivery| DeliveryRecord::new(delivery, caller.scope)).collect();
    Ok(Json(DeliveriesAnswer::new(deliveries)))
}

static USAGE: Endpoint = Endpoint::get("/dataset/usage", "getUsage", Group::Datasets, || get(usage))
    .summary("Returns the daily number of queries of a dataset, newest day first")
    .description("Days are in UTC. strata omits days without queries, and stores usage for 400 days.")
    .input(Input::Query(&[
        fields::DATASET_ID,
        Field::optional("days", FieldKind::Positive, || json!(7))
            .about("The number of days to return, including today. The default is 30, and the maximum is 400."),
    ]))
    .answer(Answer::record::<UsageAnswer>("The days on which the dataset was queried."))
    .errors(&[404]);

async fn usage(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<UsageAnswer> {
    let id = fields.dataset_id()?;
    let usage = services.usage.days(&user, id, fields.optional_positive("days")?.unwrap_or(DAYS)).await?;
    Ok(Json(UsageAnswer::new(usage.iter().map(UsageRecord::from).collect())))
}

/// An attempt to refresh a dataset, with its ID.
#[derive(Serialize, ToSchema)]
struct PastAttempt {
    /// The ID of the attempt. Later attempts have greater IDs.
    id: u64,
    /// The attempt.
    #[serde(flatten)]
    attempt: AttemptRecord,
}

/// A webhook delivery.
#[derive(Serialize, ToSchema)]
struct DeliveryRecord {
    /// The ID of the delivery, unique within the dataset. Later deliveries have greater IDs.
    id: u64,
    /// The new version that the webhook announced.
    version: u64,
    /// The URL of the receiver. For a token with the scope `read`, strata omits the user name, password, and query
    /// string.
    url: String,
    /// When strata sent the webhook.
    #[schema(format = DateTime)]
    fired_at: String,
    /// The duration in milliseconds, or null if the delivery is in progress or the duration is unknown.
    duration_ms: Option<u64>,
    /// The HTTP status that the receiver returned, or null if there was no response.
    status: Option<u16>,
    /// Why there was no response. Null if there was a response, or if the delivery is in progress.
    error: Option<String>,
}

impl DeliveryRecord {
    /// The delivery as the scope lets its caller see it.
    fn new(delivery: SentDelivery, scope: Scope) -> Self {
        let duration = delivery.outcome.as_ref().and_then(|outcome| outcome.duration);
        let (status, error) = match delivery.outcome.map(|outcome| outcome.answer) {
            None => (None, None),
            Some(Ok(status)) => (Some(status), None),
            Some(Err(error)) => (None, Some(error)),
        };
        DeliveryRecord {
            // A dataset has one delivery of a version at most.
            id: delivery.version.get(),
            version: delivery.version.get(),
            url: webhooks::seen_with(scope, delivery.url),
            fired_at: time(delivery.fired_at),
            duration_ms: duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
            status,
            error,
        }
    }
}

/// The queries of a dataset on one day.
#[derive(Serialize, ToSchema)]
struct UsageRecord {
    /// The day in UTC, for example `2026-11-22`.
    #[schema(format = Date)]
    day: String,
    /// The number of requests to the read endpoint for this dataset, regardless of the response.
    requests: u64,
    /// The number of these requests that returned 304.
    not_modified: u64,
    /// The number of these requests that returned 429.
    rate_limited: u64,
    /// The total size of the response bodies in bytes, as sent.
    bytes: u64,
}

impl From<&DayUsage> for UsageRecord {
    fn from(usage: &DayUsage) -> Self {
        let counts = usage.counts;
        UsageRecord {
            day: usage.date().to_string(),
            requests: counts.requests,
            not_modified: counts.not_modified,
            rate_limited: counts.rate_limited,
            bytes: counts.bytes,
        }
    }
}

answers! {
    /// A response that contains refresh attempts, newest first.
    AttemptsAnswer {
        /// The attempts.
        attempts: Vec<PastAttempt>,
    }

    /// A response that contains deliveries, newest first.
    DeliveriesAnswer {
        /// The deliveries.
        deliveries: Vec<DeliveryRecord>,
    }

    /// A response that contains the days on which a dataset was queried, newest first.
    UsageAnswer {
        /// The days.
        usage: Vec<UsageRecord>,
    }
}
