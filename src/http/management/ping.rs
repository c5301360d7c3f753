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

use super::JsonResult;
use super::records::VersionResponse;
use crate::AppState;
use crate::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointInput, EndpointResponse};
use crate::error::HttpError;
use crate::headers::client_ip;
pub(super) use crate::layers::access_log::PING_PATH_PREFIX;
use crate::read::rate_limiting;

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

/// Refreshes a dataset, and responds after the refresh has ended. A client that disconnects does not cancel it. Before
/// strata checks the token in the URL, the call counts as a public read of the client (`limits.public_per_minute`).
async fn handle_ping(State(services): State<AppState>, request: Request) -> Response {
    let (head, _body) = request.into_parts();
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let result = match head.method {
        // The router function `get` would also accept HEAD, which must not start a refresh.
        Method::GET | Method::POST => refresh_by_token(&services, &head, &mut headers).await,
        _ => Err(HttpError::MethodNotAllowed { allowed: Some("GET, POST") }),
    };
    (headers, result).into_response()
}

async fn refresh_by_token(services: &Services, head: &Parts, headers: &mut HeaderMap) -> JsonResult<VersionResponse> {
    rate_limiting::admit_request(services, client_ip::request_client(head, services), RateLimitBucket::Public, headers)
        .await?;
    let token = head.uri.path().strip_prefix(PING_PATH_PREFIX).unwrap_or_default();
    let RefreshedVersion { mut record, .. } =
        services.refreshes.refresh_by_ping(token).await.map_err(|error| match error {
            RefreshError::DatasetNotFound => HttpError::PingNotFound,
            error => HttpError::Refresh(error),
        })?;
    // Callers who know only the ping URL must not see the path of the alternate's file.
    record.version.alternate = None;
    Ok(Json(VersionResponse::from(&record)))
}
