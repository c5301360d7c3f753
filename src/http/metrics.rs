//! `/metrics`: the metrics of the process, for Prometheus.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use strata_encode::{ContentCoding, compress};
use strata_runtime::blocking::blocking;
use strata_runtime::metrics;

use super::endpoint::{Answer, Callers, Endpoint, Group};
use crate::AppState;
use crate::headers::content_encoding;

const CONTENT: &str = "text/plain; version=0.0.4";

pub(super) static METRICS: Endpoint = Endpoint::get("/metrics", "getMetrics", Group::Operational, || get(rendered))
    .summary("Returns all metrics in the Prometheus text format")
    .description("The metrics never contain the name of a dataset or user. The metrics reference explains each metric.")
    .callers(Callers::Anybody)
    .answer(Answer {
        headers: &[&["Cache-Control", "Vary", "Content-Encoding"]],
        ..Answer::new("All metrics.", &[CONTENT])
    });

async fn rendered(State(services): State<AppState>, headers: HeaderMap) -> Response {
    services.update_metrics();
    let mut body = Bytes::from(metrics::render());
    let mut coding = content_encoding::negotiate(&headers);
    if coding != ContentCoding::Identity {
        let plain = body.clone();
        // Without a thread or memory, the text is sent uncompressed.
        match blocking(move || compress(coding, &plain)).await {
            Ok(Ok(compressed)) => body = compressed,
            Ok(Err(_)) | Err(_) => coding = ContentCoding::Identity,
        }
    }
    let mut response = ([(CONTENT_TYPE, CONTENT), (CACHE_CONTROL, "no-store")], body).into_response();
    content_encoding::describe(coding, response.headers_mut());
    response
}
