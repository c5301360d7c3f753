//! The management endpoints (docs/semantics.md, Management; docs/owners.md, Operations).
//!
//! Checks run in the order of a handler's arguments: 405 by the router, 401 and 403 (a foreign origin) by `Caller`,
//! then 415, 413 and 400 by `JsonBody` or `Query`; then the fields of the body, 404 for what they name, and the rest.
//!
//! | Module | Holds |
//! |---|---|
//! | `caller` | who calls: session cookie or API token, and the protection against forged calls |
//! | `body`, `query` | what is asked for: the fields of a JSON body, or of a query string |
//! | `records` | what is answered: envelopes and records |
//! | `reached` | the URL at which the client reaches the service |
//! | `sessions`, `tokens`, `datasets`, `refresh`, `alternates`, `edits`, `clones`, `diffs`, `explain`, `webhooks` | the operations |
//! | `profile` | what a version contains; the one operation that is everybody's, for public datasets |

mod alternates;
mod base_url;
pub(super) mod body;
mod caller;
mod clones;
mod datasets;
mod diffs;
pub(super) mod edits;
pub(super) mod explain;
pub(super) mod ping;
mod profile;
mod query;
pub mod records;
mod refresh;
mod sessions;
mod tokens;
mod webhooks;

pub(super) use base_url::BaseUrl;
pub(super) use body::{Fields, JsonBody};
pub(super) use caller::{Caller, SESSION_COOKIE};
pub(super) use query::Query;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{delete, get, post};

use crate::service::App;

/// The member or parameter that names a dataset.
pub(in crate::http) const DATASET_ID: &str = "dataset_id";

/// Every management route, in one table.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/session/login", post(sessions::login))
        .route("/session/logout", post(sessions::logout))
        .route("/session/me", get(sessions::me))
        .route("/token/create", post(tokens::create))
        .route("/token/delete", delete(tokens::delete))
        .route("/token/list", get(tokens::list))
        .route("/dataset/create", post(datasets::create))
        .route("/dataset/update", post(datasets::update))
        .route("/dataset/delete", delete(datasets::delete))
        .route("/dataset/list", get(datasets::list))
        .route("/dataset/view", get(datasets::view))
        .route("/dataset/profile", get(profile::profile))
        .route("/dataset/refresh", post(refresh::refresh))
        .route("/dataset/rotate_key", post(datasets::rotate_key))
        .route("/dataset/rollback", post(datasets::rollback))
        .route("/dataset/unpin", post(datasets::unpin))
        .route("/dataset/unfreeze", post(datasets::unfreeze))
        .route("/dataset/alternate/save", post(alternates::save))
        .route("/dataset/alternate/delete", delete(alternates::delete))
        .route("/agent/pull_for_edit", post(edits::pull_for_edit))
        .route("/agent/push_alt_version", post(edits::push_alt_version))
        .route("/dataset/clone", post(clones::clone))
        .route("/dataset/explain", get(explain::explain))
        .route("/dataset/diff", get(diffs::diff))
        .route("/webhook/register", post(webhooks::register))
        .route("/webhook/delete", delete(webhooks::delete))
        .route("/webhook/view", get(webhooks::view))
        .layer(map_response(private))
}

/// No cache may keep what owners see: keys and addresses among it.
async fn private(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
