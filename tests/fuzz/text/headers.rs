//! `Range`, `If-Range`, and `Accept-Encoding`. Each line of the input is the letter of a header followed by its value.

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, HeaderValue, IF_RANGE, RANGE};
use strata_http::headers::content_encoding;
use strata_http::headers::range::ByteRange;
use strata_reference::headers;

const ETAG: &str = "\"tag\"";

pub fn check(bytes: &[u8]) {
    let mut sent = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(8) {
        let Some((letter, value)) = line.split_first() else { continue };
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        match letter {
            b'R' => sent.append(RANGE, value),
            b'I' => sent.append(IF_RANGE, value),
            b'A' => sent.append(ACCEPT_ENCODING, value),
            _ => continue,
        };
    }
    let lines = |name| -> Vec<&[u8]> { sent.get_all(name).iter().map(HeaderValue::as_bytes).collect() };

    let range = ByteRange::from_headers(&sent, &HeaderValue::from_static(ETAG));
    let expected = headers::range(&lines(RANGE), &lines(IF_RANGE), ETAG.as_bytes());
    assert_eq!(range.is_some(), expected.is_some(), "{sent:?}");
    if let (Some(range), Some(expected)) = (range, expected) {
        for length in [0, 1, 2, 10, 1_000, u64::MAX] {
            assert_eq!(range.resolve(length), expected.resolve(length), "{sent:?} of {length}");
        }
    }

    let coding = content_encoding::negotiate(&sent);
    assert_eq!(coding.name(), headers::coding(&lines(ACCEPT_ENCODING)), "{sent:?}");
}
