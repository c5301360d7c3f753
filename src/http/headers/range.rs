//! `Range` and `If-Range`: which bytes of a body the client wants (RFC 9110, sections 13.1.5 and 14.2).
//!
//! One range of bytes is understood. Several at once, other units, and what breaks the grammar are answered with the
//! whole body, as the RFC allows.

use std::ops::Range;

use axum::http::header::{IF_RANGE, RANGE};
use axum::http::{HeaderMap, HeaderValue};

use super::single;
use crate::values::whole_number;

/// One range of the bytes of a body whose length is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `first-last`, both included; without the last, up to the end.
    From { first: u64, last: Option<u64> },
    /// `-length`: so many bytes at the end.
    Suffix { length: u64 },
}

impl ByteRange {
    /// The range that a request asks for, of the representation with this strong `ETag`; `None` is all of it.
    pub fn requested(headers: &HeaderMap, etag: &HeaderValue) -> Option<ByteRange> {
        let range = parse(single(headers, RANGE)?)?;
        if !headers.contains_key(IF_RANGE) {
            return Some(range);
        }
        // Byte for byte, so that a weak etag or a date never matches.
        single(headers, IF_RANGE).filter(|condition| condition.as_bytes() == etag.as_bytes()).map(|_| range)
    }

    /// The bytes of a body of `length` bytes; `None` if it has none of them.
    pub fn of(self, length: u64) -> Option<Range<u64>> {
        let range = match self {
            ByteRange::From { first, last } => first..last.map_or(length, |last| last.saturating_add(1).min(length)),
            ByteRange::Suffix { length: wanted } => length.saturating_sub(wanted)..length,
        };
        (range.start < range.end).then_some(range)
    }
}

fn parse(value: &HeaderValue) -> Option<ByteRange> {
    let (unit, ranges) = value.to_str().ok()?.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    // Empty items of a list do not count; a second range does.
    let mut items = ranges.split(',').map(|item| item.trim_matches([' ', '\t'])).filter(|item| !item.is_empty());
    let (first, last) = items.next()?.split_once('-')?;
    if items.next().is_some() {
        return None;
    }
    match (first, last) {
        ("", length) => Some(ByteRange::Suffix { length: whole_number(length)? }),
        (first, "") => Some(ByteRange::From { first: whole_number(first)?, last: None }),
        (first, last) => {
            let first = whole_number(first)?;
            let last = whole_number(last)?;
            (first <= last).then_some(ByteRange::From { first, last: Some(last) })
        }
    }
}
