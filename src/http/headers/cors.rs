//! Cross-origin access: scripts of any origin can read every response that does not concern a private dataset.
//!
//! A browser sends a preflight request (`OPTIONS`) before a script can send custom headers. Files allow it. Other paths
//! refuse it: private data needs an `Authorization` header, and public data needs no header.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
};
use axum::http::{HeaderMap, HeaderValue};

/// The response headers that scripts can read, in addition to those that are always readable.
static EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "X-Dataset-ID, X-Dataset-Version, X-Dataset-Alt, X-Total-Count, X-Total-Matches, X-Total-Changes, \
     X-Unknown-Parameters, X-Unknown-Fields, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, \
     X-Request-Id, ETag, Link, Retry-After, Content-Disposition, Accept-Ranges, Content-Range",
);

static ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");

pub(crate) fn allow_any_origin(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS.clone());
}

/// Adds the headers of the response to a preflight request for a file.
pub(crate) fn allow_file_preflight(headers: &mut HeaderMap) {
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (ACCESS_CONTROL_ALLOW_METHODS, FILE_METHODS),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Range, If-Range, If-None-Match"),
        (ACCESS_CONTROL_MAX_AGE, "86400"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The methods of files, as a value of `Allow`.
pub(crate) const FILE_METHODS: &str = "GET, HEAD, OPTIONS";
