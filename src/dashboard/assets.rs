//! The style sheet: part of the binary, under a name that changes with its text, so that browsers keep it for good.
//! Each coding of it is made once.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use sha2::{Digest, Sha256};

use crate::encode::{ContentCoding, compress};

const STYLE: &str = include_str!("assets/style.css");

/// Digits of the hash in a name.
const DIGITS: usize = 16;

static STYLE_NAME: LazyLock<String> = LazyLock::new(|| {
    let mut hash = hex::encode(Sha256::digest(STYLE));
    hash.truncate(DIGITS);
    format!("style-{hash}.css")
});

/// The path of the style sheet.
pub(super) static STYLE_PATH: LazyLock<String> = LazyLock::new(|| format!("/ui/assets/{}", *STYLE_NAME));

/// The style sheet in each coding, in the order of [`ContentCoding::ALL`]; `None` where there was no memory for it.
static STYLES: LazyLock<[Option<Bytes>; ContentCoding::ALL.len()]> =
    LazyLock::new(|| ContentCoding::ALL.map(|coding| compress(coding, STYLE.as_bytes()).ok()));

/// The style sheet for who sends these headers.
pub(super) fn style(wanted: &HeaderMap) -> Response {
    let coding = ContentCoding::negotiate(wanted);
    let (coding, body) = match &STYLES[coding as usize] {
        Some(body) => (coding, body.clone()),
        None => (ContentCoding::Identity, Bytes::from_static(STYLE.as_bytes())),
    };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if coding != ContentCoding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    response
}
