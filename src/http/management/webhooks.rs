//! `/webhook/…`: the webhook of a dataset. A dataset has at most one.

use axum::Json;
use axum::routing::{self, get, post};
use serde::Serialize;
use serde_json::json;
use strata_catalog::Webhook;
use strata_ingest::egress::{UrlQuery, strip_credentials};
use strata_types::token_scope::TokenScope;
use utoipa::ToSchema;
use utoipa::openapi::{Object, Type};

use super::records::{SUCCESS_RESPONSE, SuccessResponse, format_time};
use super::{JsonResult, UserCall, fields};
use crate::endpoint::{Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};
use crate::openapi_components::schema_of_type;

pub(super) const ENDPOINTS: &[&Endpoint] =
    &[&REGISTER_WEBHOOK_ENDPOINT, &DELETE_WEBHOOK_ENDPOINT, &VIEW_WEBHOOK_ENDPOINT];

static REGISTER_WEBHOOK_ENDPOINT: Endpoint =
    Endpoint::post("/webhook/register", "registerWebhook", EndpointGroup::Webhooks, || post(register_webhook))
        .summary("Registers a dataset's webhook, replacing any previous webhook; not available on the `free` plan")
        .description(
            "strata sends a POST request to the URL for each new version. If you set a `secret`, strata signs the \
         body, so that the receiver can verify the sender.",
        )
        .input(EndpointInput::Body(&[
            fields::DATASET_ID_FIELD,
            FieldSpec::required("url", FieldKind::Url, || json!("https://example.org/hook"))
                .description("The http or https URL of the receiver."),
            FieldSpec::optional("secret", FieldKind::Text, || json!("a secret"))
                .description("The secret with which strata signs the payload. strata never shows the secret."),
        ]))
        .response(SUCCESS_RESPONSE)
        .errors(&[404]);

async fn register_webhook(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<SuccessResponse> {
    let id = fields.dataset_id()?;
    services.webhooks.register(&user, id, fields.text("url")?, fields.optional_text("secret")?).await?;
    Ok(Json(SuccessResponse::OK))
}

static DELETE_WEBHOOK_ENDPOINT: Endpoint =
    Endpoint::delete("/webhook/delete", "deleteWebhook", EndpointGroup::Webhooks, || routing::delete(delete_webhook))
        .summary("Deletes the webhook of a dataset")
        .description(
            "Deleting the webhook stops all deliveries, including pending ones. The list of past deliveries remains \
             available.",
        )
        .input(EndpointInput::Body(&[fields::DATASET_ID_FIELD]))
        .response(SUCCESS_RESPONSE)
        .errors(&[404]);

async fn delete_webhook(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<SuccessResponse> {
    services.webhooks.delete(&user, fields.dataset_id()?).await?;
    Ok(Json(SuccessResponse::OK))
}

static VIEW_WEBHOOK_ENDPOINT: Endpoint =
    Endpoint::get("/webhook/view", "viewWebhook", EndpointGroup::Webhooks, || get(view_webhook))
        .summary("Returns the webhook of a dataset, if there is one")
        .description("The response contains the time and status of the last delivery, but never the secret.")
        .input(EndpointInput::Query(&[fields::DATASET_ID_FIELD]))
        .response(EndpointResponse::for_record::<WebhookResponse>(
            "The webhook without its secret, or `has_webhook: false` if there is none.",
        ))
        .errors(&[404]);

async fn view_webhook(UserCall { user, scope, services, fields, .. }: UserCall) -> JsonResult<WebhookResponse> {
    let webhook = services.webhooks.find_webhook(&user, fields.dataset_id()?).await?;
    let webhook = webhook.map(|webhook| Webhook { url: redact_url_for_scope(scope, webhook.url), ..webhook });
    Ok(Json(webhook.into()))
}

/// Removes credentials from a receiver's URL if the caller has a read-only token.
pub(super) fn redact_url_for_scope(scope: TokenScope, url: String) -> String {
    match scope {
        TokenScope::Read => strip_credentials(&url, UrlQuery::Remove),
        TokenScope::Write => url,
    }
}

/// A webhook.
#[derive(Serialize, ToSchema)]
struct WebhookRecord {
    #[schema(schema_with = always_true_schema)]
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
    #[schema(schema_with = always_false_schema)]
    has_webhook: bool,
}

// The constant values of `has_webhook` let typed clients distinguish the two records.
fn always_true_schema() -> Object {
    constant_boolean_schema(true, "Always true.")
}

fn always_false_schema() -> Object {
    constant_boolean_schema(false, "Always false.")
}

fn constant_boolean_schema(value: bool, description: &str) -> Object {
    schema_of_type(Type::Boolean).enum_values(Some([value])).description(Some(description)).build()
}

/// The webhook of a dataset, if there is one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum WebhookResponse {
    /// The dataset has a webhook.
    Registered(WebhookRecord),
    /// The dataset has no webhook.
    None(NoWebhook),
}

impl From<Option<Webhook>> for WebhookResponse {
    fn from(webhook: Option<Webhook>) -> Self {
        let Some(webhook) = webhook else { return WebhookResponse::None(NoWebhook { has_webhook: false }) };
        WebhookResponse::Registered(WebhookRecord {
            has_webhook: true,
            has_secret: webhook.secret.is_some(),
            is_active: webhook.is_active,
            last_fired_at: webhook.last_fired_at.map(format_time),
            last_status: webhook.last_status,
            created_at: format_time(webhook.created_at),
            url: webhook.url,
        })
    }
}
