//! One structured log line per request, written when its body has ended, with a request id that every other line of
//! the request carries and that the caller gets as `X-Request-Id`.
//!
//! The query string is left out of the line: it is the caller's data. So is every header.

use std::{
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::{
    body::{Body, Bytes},
    extract::{ConnectInfo, Request},
    http::{HeaderName, HeaderValue, Method},
    middleware::Next,
    response::Response,
};
use http_body::{Frame, SizeHint};
use tracing::{Instrument, Span};

use super::text::quoted;

/// Names one request, for the caller and for the log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The layer.
pub(super) async fn record(request: Request, next: Next) -> Response {
    let request_id = format!("{:016x}", rand::random::<u64>());
    let span = tracing::info_span!("request", id = request_id);
    let mut line = Line {
        started: Instant::now(),
        span: span.clone(),
        method: request.method().clone(),
        path: quoted(request.uri().path()).to_string(),
        peer: request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0),
        status: None,
        bytes: 0,
        whole: false,
    };

    let mut response = next.run(request).instrument(span).await;

    line.status = Some(response.status().as_u16());
    // Hexadecimal digits are always a valid value.
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response.map(|body| Body::new(LoggedBody { body, line }))
}

/// What is known of a request so far. Written to the log when dropped, which is when the body has been sent, when it
/// has failed, or when the caller has left, at whatever point.
struct Line {
    started: Instant,
    span: Span,
    method: Method,
    path: String,
    peer: Option<SocketAddr>,
    /// `None` until the handler has answered.
    status: Option<u16>,
    bytes: u64,
    /// Whether the body was handed over to its end.
    whole: bool,
}

impl Drop for Line {
    fn drop(&mut self) {
        let _entered = self.span.enter();
        tracing::info!(
            target: "strata::access",
            method = %self.method,
            path = %self.path,
            status = self.status,
            bytes = self.bytes,
            whole = self.whole,
            duration_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            peer = self.peer.map(tracing::field::display),
            "request"
        );
    }
}

/// A body that counts its bytes for the log line, and is polled inside the request's span.
struct LoggedBody {
    body: Body,
    line: Line,
}

impl http_body::Body for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let _entered = this.line.span.enter();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                this.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                this.line.whole = this.body.is_end_stream();
            }
            Some(Err(_)) => {}
            None => this.line.whole = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
