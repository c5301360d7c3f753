//! A strict decoder for `application/x-www-form-urlencoded`. Invalid UTF-8 is an error instead of being replaced.
//!
//! Pairs are separated by `&`, and empty pairs are skipped. The first `=` separates the name from the value; without
//! `=`, the value is empty. `+` is a space. `%` with two hexadecimal digits is a byte, and any other `%` is literal.

use std::borrow::Cow;

use percent_encoding::percent_decode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawPair<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

pub(super) fn split_pairs(query: &str) -> impl Iterator<Item = RawPair<'_>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
        Some((name, value)) => RawPair { name, value },
        None => RawPair { name: pair, value: "" },
    })
}

/// Decodes a name or a value of a form. Returns `None` if the decoded bytes are not UTF-8.
pub(super) fn decode_component(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Some(Cow::Borrowed(raw));
    }
    // `+` is replaced before `%` is decoded, so that `%2B` remains a plus sign.
    let spaced: Vec<u8> = raw.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    let bytes: Vec<u8> = percent_decode(&spaced).collect();
    String::from_utf8(bytes).map(Cow::Owned).ok()
}

/// Returns the first pair, in its encoded form, whose name or value is not UTF-8 after decoding.
pub(crate) fn find_invalid_utf8(query: &str) -> Option<&str> {
    let is_text = |pair: &str| {
        split_pairs(pair).all(|pair| decode_component(pair.name).and(decode_component(pair.value)).is_some())
    };
    query.split('&').find(|pair| !is_text(pair))
}
