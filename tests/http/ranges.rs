//! `Range` and `If-Range`: the bytes that a client gets.

use axum::http::header::{IF_RANGE, RANGE};
use axum::http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use strata_http::headers::range::ByteRange;

const ETAG: HeaderValue = HeaderValue::from_static("\"abc\"");

fn requested(ranges: &[&str], conditions: &[&str]) -> Option<ByteRange> {
    let mut headers = HeaderMap::new();
    for range in ranges {
        headers.append(RANGE, HeaderValue::from_str(range).expect("invalid header"));
    }
    for condition in conditions {
        headers.append(IF_RANGE, HeaderValue::from_str(condition).expect("invalid header"));
    }
    ByteRange::from_headers(&headers, &ETAG)
}

#[test]
fn single_byte_range_is_parsed() {
    let from = |first, last| Some(ByteRange::FromFirst { first, last });
    let suffix = |length| Some(ByteRange::Suffix { length });
    let table = [
        ("bytes=0-0", from(0, Some(0))),
        ("bytes=5-9", from(5, Some(9))),
        ("bytes=5-", from(5, None)),
        ("bytes=-5", suffix(5)),
        ("bytes=-0", suffix(0)),
        ("BYTES=5-9", from(5, Some(9))),
        ("bytes= 5-9 ", from(5, Some(9))),
        ("bytes=,5-9,", from(5, Some(9))),
        ("bytes=007-0009", from(7, Some(9))),
        ("bytes=0-99999999999999999999999999", from(0, Some(u64::MAX))),
        ("bytes=99999999999999999999999999-", from(u64::MAX, None)),
    ];
    for (range, expected) in table {
        assert_eq!(requested(&[range], &[]), expected, "{range}");
    }
}

#[test]
fn other_ranges_are_ignored() {
    let ranges = "|bytes|bytes=|bytes=-|bytes=,|bytes=a-b|bytes=9-5|bytes=5|bytes=+5-9|bytes=5-9-|bytes=5 - 9|\
                  bytes=0x5-9|bytes=0-1,2-3|items=0-1|0-1|bytes:0-1|bytes=--5";
    for range in ranges.split('|') {
        assert_eq!(requested(&[range], &[]), None, "{range}");
    }
    assert_eq!(requested(&[], &[]), None);
    assert_eq!(requested(&["bytes=0-1", "bytes=2-3"], &[]), None);
}

#[test]
fn if_range_requires_same_strong_etag() {
    let range = &["bytes=0-1"];
    assert!(requested(range, &["\"abc\""]).is_some());
    let others = "\"abd\"|W/\"abc\"|abc|*||Wed, 21 Oct 2026 07:28:00 GMT|\"abc\", \"abd\"|\"abc-gzip\"";
    for condition in others.split('|') {
        assert_eq!(requested(range, &[condition]), None, "{condition}");
    }
    assert_eq!(requested(range, &["\"abc\"", "\"abc\""]), None);
    // `If-Range` without `Range` has no effect.
    assert_eq!(requested(&[], &["\"abc\""]), None);
}

#[test]
fn resolve_clamps_range_to_body() {
    let from = |first, last| ByteRange::FromFirst { first, last };
    let suffix = |length| ByteRange::Suffix { length };
    for (range, length, expected) in [
        (from(0, Some(0)), 10, Some(0..1)),
        (from(0, Some(9)), 10, Some(0..10)),
        (from(0, Some(10)), 10, Some(0..10)),
        (from(9, None), 10, Some(9..10)),
        (from(10, None), 10, None),
        (from(10, Some(12)), 10, None),
        (from(0, Some(u64::MAX)), 10, Some(0..10)),
        (from(u64::MAX, Some(u64::MAX)), 10, None),
        (suffix(3), 10, Some(7..10)),
        (suffix(10), 10, Some(0..10)),
        (suffix(11), 10, Some(0..10)),
        (suffix(0), 10, None),
        (from(0, None), 0, None),
        (suffix(1), 0, None),
    ] {
        assert_eq!(range.resolve(length), expected, "{range:?} of {length}");
    }
}

proptest! {
    #[test]
    fn resolve_matches_naive_reference(first in 0..30_u64, last in 0..30_u64, length in 0..30_u64) {
        let expected: Vec<u64> = (0..length).filter(|at| (first..=last).contains(at)).collect();
        let range = requested(&[&format!("bytes={first}-{last}")], &[]);
        prop_assert_eq!(range.is_some(), first <= last);
        let found: Vec<u64> = range.and_then(|range| range.resolve(length)).into_iter().flatten().collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_range_does_not_panic(range in "[ -~]{0,40}", condition in "[ -~]{0,20}", length: u64) {
        if let Some(found) = requested(&[&range], &[&condition]).and_then(|range| range.resolve(length)) {
            prop_assert!(found.start < found.end && found.end <= length);
        }
    }
}
