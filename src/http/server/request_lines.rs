//! The targets of HTTP/1.1 requests, with the bytes escaped that no URI may hold: `"`, `<`, `>`, a backtick, and all
//! that are not ASCII. Clients send them in a query as they were typed, and the HTTP implementation would refuse the
//! request with a 400 that has no text and that nobody counts. What is read is the request that the client would have
//! sent had it escaped them.
//!
//! A byte is changed only where a request line is known to stand: at the start of a connection, and after a request
//! whose end is known. The end of a head is where its first empty line is. What follows is for the HTTP implementation
//! to say, which is told of here ([`ParsedHead`]) as soon as it has parsed the head: a body of so many bytes, and then
//! the next line. Where it is not as expected (a body in chunks, HTTP/2, a head that ends elsewhere), everything passes
//! unchanged from then on, to the end of the connection. So no byte of a body is ever changed.
//!
//! Bytes behind a head are held until it has been parsed; all others pass at once.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BytesMut};
use percent_encoding::percent_encode_byte;
use tokio::io::ReadBuf;

/// What the HTTP implementation has made of the last head: a request with a body of so many bytes, or of a length that
/// is not known beforehand. Shared by a connection's stream and its service.
#[derive(Default)]
pub(super) struct ParsedHead(Mutex<Option<Option<u64>>>);

impl ParsedHead {
    /// A request has been parsed, with a body of so many bytes; `None` if that is not known.
    pub(super) fn request(&self, body_bytes: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body_bytes);
    }

    fn take(&self) -> Option<Option<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Where in the stream the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before a request line; empty lines may come first.
    Before,
    Method,
    Target,
    Version,
    Headers(Line),
    /// Behind a head that is being parsed.
    HeadEnd,
    /// In a body of which so many bytes are to come, at least one.
    Body(u64),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Nothing,
    CarriageReturn,
    Text,
}

pub(super) struct RequestLines {
    place: Place,
    head: Arc<ParsedHead>,
    /// What was read and may not pass yet, or has to be changed.
    held: BytesMut,
    /// What may pass, in front of that, and how much of it has.
    ready: Vec<u8>,
    passed: usize,
}

impl RequestLines {
    pub(super) fn new(head: Arc<ParsedHead>) -> RequestLines {
        RequestLines { place: Place::Before, head, held: BytesMut::new(), ready: Vec::new(), passed: 0 }
    }

    /// More is asked for: tells what has become of the last head, and fills the buffer with what was held. Nothing is
    /// held where that gives nothing.
    pub(super) fn fill(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.place != Place::Unknown {
            self.place = match (self.place, self.head.take()) {
                (Place::HeadEnd, Some(Some(0))) => Place::Before,
                (Place::HeadEnd, Some(Some(bytes))) => Place::Body(bytes),
                (place, None) if place != Place::HeadEnd => place,
                _ => Place::Unknown,
            };
        }
        if self.ready.is_empty() {
            self.work_off();
        }
        let bytes = &self.ready[self.passed..];
        let length = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..length]);
        self.passed += length;
        if self.passed == self.ready.len() {
            (self.ready, self.passed) = (Vec::new(), 0);
        }
        length > 0
    }

    /// How many of these bytes, read when nothing was held, may pass as they are; the others are held. None pass only
    /// if [`Self::fill`] has some now.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let passed = self.pass(bytes);
        self.held.extend_from_slice(&bytes[passed..]);
        passed
    }

    /// Makes ready what may pass of what is held.
    fn work_off(&mut self) {
        let mut held = mem::take(&mut self.held);
        let mut at = 0;
        while at < held.len() {
            let passed = self.pass(&held[at..]);
            self.ready.extend_from_slice(&held[at..at + passed]);
            at += passed;
            match held.get(at) {
                Some(byte) if self.place == Place::Target => {
                    self.ready.extend_from_slice(percent_encode_byte(*byte).as_bytes());
                    at += 1;
                }
                _ => break,
            }
        }
        held.advance(at);
        self.held = held;
    }

    /// Steps over the bytes that may pass as they are, and counts them. Stops before a byte of a target that has to be
    /// escaped, and at the end of a head.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (passed, next) = match self.place {
                Place::Unknown => return bytes.len(),
                Place::HeadEnd => return at,
                Place::Before if matches!(rest[0], b'\r' | b'\n') => (1, Place::Before),
                Place::Before => (0, Place::Method),
                Place::Method => match memchr::memchr2(b' ', b'\n', rest) {
                    Some(end) if rest[end] == b' ' => (end + 1, Place::Target),
                    Some(end) => (end, Place::Unknown),
                    None => (rest.len(), Place::Method),
                },
                Place::Target => match rest.iter().position(|byte| !stands_in_targets(*byte)) {
                    Some(end) if rest[end] == b' ' => (end + 1, Place::Version),
                    Some(end) if is_escaped(rest[end]) => return at + end,
                    Some(end) => (end, Place::Unknown),
                    None => (rest.len(), Place::Target),
                },
                Place::Version => match memchr::memchr(b'\n', rest) {
                    Some(end) => (end + 1, Place::Headers(Line::Nothing)),
                    None => (rest.len(), Place::Version),
                },
                Place::Headers(line) => header_line(line, rest),
                Place::Body(left) => match usize::try_from(left) {
                    Ok(left) if left <= rest.len() => (left, Place::Before),
                    _ => (rest.len(), Place::Body(left - rest.len() as u64)),
                },
            };
            at += passed;
            self.place = next;
        }
        at
    }
}

