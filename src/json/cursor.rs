//! Reads canonical text from front to back, without copies and allocations.
//!
//! Everything here trusts its input to be canonical. Over other bytes the results mean nothing. But nothing panics,
//! reads out of bounds or runs for ever.

use super::scan;
use super::text::Text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Key(Text<'a>),
    Scalar(Scalar<'a>),
}

/// A value that is neither object nor array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(Text<'a>),
}

impl<'a> Token<'a> {
    pub fn scalar(self) -> Option<Scalar<'a>> {
        if let Token::Scalar(scalar) = self { Some(scalar) } else { None }
    }
}

impl<'a> Scalar<'a> {
    /// The scalar whose canonical text is `value`; `None` for an object, an array and no value.
    pub fn read(value: &'a [u8]) -> Option<Scalar<'a>> {
        Cursor::new(value).next()?.scalar()
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
    /// The type of the value whose canonical text begins with `byte`.
    #[inline]
    pub fn of(byte: u8) -> Option<JsonType> {
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

/// A pull reader over canonical text. Read it token by token (it is an iterator), or by structure with
/// [`enter`](Cursor::enter), [`next_key`](Cursor::next_key), [`next_element`](Cursor::next_element) and
/// [`skip_value`](Cursor::skip_value); both may be mixed.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor before the first byte of `text`, which may be any canonical value.
    pub fn new(text: &'a [u8]) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    /// The position in bytes: after the last token (and the colon after a key).
    #[inline]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The type of the value that comes next; `None` at the end of a container or of the text.
    #[inline]
    pub fn peek(&mut self) -> Option<JsonType> {
        JsonType::of(self.peek_byte()?)
    }

    /// Skips the next value (after a key, or in an array) and returns its text. Looks only at its quotes and brackets.
    /// At the end of a container or of the text it returns nothing, and stays.
    #[inline]
    pub fn skip_value(&mut self) -> &'a [u8] {
        let Some(first) = self.peek_byte() else { return &[] };
        let start = self.at;
        self.at = match first {
            b'"' => (scan::string_end(self.text, start + 1).0 + 1).min(self.text.len()),
            b'{' | b'[' => scan::container_end(self.text, start, 0),
            _ => self.scalar_end(),
        };
        &self.text[start..self.at]
    }

    /// Steps into the object or array that comes next. Its members are read by [`next_key`](Cursor::next_key), its
    /// elements by [`next_element`](Cursor::next_element).
    #[inline]
    pub fn enter(&mut self) {
        if let Some(b'{' | b'[') = self.peek_byte() {
            self.at += 1;
        }
    }

    /// Inside an object: returns the next key; its value comes next. At the end of the object, steps out and returns
    /// `None`.
    #[inline]
    pub fn next_key(&mut self) -> Option<Text<'a>> {
        match self.peek_byte()? {
            b'"' => {
                let text = self.string();
                self.at = (self.at + 1).min(self.text.len());
                Some(text)
            }
            _ => {
                self.at += 1;
                None
            }
        }
    }

    /// Inside an object: whether the next key is this one, given with its quotes and its colon. If it is, its value
    /// comes next, else the cursor stays.
    #[inline]
    pub(super) fn next_key_is(&mut self, quoted: &[u8]) -> bool {
        let is_it = self.peek_byte() == Some(b'"') && self.text[self.at..].starts_with(quoted);
        if is_it {
            self.at += quoted.len();
        }
        is_it
    }

    /// Where `key`, which has just been read, starts: its quote.
    #[inline]
    pub(super) fn key_start(&self, key: Text<'_>) -> usize {
        // Two quotes and a colon.
        self.at.saturating_sub(key.raw().len() + 3)
    }

    /// The text from `start`, which lies behind, to here.
    #[inline]
    pub(super) fn text_since(&self, start: usize) -> &'a [u8] {
        &self.text[start..self.at]
    }

    /// Inside an array: returns whether there is another element; it comes next. At the end of the array, steps out and
    /// returns false.
    #[inline]
    pub fn next_element(&mut self) -> bool {
        match self.peek_byte() {
            None => false,
            Some(b']' | b'}') => {
                self.at += 1;
                false
            }
            // Text that is not canonical must not stop a loop over elements from ending.
            Some(byte) if JsonType::of(byte).is_none() => {
                self.at = self.text.len();
                false
            }
            Some(_) => true,
        }
    }

    /// Inside an object or array, between two of its members or elements: skips the rest of it.
    pub fn leave(&mut self) {
        self.at = scan::container_end(self.text, self.at, 1);
    }

    /// The scalar that comes next. If an object, array or end comes next, stays and returns `None`.
    #[inline]
    pub fn next_scalar(&mut self) -> Option<Scalar<'a>> {
        let (length, scalar) = match self.peek_byte()? {
            b'"' => return Some(Scalar::String(self.string())),
            b'n' => (4, Scalar::Null),
            b't' => (4, Scalar::Bool(true)),
            b'f' => (5, Scalar::Bool(false)),
            b'-' | b'0'..=b'9' => {
                let number = &self.text[self.at..self.scalar_end()];
                // The bytes of a number are ASCII in canonical text.
                (number.len(), Scalar::Number(std::str::from_utf8(number).unwrap_or_default()))
            }
            _ => return None,
        };
        self.at = (self.at + length).min(self.text.len());
        Some(scalar)
    }

    /// The next byte but for the comma between two values.
    #[inline]
    fn peek_byte(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        if byte != b',' {
            return Some(byte);
        }
        self.at += 1;
        self.text.get(self.at).copied()
    }

    #[inline]
    fn string(&mut self) -> Text<'a> {
        let start = self.at + 1;
        let (end, plain) = scan::string_end(self.text, start);
        self.at = (end + 1).min(self.text.len());
        Text::with_plainness(&self.text[start..end], plain)
    }

    #[inline]
    fn scalar_end(&self) -> usize {
        let mut at = self.at;
        while let Some(byte) = self.text.get(at) {
            if matches!(byte, b',' | b'}' | b']') {
                break;
            }
            at += 1;
        }
        at
    }
}

impl<'a> Iterator for Cursor<'a> {
    type Item = Token<'a>;

    #[inline]
    fn next(&mut self) -> Option<Token<'a>> {
        let token = match self.peek_byte()? {
            b'"' => {
                let text = self.string();
                // In canonical text a colon outside of strings follows a key, and nothing else.
                if self.text.get(self.at) == Some(&b':') {
                    self.at += 1;
                    return Some(Token::Key(text));
                }
                return Some(Token::Scalar(Scalar::String(text)));
            }
            b'{' => Token::ObjectStart,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayStart,
            b']' => Token::ArrayEnd,
            _ => {
                let scalar = self.next_scalar();
                if scalar.is_none() {
                    self.at = self.text.len();
                }
                return scalar.map(Token::Scalar);
            }
        };
        self.at += 1;
        Some(token)
    }
}
