//! Delivers responses to clients that send their whole body before they read the response, as most clients do.
//!
//! If the server closes a connection while the client is still sending, the connection is reset and the response is
//! lost: the client sees a broken pipe instead of a 4xx. So this layer reads and discards the rest of the body of a
//! rejected request before the response, within `limits.refused_body_bytes` and `limits.refused_body_s`. The same
//! applies to a body that the handler did not read. A client that waits for `100 Continue` has sent nothing yet, and
//! gets its response at once. HTTP/2 can end a stream early, but curl and others treat a reset stream as a failure.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use strata_config::RequestLimitsConfig;

/// A request body that first the handler reads, and then the layer that drains it.
#[derive(Clone)]
struct SharedRequestBody {
    inner: Arc<Mutex<Body>>,
    was_read: Arc<AtomicBool>,
}

impl SharedRequestBody {
    fn with_body<T>(&self, act: impl FnOnce(Pin<&mut Body>) -> T) -> T {
        // The lock needs no poisoning: a panic fails the request, so the body is not polled again.
        act(Pin::new(&mut self.inner.lock()))
    }
}

impl HttpBody for SharedRequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.was_read.store(true, Ordering::Relaxed);
        self.with_body(|body| body.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.with_body(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with_body(|body| body.size_hint())
    }
}

pub(super) async fn drain_refused_bodies(
    limits: &RequestLimitsConfig,
    request: Request,
    handle: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    if request.body().is_end_stream() {
        return handle(request).await;
    }
    Box::pin(handle_and_drain(limits, request, handle)).await
}

async fn handle_and_drain(
    limits: &RequestLimitsConfig,
    request: Request,
    handle: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let awaits_continue = request.headers().contains_key(EXPECT);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (head, body) = request.into_parts();
    let body = SharedRequestBody { inner: Arc::new(Mutex::new(body)), was_read: Arc::default() };
    if is_read {
        // The body of a GET is discarded before the handler runs, because a response would occupy memory while the
        // drain waits for the client.
        if !awaits_continue {
            drain_body(body, limits).await;
        }
        return handle(Request::from_parts(head, Body::empty())).await;
    }
    let response = handle(Request::from_parts(head, Body::new(body.clone()))).await;
    let status = response.status();
    // After a timeout of the request body, the client is not expected to send the rest of it.
    if status == StatusCode::REQUEST_TIMEOUT {
        return response;
    }
    let is_refusal = status.is_client_error() || status.is_server_error();
    let was_read = body.was_read.load(Ordering::Relaxed);
    // A successful handler that has read from the body does not need the rest, which is not drained.
    if (is_refusal || !was_read) && (was_read || !awaits_continue) {
        drain_body(body, limits).await;
    }
    response
}

async fn drain_body(mut body: SharedRequestBody, limits: &RequestLimitsConfig) {
    let mut remaining = limits.refused_body_bytes;
    let drain = async {
        while body.size_hint().lower() <= remaining
            && let Some(Ok(frame)) = body.frame().await
        {
            remaining = remaining.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
            if remaining == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(limits.refused_body_s), drain).await;
}
