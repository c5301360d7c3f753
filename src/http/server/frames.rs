//! A bound for what an HTTP/2 client sends besides requests and their bodies.
//!
//! A client may send PINGs, SETTINGS, WINDOW_UPDATEs and empty frames as fast as it likes; each costs the service more
//! than the client, and none is a request that any limit counts. So a connection has credit for such frames: some to
//! begin with, more for each request, more for what it takes of answers, whose windows it opens, and more as time goes
//! by, since it answers the service's own pings. A client that has used it up floods, and its connection is cut.

use std::time::Instant;

/// Frames beside requests that a new connection may send: SETTINGS, windows, priorities, and pings over hours.
const AT_FIRST: u64 = 100;

/// As many more for each request, and what may be saved up.
const FOR_REQUEST: u64 = 50;
const SAVED: u64 = 10_000;

/// Bytes of answers that allow one more: a client may open two windows for each few hundred.
const BYTES_FOR_ONE: u64 = 128;

/// Frames that a second allows: `server.keep_alive_s` is one at least.
const PER_SECOND: f64 = 2.0;

/// The head of a frame: its length in three bytes, its type, its flags, its stream (RFC 9113, section 4.1).
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const PADDED: u8 = 0x8;

/// The frames of one connection so far, from the end of its preface on.
#[derive(Debug)]
pub(super) struct Frames {
    head: [u8; HEAD_BYTES],
    filled: usize,
    rest: usize,
    credit: u64,
    /// Since when no time has been credited.
    credited: Instant,
    /// Bytes written since the last frame that they allowed.
    written: u64,
}

impl Frames {
    pub(super) fn new() -> Frames {
        Frames { head: [0; HEAD_BYTES], filled: 0, rest: 0, credit: AT_FIRST, credited: Instant::now(), written: 0 }
    }

    /// Takes note of bytes read; false when they are a flood.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (HEAD_BYTES - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD_BYTES && !self.begin() {
                return false;
            }
        }
        true
    }

    /// Takes note of bytes that the client has taken.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        self.allow(self.written / BYTES_FOR_ONE);
        self.written %= BYTES_FOR_ONE;
    }

    /// A frame whose head is there; whether there was credit for it.
    fn begin(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.filled = 0;
        self.rest = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS => self.allow(FOR_REQUEST),
            // Padding is no body: it is given back at once, whatever its length.
            DATA if flags & END_STREAM != 0 || self.rest > 0 && flags & PADDED == 0 => {}
            _ => {
                if self.credit == 0 {
                    self.pass_time(Instant::now());
                }
                match self.credit.checked_sub(1) {
                    Some(credit) => self.credit = credit,
                    None => return false,
                }
            }
        }
        true
    }

    fn pass_time(&mut self, now: Instant) {
        // Of a time too long for a number, the most is saved up all the same.
        self.allow((now.saturating_duration_since(self.credited).as_secs_f64() * PER_SECOND) as u64);
        if self.credit > 0 {
            self.credited = now;
        }
    }

    fn allow(&mut self, frames: u64) {
        self.credit = self.credit.saturating_add(frames).min(SAVED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 0x6;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = (length as u64).to_be_bytes();
        let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD_BYTES + length, 0xff);
        frame
    }

    /// How many of these frames are taken, in pieces of so many bytes.
    fn taken(frames: &mut Frames, frame: &[u8], piece: usize) -> u64 {
        let is_taken = |_: &u64| frame.chunks(piece).all(|bytes| frames.read(bytes));
        (0..2 * SAVED).take_while(is_taken).count() as u64
    }

    #[test]
    fn frames_beside_requests_are_bounded_however_they_come() {
        for piece in [1, 5, 9, 16, 100] {
            assert_eq!(taken(&mut Frames::new(), &frame(PING, 0, 8), piece), AT_FIRST, "{piece}");
            assert_eq!(taken(&mut Frames::new(), &frame(DATA, 0, 0), piece), AT_FIRST, "{piece}");
            assert_eq!(taken(&mut Frames::new(), &frame(DATA, PADDED, 1), piece), AT_FIRST, "{piece}");
        }
    }

    #[test]
    fn requests_bodies_and_what_is_taken_of_answers_allow_more() {
        let mut frames = Frames::new();
        assert_eq!(taken(&mut frames, &frame(DATA, 0, 20_000), 4_096), 2 * SAVED);
        assert!(frames.read(&frame(HEADERS, 4, 30)) && frames.read(&frame(DATA, END_STREAM, 0)));
        assert_eq!(taken(&mut frames, &frame(PING, 0, 8), 100), AT_FIRST + FOR_REQUEST);
        let mut frames = Frames::new();
        for _ in 0..1_000 {
            frames.wrote(100);
        }
        assert_eq!(taken(&mut frames, &frame(PING, 0, 8), 100), AT_FIRST + 100_000 / BYTES_FOR_ONE);
        let mut frames = Frames::new();
        assert_eq!(taken(&mut frames, &frame(PING, 0, 8), 100), AT_FIRST);
        let mut frames = Frames { credit: 0, ..frames };
        frames.pass_time(frames.credited + std::time::Duration::from_secs(20));
        assert_eq!(frames.credit, 40, "answers to the service's own pings");
        let mut frames = Frames::new();
        frames.wrote(1 << 40);
        assert_eq!(taken(&mut frames, &frame(PING, 0, 8), 100), SAVED, "no more is saved up");
    }
}
