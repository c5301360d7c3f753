//! `Range` and `If-Range`: the bytes of a body that the client requests (RFC 9110, sections 13.1.5 and 14.2).
//!
//! Only a single byte range is supported. Other headers, even malformed ones, return the whole body, as the RFC allows.

use std::ops::Range;

use axum::http::header::{IF_RANGE, RANGE};
use axum::http::{HeaderMap, HeaderValue};

use super::single_value;
use crate::scalar_parsers::parse_whole_number;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// The range `first-last`, including both. Without `last`, the range ends at the end of the body.
    FromFirst { first: u64, last: Option<u64> },
    /// The range `-length`: the last `length` bytes of the body.
    Suffix { length: u64 },
}

impl ByteRange {
    /// Returns the range in request headers, or `None` for the whole body. `etag` is the strong etag of the body.
    pub fn from_headers(headers: &HeaderMap, etag: &HeaderValue) -> Option<ByteRange> {
        let range = parse_range(single_value(headers, RANGE)?)?;
        if !headers.contains_key(IF_RANGE) {
            return Some(range);
        }
        // `If-Range` is compared with the etag by bytes, so a weak etag or a date never matches.
        single_value(headers, IF_RANGE).filter(|condition| condition.as_bytes() == etag.as_bytes()).map(|_| range)
    }

    /// Resolves the range for a body of `length` bytes. Returns `None` if the range contains no bytes.
    pub fn resolve(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            ByteRange::FromFirst { first, last } => {
                first..last.map_or(length, |last| last.saturating_add(1).min(length))
            }
            ByteRange::Suffix { length: suffix } => length.saturating_sub(suffix)..length,
        };
        (range.start < range.end).then_some(range)
    }
}

fn parse_range(value: &HeaderValue) -> Option<ByteRange> {
    let (unit, ranges) = value.to_str().ok()?.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    // The grammar of the `Range` header allows empty list items.
    let mut items = ranges.split(',').map(|item| item.trim_matches([' ', '\t'])).filter(|item| !item.is_empty());
    let (first, last) = items.next()?.split_once('-')?;
    if items.next().is_some() {
        return None;
    }
    match (first, last) {
        ("", length) => Some(ByteRange::Suffix { length: parse_whole_number(length)? }),
        (first, "") => Some(ByteRange::FromFirst { first: parse_whole_number(first)?, last: None }),
        (first, last) => {
            let first = parse_whole_number(first)?;
            let last = parse_whole_number(last)?;
            (first <= last).then_some(ByteRange::FromFirst { first, last: Some(last) })
        }
    }
}
