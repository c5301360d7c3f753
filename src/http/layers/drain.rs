//! Lets an answer reach clients that send their whole body before they read it, as most do.
//!
//! A connection that ends while its peer still sends is reset, and the answer is lost with it: the client sees a broken
//! pipe and no 4xx. So what is left of a refused request's body is read and dropped before the answer, within
//! `limits.refused_body_bytes` and `limits.refused_body_s`. A body that nobody wants is treated in the same way. A
//! client that waits for `100 Continue` has sent nothing yet, and is answered at once. HTTP/2 would let a stream end by
//! itself, but curl and others take a stream that is reset for a failure, and drop the answer that came before.

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

/// The reader of the request's body: the handler, and after it this layer.
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
        // Nobody wants it. Before the answer, which holds what others wait for.
        if !awaits_continue {
            drain(body, limits).await;
        }
        return handle(Request::from_parts(head, Body::empty())).await;
    }
    let response = handle(Request::from_parts(head, Body::new(body.clone()))).await;
    let status = response.status();
    // What has just not come in time will not come now.
    if status == StatusCode::REQUEST_TIMEOUT {
        return response;
    }
    let is_refusal = status.is_client_error() || status.is_server_error();
    let was_read = body.was_read.load(Ordering::Relaxed);
    // A handler that succeeds has read its body to the end, or has no use for one.
    if (is_refusal || !was_read) && (was_read || !awaits_continue) {
        // Too slow, too long or broken off: the answer is tried all the same.
        drain(body, limits).await;
    }
    response
}

/// Reads a body to its end, unless it is longer or takes longer than it may.
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
