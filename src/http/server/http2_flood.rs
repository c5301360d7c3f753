//! A limit for the HTTP/2 control frames of a client.
//!
//! A client can send PINGs, SETTINGS, WINDOW_UPDATEs, and empty frames at any rate. Each frame costs the service more
//! than the client, and no request limit counts it. So each connection has a credit for control frames: an initial
//! credit, and more for each request, for response bytes that the client reads (because it must open the windows), and
//! for the elapsed time (because it must answer pings). For example, PING 101 of a new connection closes it.

use std::time::Instant;

/// The control frames that a new connection can send: SETTINGS, windows, priorities, and pings over hours.
const INITIAL_CREDIT: u64 = 100;
const CREDIT_PER_REQUEST: u64 = 50;
const MAX_CREDIT: u64 = 10_000;

/// Response bytes read per additional control frame. A client can open two windows for every few hundred bytes.
const BYTES_PER_CREDIT: u64 = 128;

/// Control frames that a client can send for each elapsed second: enough to respond to pings, because
/// `server.keep_alive_s` is at least 1.
const CREDIT_PER_SECOND: f64 = 2.0;

/// A frame header: the length in three bytes, the type, the flags, and the stream (RFC 9113, section 4.1).
const FRAME_HEADER_BYTES: usize = 9;
const DATA_FRAME: u8 = 0x0;
const HEADERS_FRAME: u8 = 0x1;
const END_STREAM_FLAG: u8 = 0x1;
const PADDED_FLAG: u8 = 0x8;

/// A parser for the HTTP/2 frames of a connection after its preface, with the credit for control frames.
#[derive(Debug)]
pub(super) struct ControlFrameCredit {
    header: [u8; FRAME_HEADER_BYTES],
    header_filled: usize,
    payload_left: usize,
    credit: u64,
    /// The time until which `CREDIT_PER_SECOND` has been added to the credit.
    credited_until: Instant,
    /// Response bytes that have not been converted to credit yet.
    uncredited_bytes: u64,
}

impl ControlFrameCredit {
    pub(super) fn new() -> ControlFrameCredit {
        ControlFrameCredit {
            header: [0; FRAME_HEADER_BYTES],
            header_filled: 0,
            payload_left: 0,
            credit: INITIAL_CREDIT,
            credited_until: Instant::now(),
            uncredited_bytes: 0,
        }
    }

    /// Counts the control frames in the received bytes. Returns false if the credit is used up.
    pub(super) fn try_charge_frames(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let skipped = self.payload_left.min(bytes.len());
                self.payload_left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let length = (FRAME_HEADER_BYTES - self.header_filled).min(bytes.len());
            self.header[self.header_filled..self.header_filled + length].copy_from_slice(&bytes[..length]);
            self.header_filled += length;
            bytes = &bytes[length..];
            if self.header_filled == FRAME_HEADER_BYTES && !self.try_charge_frame() {
                return false;
            }
        }
        true
    }

    pub(super) fn add_write_credit(&mut self, bytes: usize) {
        self.uncredited_bytes += bytes as u64;
        self.add_credit(self.uncredited_bytes / BYTES_PER_CREDIT);
        self.uncredited_bytes %= BYTES_PER_CREDIT;
    }

    /// Handles a complete frame header. Returns false if there is no credit for the frame.
    fn try_charge_frame(&mut self) -> bool {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.header_filled = 0;
        self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS_FRAME => self.add_credit(CREDIT_PER_REQUEST),
            // Padded DATA frames use up credit, because h2 returns the window of the padding at once.
            DATA_FRAME if flags & END_STREAM_FLAG != 0 || self.payload_left > 0 && flags & PADDED_FLAG == 0 => {}
            _ => {
                if self.credit == 0 {
                    self.add_time_credit(Instant::now());
                }
                match self.credit.checked_sub(1) {
                    Some(credit) => self.credit = credit,
                    None => return false,
                }
            }
        }
        true
    }

    fn add_time_credit(&mut self, now: Instant) {
        // The conversion to `u64` saturates.
        self.add_credit((now.saturating_duration_since(self.credited_until).as_secs_f64() * CREDIT_PER_SECOND) as u64);
        if self.credit > 0 {
            self.credited_until = now;
        }
    }

    fn add_credit(&mut self, frames: u64) {
        self.credit = self.credit.saturating_add(frames).min(MAX_CREDIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 0x6;

    fn build_frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = (length as u64).to_be_bytes();
        let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        frame.resize(FRAME_HEADER_BYTES + length, 0xff);
        frame
    }

    fn count_accepted(guard: &mut ControlFrameCredit, frame: &[u8], chunk_bytes: usize) -> u64 {
        let is_accepted = |_: &u64| frame.chunks(chunk_bytes).all(|bytes| guard.try_charge_frames(bytes));
        (0..2 * MAX_CREDIT).take_while(is_accepted).count() as u64
    }

    #[test]
    fn control_frames_are_limited_in_any_chunks() {
        let frames = [build_frame(PING, 0, 8), build_frame(DATA_FRAME, 0, 0), build_frame(DATA_FRAME, PADDED_FLAG, 1)];
        for chunk_bytes in [1, 5, 9, 16, 100] {
            for frame in &frames {
                let accepted = count_accepted(&mut ControlFrameCredit::new(), frame, chunk_bytes);
                assert_eq!(accepted, INITIAL_CREDIT, "{chunk_bytes}");
            }
        }
    }

    #[test]
    fn requests_and_responses_add_credit() {
        let ping = build_frame(PING, 0, 8);
        let mut guard = ControlFrameCredit::new();
        assert_eq!(count_accepted(&mut guard, &build_frame(DATA_FRAME, 0, 20_000), 4_096), 2 * MAX_CREDIT);
        assert!(guard.try_charge_frames(&build_frame(HEADERS_FRAME, 4, 30)));
        assert!(guard.try_charge_frames(&build_frame(DATA_FRAME, END_STREAM_FLAG, 0)));
        assert_eq!(count_accepted(&mut guard, &ping, 100), INITIAL_CREDIT + CREDIT_PER_REQUEST);

        let mut guard = ControlFrameCredit::new();
        for _ in 0..1_000 {
            guard.add_write_credit(100);
        }
        assert_eq!(count_accepted(&mut guard, &ping, 100), INITIAL_CREDIT + 100_000 / BYTES_PER_CREDIT);

        let mut guard = ControlFrameCredit::new();
        assert_eq!(count_accepted(&mut guard, &ping, 100), INITIAL_CREDIT);
        guard.add_time_credit(guard.credited_until + std::time::Duration::from_secs(20));
        assert_eq!(guard.credit, 40, "credit for 20 s");

        let mut guard = ControlFrameCredit::new();
        guard.add_write_credit(1 << 40);
        assert_eq!(count_accepted(&mut guard, &ping, 100), MAX_CREDIT, "the credit is limited");
    }
}
