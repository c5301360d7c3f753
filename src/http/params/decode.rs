//! `application/x-www-form-urlencoded`, strictly: unlike the usual decoders it does not replace bytes that are not
//! UTF-8, it reports them.
//!
//! Pairs are split at `&`, empty ones are skipped; a pair is split at its first `=`, without one the value is empty;
//! `+` is a space; `%` with two hexadecimal digits is a byte, any other `%` stands for itself.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// One `name=value` of a query string, not yet decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawPair<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

/// The pairs of a query string, in order, without the empty ones.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = RawPair<'_>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
        Some((name, value)) => RawPair { name, value },
        None => RawPair { name: pair, value: "" },
    })
}

/// The text of a part of a query string; `None` if its bytes, once decoded, are not UTF-8.
pub(super) fn decode(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return Some(Cow::Borrowed(raw));
    }
    // `+` first: a space that stands for itself as `%20` and a plus sign as `%2B` must not be mixed up.
    let spaced: Vec<u8> = raw.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    let bytes: Vec<u8> = percent_decode(&spaced).collect();
    String::from_utf8(bytes).map(Cow::Owned).ok()
}

/// The first pair of a query string whose name or value is not UTF-8, as it is written.
pub(crate) fn not_utf8(query: &str) -> Option<&str> {
    let is_text = |pair: &str| pairs(pair).all(|pair| decode(pair.name).and(decode(pair.value)).is_some());
    query.split('&').find(|pair| !is_text(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_like_a_form() {
        for (raw, expected) in [
            ("", Some("")),
            ("a+b", Some("a b")),
            ("a%20b", Some("a b")),
            ("a%2Bb", Some("a+b")),
            ("%C3%84pfel", Some("Äpfel")),
            ("Äpfel", Some("Äpfel")),
            ("100%", Some("100%")),
            ("%4", Some("%4")),
            ("%zz%41", Some("%zzA")),
            ("%%41", Some("%A")),
            ("%00", Some("\0")),
            ("%FF", None),
            ("%C3", None),
            ("%ED%A0%80", None),
        ] {
            assert_eq!(decode(raw), expected.map(Cow::Borrowed), "{raw}");
        }
    }

    #[test]
    fn splits_pairs() {
        let split = |query| pairs(query).map(|pair| (pair.name, pair.value)).collect::<Vec<_>>();
        assert_eq!(split(""), []);
        assert_eq!(split("&&"), []);
        assert_eq!(split("a=1&&b=2&"), [("a", "1"), ("b", "2")]);
        assert_eq!(split("a"), [("a", "")]);
        assert_eq!(split("a=b=c"), [("a", "b=c")]);
        assert_eq!(split("=x&="), [("", "x"), ("", "")]);
    }
}