/// Steps to the end of a header line, or of what is there of it.
fn header_line(line: Line, rest: &[u8]) -> (usize, Place) {
    let end = memchr::memchr(b'\n', rest);
    let line = match (line, &rest[..end.unwrap_or(rest.len())]) {
        (line, []) => line,
        (Line::Nothing, [b'\r']) => Line::CarriageReturn,
        _ => Line::Text,
    };
    match end {
        None => (rest.len(), Place::Headers(line)),
        Some(end) if line == Line::Text => (end + 1, Place::Headers(Line::Nothing)),
        Some(end) => (end + 1, Place::HeadEnd),
    }
}

fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..)
}

fn stands_in_targets(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && !is_escaped(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes of a stream that is read in parts of so many bytes into buffers of that size, where the HTTP
    /// implementation finds these requests, each after so many bytes of what has passed.
    fn passed(stream: &[u8], part: usize, buffer_bytes: usize, requests: &[(&str, Option<u64>)]) -> String {
        let head = Arc::new(ParsedHead::default());
        let mut lines = RequestLines::new(head.clone());
        let mut passed = Vec::new();
        let mut parsed = 0;
        let mut requests = requests.iter();
        let mut next = requests.next();
        let mut parts = stream.chunks(part.min(buffer_bytes));
        loop {
            // The HTTP implementation parses what it has before it asks for more.
            if let Some((end, body)) = next
                && let Some(found) = memchr::memmem::find(&passed[parsed..], end.as_bytes())
            {
                head.request(*body);
                parsed += found + end.len();
                next = requests.next();
            }
            let mut storage = vec![0; buffer_bytes];
            let mut buffer = ReadBuf::new(&mut storage);
            if !lines.fill(&mut buffer) {
                let Some(part) = parts.next() else { return String::from_utf8_lossy(&passed).into_owned() };
                buffer.put_slice(part);
                let length = lines.take(buffer.filled());
                buffer.set_filled(length);
                assert!(length > 0 || lines.fill(&mut buffer), "something comes of what was read");
            }
            passed.extend_from_slice(buffer.filled());
        }
    }

    /// The same, whatever the parts.
    #[track_caller]
    fn check(stream: &[u8], requests: &[(&str, Option<u64>)], expected: &str) {
        for part in [1, 2, 3, 7, 24, 1_000] {
            for buffer_bytes in [1, 5, 24, 1_000] {
                assert_eq!(passed(stream, part, buffer_bytes, requests), expected, "{part} {buffer_bytes}");
            }
        }
    }

    const END: &str = "\r\n\r\n";

    #[test]
    fn targets_are_escaped_and_nothing_else() {
        check(
            "GET /a>?b=\"<`é>&c={|}^\\ HTTP/1.1\r\nX: <é>\r\n\r\n".as_bytes(),
            &[(END, Some(0))],
            "GET /a%3E?b=%22%3C%60%C3%A9%3E&c={|}^\\ HTTP/1.1\r\nX: <é>\r\n\r\n",
        );
        check(b"GET /\xff HTTP/1.1\n\n", &[("\n\n", Some(0))], "GET /%FF HTTP/1.1\n\n");
    }

    #[test]
    fn every_request_of_a_connection_is_read_so() {
        let one = "GET /?a=>1 HTTP/1.1\r\nHost: a\r\n\r\n";
        check(one.repeat(3).as_bytes(), &[(END, Some(0)); 3], &one.replace('>', "%3E").repeat(3));
        let empty_lines = format!("\r\n\n{one}\r\n{one}");
        check(empty_lines.as_bytes(), &[(END, Some(0)); 2], &empty_lines.replace('>', "%3E"));
    }

    #[test]
    fn bodies_pass_unchanged_whatever_they_look_like() {
        let inner = "GET /< HTTP/1.1\r\n\r\n";
        let sized = format!("POST /> HTTP/1.1\r\nContent-Length: 19\r\n\r\n{inner}GET /> HTTP/1.1\r\n\r\n");
        check(sized.as_bytes(), &[(END, Some(19)), ("/%3E HTTP/1.1\r\n\r\n", Some(0))], &sized.replace('>', "%3E"));
        // Nothing says where the next line begins.
        let chunks = format!("POST /> HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n{inner}\r\n0\r\n\r\n{inner}");
        check(chunks.as_bytes(), &[(END, None)], &chunks.replace('>', "%3E"));
    }

    #[test]
    fn what_is_not_parsed_as_expected_passes_unchanged() {
        let one = "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /> HTTP/1.1\r\n\r\n";
        check(one.as_bytes(), &[], one);
        let http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /> HTTP/1.1\r\n\r\n";
        check(http2.as_bytes(), &[], http2);
        for line in ["GET\n/>\n\n", "GET /a\t>\n\n", "GET /a\r\n>\r\n\r\n"] {
            check(line.as_bytes(), &[], line);
        }
    }
}
