//! Finds the end of a JSON value in a stream of untrusted bytes, chunk by chunk.
//!
//! It follows only strings and the depth of brackets, 64 bytes at a time. [`canonicalize`](super::canonicalize) checks
//! later that the text between is JSON. Each byte is read once, for any cut of the stream.

use super::MAX_DEPTH;
use super::error::DocumentError;
use super::scan::Nesting;

/// The position in a value after the bytes so far. One scanner finds the end of one value.
#[derive(Clone, Debug, Default)]
pub struct ValueScanner {
    state: State,
    seen_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Before,
    Nested(Nesting),
    /// Inside a string that is the value; whether the next byte is escaped.
    Text {
        escaped: bool,
    },
    /// Inside a number or literal, which ends before the first byte that cannot belong to it.
    Bare,
    After,
}

impl ValueScanner {
    /// A scanner before a value. White space before the value counts as its own.
    pub fn new() -> ValueScanner {
        ValueScanner::default()
    }

    /// Takes the next bytes. Returns how many of them belong to the value once its end is known, or `None` when all of
    /// them do and more may follow. A number or a literal ends only with the byte after it (see
    /// [`may_end`](ValueScanner::may_end)). After the end, 0.
    ///
    /// Fails when brackets nest deeper than [`MAX_DEPTH`], and when a bracket, comma or colon stands where the value
    /// should begin; the offset counts from the first byte fed.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, DocumentError> {
        let mut at = 0;
        if let State::Before = self.state {
            at = bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len());
            match bytes.get(at) {
                None => {}
                Some(b'{' | b'[') => self.state = State::Nested(Nesting::default()),
                Some(b'"') => {
                    self.state = State::Text { escaped: false };
                    at += 1;
                }
                Some(&byte @ (b']' | b'}' | b',' | b':')) => {
                    let offset = self.seen_bytes + at;
                    return Err(DocumentError::Unexpected { offset, found: char::from(byte), expected: "a value" });
                }
                Some(_) => self.state = State::Bare,
            }
        }
        let end = match self.state {
            State::Before => None,
            State::Nested(mut nesting) => {
                let end = nesting.end(bytes, at, MAX_DEPTH);
                self.state = State::Nested(nesting);
                end.map_err(|position| DocumentError::TooDeep { offset: self.seen_bytes + position })?
            }
            State::Text { escaped } => self.text(escaped, bytes, at),
            State::Bare => (at..bytes.len()).find(|&at| ends_bare(bytes[at])),
            State::After => Some(0),
        };
        if end.is_some() {
            self.state = State::After;
        }
        self.seen_bytes += bytes.len();
        Ok(end)
    }

    /// Whether the value would be complete if the stream ended here: it is over, or it is a number or a literal.
    pub fn may_end(&self) -> bool {
        matches!(self.state, State::Bare | State::After)
    }

    pub fn is_empty(&self) -> bool {
        matches!(self.state, State::Before)
    }

    fn text(&mut self, mut escaped: bool, bytes: &[u8], from: usize) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return Some(at + 1),
                _ => {}
            }
        }
        self.state = State::Text { escaped };
        None
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

fn ends_bare(byte: u8) -> bool {
    is_blank(byte) || matches!(byte, b',' | b':' | b'[' | b']' | b'{' | b'}' | b'"')
}
