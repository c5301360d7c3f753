//! The management endpoints (docs/reference/management.md, Management; docs/reference/api/index.md, Operations).
//!
//! Checks run in the order of a handler's arguments: 405 by the router, 401 and 403 (a foreign origin) by `Caller`,
//! then 415, 413 and 400 by `Fields`; then each field, 404 for what they name, and the rest.
//!
//! To add an endpoint, write its `Endpoint` and its handler, and name it in `ENDPOINTS` of its module, or in
//! `endpoints`. To add a field, write its `Field` in the endpoint's input, and take it in the handler.

pub(super) mod alternate_edits;
pub(super) mod body;
mod caller;
mod datasets;
mod diffs;
pub(super) mod edits;
mod explain;
mod fields;
mod history;
pub(super) mod listings;
mod ping;
pub(super) mod profile;
pub mod records;
mod refresh;
pub(super) mod sessions;
mod tokens;
mod webhooks;

use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, Method};
use axum::middleware::map_response;
use axum::response::Response;
use axum::{Json, Router};
pub(super) use body::Fields;
use caller::Identified;
pub(super) use caller::{Caller, SESSION_COOKIE, session_id};
pub use diffs::DiffCall;

use super::endpoint::{self, Endpoint};
use super::error::HttpError;
pub(super) use super::headers::base_url::BaseUrl;
use crate::AppState;

type JsonResult<T> = Result<Json<T>, HttpError>;

pub(crate) const DATASET_ID: &str = "dataset_id";

/// Every endpoint, in the order in which tools show their groups.
pub(super) fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
    const SINGLE: &[&Endpoint] =
        &[&listings::DATASETS, &refresh::REFRESH, &ping::PING, &profile::PROFILE, &explain::EXPLAIN_READ, &diffs::DIFF];
    let first = [sessions::ENDPOINTS, tokens::ENDPOINTS, datasets::ENDPOINTS, SINGLE];
    first.into_iter().chain([edits::ENDPOINTS, webhooks::ENDPOINTS, history::ENDPOINTS]).flatten().copied()
}

pub(super) fn routes() -> Router<AppState> {
    endpoint::routes(endpoints()).layer(map_response(private))
}

/// Whether a call continues if its client disconnects: a refresh whose body has arrived, and a ping.
pub(super) fn outlives_its_client(method: &Method, path: &str) -> bool {
    (path == refresh::PATH && method == Method::POST) || path.starts_with(ping::PREFIX)
}

/// No cache can store the responses to owners, which contain keys and addresses.
async fn private(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
