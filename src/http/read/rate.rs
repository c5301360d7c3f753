//! Reads are counted, and answers say where their client stands.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::error::HttpError;
use crate::metrics;
use crate::service::{App, Bucket, Client, RateLimitDecision, RateLimitStatus};

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Counts a read. `None` where there is no limit.
pub(in crate::http) async fn count(app: &App, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
    let status = app.rate_limiter().count(client, bucket).await?;
    metrics::limiter_decision(bucket == Bucket::Private, status.decision == RateLimitDecision::Within);
    Some(status)
}

/// # Errors
/// [`HttpError::RateLimited`] for a client that has made too many.
pub(in crate::http) fn check(status: Option<&RateLimitStatus>) -> Result<(), HttpError> {
    match status.map(|status| status.decision) {
        Some(RateLimitDecision::Exceeded { retry_after_s }) => Err(HttpError::RateLimited { retry_after_s }),
        Some(RateLimitDecision::Within) | None => Ok(()),
    }
}

/// `X-RateLimit-*` (docs/read.md, Rate limits).
pub(in crate::http) fn describe(headers: &mut HeaderMap, status: &RateLimitStatus) {
    headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(status.limit));
    headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(status.remaining));
    headers.insert(X_RATELIMIT_RESET, HeaderValue::from(status.reset_unix_s));
}
