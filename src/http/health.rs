//! `/healthz`: the process answers. `/readyz`: so do the catalog and the store.

use std::time::Duration;

use axum::extract::State;

use super::error::HttpError;
use crate::service::App;

/// How long the catalog and the store may take before the service counts as not ready. Below the usual patience of
/// a prober.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// `GET /healthz`: 200 `ok` whenever the process can answer at all.
pub(super) async fn healthz() -> &'static str {
    "ok"
}

/// `GET /readyz`: 200 `ok` when the catalog and the store are reachable, else 503.
pub(super) async fn readyz(State(app): State<App>) -> Result<&'static str, HttpError> {
    match tokio::time::timeout(READY_WITHIN, app.ready()).await {
        Ok(Ok(())) => Ok("ok"),
        Ok(Err(cause)) => Err(HttpError::NotReady(cause.into())),
        Err(elapsed) => Err(HttpError::NotReady(elapsed.into())),
    }
}
