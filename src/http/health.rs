//! `/healthz`: the process answers. `/readyz`: catalog and store can be written.

use axum::extract::State;

use super::error::HttpError;
use crate::service::App;

/// `GET /healthz`: 200 `ok` whenever the process can answer at all.
pub(super) async fn healthz() -> &'static str {
    "ok"
}

/// `GET /readyz`: 200 `ok` when the catalog and the store can be written, else 503 with the part that cannot.
pub(super) async fn readyz(State(app): State<App>) -> Result<&'static str, HttpError> {
    app.readiness().check().await.map(|()| "ok").map_err(HttpError::NotReady)
}
