//! Escapes bytes that are not valid in the targets of HTTP/1.1 requests: `"`, `<`, `>`, backticks, and all bytes that
//! are not ASCII. Some clients send a query as the user typed it, and hyper would reject such a request with a 400
//! without a text and without a metric. For example, `GET /a?b=<1 HTTP/1.1` becomes `GET /a?b=%3C1 HTTP/1.1`.
//!
//! Only request lines are changed: at the start of a connection, and after a request whose end is known. A head ends
//! with its first empty line. hyper then reports the length of the body ([`ParsedBodyLength`]), and the next request
//! line follows the body. In any other case (a chunked body, HTTP/2, a head that ends elsewhere), all further bytes of
//! the connection pass unchanged. So no byte of a body is ever changed.
//!
//! Bytes after a head are held until hyper has parsed it. All other bytes pass at once.

use std::mem;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use percent_encoding::percent_encode_byte;
use tokio::io::ReadBuf;

/// The body length of the last request head that hyper has parsed, until [`Self::take_body_length`] takes it. The inner
/// `None` is an unknown length. The stream and the service of a connection share this value.
#[derive(Default)]
pub(super) struct ParsedBodyLength(Mutex<Option<Option<u64>>>);

impl ParsedBodyLength {
    pub(super) fn record_body_length(&self, body_bytes: Option<u64>) {
        *self.0.lock() = Some(body_bytes);
    }

    fn take_body_length(&self) -> Option<Option<u64>> {
        self.0.lock().take()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamPosition {
    /// Before a request line, where empty lines are allowed.
    BeforeRequestLine,
    Method,
    Target,
    Version,
    Headers(HeaderLineState),
    /// After the end of a request head that hyper has not parsed yet.
    HeadEnd,
    /// Inside a request body with this many remaining bytes, at least one.
    Body(u64),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderLineState {
    Empty,
    CarriageReturn,
    Text,
}

pub(super) struct UriRepair {
    position: StreamPosition,
    head: Arc<ParsedBodyLength>,
    /// Bytes that were read from the client, and that must wait for hyper or be escaped.
    held_bytes: BytesMut,
    /// Bytes that can pass to hyper, before `held_bytes`.
    ready_bytes: BytesMut,
}

impl UriRepair {
    pub(super) fn new(head: Arc<ParsedBodyLength>) -> UriRepair {
        let position = StreamPosition::BeforeRequestLine;
        UriRepair { position, head, held_bytes: BytesMut::new(), ready_bytes: BytesMut::new() }
    }

    /// Fills `buffer` with held bytes that can pass to hyper now. Returns false if there are none.
    pub(super) fn try_fill_buffer(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.position != StreamPosition::Unknown {
            self.position = match (self.position, self.head.take_body_length()) {
                (StreamPosition::HeadEnd, Some(Some(0))) => StreamPosition::BeforeRequestLine,
                (StreamPosition::HeadEnd, Some(Some(bytes))) => StreamPosition::Body(bytes),
                (position, None) if position != StreamPosition::HeadEnd => position,
                _ => StreamPosition::Unknown,
            };
        }
        if self.ready_bytes.is_empty() {
            self.release_held_bytes();
        }
        let length = self.ready_bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.ready_bytes[..length]);
        self.ready_bytes.advance(length);
        if self.ready_bytes.is_empty() {
            // The memory of the buffer is freed, because the connection might become idle.
            self.ready_bytes = BytesMut::new();
        }
        length > 0
    }

    /// Returns how many of the read bytes can pass to hyper unchanged, and holds the others back. No bytes must be held
    /// back before the call. If no byte can pass, call [`Self::try_fill_buffer`].
    pub(super) fn pass_or_hold_back(&mut self, bytes: &[u8]) -> usize {
        let passed = self.scan_unchanged_bytes(bytes);
        self.held_bytes.extend_from_slice(&bytes[passed..]);
        passed
    }

    fn release_held_bytes(&mut self) {
        let mut held = mem::take(&mut self.held_bytes);
        let mut at = 0;
        while at < held.len() {
            let passed = self.scan_unchanged_bytes(&held[at..]);
            self.ready_bytes.extend_from_slice(&held[at..at + passed]);
            at += passed;
            match held.get(at) {
                Some(byte) if self.position == StreamPosition::Target => {
                    self.ready_bytes.extend_from_slice(percent_encode_byte(*byte).as_bytes());
                    at += 1;
                }
                _ => break,
            }
        }
        held.advance(at);
        self.held_bytes = held;
    }

    /// Advances the position in the stream over the bytes that can pass to hyper unchanged, and returns their number.
    /// Stops before a byte of a request target that must be escaped, and at the end of a head.
    fn scan_unchanged_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (passed, next) = match self.position {
                StreamPosition::Unknown => return bytes.len(),
                StreamPosition::HeadEnd => return at,
                StreamPosition::BeforeRequestLine if matches!(rest[0], b'\r' | b'\n') => {
                    (1, StreamPosition::BeforeRequestLine)
                }
                StreamPosition::BeforeRequestLine => (0, StreamPosition::Method),
                StreamPosition::Method => match memchr::memchr2(b' ', b'\n', rest) {
                    Some(end) if rest[end] == b' ' => (end + 1, StreamPosition::Target),
                    Some(end) => (end, StreamPosition::Unknown),
                    None => (rest.len(), StreamPosition::Method),
                },
                StreamPosition::Target => match rest.iter().position(|byte| !is_target_byte(*byte)) {
                    Some(end) if rest[end] == b' ' => (end + 1, StreamPosition::Version),
                    Some(end) if needs_escape(rest[end]) => return at + end,
                    Some(end) => (end, StreamPosition::Unknown),
                    None => (rest.len(), StreamPosition::Target),
                },
                StreamPosition::Version => match memchr::memchr(b'\n', rest) {
                    Some(end) => (end + 1, StreamPosition::Headers(HeaderLineState::Empty)),
                    None => (rest.len(), StreamPosition::Version),
                },
                StreamPosition::Headers(line) => scan_header_line(line, rest),
                StreamPosition::Body(left) => match usize::try_from(left) {
                    Ok(left) if left <= rest.len() => (left, StreamPosition::BeforeRequestLine),
                    _ => (rest.len(), StreamPosition::Body(left - rest.len() as u64)),
                },
            };
            at += passed;
            self.position = next;
        }
        at
    }
}

/// Returns the number of bytes up to the end of a header line, or of all bytes if the line is incomplete, and the
/// position in the stream after these bytes.
fn scan_header_line(line: HeaderLineState, rest: &[u8]) -> (usize, StreamPosition) {
    let end = memchr::memchr(b'\n', rest);
    let line = match (line, &rest[..end.unwrap_or(rest.len())]) {
        (line, []) => line,
        (HeaderLineState::Empty, [b'\r']) => HeaderLineState::CarriageReturn,
        _ => HeaderLineState::Text,
    };
    match end {
        None => (rest.len(), StreamPosition::Headers(line)),
        Some(end) if line == HeaderLineState::Text => (end + 1, StreamPosition::Headers(HeaderLineState::Empty)),
        Some(end) => (end + 1, StreamPosition::HeadEnd),
    }
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..)
}

fn is_target_byte(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !needs_escape(byte)
}
