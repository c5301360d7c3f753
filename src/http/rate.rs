//! How an answer says where its client stands with its requests.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::service::Standing;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// `X-RateLimit-*` (specification, "Response headers").
pub(super) fn describe(headers: &mut HeaderMap, standing: &Standing) {
    headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(standing.limit));
    headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(standing.remaining));
    headers.insert(X_RATELIMIT_RESET, HeaderValue::from(standing.reset_unix_s));
}
