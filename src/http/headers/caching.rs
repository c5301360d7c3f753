//! The caching of answers by clients and caches, and conditional requests.
//!
//! A cached answer must be revalidated each time (`no-cache`): a dataset can be frozen, rolled back or made private at
//! any moment. A revalidation is cheap, because the answer's tag is known before anything is planned or read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH, VARY};
use axum::http::{HeaderMap, HeaderValue};
use http_body::{Frame, SizeHint};
use strata_service::CacheKey;

/// The tag of an answer: strong, as equal tags mean equal bytes. `coding` tells the same entities in another content
/// coding apart: empty, or `-` and its name. `None` never happens, as both are ASCII.
pub(crate) fn etag(key: &CacheKey, coding: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(["\"", &key.short(), coding, "\""].concat()).ok()
}

/// Whether `If-None-Match` says that the client has the answer of this tag (RFC 9110, section 13.1.2): it lists the
/// tag, weak or strong, in any of its lines, or is `*`. What follows a malformed tag on its line is not read.
pub(crate) fn is_held(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let mut lines = headers.get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
    lines.any(|line| line.trim_ascii() == b"*" || Tags { rest: line }.any(|(_, tag)| tag == etag.as_bytes()))
}

/// Whether `If-Match` says that the client wants another answer than that of this tag (RFC 9110, section 13.1.1): it
/// lists no strong tag that is this one, in any of its lines, and is not `*`. An answer without a tag is none of those.
pub(crate) fn is_unwanted(headers: &HeaderMap, etag: Option<&HeaderValue>) -> bool {
    let wants = |line: &[u8]| {
        let mut tags = Tags { rest: line };
        let is_this = |(weak, tag): (bool, &[u8])| !weak && etag.is_some_and(|etag| tag == etag.as_bytes());
        line.trim_ascii() == b"*" || tags.any(is_this)
    };
    let mut lines = headers.get_all(IF_MATCH).iter().map(HeaderValue::as_bytes).peekable();
    lines.peek().is_some() && !lines.any(wants)
}

/// The tags of a line, each with its quotes and without `W/`, and whether it is weak. A comma may be part of a tag.
struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<(bool, &'a [u8])> {
        // Empty elements of a list do not count.
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
        // Without a separator this is no list, and what it was meant to be is unknown.
        let separated = rest.is_empty() || rest.starts_with(b",");
        self.rest = if separated { rest } else { &[] };
        (separated && !tag.contains(&b' ')).then_some((weak, tag))
    }
}

/// Says how a 200 or a 304 may be kept. Without a tag it is another one each time; `coded` says that `Accept-Encoding`
/// decides on its content coding.
pub(crate) fn describe(headers: &mut HeaderMap, etag: Option<HeaderValue>, private: bool, coded: bool) {
    // Checked when this is compiled, not for each answer.
    let control = match (&etag, private) {
        (None, _) => const { HeaderValue::from_static("no-store") },
        (Some(_), true) => const { HeaderValue::from_static("private, no-cache") },
        (Some(_), false) => const { HeaderValue::from_static("public, no-cache") },
    };
    let vary = match (coded, private) {
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

/// The body of a 304. Its length is unknown: where it is known to be 0, the router says so in `Content-Length`, which
/// on a 304 would be the length of the 200 (RFC 9110, section 8.6).
pub(crate) struct NoBody;

impl http_body::Body for NoBody {
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn held(lines: &[&[u8]], etag: &str) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IF_NONE_MATCH, HeaderValue::from_bytes(line).expect("a header value"));
        }
        is_held(&headers, &HeaderValue::from_str(etag).expect("a tag"))
    }

    #[test]
    fn a_tag_is_found_in_any_form_that_a_client_may_send() {
        let one_line = "\"a\"|W/\"a\"|*| * |\"b\", \"a\"|\"b\",W/\"a\",\"c\"|,, \"b\" ,\t,\"a\",";
        for line in one_line.split('|') {
            assert!(held(&[line.as_bytes()], "\"a\""), "{line}");
        }
        let lines: [&[&[u8]]; 3] = [&[b"\"b\"", b"\"a\""], &[b"garbage", b"\"a\""], &[b"\"b,\xffc\", \"a\""]];
        for lines in lines {
            assert!(held(lines, "\"a\""), "{lines:?}");
        }
        let others = "|a|\"A\"|\"ab\"|\"\"|\"b\"|w/\"a\"|W/ \"a\"|\"a|\"b\" \"a\"|\"a\"x|\"b,\"a\"|\"b\", *";
        for line in others.split('|') {
            assert!(!held(&[line.as_bytes()], "\"a\""), "{line}");
        }
        assert!(!held(&[], "\"a\""));
    }

    /// A line and whether it holds `"a"`.
    fn line() -> impl Strategy<Value = (String, bool)> {
        let tag = ("(W/)?", select(&["a", "b", "a,b", ",", "", "aa", "A", "a-gzip", "'", "\\"]));
        let separator = select(&[",", ", ", " ,", ",,", "\t, ,\t"]);
        vec((tag, separator), 0..6).prop_map(|tags| {
            let holds = tags.iter().any(|((_, tag), _)| *tag == "a");
            let mut line = String::new();
            for ((weak, tag), separator) in tags {
                line.push_str(&format!("{weak}\"{tag}\"{separator}"));
            }
            (line, holds)
        })
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_were_written(lines in vec(line(), 0..4)) {
            let texts: Vec<&[u8]> = lines.iter().map(|(text, _)| text.as_bytes()).collect();
            prop_assert_eq!(held(&texts, "\"a\""), lines.iter().any(|(_, holds)| *holds));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(line in vec(prop_oneof![any::<u8>(), select(b"\"W/, *a".as_slice())], 0..40)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let headers = HeaderMap::from_iter([(IF_NONE_MATCH, value)]);
                is_held(&headers, &HeaderValue::from_static("\"a\""));
            }
        }
    }
}
