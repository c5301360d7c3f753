//! A limit for the HTTP/2 control frames of a client.
//!
//! A client can send PINGs, SETTINGS, WINDOW_UPDATEs, and empty frames at any rate. Each costs the service more than
//! the client, and no limit of requests counts them. So a connection has a credit of control frames: an initial credit,
//! more for each request, more for the bytes of responses that it reads, whose windows it opens, and more over time,
//! because it answers pings. For example, 100 PINGs on a new connection are accepted, and the next one closes it.
//!
//! `http::connections` fails without it.

use std::time::Instant;

/// Control frames of a new connection: SETTINGS, windows, priorities, and pings over hours.
const INITIAL_CREDIT: u64 = 100;

const CREDIT_PER_REQUEST: u64 = 50;
const CREDIT_CAP: u64 = 10_000;

/// Bytes of responses: a client can open two windows for every few hundred.
const BYTES_PER_CREDIT: u64 = 128;

/// Enough for the answers to pings, because `server.keep_alive_s` is at least 1.
const CREDIT_PER_SECOND: f64 = 2.0;

/// A frame header: the length in three bytes, the type, the flags, and the stream (RFC 9113, section 4.1).
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const END_STREAM: u8 = 0x1;
const PADDED: u8 = 0x8;

/// The frames of a connection after its preface.
#[derive(Debug)]
pub(super) struct FrameCredit {
    head: [u8; HEAD_BYTES],
    filled: usize,
    rest: usize,
    credit: u64,
    /// Until when time has been credited.
    credited: Instant,
    /// Bytes without a credit yet.
    written: u64,
}

impl FrameCredit {
    pub(super) fn new() -> FrameCredit {
        FrameCredit {
            head: [0; HEAD_BYTES],
            filled: 0,
            rest: 0,
            credit: INITIAL_CREDIT,
            credited: Instant::now(),
            written: 0,
        }
    }

    /// Counts the frames in these bytes. False if the credit is used up.
    pub(super) fn record_read(&mut self, mut bytes: &[u8]) -> bool {
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
            if self.filled == HEAD_BYTES && !self.begin_frame() {
                return false;
            }
        }
        true
    }

    pub(super) fn record_written(&mut self, bytes: usize) {
        self.written += bytes as u64;
        self.add_credit(self.written / BYTES_PER_CREDIT);
        self.written %= BYTES_PER_CREDIT;
    }

    /// Whether there is credit for the frame whose header is complete.
    fn begin_frame(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.filled = 0;
        self.rest = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS => self.add_credit(CREDIT_PER_REQUEST),
            // Padding is not a body, because h2 returns its window at once.
            DATA if flags & END_STREAM != 0 || self.rest > 0 && flags & PADDED == 0 => {}
            _ => {
                if self.credit == 0 {
                    self.credit_time(Instant::now());
                }
                match self.credit.checked_sub(1) {
                    Some(credit) => self.credit = credit,
                    None => return false,
                }
            }
        }
        true
    }

    fn credit_time(&mut self, now: Instant) {
        // A cast of a number that is too large returns the largest one.
        self.add_credit((now.saturating_duration_since(self.credited).as_secs_f64() * CREDIT_PER_SECOND) as u64);
        if self.credit > 0 {
            self.credited = now;
        }
    }

    fn add_credit(&mut self, frames: u64) {
        self.credit = self.credit.saturating_add(frames).min(CREDIT_CAP);
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

    /// The number of frames that are accepted, if they arrive in pieces of this size.
    fn accepted(frames: &mut FrameCredit, frame: &[u8], piece: usize) -> u64 {
        let is_taken = |_: &u64| frame.chunks(piece).all(|bytes| frames.record_read(bytes));
        (0..2 * CREDIT_CAP).take_while(is_taken).count() as u64
    }

    #[test]
    fn control_frames_are_limited_in_any_chunks() {
        for piece in [1, 5, 9, 16, 100] {
            assert_eq!(accepted(&mut FrameCredit::new(), &frame(PING, 0, 8), piece), INITIAL_CREDIT, "{piece}");
            assert_eq!(accepted(&mut FrameCredit::new(), &frame(DATA, 0, 0), piece), INITIAL_CREDIT, "{piece}");
            assert_eq!(accepted(&mut FrameCredit::new(), &frame(DATA, PADDED, 1), piece), INITIAL_CREDIT, "{piece}");
        }
    }

    #[test]
    fn requests_and_responses_add_credit() {
        let mut frames = FrameCredit::new();
        assert_eq!(accepted(&mut frames, &frame(DATA, 0, 20_000), 4_096), 2 * CREDIT_CAP);
        assert!(frames.record_read(&frame(HEADERS, 4, 30)) && frames.record_read(&frame(DATA, END_STREAM, 0)));
        assert_eq!(accepted(&mut frames, &frame(PING, 0, 8), 100), INITIAL_CREDIT + CREDIT_PER_REQUEST);
        let mut frames = FrameCredit::new();
        for _ in 0..1_000 {
            frames.record_written(100);
        }
        assert_eq!(accepted(&mut frames, &frame(PING, 0, 8), 100), INITIAL_CREDIT + 100_000 / BYTES_PER_CREDIT);
        let mut frames = FrameCredit::new();
        assert_eq!(accepted(&mut frames, &frame(PING, 0, 8), 100), INITIAL_CREDIT);
        let mut frames = FrameCredit { credit: 0, ..frames };
        frames.credit_time(frames.credited + std::time::Duration::from_secs(20));
        assert_eq!(frames.credit, 40, "answers to the service's own pings");
        let mut frames = FrameCredit::new();
        frames.record_written(1 << 40);
        assert_eq!(accepted(&mut frames, &frame(PING, 0, 8), 100), CREDIT_CAP, "the credit has a limit");
    }
}
