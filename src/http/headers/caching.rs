//! Caching headers and conditional requests.
//!
//! Clients must revalidate a cached response each time (`no-cache`), because a dataset can be frozen, rolled back, or
//! made private at any time. A revalidation is cheap, because strata knows the etag before it plans or reads anything.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH, VARY};
use axum::http::{HeaderMap, HeaderValue};
use http_body::{Frame, SizeHint};
use strata_service::CacheKey;

/// Returns a strong etag: equal etags mean equal bytes. `coding` is empty, or `-` and the name of the content coding.
/// The result is never `None`, because both parts are ASCII.
pub(crate) fn strong_etag(key: &CacheKey, coding: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(["\"", &key.to_short_hex(), coding, "\""].concat()).ok()
}

/// Whether `If-None-Match` contains `*` or this etag, weak or strong (RFC 9110, section 13.1.2). The rest of a line
/// after a malformed etag is ignored.
pub(crate) fn is_not_modified(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let mut lines = headers.get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    lines.any(|line| line.trim_ascii() == b"*" || EtagList { rest: line }.any(|(_, tag)| tag == etag.as_bytes()))
}

/// Whether `If-Match` is present but contains neither `*` nor this etag as a strong one (RFC 9110, section 13.1.1).
pub(crate) fn is_precondition_failed(headers: &HeaderMap, etag: Option<&HeaderValue>) -> bool {
    let matches = |line: &[u8]| {
        let mut tags = EtagList { rest: line };
        let is_this = |(weak, tag): (bool, &[u8])| !weak && etag.is_some_and(|etag| tag == etag.as_bytes());
        line.trim_ascii() == b"*" || tags.any(is_this)
    };
    let mut lines = headers.get_all(IF_MATCH).iter().map(HeaderValue::as_bytes).peekable();
    lines.peek().is_some() && !lines.any(matches)
}

/// Parses the etags of a line into `(is_weak, tag)`. Each tag includes its quotation marks and can contain commas.
struct EtagList<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for EtagList<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<(bool, &'a [u8])> {
        while let Some((b' ' | b'\t' | b',', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
        let (weak, tag) = match self.rest.strip_prefix(b"W/") {
            Some(tag) => (true, tag),
            None => (false, self.rest),
        };
        let length = tag.strip_prefix(b"\"")?.iter().position(|byte| *byte == b'"')? + 2;
        let (tag, rest) = tag.split_at_checked(length)?;
        let rest = rest.trim_ascii_start();
        let separated = rest.is_empty() || rest.starts_with(b",");
        self.rest = if separated { rest } else { &[] };
        (separated && !tag.contains(&b' ')).then_some((weak, tag))
    }
}

pub(crate) struct CachingHeaders {
    /// Without an etag, the response must not be cached (`Cache-Control: no-store`).
    pub etag: Option<HeaderValue>,
    pub is_private: bool,
    /// Whether the content coding depends on `Accept-Encoding`.
    pub is_coded: bool,
}

/// Adds the caching headers of a 200 or 304 response.
pub(crate) fn set_caching_headers(headers: &mut HeaderMap, caching_headers: CachingHeaders) {
    let CachingHeaders { etag, is_private, is_coded } = caching_headers;
    let control = match (&etag, is_private) {
        (None, _) => const { HeaderValue::from_static("no-store") },
        (Some(_), true) => const { HeaderValue::from_static("private, no-cache") },
        (Some(_), false) => const { HeaderValue::from_static("public, no-cache") },
    };
    let vary = match (is_coded, is_private) {
        (true, true) => Some(const { HeaderValue::from_static("Accept-Encoding, Authorization") }),
        (true, false) => Some(const { HeaderValue::from_static("Accept-Encoding") }),
        (false, true) => Some(const { HeaderValue::from_static("Authorization") }),
        (false, false) => None,
    };
    headers.insert(CACHE_CONTROL, control);
    if let Some(vary) = vary {
        headers.insert(VARY, vary);
    }
    if let Some(etag) = etag {
        headers.insert(ETAG, etag);
    }
}

/// The body of a 304, with an unknown length. For a body of length 0, the router would add `Content-Length: 0`, which
/// on a 304 is the length of the 200 (RFC 9110, section 8.6).
pub(crate) struct UnsizedEmptyBody;

impl http_body::Body for UnsizedEmptyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
