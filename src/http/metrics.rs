//! `/metrics`: the metrics of the process, for Prometheus.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use strata_encode::{ContentCoding, compress_body};
use strata_runtime::blocking::run_blocking;
use strata_runtime::metrics;

use super::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointResponse};
use crate::AppState;
use crate::headers::content_encoding;

const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4";

pub(super) static METRICS_ENDPOINT: Endpoint =
    Endpoint::get("/metrics", "getMetrics", EndpointGroup::Operational, || get(get_metrics))
        .summary("Returns all metrics in the Prometheus text format")
        .description(
            "The metrics never contain the name of a dataset or user. The metrics reference explains each metric.",
        )
        .callers(AllowedCallers::Anyone)
        .response(EndpointResponse {
            headers: &[&["Cache-Control", "Vary", "Content-Encoding"]],
            ..EndpointResponse::new("All metrics.", &[PROMETHEUS_CONTENT_TYPE])
        });

async fn get_metrics(State(services): State<AppState>, headers: HeaderMap) -> Response {
    services.update_metrics();
    let mut body = Bytes::from(metrics::render_prometheus());
    let mut coding = content_encoding::negotiate(&headers);
    if coding != ContentCoding::Identity {
        let plain = body.clone();
        // If no thread or memory is available for compression, the metrics are sent uncompressed.
        match run_blocking(move || compress_body(coding, &plain)).await {
            Ok(Ok(compressed)) => body = compressed,
            Ok(Err(_)) | Err(_) => coding = ContentCoding::Identity,
        }
    }
    let mut response = ([(CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE), (CACHE_CONTROL, "no-store")], body).into_response();
    content_encoding::set_encoding_headers(coding, response.headers_mut());
    response
}
