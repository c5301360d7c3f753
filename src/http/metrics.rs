//! `/metrics`: what the process measures, for Prometheus.

use axum::{extract::State, http::header::CONTENT_TYPE, response::IntoResponse};

use crate::{metrics, service::App};

/// `GET /metrics`: every metric in the text format of Prometheus. It names no dataset, and costs nothing but formatting.
pub(super) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    app.update_metrics();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render())
}
