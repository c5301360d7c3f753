//! The management endpoints (docs/reference/management.md, Management; docs/reference/api/index.md, Operations).
//!
//! Checks run in this order: 405 by the router, 401 and 403 (a foreign origin) by `AuthenticatedUser` or `UserCall`,
//! and 415, 413, and 400 by `CallFields`. The handler then parses each field, and the services return the remaining
//! errors, such as 404.
//!
//! To add an endpoint, write its `Endpoint` and its handler, and add it to `ENDPOINTS` of its module or to `endpoints`
//! below. To add a field, add a `FieldSpec` to the endpoint's input, and parse the field in the handler.

pub(super) mod alternate_edits;
pub(super) mod alternates;
mod caller;
mod checks;
mod datasets;
mod diffs;
mod explain;
mod fields;
mod history;
pub(super) mod listings;
mod ping;
pub(super) mod profile;
pub mod records;
mod refresh;
pub(super) mod request_body;
pub(super) mod sessions;
mod tokens;
mod webhooks;

use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, Method};
use axum::middleware::map_response;
use axum::response::Response;
use axum::{Json, Router};
use caller::UserCall;
pub(super) use caller::{AuthenticatedUser, SESSION_COOKIE, session_id_from_cookie};
pub use diffs::DiffCall;
pub(super) use request_body::CallFields;

use super::endpoint::{self, Endpoint};
use super::error::HttpError;
pub(super) use super::headers::base_url::BaseUrl;
use crate::AppState;

type JsonResult<T> = Result<Json<T>, HttpError>;

pub(crate) const DATASET_ID_NAME: &str = "dataset_id";

/// Returns all endpoints, in the order in which tools show their groups.
pub(super) fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
    const WITHOUT_OWN_LIST: &[&Endpoint] = &[
        &listings::FIND_DATASETS_ENDPOINT,
        &refresh::REFRESH_ENDPOINT,
        &checks::CHECK_ENDPOINT,
        &ping::PING_ENDPOINT,
        &profile::PROFILE_VERSION_ENDPOINT,
        &explain::EXPLAIN_READ_ENDPOINT,
        &diffs::DIFF_ENDPOINT,
    ];
    let lists = [
        sessions::ENDPOINTS,
        tokens::ENDPOINTS,
        datasets::ENDPOINTS,
        WITHOUT_OWN_LIST,
        alternates::ENDPOINTS,
        webhooks::ENDPOINTS,
        history::ENDPOINTS,
    ];
    lists.into_iter().flatten().copied()
}

pub(super) fn routes() -> Router<AppState> {
    endpoint::routes(endpoints()).layer(map_response(set_no_store))
}

/// Returns whether a call continues if its client disconnects, as refreshes whose body has arrived and pings do.
pub(super) fn continues_after_disconnect(method: &Method, path: &str) -> bool {
    (path == refresh::REFRESH_PATH && method == Method::POST) || path.starts_with(ping::PING_PATH_PREFIX)
}

/// Forbids caching of management responses, because responses to owners contain keys and URLs with credentials.
async fn set_no_store(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
