//! `GET` and `POST /ping/{token}`: refreshes a dataset for anyone who knows the URL.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, REFERRER_POLICY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use strata_service::{RateLimitBucket, RefreshError, RefreshedVersion, Services};
use utoipa::openapi::HttpMethod;

use super::records::VersionResponse;
use crate::AppState;
use crate::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointInput, EndpointResponse};
use crate::error::HttpError;
use crate::headers::client_ip;
use crate::read::rate_limiting;

pub(super) const PING_PATH_PREFIX: &str = "/ping/";

pub(super) static PING_ENDPOINT: Endpoint =
    Endpoint::get("/ping/{token}", "ping", EndpointGroup::Versions, || any(handle_ping))
        .with_second_method(HttpMethod::Post, "pingByPost")
        .summary("Refreshes the dataset that this ping URL belongs to")
        .description(
            "Anyone who knows the URL can refresh the dataset, so keep the URL secret. The response arrives after the \
         refresh has ended. You can register the URL as a webhook in another service.",
        )
        .callers(AllowedCallers::Anyone)
        .input(EndpointInput::PathToken)
        .response(EndpointResponse::for_record::<VersionResponse>("The new version."))
        .errors(&[404, 409, 422, 429, 502, 503]);

/// Responds after the refresh has ended. A client that disconnects does not cancel it. Before strata checks the token,
/// the call counts as a public read of the client (`limits.public_per_minute`).
async fn handle_ping(State(services): State<AppState>, request: Request) -> Response {
    let (head, _body) = request.into_parts();
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let result = match head.method {
        // `get` would also accept HEAD, which must not refresh.
        Method::GET | Method::POST => refresh_by_token(&services, &head, &mut headers).await,
        _ => Err(HttpError::MethodNotAllowed { allowed: Some("GET, POST") }),
    };
    let mut response = result.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().extend(headers);
    response
}

async fn refresh_by_token(services: &Services, head: &Parts, headers: &mut HeaderMap) -> Result<Response, HttpError> {
    rate_limiting::admit_request(services, client_ip::request_client(head, services), RateLimitBucket::Public, headers)
        .await?;
    let token = head.uri.path().strip_prefix(PING_PATH_PREFIX).unwrap_or_default();
    let RefreshedVersion { mut record, .. } =
        services.refreshes.refresh_by_ping(token).await.map_err(|error| match error {
            RefreshError::DatasetNotFound => HttpError::PingNotFound,
            error => HttpError::Refresh(error),
        })?;
    // Only the owner can see the path of a file.
    record.version.alternate = None;
    Ok(Json(VersionResponse::from(&record)).into_response())
}
