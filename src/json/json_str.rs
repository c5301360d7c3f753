//! Strings in canonical text: reading, unescaping, and writing.
//!
//! Canonical escapes are `\"`, `\\`, `\b`, `\f`, `\n`, `\r`, `\t`, and lowercase `\u00xx` for the other control
//! characters. All other characters are unescaped (docs/reference/formats.md, json and jsonl). Each string therefore
//! has exactly one spelling, and two strings are equal if their raw bytes are equal.

use std::borrow::Cow;
use std::string::FromUtf8Error;

use super::scan;

/// The contents of a JSON string in canonical text, without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JsonStr<'a> {
    raw: &'a [u8],
    is_plain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonStrPart<'a> {
    Plain(&'a [u8]),
    Escaped(u8),
}

impl<'a> JsonStr<'a> {
    /// Creates a string from bytes in canonical escapes. Scans the bytes once for a backslash.
    pub fn new(raw: &'a [u8]) -> JsonStr<'a> {
        JsonStr { raw, is_plain: memchr::memchr(b'\\', raw).is_none() }
    }

    pub(super) fn from_parts(raw: &'a [u8], is_plain: bool) -> JsonStr<'a> {
        JsonStr { raw, is_plain }
    }

    /// Returns the escaped bytes between the quotes. Equal strings have equal bytes.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub fn unescape(&self) -> Cow<'a, str> {
        if self.is_plain {
            return String::from_utf8_lossy(self.raw);
        }
        let mut bytes = Vec::with_capacity(self.raw.len());
        self.unescape_into(&mut bytes);
        let lossy = |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
        Cow::Owned(String::from_utf8(bytes).unwrap_or_else(lossy))
    }

    pub fn unescape_into(&self, out: &mut Vec<u8>) {
        self.for_each_part(|part| match part {
            JsonStrPart::Plain(bytes) => out.extend_from_slice(bytes),
            JsonStrPart::Escaped(byte) => out.push(byte),
        });
    }

    #[inline]
    pub fn for_each_part(&self, mut visit: impl FnMut(JsonStrPart<'a>)) {
        let mut rest = self.raw;
        if !self.is_plain {
            while let Some(backslash) = memchr::memchr(b'\\', rest) {
                visit(JsonStrPart::Plain(&rest[..backslash]));
                let (byte, length) = decode_escape(&rest[backslash..]);
                visit(JsonStrPart::Escaped(byte));
                rest = rest.get(backslash + length..).unwrap_or_default();
            }
        }
        visit(JsonStrPart::Plain(rest));
    }

    /// Compares the unescaped string with `other` without allocating.
    #[inline]
    pub fn eq_str(&self, other: &str) -> bool {
        if self.is_plain { self.raw == other.as_bytes() } else { self.eq_escaped(other.as_bytes()) }
    }

    fn eq_escaped(&self, mut other: &[u8]) -> bool {
        let mut rest = self.raw;
        while let Some(&first) = rest.first() {
            let (byte, length) = if first == b'\\' { decode_escape(rest) } else { (first, 1) };
            match other.split_first() {
                Some((&expected, after)) if expected == byte => other = after,
                _ => return false,
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        other.is_empty()
    }
}

pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape_into(text, out);
    out.push(b'"');
}

/// Appends the canonical escapes of `text`, without quotes around them.
pub fn escape_into(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let stop = scan::find_quote_backslash_or_control(bytes, from);
        out.extend_from_slice(&bytes[from..stop]);
        let Some(&byte) = bytes.get(stop) else { return };
        escape_byte_into(byte, out);
        from = stop + 1;
    }
}

/// Appends the canonical escape of a quote, a backslash, or a control character, and any other byte unchanged.
pub(super) fn escape_byte_into(byte: u8, out: &mut Vec<u8>) {
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

/// Decodes the canonical escape at the start of `raw`. Returns the byte and the length of the escape.
fn decode_escape(raw: &[u8]) -> (u8, usize) {
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
