//! `GET` and `POST /ping/{token}`: a refresh without a session, for everyone who has the URL.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, REFERRER_POLICY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use strata_service::{Bucket, RefreshError, Refreshed, Services};
use utoipa::openapi::HttpMethod;

use super::records::VersionAnswer;
use crate::AppState;
use crate::endpoint::{Answer, Callers, Endpoint, Group, Input};
use crate::error::HttpError;
use crate::headers::client_ip;
use crate::read::rate;

pub(super) const PREFIX: &str = "/ping/";

pub(super) static PING: Endpoint = Endpoint::get("/ping/{token}", "ping", Group::Versions, || any(ping))
    .also(HttpMethod::Post, "pingByPost")
    .summary("Refreshes the dataset that this ping URL belongs to")
    .description(
        "Anyone who knows the URL can refresh the dataset, so keep the URL secret. The response arrives after the \
         refresh has ended. You can register the URL as a webhook in another service.",
    )
    .callers(Callers::Anybody)
    .input(Input::Token)
    .answer(Answer::record::<VersionAnswer>("The new version."))
    .errors(&[404, 409, 422, 429, 502, 503]);

/// Responds when the refresh has ended. A client that disconnects does not cancel it. Pings count as public reads of a
/// client (`limits.public_per_minute`), before the token is checked.
async fn ping(State(services): State<AppState>, request: Request) -> Response {
    let (head, _body) = request.into_parts();
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let answered = match head.method {
        // Even HEAD must not refresh.
        Method::GET | Method::POST => answer(&services, &head, &mut headers).await,
        _ => Err(HttpError::MethodNotAllowed { allowed: Some("GET, POST") }),
    };
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().extend(headers);
    response
}

async fn answer(services: &Services, head: &Parts, headers: &mut HeaderMap) -> Result<Response, HttpError> {
    rate::admit(services, client_ip::client(head, services), Bucket::Public, headers).await?;
    let token = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let Refreshed { mut record, .. } = services.refreshes.ping(token).await.map_err(|error| match error {
        RefreshError::NotFound => HttpError::NoSuchPing,
        error => HttpError::Refresh(error),
    })?;
    // Only the owner can see the path of a file.
    record.version.alt = None;
    Ok(Json(VersionAnswer::from(&record)).into_response())
}
