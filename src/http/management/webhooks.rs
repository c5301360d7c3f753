//! `/webhook/…`: the one webhook that a dataset may have.

use axum::Json;
use axum::extract::State;
use axum::routing::{self, get, post};
use serde::Serialize;
use serde_json::json;
use strata_catalog::Webhook;
use strata_ingest::net::without_credentials;
use strata_types::scope::Scope;
use utoipa::ToSchema;
use utoipa::openapi::{Object, Type};

use super::records::{DONE, Done, time};
use super::{Caller, Fields, Identified, JsonResult, fields};
use crate::AppState;
use crate::description::typed;
use crate::endpoint::{Answer, Endpoint, Field, FieldKind, Group, Input};

pub(super) const ENDPOINTS: &[&Endpoint] = &[&REGISTER, &DELETE, &VIEW];

static REGISTER: Endpoint = Endpoint::post("/webhook/register", "registerWebhook", Group::Webhooks, || post(register))
    .summary("Registers a dataset's webhook, replacing any previous webhook; not available on the `free` plan")
    .description(
        "strata sends a POST request to the URL for each new version. If you set a `secret`, strata signs the \
         body, so that the receiver can verify the sender.",
    )
    .input(Input::Body(&[
        fields::DATASET_ID,
        Field::required("url", FieldKind::Url, || json!("https://example.org/hook"))
            .about("The http or https URL of the receiver."),
        Field::optional("secret", FieldKind::Text, || json!("a secret"))
            .about("The secret with which strata signs the payload. strata never shows the secret."),
    ]))
    .answer(DONE)
    .errors(&[404]);

async fn register(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<Done> {
    let id = fields.dataset_id()?;
    services.webhooks.register(&user, id, fields.text("url")?, fields.optional_text("secret")?).await?;
    Ok(Json(Done::OK))
}

static DELETE: Endpoint =
    Endpoint::delete("/webhook/delete", "deleteWebhook", Group::Webhooks, || routing::delete(delete))
        .summary("Deletes the webhook of a dataset")
        .description(
            "Deleting the webhook stops all deliveries, including pending ones. The list of past deliveries remains \
             available.",
        )
        .input(Input::Body(&[fields::DATASET_ID]))
        .answer(DONE)
        .errors(&[404]);

async fn delete(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<Done> {
    services.webhooks.delete(&user, fields.dataset_id()?).await?;
    Ok(Json(Done::OK))
}

static VIEW: Endpoint = Endpoint::get("/webhook/view", "viewWebhook", Group::Webhooks, || get(view))
    .summary("Returns the webhook of a dataset, if there is one")
    .description("The response contains the time and status of the last delivery, but never the secret.")
    .input(Input::Query(&[fields::DATASET_ID]))
    .answer(Answer::record::<WebhookAnswer>(
        "The webhook without its secret, or `has_webhook: false` if there is none.",
    ))
    .errors(&[404]);

async fn view(caller: Identified, State(services): State<AppState>, fields: Fields) -> JsonResult<WebhookAnswer> {
    let webhook = services.webhooks.find(&caller.user, fields.dataset_id()?).await?;
    let webhook = webhook.map(|webhook| Webhook { url: seen_with(caller.scope, webhook.url), ..webhook });
    Ok(Json(webhook.into()))
}

/// A receiver's URL as the scope lets its caller see it.
pub(super) fn seen_with(scope: Scope, url: String) -> String {
    match scope {
        Scope::Read => without_credentials(&url, false),
        Scope::Write => url,
    }
}

/// A webhook.
#[derive(Serialize, ToSchema)]
struct WebhookRecord {
    #[schema(schema_with = present)]
    has_webhook: bool,
    /// The URL of the receiver. For a token with the scope `read`, strata omits the user name, password, and query
    /// string.
    url: String,
    /// Whether a secret signs the payload.
    has_secret: bool,
    /// Whether new versions trigger the webhook.
    is_active: bool,
    /// When the webhook was last triggered, or null if never.
    #[schema(format = DateTime)]
    last_fired_at: Option<String>,
    /// The HTTP status that the receiver returned for the last delivery, or null if there was no response.
    last_status: Option<u16>,
    /// When the webhook was registered.
    #[schema(format = DateTime)]
    created_at: String,
}

/// The response for a dataset without a webhook.
#[derive(Serialize, ToSchema)]
struct NoWebhook {
    #[schema(schema_with = absent)]
    has_webhook: bool,
}

// One value each, by which typed clients tell the two records apart.

fn present() -> Object {
    always(true, "Always true.")
}

fn absent() -> Object {
    always(false, "Always false.")
}

fn always(value: bool, about: &str) -> Object {
    typed(Type::Boolean).enum_values(Some([value])).description(Some(about)).build()
}

/// The webhook of a dataset, if there is one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum WebhookAnswer {
    /// The dataset has a webhook.
    Registered(WebhookRecord),
    /// The dataset has no webhook.
    None(NoWebhook),
}

impl From<Option<Webhook>> for WebhookAnswer {
    fn from(webhook: Option<Webhook>) -> Self {
        let Some(webhook) = webhook else { return WebhookAnswer::None(NoWebhook { has_webhook: false }) };
        WebhookAnswer::Registered(WebhookRecord {
            has_webhook: true,
            has_secret: webhook.secret.is_some(),
            is_active: webhook.is_active,
            last_fired_at: webhook.last_fired_at.map(time),
            last_status: webhook.last_status,
            created_at: time(webhook.created_at),
            url: webhook.url,
        })
    }
}
