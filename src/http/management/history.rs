//! The history of a dataset: refresh attempts, webhook deliveries, and daily usage.

use axum::Json;
use axum::routing::get;
use serde::Serialize;
use serde_json::json;
use strata_catalog::{DailyUsage, RefreshAttempt, SentDelivery};
use strata_types::ids::RefreshAttemptId;
use strata_types::limits;
use strata_types::token_scope::TokenScope;
use strata_types::version::VersionNumber;
use utoipa::ToSchema;

use super::records::{AttemptRecord, format_time, response_types};
use super::{CallFields, JsonResult, UserCall, fields, webhooks};
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};
use crate::error::CallError;

pub(super) const ENDPOINTS: &[&Endpoint] = &[&LIST_ATTEMPTS_ENDPOINT, &LIST_DELIVERIES_ENDPOINT, &GET_USAGE_ENDPOINT];

const DEFAULT_USAGE_DAYS: u64 = 30;

const AFTER_FIELD: FieldSpec = FieldSpec::optional("after", FieldKind::PositiveInteger, || json!(1000))
    .description("Returns only entries that are older than the entry with this `id`.");
const LIMIT_FIELD: FieldSpec = FieldSpec::optional("limit", FieldKind::PositiveInteger, || json!(100))
    .description("The maximum number of entries to return. The default and the maximum are both 1,000.");

fn history_page_limit(fields: &CallFields) -> Result<u32, CallError> {
    const MAX_PAGE_ENTRIES: u32 = limits::MAX_HISTORY_ENTRIES as u32;
    fields.page_limit(MAX_PAGE_ENTRIES, MAX_PAGE_ENTRIES)
}

static LIST_ATTEMPTS_ENDPOINT: Endpoint =
    Endpoint::get("/dataset/attempts", "listAttempts", EndpointGroup::Versions, || get(list_attempts))
        .summary("Lists the last 1,000 refresh attempts of a dataset, newest first")
        .description(
            "A failed attempt has an `error`. A successful attempt has the number of the new version, and `warnings` \
         if there are any.",
        )
        .input(EndpointInput::Query(&[fields::DATASET_ID_FIELD, AFTER_FIELD, LIMIT_FIELD]))
        .response(EndpointResponse::for_record::<AttemptsResponse>(
            "A page of attempts. To get the next page, pass the last `id` as `after`.",
        ))
        .errors(&[404]);

async fn list_attempts(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<AttemptsResponse> {
    let id = fields.dataset_id()?;
    let limit = history_page_limit(&fields)?;
    let after = fields.optional_positive_integer("after")?.map(RefreshAttemptId::new);
    let attempts = services.datasets.list_attempts(&user, id, after, limit).await?;
    let past = |attempt: &RefreshAttempt| PastAttempt { id: attempt.id.get(), attempt: attempt.into() };
    Ok(Json(AttemptsResponse::new(attempts.iter().map(past).collect())))
}

static LIST_DELIVERIES_ENDPOINT: Endpoint =
    Endpoint::get("/webhook/deliveries", "listDeliveries", EndpointGroup::Webhooks, || get(list_deliveries))
        .summary("Lists the last 1,000 webhook deliveries of a dataset, newest first")
        .description(
            "strata sends each webhook once and does not retry it. If no response arrived, `status` is null and \
             `error` contains the reason. The list remains available after you delete the webhook.",
        )
        .input(EndpointInput::Query(&[fields::DATASET_ID_FIELD, AFTER_FIELD, LIMIT_FIELD]))
        .response(EndpointResponse::for_record::<DeliveriesResponse>(
            "A page of deliveries. To get the next page, pass the last `id` as `after`.",
        ))
        .errors(&[404]);

async fn list_deliveries(UserCall { user, scope, services, fields, .. }: UserCall) -> JsonResult<DeliveriesResponse> {
    let id = fields.dataset_id()?;
    let limit = history_page_limit(&fields)?;
    let after = fields.optional_positive_integer("after")?.map(VersionNumber::new);
    let deliveries = services.webhooks.list_deliveries(&user, id, after, limit).await?;
    let deliveries = deliveries.into_iter().map(|delivery| DeliveryRecord::new(delivery, scope)).collect();
    Ok(Json(DeliveriesResponse::new(deliveries)))
}

static GET_USAGE_ENDPOINT: Endpoint =
    Endpoint::get("/dataset/usage", "getUsage", EndpointGroup::Datasets, || get(get_usage))
        .summary("Returns the daily number of queries of a dataset, newest day first")
        .description("Days are in UTC. strata omits days without queries, and stores usage for 400 days.")
        .input(EndpointInput::Query(&[
            fields::DATASET_ID_FIELD,
            FieldSpec::optional("days", FieldKind::PositiveInteger, || json!(7)).description(
                "The number of days to return, including today. The default is 30, and the maximum is 400.",
            ),
        ]))
        .response(EndpointResponse::for_record::<UsageResponse>("The days on which the dataset was queried."))
        .errors(&[404]);

async fn get_usage(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<UsageResponse> {
    let id = fields.dataset_id()?;
    let days = fields.optional_positive_integer("days")?.unwrap_or(DEFAULT_USAGE_DAYS);
    let usage = services.usage.daily_usage(&user, id, days).await?;
    Ok(Json(UsageResponse::new(usage.iter().map(UsageRecord::from).collect())))
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
    /// Removes credentials from the URL of the receiver if the caller has a read-only token.
    fn new(delivery: SentDelivery, scope: TokenScope) -> Self {
        let duration = delivery.outcome.as_ref().and_then(|outcome| outcome.duration);
        let (status, error) = match delivery.outcome.map(|outcome| outcome.response) {
            None => (None, None),
            Some(Ok(status)) => (Some(status), None),
            Some(Err(error)) => (None, Some(error)),
        };
        DeliveryRecord {
            // A version has at most one delivery, so the version number identifies it.
            id: delivery.version.get(),
            version: delivery.version.get(),
            url: webhooks::redact_url_for_scope(scope, delivery.url),
            fired_at: format_time(delivery.fired_at),
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

impl From<&DailyUsage> for UsageRecord {
    fn from(usage: &DailyUsage) -> Self {
        let counts = usage.counts;
        UsageRecord {
            day: usage.date().to_string(),
            requests: counts.requests,
            not_modified: counts.not_modified,
            rate_limited: counts.rate_limited,
            bytes: counts.sent_bytes,
        }
    }
}

response_types! {
    /// A response that contains refresh attempts, newest first.
    AttemptsResponse {
        /// The attempts.
        attempts: Vec<PastAttempt>,
    }

    /// A response that contains deliveries, newest first.
    DeliveriesResponse {
        /// The deliveries.
        deliveries: Vec<DeliveryRecord>,
    }

    /// A response that contains the days on which a dataset was queried, newest first.
    UsageResponse {
        /// The days.
        usage: Vec<UsageRecord>,
    }
}
