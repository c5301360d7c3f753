//! Which answers scripts of other origins may read: all but those that concern a private dataset.
//!
//! A browser asks first (`OPTIONS`) when a script sends headers of its own, and is refused: without `Authorization`
//! nothing private can be had across origins, and nothing public needs one.

use axum::http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS};
use axum::http::{HeaderMap, HeaderValue};

/// The headers that such a script may see besides those that it always may.
static EXPOSED: HeaderValue = HeaderValue::from_static(
    "X-Dataset-ID, X-Dataset-Version, X-Dataset-Alt, X-Total-Count, X-Total-Matches, X-Unknown-Parameters, \
     X-Unknown-Fields, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id, ETag, Link, \
     Retry-After, Content-Disposition, Accept-Ranges, Content-Range",
);

static ANY: HeaderValue = HeaderValue::from_static("*");

pub(crate) fn allow(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED.clone());
}
