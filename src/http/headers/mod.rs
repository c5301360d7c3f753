//! Headers as plain data, independent of endpoints.

pub(super) mod auth;
pub(super) mod base_url;
pub(super) mod caching;
pub(super) mod client_ip;
pub mod content_encoding;
pub(super) mod cors;
pub mod range;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Returns the value of a header that must not be repeated; `None` if it is missing or repeated.
pub(super) fn single_value(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}
