//! Reads are counted, and answers say where their client stands.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::error::HttpError;
use crate::metrics;
use crate::service::{App, Bucket, Client, RateLimitDecision, RateLimitStatus};

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Counts a read. `None` where there is no limit.
pub(super) async fn count(app: &App, client: Client, bucket: Bucket) -> Option<RateLimitStatus> {
    let standing = app.rate_limiter().count(client, bucket).await?;
    metrics::limiter_decision(bucket == Bucket::Private, standing.verdict == RateLimitDecision::Within);
    Some(standing)
}

/// # Errors
/// [`HttpError::RateLimited`] for a client that has made too many.
pub(super) fn check(standing: Option<&RateLimitStatus>) -> Result<(), HttpError> {
    match standing.map(|standing| standing.verdict) {
        Some(RateLimitDecision::Exceeded { retry_after_s }) => Err(HttpError::RateLimited { retry_after_s }),
        Some(RateLimitDecision::Within) | None => Ok(()),
    }
}

/// `X-RateLimit-*` (docs/read.md, Rate limits).
pub(super) fn describe(headers: &mut HeaderMap, standing: &RateLimitStatus) {
    headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(standing.limit));
    headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(standing.remaining));
    headers.insert(X_RATELIMIT_RESET, HeaderValue::from(standing.reset_unix_s));
}
