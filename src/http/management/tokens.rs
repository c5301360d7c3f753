//! `/token/…`: the caller's API tokens.

use axum::Json;
use axum::extract::State;

use super::records::{Done, TokenAnswer, TokenRecord, TokensAnswer};
use super::{Caller, JsonBody, Query};
use crate::http::error::HttpError;
use crate::service::App;

/// `POST /token/create`: `name`.
pub(super) async fn create(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<TokenAnswer>, HttpError> {
    fields.only(&["name"])?;
    let name = fields.text("name")?;
    let token = app.accounts().create_token(&user, name).await?;
    Ok(Json(TokenAnswer { ok: true, token: token.expose().to_owned(), name: name.to_owned() }))
}

/// `DELETE /token/delete`: `name`.
pub(super) async fn delete(
    Caller(user): Caller,
    State(app): State<App>,
    JsonBody(fields): JsonBody,
) -> Result<Json<Done>, HttpError> {
    fields.only(&["name"])?;
    app.accounts().delete_token(&user, fields.text("name")?).await?;
    Ok(Json(Done::OK))
}

/// `GET /token/list`.
pub(super) async fn list(
    Caller(user): Caller,
    State(app): State<App>,
    query: Query,
) -> Result<Json<TokensAnswer>, HttpError> {
    query.only(&[])?;
    let tokens = app.accounts().tokens(&user).await?;
    Ok(Json(TokensAnswer { ok: true, tokens: tokens.into_iter().map(TokenRecord::from).collect() }))
}
