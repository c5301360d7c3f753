//! The style sheet and the script: parts of the binary, under names that change with their texts, so that browsers
//! cache them forever. Each is compressed once.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
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
    /// The text in each coding, in the order of [`ContentCoding::ALL`]; `None` if there was no memory for it.
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

    pub(super) fn answer(&self, wanted: &HeaderMap) -> Response {
        let coding = content_encoding::negotiate(wanted);
        let (coding, body) = match &self.coded[coding as usize] {
            Some(body) => (coding, body.clone()),
            None => (ContentCoding::Identity, Bytes::from_static(self.text.as_bytes())),
        };
        let headers = [(CONTENT_TYPE, self.content_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
        let mut response = (headers, body).into_response();
        content_encoding::describe(coding, response.headers_mut());
        response
    }
}
