//! The style sheet and the script: parts of the binary, under names that change with their texts, so that browsers keep
//! them for good. Each coding of them is made once.

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use sha2::{Digest, Sha256};
use strata_encode::{ContentCoding, compress};
use strata_http::headers::content_encoding;

/// Digits of the hash in a name.
const DIGITS: usize = 16;

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css; charset=utf-8", include_str!("assets/style.css")));

/// The script, which is built from `island/`.
pub(super) static ISLAND: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("island", "js", "text/javascript; charset=utf-8", include_str!("assets/island.js")));

pub(super) struct Asset {
    pub(super) path: String,
    content_type: &'static str,
    text: &'static str,
    /// The text in each coding, in the order of [`ContentCoding::ALL`]; `None` where there was no memory for it.
    coded: [Option<Bytes>; ContentCoding::ALL.len()],
}

pub(super) fn find(path: &str) -> Option<&'static Asset> {
    [&STYLE, &ISLAND].into_iter().map(|asset| &**asset).find(|asset| asset.path == path)
}

impl Asset {
    fn new(stem: &str, extension: &str, content_type: &'static str, text: &'static str) -> Asset {
        let mut hash = hex::encode(Sha256::digest(text));
        hash.truncate(DIGITS);
        let coded = ContentCoding::ALL.map(|coding| compress(coding, text.as_bytes()).ok());
        Asset { path: format!("/ui/assets/{stem}-{hash}.{extension}"), content_type, text, coded }
    }

    /// It, for who sends these headers.
    pub(super) fn answer(&self, wanted: &HeaderMap) -> Response {
        let coding = content_encoding::negotiate(wanted);
        let (coding, body) = match &self.coded[coding as usize] {
            Some(body) => (coding, body.clone()),
            None => (ContentCoding::Identity, Bytes::from_static(self.text.as_bytes())),
        };
        let mut response = Response::new(Body::from(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
        content_encoding::describe(coding, headers);
        response
    }
}
