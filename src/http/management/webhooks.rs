//! `/webhook/…`: the one webhook that a dataset may have.

use axum::Json;
use axum::extract::State;
use axum::routing::on;
use serde_json::json;
use utoipa::openapi::HttpMethod;

use super::records::{Done, WebhookAnswer};
use super::{Caller, JsonBody, Query, fields};
use crate::http::endpoint::{Answer, By, Endpoint, Field, FieldKind, Group, Input};
use crate::http::error::HttpError;
use crate::service::App;

/// The endpoints of this module.
pub(super) static ENDPOINTS: &[&Endpoint] = &[&REGISTER, &DELETE, &VIEW];

static REGISTER: Endpoint = Endpoint {
    path: "/webhook/register",
    operations: &[(HttpMethod::Post, "registerWebhook")],
    group: Group::Webhooks,
    summary: "Registers the webhook of a dataset, in place of the one that is there; not on the plan free",
    by: By::User,
    input: Input::Body(&[
        fields::DATASET_ID,
        Field::required("url", FieldKind::Url, "The receiver, http or https.", || json!("https://example.org/hook")),
        Field::optional("secret", FieldKind::Text, "Signs the payload; never shown.", || json!("a secret")),
    ]),
    answer: Answer::record::<Done>("It is done."),
    errors: &[404],
    handler: |method| on(method, register),
};

async fn register(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<Done>, HttpError> {
    fields.only(&REGISTER)?;
    let (id, url, secret) = (fields.dataset_id()?, fields.text("url")?, fields.optional_text("secret")?);
    app.register_webhook(&user, id, url, secret).await?;
    Ok(Json(Done::OK))
}

static DELETE: Endpoint = Endpoint {
    path: "/webhook/delete",
    operations: &[(HttpMethod::Delete, "deleteWebhook")],
    group: Group::Webhooks,
    summary: "Deletes the webhook of a dataset",
    by: By::User,
    input: Input::Body(&[fields::DATASET_ID]),
    answer: Answer::record::<Done>("It is done."),
    errors: &[404],
    handler: |method| on(method, delete),
};

async fn delete(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<Done>, HttpError> {
    fields.only(&DELETE)?;
    app.delete_webhook(&user, fields.dataset_id()?).await?;
    Ok(Json(Done::OK))
}

static VIEW: Endpoint = Endpoint {
    path: "/webhook/view",
    operations: &[(HttpMethod::Get, "viewWebhook")],
    group: Group::Webhooks,
    summary: "The webhook of a dataset, if there is one",
    by: By::User,
    input: Input::Query(&[fields::DATASET_ID]),
    answer: Answer::record::<WebhookAnswer>("The webhook without its secret, or that there is none."),
    errors: &[404],
    handler: |method| on(method, view),
};

async fn view(Caller(user): Caller, State(app): State<App>, query: Query) -> Result<Json<WebhookAnswer>, HttpError> {
    query.only(&VIEW)?;
    Ok(Json(app.webhook(&user, query.dataset_id()?).await?.into()))
}
