//! A pull parser for canonical text that neither copies nor allocates.
//!
//! The input must be canonical text. For other bytes the results are unspecified, but all functions are safe and end.

use super::json_str::JsonStr;
use super::scan::{self, StringEnd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonToken<'a> {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Key(JsonStr<'a>),
    Scalar(JsonScalar<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonScalar<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(JsonStr<'a>),
}

impl<'a> JsonToken<'a> {
    pub fn as_scalar(self) -> Option<JsonScalar<'a>> {
        if let JsonToken::Scalar(scalar) = self { Some(scalar) } else { None }
    }
}

impl<'a> JsonScalar<'a> {
    pub fn parse(value: &'a [u8]) -> Option<JsonScalar<'a>> {
        JsonCursor::new(value).next()?.as_scalar()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl JsonType {
    #[inline]
    pub fn from_first_byte(byte: u8) -> Option<JsonType> {
        match byte {
            b'"' => Some(JsonType::String),
            b'-' | b'0'..=b'9' => Some(JsonType::Number),
            b'{' => Some(JsonType::Object),
            b'[' => Some(JsonType::Array),
            b't' | b'f' => Some(JsonType::Bool),
            b'n' => Some(JsonType::Null),
            _ => None,
        }
    }
}

/// A pull parser over canonical text. As an iterator it returns tokens; [`enter`](JsonCursor::enter),
/// [`next_key`](JsonCursor::next_key), [`next_element`](JsonCursor::next_element), and
/// [`skip_value`](JsonCursor::skip_value) read by structure. Both styles can be mixed.
#[derive(Clone, Debug)]
pub struct JsonCursor<'a> {
    text: &'a [u8],
    position: usize,
}

impl<'a> JsonCursor<'a> {
    pub fn new(text: &'a [u8]) -> JsonCursor<'a> {
        JsonCursor { text, position: 0 }
    }

    /// Returns the byte position after the last token, and after the colon that follows a key.
    #[inline]
    pub fn offset(&self) -> usize {
        self.position
    }

    /// Returns the type of the next value; `None` at the end of an object, of an array, or of the text.
    #[inline]
    pub fn peek_type(&mut self) -> Option<JsonType> {
        JsonType::from_first_byte(self.peek_byte()?)
    }

    /// Skips the next value (after a key or in an array) and returns its text; empty at the end of an object or array.
    #[inline]
    pub fn skip_value(&mut self) -> &'a [u8] {
        let Some(first) = self.peek_byte() else { return &[] };
        let start = self.position;
        self.position = match first {
            b'"' => (scan::find_string_end(self.text, start + 1).quote + 1).min(self.text.len()),
            b'{' | b'[' => scan::find_container_end(self.text, start, 0),
            _ => self.find_scalar_end(),
        };
        &self.text[start..self.position]
    }

    #[inline]
    pub fn enter(&mut self) {
        if let Some(b'{' | b'[') = self.peek_byte() {
            self.position += 1;
        }
    }

    /// Returns the next key of the current object. At the end of the object, leaves it and returns `None`.
    #[inline]
    pub fn next_key(&mut self) -> Option<JsonStr<'a>> {
        if self.peek_byte()? != b'"' {
            self.position += 1;
            return None;
        }
        let text = self.read_string();
        self.position = (self.position + 1).min(self.text.len());
        Some(text)
    }

    /// Consumes the next key of the current object if it equals `quoted`, which includes the quotes and the colon.
    #[inline]
    pub(super) fn next_key_if_eq(&mut self, quoted: &[u8]) -> bool {
        let matches = self.peek_byte() == Some(b'"') && self.text[self.position..].starts_with(quoted);
        if matches {
            self.position += quoted.len();
        }
        matches
    }

    /// Returns the position of the opening quote of `key`, which must be the last token.
    #[inline]
    pub(super) fn key_start(&self, key: JsonStr<'_>) -> usize {
        // Two quotes and a colon surround the key.
        self.position.saturating_sub(key.raw().len() + 3)
    }

    #[inline]
    pub(super) fn text_since(&self, start: usize) -> &'a [u8] {
        &self.text[start..self.position]
    }

    /// Returns true if the current array has another element. At the end of the array, leaves it and returns false.
    #[inline]
    pub fn next_element(&mut self) -> bool {
        match self.peek_byte() {
            None => false,
            Some(b']' | b'}') => {
                self.position += 1;
                false
            }
            // Invalid text ends the array, so that it cannot cause an endless loop.
            Some(byte) if JsonType::from_first_byte(byte).is_none() => {
                self.position = self.text.len();
                false
            }
            Some(_) => true,
        }
    }

    /// Skips the rest of the current object or array, from a position between two members or elements.
    pub fn leave(&mut self) {
        self.position = scan::find_container_end(self.text, self.position, 1);
    }

    /// Returns the next value if it is a scalar. Otherwise returns `None`, and the cursor does not move.
    #[inline]
    pub fn next_scalar(&mut self) -> Option<JsonScalar<'a>> {
        let (length, scalar) = match self.peek_byte()? {
            b'"' => return Some(JsonScalar::String(self.read_string())),
            b'n' => (4, JsonScalar::Null),
            b't' => (4, JsonScalar::Bool(true)),
            b'f' => (5, JsonScalar::Bool(false)),
            b'-' | b'0'..=b'9' => {
                let number = &self.text[self.position..self.find_scalar_end()];
                // Canonical text contains only ASCII numbers, so the conversion does not fail.
                (number.len(), JsonScalar::Number(std::str::from_utf8(number).unwrap_or_default()))
            }
            _ => return None,
        };
        self.position = (self.position + length).min(self.text.len());
        Some(scalar)
    }

    /// Returns the next byte of the text. A comma before the byte is skipped.
    #[inline]
    fn peek_byte(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.position)?;
        if byte != b',' {
            return Some(byte);
        }
        self.position += 1;
        self.text.get(self.position).copied()
    }

    #[inline]
    fn read_string(&mut self) -> JsonStr<'a> {
        let start = self.position + 1;
        let StringEnd { quote, is_plain } = scan::find_string_end(self.text, start);
        self.position = (quote + 1).min(self.text.len());
        JsonStr::from_parts(&self.text[start..quote], is_plain)
    }

    #[inline]
    fn find_scalar_end(&self) -> usize {
        let mut at = self.position;
        while self.text.get(at).is_some_and(|byte| !matches!(byte, b',' | b'}' | b']')) {
            at += 1;
        }
        at
    }
}

impl<'a> Iterator for JsonCursor<'a> {
    type Item = JsonToken<'a>;

    #[inline]
    fn next(&mut self) -> Option<JsonToken<'a>> {
        let token = match self.peek_byte()? {
            b'"' => {
                let text = self.read_string();
                // In canonical text, a colon outside of strings always follows a key.
                if self.text.get(self.position) == Some(&b':') {
                    self.position += 1;
                    return Some(JsonToken::Key(text));
                }
                return Some(JsonToken::Scalar(JsonScalar::String(text)));
            }
            b'{' => JsonToken::ObjectStart,
            b'}' => JsonToken::ObjectEnd,
            b'[' => JsonToken::ArrayStart,
            b']' => JsonToken::ArrayEnd,
            _ => {
                let scalar = self.next_scalar();
                if scalar.is_none() {
                    self.position = self.text.len();
                }
                return scalar.map(JsonToken::Scalar);
            }
        };
        self.position += 1;
        Some(token)
    }
}
