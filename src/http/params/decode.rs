//! A strict decoder for `application/x-www-form-urlencoded`: it reports bytes that are not UTF-8, and does not replace
//! them.
//!
//! Pairs are split at `&`, and empty pairs are skipped. A pair is split at its first `=`; without one, the value is
//! empty. `+` is a space. `%` with two hexadecimal digits is a byte, and any other `%` is a literal `%`.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// A pair of a query string before decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawPair<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

pub(super) fn pairs(query: &str) -> impl Iterator<Item = RawPair<'_>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
        Some((name, value)) => RawPair { name, value },
        None => RawPair { name: pair, value: "" },
    })
}

/// `None` if the decoded bytes are not UTF-8.
pub(super) fn decode(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Some(Cow::Borrowed(raw));
    }
    // `+` is replaced first, so that `%2B` remains a plus sign.
    let spaced: Vec<u8> = raw.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    let bytes: Vec<u8> = percent_decode(&spaced).collect();
    String::from_utf8(bytes).map(Cow::Owned).ok()
}

/// The first pair of a query string whose name or value is not UTF-8, before decoding.
pub(crate) fn not_utf8(query: &str) -> Option<&str> {
    let is_text = |pair: &str| pairs(pair).all(|pair| decode(pair.name).and(decode(pair.value)).is_some());
    query.split('&').find(|pair| !is_text(pair))
}
