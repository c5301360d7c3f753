//! Escapes the bytes in the targets of HTTP/1.1 requests that no URI can contain: `"`, `<`, `>`, a backtick, and all
//! bytes that are not ASCII. Some clients send a query as their user typed it. hyper would refuse such a request with a
//! 400 that has no text and that no metric counts. For example, `GET /a?b=<1 HTTP/1.1` becomes `GET /a?b=%3C1
//! HTTP/1.1`.
//!
//! A byte is changed only in a request line: at the start of a connection, and after a request whose end is known. A
//! head ends with its first empty line. hyper then says how long the body is ([`ParsedHead`]), and the next request
//! line follows the body. If anything else arrives (a chunked body, HTTP/2, a head that ends elsewhere), all further
//! bytes of the connection pass unchanged. So no byte of a body is ever changed.
//!
//! Bytes after a head are held until hyper has parsed it. All other bytes pass at once.
//!
//! `http::request_lines` fails without it.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BytesMut};
use percent_encoding::percent_encode_byte;
use tokio::io::ReadBuf;

/// The length of the body that belongs to the head that hyper parsed last, if it has parsed one since the last look;
/// the inner `None` is an unknown length. Shared by the stream and the service of a connection.
#[derive(Default)]
pub(super) struct ParsedHead(Mutex<Option<Option<u64>>>);

impl ParsedHead {
    pub(super) fn request(&self, body_bytes: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body_bytes);
    }

    fn take(&self) -> Option<Option<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamPosition {
    /// Before a request line, which can follow empty lines.
    Before,
    Method,
    Target,
    Version,
    Headers(HeaderLine),
    /// After a head that hyper has not parsed yet.
    HeadEnd,
    /// In a body with this many bytes left, at least one.
    Body(u64),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderLine {
    Nothing,
    CarriageReturn,
    Text,
}

pub(super) struct UriRepair {
    position: StreamPosition,
    head: Arc<ParsedHead>,
    /// Bytes that were read and must wait or change.
    held: BytesMut,
    /// Bytes before these that can pass.
    ready: BytesMut,
}

impl UriRepair {
    pub(super) fn new(head: Arc<ParsedHead>) -> UriRepair {
        UriRepair { position: StreamPosition::Before, head, held: BytesMut::new(), ready: BytesMut::new() }
    }

    /// Fills the buffer with bytes that were held and can pass now. If there are none, nothing is held.
    pub(super) fn fill(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.position != StreamPosition::Unknown {
            self.position = match (self.position, self.head.take()) {
                (StreamPosition::HeadEnd, Some(Some(0))) => StreamPosition::Before,
                (StreamPosition::HeadEnd, Some(Some(bytes))) => StreamPosition::Body(bytes),
                (position, None) if position != StreamPosition::HeadEnd => position,
                _ => StreamPosition::Unknown,
            };
        }
        if self.ready.is_empty() {
            self.release_held();
        }
        let length = self.ready.len().min(buffer.remaining());
        buffer.put_slice(&self.ready[..length]);
        self.ready.advance(length);
        if self.ready.is_empty() {
            // An idle connection keeps no memory.
            self.ready = BytesMut::new();
        }
        length > 0
    }

    /// The number of these bytes, read while nothing was held, that can pass unchanged. The others are held. If none
    /// can pass, [`Self::fill`] has some.
    pub(super) fn hold_back(&mut self, bytes: &[u8]) -> usize {
        let passed = self.scan(bytes);
        self.held.extend_from_slice(&bytes[passed..]);
        passed
    }

    fn release_held(&mut self) {
        let mut held = mem::take(&mut self.held);
        let mut at = 0;
        while at < held.len() {
            let passed = self.scan(&held[at..]);
            self.ready.extend_from_slice(&held[at..at + passed]);
            at += passed;
            match held.get(at) {
                Some(byte) if self.position == StreamPosition::Target => {
                    self.ready.extend_from_slice(percent_encode_byte(*byte).as_bytes());
                    at += 1;
                }
                _ => break,
            }
        }
        held.advance(at);
        self.held = held;
    }

    /// Advances the position over the bytes that can pass unchanged, and counts them. Stops before a byte of a target
    /// that must be escaped, and at the end of a head.
    fn scan(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (passed, next) = match self.position {
                StreamPosition::Unknown => return bytes.len(),
                StreamPosition::HeadEnd => return at,
                StreamPosition::Before if matches!(rest[0], b'\r' | b'\n') => (1, StreamPosition::Before),
                StreamPosition::Before => (0, StreamPosition::Method),
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
                    Some(end) => (end + 1, StreamPosition::Headers(HeaderLine::Nothing)),
                    None => (rest.len(), StreamPosition::Version),
                },
                StreamPosition::Headers(line) => header_line(line, rest),
                StreamPosition::Body(left) => match usize::try_from(left) {
                    Ok(left) if left <= rest.len() => (left, StreamPosition::Before),
                    _ => (rest.len(), StreamPosition::Body(left - rest.len() as u64)),
                },
            };
            at += passed;
            self.position = next;
        }
        at
    }
}

/// The number of bytes up to the end of a header line, as far as it has arrived, and the position after them.
fn header_line(line: HeaderLine, rest: &[u8]) -> (usize, StreamPosition) {
    let end = memchr::memchr(b'\n', rest);
    let line = match (line, &rest[..end.unwrap_or(rest.len())]) {
        (line, []) => line,
        (HeaderLine::Nothing, [b'\r']) => HeaderLine::CarriageReturn,
        _ => HeaderLine::Text,
    };
    match end {
        None => (rest.len(), StreamPosition::Headers(line)),
        Some(end) if line == HeaderLine::Text => (end + 1, StreamPosition::Headers(HeaderLine::Nothing)),
        Some(end) => (end + 1, StreamPosition::HeadEnd),
    }
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..)
}

fn is_target_byte(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !needs_escape(byte)
}
