//! Cross-origin access: scripts of any origin can read every response that does not concern a private dataset.
//!
//! A browser sends a preflight request (`OPTIONS`) before a script can send custom headers. strata refuses it: private
//! data needs an `Authorization` header, and public data needs no header.

use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS};
use axum::http::{HeaderMap, HeaderValue};

/// The response headers that scripts can read, in addition to those that are always readable.
static EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "X-Dataset-ID, X-Dataset-Version, X-Dataset-Alt, X-Total-Count, X-Total-Matches, X-Unknown-Parameters, \
     X-Unknown-Fields, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id, ETag, Link, \
     Retry-After, Content-Disposition, Accept-Ranges, Content-Range",
);

static ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");

pub(crate) fn allow_any_origin(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS.clone());
}
