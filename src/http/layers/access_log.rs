//! One structured log line per request, and its metrics, when its body has ended.
//!
//! All log lines of a request contain its ID. The caller gets the ID as `X-Request-Id`, and in the text of a 5xx. The
//! line does not contain the query string, headers, or the token of a ping URL, because they are the caller's data. A
//! request that took longer than `log.slow_request_ms` has a second line with the query string and the plan.

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
use strata_runtime::metrics::routes::{RouteMetrics, route_metrics};
use strata_service::UsageMeter;
use strata_types::read_request::ResponseFormat;
use tracing::{Instrument, Span};

use crate::display_text::truncate_with_ellipsis;
use crate::error::ServerErrorText;
use crate::headers::client_ip::client_address;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub Arc<str>);

impl RequestId {
    pub(crate) fn append_to(&self, text: &str) -> String {
        format!("{text} Request ID: {}.", self.0)
    }
}

const MAX_PATH_CHARACTERS: usize = 100;
const MAX_SLOW_LOG_CHARACTERS: usize = 4_000;
pub(crate) const PING_PATH_PREFIX: &str = "/ping/";

pub(super) async fn log_request(
    config: &Config,
    mut request: Request,
    handle: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let request_id = RequestId(Arc::from(format!("{:016x}", rand::random::<u64>())));
    request.extensions_mut().insert(request_id.clone());
    let span = tracing::info_span!("request", id = &*request_id.0);
    let log_context = Arc::new(RequestLogContext::default());
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    let mut line = AccessLogLine {
        started: Instant::now(),
        span: span.clone(),
        method: request.method().clone(),
        path: loggable_path(request.uri().path()),
        route: route_metrics(request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str)),
        format: "none",
        peer,
        client: peer.map(|peer| client_address(peer.ip(), request.headers(), &config.server.trusted_proxies)),
        status: None,
        sent_bytes: 0,
        content_length: None,
        is_complete: false,
        slow_request: (config.log.slow_request_ms > 0).then(|| SlowRequestLog {
            threshold: Duration::from_millis(config.log.slow_request_ms),
            query: request.uri().query().unwrap_or_default().to_owned(),
            log_context: log_context.clone(),
        }),
    };

    let mut response = log_context.run_scoped(handle(request)).instrument(span).await;

    line.route.response_start_seconds.record(line.started.elapsed());
    line.status = Some(response.status().as_u16());
    line.format = response_format_label(&response);
    if let Some(ServerErrorText(text)) = response.extensions_mut().remove() {
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Body::from(request_id.append_to(&text));
    }
    // The request ID has only hexadecimal digits, so it is a valid header value.
    if let Ok(value) = HeaderValue::from_str(&request_id.0) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    line.content_length = length.and_then(|length| length.parse().ok());
    // An empty body, or the body of a HEAD response, is never polled, so it is already complete.
    line.is_complete = http_body::Body::is_end_stream(response.body()) || line.method == Method::HEAD;
    let usage_meter = response.extensions_mut().remove();
    response.map(|body| Body::new(LoggedBody { body, line, usage_meter }))
}

/// Returns the path of a request for the log. The token in a ping URL is a secret, so the log omits it.
fn loggable_path(path: &str) -> String {
    match path.strip_prefix(PING_PATH_PREFIX) {
        Some(_) => "/ping/***".to_owned(),
        None => truncate_with_ellipsis(path, MAX_PATH_CHARACTERS),
    }
}

fn response_format_label(response: &Response) -> &'static str {
    let Some(content_type) = response.headers().get(CONTENT_TYPE) else { return "none" };
    let content_type = content_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    let format = ResponseFormat::FILE_FORMATS.into_iter().find(|format| format.content_type() == content_type);
    match (format, content_type) {
        (Some(format), _) => format.name(),
        (None, "text/plain") => "text",
        (None, "text/html") => "html",
        (None, _) => "other",
    }
}

/// The log line of a request, written on drop: when the body was sent or failed, or the caller disconnected.
struct AccessLogLine {
    started: Instant,
    span: Span,
    method: Method,
    path: String,
    /// The metrics of the route pattern. Metrics for each path would create an unlimited number of labels.
    route: &'static RouteMetrics,
    format: &'static str,
    peer: Option<SocketAddr>,
    /// The IP address of the client: the address of the peer, or the address that a trusted proxy reported.
    client: Option<IpAddr>,
    /// The status of the response; `None` until the handler has returned.
    status: Option<u16>,
    sent_bytes: u64,
    content_length: Option<u64>,
    is_complete: bool,
    slow_request: Option<SlowRequestLog>,
}

struct SlowRequestLog {
    threshold: Duration,
    query: String,
    log_context: Arc<RequestLogContext>,
}

impl Drop for AccessLogLine {
    fn drop(&mut self) {
        let _entered = self.span.enter();
        let took = self.started.elapsed();
        let duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "strata::access",
            method = %self.method,
            path = self.path,
            status = self.status,
            bytes = self.sent_bytes,
            whole = self.is_complete,
            duration_us,
            peer = self.peer.map(tracing::field::display),
            client = self.client.map(tracing::field::display),
            "request"
        );
        if let Some(slow) = self.slow_request.as_ref().filter(|slow| took >= slow.threshold) {
            tracing::warn!(
                target: "strata::slow",
                path = self.path,
                query = truncate_with_ellipsis(&slow.query, MAX_SLOW_LOG_CHARACTERS),
                plan = slow.log_context.query_plan().map(|plan| truncate_with_ellipsis(&plan, MAX_SLOW_LOG_CHARACTERS)),
                duration_us,
                "slow request"
            );
        }
        self.route.count_request(self.status, self.format);
        self.route.response_seconds.record(took);
        self.route.sent_bytes.increment(self.sent_bytes);
        if self.status.is_some() && !self.is_complete {
            metrics().interrupted_bodies.increment(1);
        }
    }
}

/// A response body that counts its bytes for the log line. The body is polled inside the span of the request.
struct LoggedBody {
    body: Body,
    line: AccessLogLine,
    usage_meter: Option<UsageMeter>,
}

impl http_body::Body for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let _entered = this.line.span.enter();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                this.line.sent_bytes += bytes;
                if let Some(usage_meter) = this.usage_meter.as_ref().filter(|_| bytes > 0) {
                    usage_meter.record_sent_bytes(bytes);
                }
                // A body is not polled after the last byte of its `Content-Length`, so it is complete then.
                this.line.is_complete =
                    this.body.is_end_stream() || this.line.content_length == Some(this.line.sent_bytes);
            }
            Some(Err(_)) => {}
            None => this.line.is_complete = true,
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
    fn ping_token_is_not_logged() {
        for (path, shown) in [
            ("/ping/t0ken", "/ping/***"),
            ("/ping/t0ken/", "/ping/***"),
            ("/ping//t0ken", "/ping/***"),
            ("/ping", "/ping"),
            ("/api/1/x/v1", "/api/1/x/v1"),
        ] {
            assert_eq!(loggable_path(path), shown);
        }
        let long = format!("/{}", "ä".repeat(MAX_PATH_CHARACTERS));
        assert_eq!(loggable_path(&long), format!("/{}…", "ä".repeat(MAX_PATH_CHARACTERS - 1)));
    }
}
