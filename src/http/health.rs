//! `/healthz`: the process responds. `/readyz`: it can write to the metadata database and the store.

use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use axum::routing::get;

use super::description::TEXT;
use super::endpoint::{Answer, Callers, Endpoint, Group};
use super::error::HttpError;
use crate::AppState;

pub(super) static HEALTH: Endpoint = Endpoint::get("/healthz", "getHealth", Group::Operational, || get(healthz))
    .summary("Checks whether the process is responding")
    .description(
        "Returns 200 as long as the process can respond, even if it cannot reach its storage. Use this operation \
         as a liveness probe.",
    )
    .callers(Callers::Anybody)
    .answer(Answer { headers: &[&["Cache-Control"]], ..Answer::new("The process is responding.", &[TEXT]) });

async fn healthz() -> impl IntoResponse {
    NOW
}

/// No cache can store it, because it can change at any time.
const NOW: ([(HeaderName, &str); 1], &str) = ([(CACHE_CONTROL, "no-store")], "ok");

pub(super) static READINESS: Endpoint = Endpoint::get("/readyz", "getReadiness", Group::Operational, || get(readyz))
    .summary("Checks whether the service can serve requests")
    .description(
        "Returns 200 if strata can write to the metadata database and to the object store. Otherwise, returns 503 \
         with the reason. Use this operation as a load balancer's readiness probe.",
    )
    .callers(Callers::Anybody)
    .answer(Answer { headers: &[&["Cache-Control"]], ..Answer::new("The service can serve requests.", &[TEXT]) })
    .errors(&[503]);

async fn readyz(State(services): State<AppState>) -> Result<impl IntoResponse, HttpError> {
    services.readiness.check().await.map(|()| NOW).map_err(HttpError::NotReady)
}
