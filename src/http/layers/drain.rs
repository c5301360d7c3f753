//! Delivers responses to clients that send their whole body before they read, as most clients do.
//!
//! A connection that is closed while its client still sends is reset, and the response is lost: the client sees a
//! broken pipe and no 4xx. So the rest of the body of a refused request is read and discarded before the response,
//! within `limits.refused_body_bytes` and `limits.refused_body_s`. The same applies to a body that the handler did not
//! read. A client that waits for `100 Continue` has sent nothing yet, and gets its response at once. HTTP/2 can end a
//! stream early, but curl and others treat a reset stream as a failure, and drop the response.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use strata_config::Limits;

/// A request body that the handler reads first, and then this layer.
#[derive(Clone)]
struct SharedBody {
    inner: Arc<Mutex<Body>>,
    was_read: Arc<AtomicBool>,
}

impl SharedBody {
    fn with<T>(&self, act: impl FnOnce(Pin<&mut Body>) -> T) -> T {
        // A body whose polling panicked is not polled again: the request has failed.
        act(Pin::new(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.was_read.store(true, Ordering::Relaxed);
        self.with(|body| body.poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.with(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|body| body.size_hint())
    }
}

pub(super) async fn refused_bodies(
    limits: &Limits,
    request: Request,
    handle: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    if request.body().is_end_stream() {
        return handle(request).await;
    }
    Box::pin(drained(limits, request, handle)).await
}

async fn drained(limits: &Limits, request: Request, handle: impl AsyncFnOnce(Request) -> Response) -> Response {
    let awaits_continue = request.headers().contains_key(EXPECT);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (head, body) = request.into_parts();
    let body = SharedBody { inner: Arc::new(Mutex::new(body)), was_read: Arc::default() };
    if is_read {
        // The body has no use. It is read first, because a response holds memory that others wait for.
        if !awaits_continue {
            drain(body, limits).await;
        }
        return handle(Request::from_parts(head, Body::empty())).await;
    }
    let response = handle(Request::from_parts(head, Body::new(body.clone()))).await;
    let status = response.status();
    // A body that did not arrive in time will not arrive now.
    if status == StatusCode::REQUEST_TIMEOUT {
        return response;
    }
    let is_refusal = status.is_client_error() || status.is_server_error();
    let was_read = body.was_read.load(Ordering::Relaxed);
    // A handler that succeeds has read its body to the end, or does not use it.
    if (is_refusal || !was_read) && (was_read || !awaits_continue) {
        drain(body, limits).await;
    }
    response
}

/// Reads a body to its end, or up to the limits.
async fn drain(mut body: SharedBody, limits: &Limits) {
    let mut left = limits.refused_body_bytes;
    let reading = async {
        while body.size_hint().lower() <= left
            && let Some(Ok(frame)) = body.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(limits.refused_body_s), reading).await;
}
