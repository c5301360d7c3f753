//! `/healthz`: the process responds. `/readyz`: it can write to the metadata database and the store.

use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use axum::routing::get;

use super::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointResponse};
use super::error::HttpError;
use super::openapi_components::TEXT_CONTENT_TYPE;
use crate::AppState;

pub(super) static HEALTH_ENDPOINT: Endpoint =
    Endpoint::get("/healthz", "getHealth", EndpointGroup::Operational, || get(healthz))
        .summary("Checks whether the process is responding")
        .description(
            "Returns 200 as long as the process can respond, even if it cannot reach its storage. Use this operation \
         as a liveness probe.",
        )
        .callers(AllowedCallers::Anyone)
        .response(EndpointResponse {
            headers: &[&["Cache-Control"]],
            ..EndpointResponse::new("The process is responding.", &[TEXT_CONTENT_TYPE])
        });

async fn healthz() -> impl IntoResponse {
    OK_NO_STORE
}

/// Health responses have `no-store`, because the status can change at any time.
const OK_NO_STORE: ([(HeaderName, &str); 1], &str) = ([(CACHE_CONTROL, "no-store")], "ok");

pub(super) static READINESS_ENDPOINT: Endpoint =
    Endpoint::get("/readyz", "getReadiness", EndpointGroup::Operational, || get(readyz))
        .summary("Checks whether the service can serve requests")
        .description(
            "Returns 200 if strata can write to the metadata database and to the object store. Otherwise, returns 503 \
         with the reason. Use this operation as a load balancer's readiness probe.",
        )
        .callers(AllowedCallers::Anyone)
        .response(EndpointResponse {
            headers: &[&["Cache-Control"]],
            ..EndpointResponse::new("The service can serve requests.", &[TEXT_CONTENT_TYPE])
        })
        .errors(&[503]);

async fn readyz(State(services): State<AppState>) -> Result<impl IntoResponse, HttpError> {
    services.readiness.check().await.map(|()| OK_NO_STORE).map_err(HttpError::NotReady)
}
