//! One structured log line per request, and its metrics, when its body has ended.
//!
//! All log lines of a request contain its ID. The caller gets the ID as `X-Request-Id`, and in the text of a 5xx. The
//! line does not contain the query string, headers, or the token of a ping, which are the caller's data. A request that
//! took longer than `log.slow_request_ms` has a second line with the query string and the plan.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, MatchedPath, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_runtime::metrics::request_log::RequestLogContext;
use strata_runtime::metrics::routes::{RouteMetrics, of_route};
use strata_service::UsageMeter;
use strata_types::request::Format;
use tracing::{Instrument, Span};

use crate::error::ServerFailure;
use crate::headers::client_ip::client_address;
use crate::text::beginning;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The ID of a request, as an extension of the request.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub Arc<str>);

impl RequestId {
    /// The text of a 5xx with the ID.
    pub(crate) fn named_in(&self, text: &str) -> String {
        format!("{text} Request ID: {}.", self.0)
    }
}

const PATH_CHARACTERS: usize = 100;

const SLOW_CHARACTERS: usize = 4_000;

const PING: &str = "/ping/";

pub(super) async fn recorded(
    config: &Config,
    mut request: Request,
    handle: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let request_id = RequestId(Arc::from(format!("{:016x}", rand::random::<u64>())));
    request.extensions_mut().insert(request_id.clone());
    let span = tracing::info_span!("request", id = &*request_id.0);
    let log_context = Arc::new(RequestLogContext::default());
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    let mut line = Line {
        started: Instant::now(),
        span: span.clone(),
        method: request.method().clone(),
        path: shown_path(request.uri().path()),
        route: of_route(request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str)),
        format: "none",
        peer,
        client: peer.map(|peer| client_address(peer.ip(), request.headers(), &config.server.trusted_proxies)),
        status: None,
        bytes: 0,
        length: None,
        whole: false,
        slow: (config.log.slow_request_ms > 0).then(|| Slow {
            after: Duration::from_millis(config.log.slow_request_ms),
            query: request.uri().query().unwrap_or_default().to_owned(),
            log_context: log_context.clone(),
        }),
    };

    let mut response = log_context.scope(handle(request)).instrument(span).await;

    line.route.answer_start_seconds.record(line.started.elapsed());
    line.status = Some(response.status().as_u16());
    line.format = format(&response);
    if let Some(ServerFailure(text)) = response.extensions_mut().remove() {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(request_id.named_in(&text));
    }
    // Hexadecimal digits are always a valid value.
    if let Ok(value) = HeaderValue::from_str(&request_id.0) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    line.length = length.and_then(|length| length.parse().ok());
    // A body that is empty or unwanted is never polled.
    line.whole = http_body::Body::is_end_stream(response.body()) || line.method == Method::HEAD;
    let meter = response.extensions_mut().remove();
    response.map(|body| Body::new(LoggedBody { body, line, meter }))
}

/// The token of a ping is as good as a password.
fn shown_path(path: &str) -> String {
    match path.strip_prefix(PING) {
        Some(_) => "/ping/***".to_owned(),
        None => beginning(path, PATH_CHARACTERS),
    }
}

fn format(response: &Response) -> &'static str {
    let Some(content_type) = response.headers().get(CONTENT_TYPE) else { return "none" };
    let content_type = content_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    let format = Format::ALL.into_iter().find(|format| format.content_type() == content_type);
    match (format, content_type) {
        (Some(format), _) => format.name(),
        (None, "text/plain") => "text",
        (None, "text/html") => "html",
        (None, _) => "other",
    }
}

/// A request so far. Logged when dropped: the body was sent or has failed, or the caller has disconnected.
struct Line {
    started: Instant,
    span: Span,
    method: Method,
    path: String,
    /// The metrics of the router's pattern, never of the path itself.
    route: &'static RouteMetrics,
    format: &'static str,
    peer: Option<SocketAddr>,
    /// The peer, or the client that it forwards.
    client: Option<IpAddr>,
    /// `None` until the handler has returned.
    status: Option<u16>,
    bytes: u64,
    /// The value of `Content-Length`.
    length: Option<u64>,
    /// Whether the body was sent to its end.
    whole: bool,
    slow: Option<Slow>,
}

struct Slow {
    after: Duration,
    query: String,
    log_context: Arc<RequestLogContext>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let _entered = self.span.enter();
        let took = self.started.elapsed();
        let duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "strata::access",
            method = %self.method,
            path = self.path,
            status = self.status,
            bytes = self.bytes,
            whole = self.whole,
            duration_us,
            peer = self.peer.map(tracing::field::display),
            client = self.client.map(tracing::field::display),
            "request"
        );
        if let Some(slow) = self.slow.as_ref().filter(|slow| took >= slow.after) {
            tracing::warn!(
                target: "strata::slow",
                path = self.path,
                query = beginning(&slow.query, SLOW_CHARACTERS),
                plan = slow.log_context.plan().map(|plan| beginning(&plan, SLOW_CHARACTERS)),
                duration_us,
                "slow request"
            );
        }
        self.route.count_request(self.status, self.format);
        self.route.answer_seconds.record(took);
        self.route.sent_bytes.increment(self.bytes);
        if self.status.is_some() && !self.whole {
            metrics().cut_bodies.increment(1);
        }
    }
}

/// A body that counts its bytes for the log line, and is polled inside the span of the request.
struct LoggedBody {
    body: Body,
    line: Line,
    /// The usage of the dataset.
    meter: Option<UsageMeter>,
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
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                this.line.bytes += bytes;
                if let Some(meter) = this.meter.as_ref().filter(|_| bytes > 0) {
                    meter.sent(bytes);
                }
                // A body is not polled after the last byte of its `Content-Length`.
                this.line.whole = this.body.is_end_stream() || this.line.length == Some(this.line.bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_ping_is_not_logged() {
        for (path, shown) in [
            ("/ping/t0ken", "/ping/***"),
            ("/ping/t0ken/", "/ping/***"),
            ("/ping//t0ken", "/ping/***"),
            ("/ping", "/ping"),
            ("/api/1/x/v1", "/api/1/x/v1"),
        ] {
            assert_eq!(shown_path(path), shown);
        }
        let long = format!("/{}", "ä".repeat(PATH_CHARACTERS));
        assert_eq!(shown_path(&long), format!("/{}…", "ä".repeat(PATH_CHARACTERS - 1)));
    }
}
