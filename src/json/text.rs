//! Strings inside canonical text: reads them, and writes them with canonical escapes.
//!
//! Canonical escapes are `\"`, `\\`, `\b`, `\f`, `\n`, `\r`, `\t` and `\u00xx` in lower case for the other control
//! characters; everything else stands as itself (docs/reference/formats.md, json and jsonl). So a string has exactly
//! one spelling, and two strings are equal when their raw bytes are.

use std::borrow::Cow;
use std::string::FromUtf8Error;

use super::scan;

/// The inside of a JSON string in canonical text, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<'a> {
    raw: &'a [u8],
    plain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Plain(&'a [u8]),
    /// The character of an escape: a quote, a backslash or a control character.
    Escaped(u8),
}

impl<'a> Text<'a> {
    /// The text with these bytes, which have canonical escapes. One pass over them.
    pub fn new(raw: &'a [u8]) -> Text<'a> {
        Text { raw, plain: memchr::memchr(b'\\', raw).is_none() }
    }

    pub(super) fn with_plainness(raw: &'a [u8], plain: bool) -> Text<'a> {
        Text { raw, plain }
    }

    /// The bytes as they stand between the quotes. Equal exactly for equal strings.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Whether there is no backslash, so that the bytes are the string itself.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    pub fn unescape(&self) -> Cow<'a, str> {
        if self.plain {
            return String::from_utf8_lossy(self.raw);
        }
        let mut bytes = Vec::with_capacity(self.raw.len());
        self.unescape_into(&mut bytes);
        let lossy = |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
        Cow::Owned(String::from_utf8(bytes).unwrap_or_else(lossy))
    }

    pub fn unescape_into(&self, out: &mut Vec<u8>) {
        self.for_each_part(|part| match part {
            Part::Plain(bytes) => out.extend_from_slice(bytes),
            Part::Escaped(byte) => out.push(byte),
        });
    }

    #[inline]
    pub fn for_each_part(&self, mut visit: impl FnMut(Part<'a>)) {
        let mut rest = self.raw;
        if !self.plain {
            while let Some(backslash) = memchr::memchr(b'\\', rest) {
                visit(Part::Plain(&rest[..backslash]));
                let (byte, length) = unescape_one(&rest[backslash..]);
                visit(Part::Escaped(byte));
                rest = rest.get(backslash + length..).unwrap_or_default();
            }
        }
        visit(Part::Plain(rest));
    }

    /// Whether this is exactly `other`. Allocates nothing.
    #[inline]
    pub fn eq_str(&self, other: &str) -> bool {
        if self.plain { self.raw == other.as_bytes() } else { self.eq_escaped(other.as_bytes()) }
    }

    fn eq_escaped(&self, mut other: &[u8]) -> bool {
        let mut rest = self.raw;
        while let Some(&first) = rest.first() {
            let (byte, length) = if first == b'\\' { unescape_one(rest) } else { (first, 1) };
            match other.split_first() {
                Some((&expected, after)) if expected == byte => other = after,
                _ => return false,
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        other.is_empty()
    }
}

/// Appends `text` as a JSON string in canonical escapes, quotes included.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape_into(text, out);
    out.push(b'"');
}

/// Appends `text` in canonical escapes, without quotes.
pub fn escape_into(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let stop = scan::string_stop(bytes, from);
        out.extend_from_slice(&bytes[from..stop]);
        let Some(&byte) = bytes.get(stop) else { return };
        escape_one(byte, out);
        from = stop + 1;
    }
}

/// Appends a quote, a backslash or a control character in its canonical escape, any other byte as itself.
pub(super) fn escape_one(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let letter = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x00..=0x1f => {
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            return;
        }
        _ => {
            out.push(byte);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

/// The byte that the canonical escape at the start of `raw` stands for, and the escape's length.
fn unescape_one(raw: &[u8]) -> (u8, usize) {
    let digit = |at: usize| raw.get(at).and_then(|&byte| char::from(byte).to_digit(16)).unwrap_or(0) as u8;
    match raw.get(1) {
        Some(b'b') => (0x08, 2),
        Some(b'f') => (0x0c, 2),
        Some(b'n') => (b'\n', 2),
        Some(b'r') => (b'\r', 2),
        Some(b't') => (b'\t', 2),
        Some(b'u') => (digit(4) << 4 | digit(5), 6),
        Some(&byte) => (byte, 2),
        None => (b'\\', 1),
    }
}
