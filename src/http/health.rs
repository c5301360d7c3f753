//! `/healthz`: the process answers. `/readyz`: catalog and store can be written.

use axum::Router;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use axum::routing::on;
use utoipa::openapi::{Content, HttpMethod};

use super::description::{self, TEXT};
use super::endpoint::{self, Answer, Callers, Endpoint, Group, Input};
use super::error::HttpError;
use crate::service::App;

/// The endpoints of this module.
pub(super) static ENDPOINTS: &[&Endpoint] = &[&HEALTH, &READINESS];

pub(super) fn routes() -> Router<App> {
    endpoint::routes(ENDPOINTS.iter().copied())
}

static HEALTH: Endpoint = Endpoint {
    path: "/healthz",
    operations: &[(HttpMethod::Get, "getHealth")],
    group: Group::Operational,
    summary: "Whether the process answers",
    callers: Callers::Anybody,
    input: Input::Nothing,
    answer: Answer { headers: &[&["Cache-Control"]], ..Answer::of("The process answers.", &[(TEXT, ok)]) },
    errors: &[],
    handler: |method| on(method, healthz),
};

/// 200 `ok` whenever the process can answer at all.
async fn healthz() -> impl IntoResponse {
    NOW
}

/// It holds only at this moment, so no cache may store it.
const NOW: ([(HeaderName, &str); 1], &str) = ([(CACHE_CONTROL, "no-store")], "ok");

static READINESS: Endpoint = Endpoint {
    path: "/readyz",
    operations: &[(HttpMethod::Get, "getReadiness")],
    group: Group::Operational,
    summary: "Whether the catalog and the store can be written, too",
    callers: Callers::Anybody,
    input: Input::Nothing,
    answer: Answer { headers: &[&["Cache-Control"]], ..Answer::of("The service can serve requests.", &[(TEXT, ok)]) },
    errors: &[503],
    handler: |method| on(method, readyz),
};

/// 200 `ok` when the catalog and the store can be written, else 503 with the part that cannot.
async fn readyz(State(app): State<App>) -> Result<impl IntoResponse, HttpError> {
    app.readiness().check().await.map(|()| NOW).map_err(HttpError::NotReady)
}

fn ok() -> Content {
    description::text(Some("ok"))
}
