//! `/webhook/…`: the one webhook that a dataset may have.

use axum::Json;
use axum::extract::State;

use super::DATASET_ID;
use super::records::{Done, WebhookAnswer};
use super::{Caller, JsonBody, Query};
use crate::http::error::HttpError;
use crate::service::App;

/// `POST /webhook/register`: `dataset_id`, `url`, perhaps `secret`.
pub(super) async fn register(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<Done>, HttpError> {
    fields.only(&[DATASET_ID, "url", "secret"])?;
    let (id, url, secret) = (fields.dataset_id()?, fields.text("url")?, fields.optional_text("secret")?);
    app.webhooks().register(&user, id, url, secret).await?;
    Ok(Json(Done::OK))
}

/// `DELETE /webhook/delete`: `dataset_id`.
pub(super) async fn delete(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<Done>, HttpError> {
    fields.only(&[DATASET_ID])?;
    app.webhooks().delete(&user, fields.dataset_id()?).await?;
    Ok(Json(Done::OK))
}

/// `GET /webhook/view`: `dataset_id`.
pub(super) async fn view(
    Caller(user): Caller,
    State(app): State<App>,
    query: Query,
) -> Result<Json<WebhookAnswer>, HttpError> {
    query.only(&[DATASET_ID])?;
    Ok(Json(app.webhooks().find(&user, query.dataset_id()?).await?.into()))
}
