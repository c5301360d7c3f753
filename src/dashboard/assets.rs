//! The style sheet and the script of the dashboard, which are part of the binary. Their URLs contain a content hash, so
//! that browsers can cache them forever.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use strata_encode::{ContentCoding, compress_body};
use strata_http::headers::content_encoding;

const HASH_DIGITS: usize = 16;

pub(super) static STYLE_SHEET: LazyLock<StaticAsset> =
    LazyLock::new(|| StaticAsset::new("style", "css", "text/css; charset=utf-8", include_str!("assets/style.css")));

pub(super) static ISLAND_SCRIPT: LazyLock<StaticAsset> = LazyLock::new(|| {
    StaticAsset::new("island", "js", "text/javascript; charset=utf-8", include_str!("assets/island.js"))
});

pub(super) struct StaticAsset {
    pub(super) path: String,
    content_type: &'static str,
    text: &'static str,
    /// The text compressed with each coding, in the order of [`ContentCoding::ALL`]; `None` if compression failed.
    compressed: [Option<Bytes>; ContentCoding::ALL.len()],
}

pub(super) fn find_asset(path: &str) -> Option<&'static StaticAsset> {
    [&STYLE_SHEET, &ISLAND_SCRIPT].into_iter().map(|asset| &**asset).find(|asset| asset.path == path)
}

impl StaticAsset {
    fn new(stem: &str, extension: &str, content_type: &'static str, text: &'static str) -> StaticAsset {
        let mut hash = hex::encode(Sha256::digest(text));
        hash.truncate(HASH_DIGITS);
        let compressed = ContentCoding::ALL.map(|coding| compress_body(coding, text.as_bytes()).ok());
        StaticAsset { path: format!("/ui/assets/{stem}-{hash}.{extension}"), content_type, text, compressed }
    }

    pub(super) fn respond(&self, request_headers: &HeaderMap) -> Response {
        let coding = content_encoding::negotiate(request_headers);
        let (coding, body) = match &self.compressed[coding as usize] {
            Some(body) => (coding, body.clone()),
            None => (ContentCoding::Identity, Bytes::from_static(self.text.as_bytes())),
        };
        let headers = [(CONTENT_TYPE, self.content_type), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
        let mut response = (headers, body).into_response();
        content_encoding::set_encoding_headers(coding, response.headers_mut());
        response
    }
}
