//! Finds the end of a JSON value in a stream of untrusted bytes, chunk by chunk.
//!
//! The scanner tracks only strings and the depth of brackets, 64 bytes at a time, and reads each byte once.
//! [`canonicalize`](super::canonicalize()) validates the text later.

use super::MAX_NESTING_DEPTH;
use super::error::DocumentError;
use super::scan::BracketNesting;

/// Finds the end of one JSON value in a stream. Each value needs its own scanner.
#[derive(Clone, Debug, Default)]
pub struct ValueScanner {
    state: ValueScanState,
    fed_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum ValueScanState {
    #[default]
    BeforeValue,
    Nested(BracketNesting),
    String {
        escaped: bool,
    },
    /// Inside a number or literal, which ends before the first byte that cannot be a part of it.
    NumberOrLiteral,
    AfterValue,
}

impl ValueScanner {
    pub fn new() -> ValueScanner {
        ValueScanner::default()
    }

    /// Scans the next bytes. Returns the number of bytes that belong to the value, or `None` if all of them do and more
    /// can follow. A number or a literal ends only with the byte after it. Fails if brackets nest deeper than
    /// [`MAX_NESTING_DEPTH`], or if the value starts with a closing bracket, a comma, or a colon.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, DocumentError> {
        let mut at = 0;
        if let ValueScanState::BeforeValue = self.state {
            at = bytes.iter().position(|byte| !is_whitespace(*byte)).unwrap_or(bytes.len());
            match bytes.get(at) {
                None => {}
                Some(b'{' | b'[') => self.state = ValueScanState::Nested(BracketNesting::default()),
                Some(b'"') => {
                    self.state = ValueScanState::String { escaped: false };
                    at += 1;
                }
                Some(&byte @ (b']' | b'}' | b',' | b':')) => {
                    let offset = self.fed_bytes + at;
                    let found = char::from(byte);
                    return Err(DocumentError::UnexpectedCharacter { offset, found, expected: "a value" });
                }
                Some(_) => self.state = ValueScanState::NumberOrLiteral,
            }
        }
        let end = match self.state {
            ValueScanState::BeforeValue => None,
            ValueScanState::Nested(mut nesting) => {
                let end = nesting.find_end(bytes, at, MAX_NESTING_DEPTH);
                self.state = ValueScanState::Nested(nesting);
                end.map_err(|position| DocumentError::TooDeep { offset: self.fed_bytes + position })?
            }
            ValueScanState::String { escaped } => self.find_string_end(escaped, bytes, at),
            ValueScanState::NumberOrLiteral => (at..bytes.len()).find(|&at| ends_number_or_literal(bytes[at])),
            ValueScanState::AfterValue => Some(0),
        };
        if end.is_some() {
            self.state = ValueScanState::AfterValue;
        }
        self.fed_bytes += bytes.len();
        Ok(end)
    }

    /// Returns true if the stream can end here: the value is complete, or it is a number or a literal.
    pub fn can_end(&self) -> bool {
        matches!(self.state, ValueScanState::NumberOrLiteral | ValueScanState::AfterValue)
    }

    pub fn is_before_value(&self) -> bool {
        matches!(self.state, ValueScanState::BeforeValue)
    }

    fn find_string_end(&mut self, mut escaped: bool, bytes: &[u8], from: usize) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return Some(at + 1),
                _ => {}
            }
        }
        self.state = ValueScanState::String { escaped };
        None
    }
}

fn is_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

fn ends_number_or_literal(byte: u8) -> bool {
    is_whitespace(byte) || matches!(byte, b',' | b':' | b'[' | b']' | b'{' | b'}' | b'"')
}
