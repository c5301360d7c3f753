//! `/healthz`: the process answers. `/readyz`: catalog and store can be written.

use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use axum::routing::on;
use strata_service::App;
use utoipa::openapi::Content;

use super::description::{self, TEXT};
use super::endpoint::{Answer, Callers, Endpoint, Group};
use super::error::HttpError;

pub(super) static HEALTH: Endpoint =
    Endpoint::get("/healthz", "getHealth", Group::Operational, |method| on(method, healthz))
        .summary("Checks whether the process is responding")
        .description(
            "Returns 200 as long as the process can respond, even if it cannot reach its storage. Use this operation \
             as a liveness probe.",
        )
        .callers(Callers::Anybody)
        .answer(Answer { headers: &[&["Cache-Control"]], ..Answer::of("The process is responding.", &[(TEXT, ok)]) });

/// 200 `ok` whenever the process can answer at all.
async fn healthz() -> impl IntoResponse {
    NOW
}

/// It holds only at this moment, so no cache may store it.
const NOW: ([(HeaderName, &str); 1], &str) = ([(CACHE_CONTROL, "no-store")], "ok");

pub(super) static READINESS: Endpoint =
    Endpoint::get("/readyz", "getReadiness", Group::Operational, |method| on(method, readyz))
        .summary("Checks whether the service can serve requests")
        .description(
            "Returns 200 if strata can write to the metadata database and to the object store. Otherwise, returns 503 \
             with the reason. Use this operation as a load balancer's readiness probe.",
        )
        .callers(Callers::Anybody)
        .answer(Answer {
            headers: &[&["Cache-Control"]],
            ..Answer::of("The service can serve requests.", &[(TEXT, ok)])
        })
        .errors(&[503]);

/// 200 `ok` when the catalog and the store can be written, else 503 with the part that cannot.
async fn readyz(State(app): State<App>) -> Result<impl IntoResponse, HttpError> {
    app.readiness().check().await.map(|()| NOW).map_err(HttpError::NotReady)
}

fn ok() -> Content {
    description::text(None)
}
