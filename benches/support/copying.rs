//! Copying bytes on one thread: what other work is held against.

use std::time::{Duration, Instant};

use super::samples::Samples;

/// Copies between two buffers that no cache holds once they are large.
pub struct Memcpy {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Memcpy {
    const BYTES: usize = 256 << 20;

    /// Buffers whose memory is there already.
    pub fn new() -> Memcpy {
        Memcpy { from: vec![1; Memcpy::BYTES], to: vec![2; Memcpy::BYTES] }
    }

    /// How long copying so many bytes takes on one thread: the median of a few.
    pub fn duration(&mut self, bytes: u64) -> Duration {
        let mut samples = Samples::default();
        for _ in 0..5 {
            let started = Instant::now();
            let mut left = bytes as usize;
            while left > 0 {
                let length = left.min(Memcpy::BYTES);
                self.to[..length].copy_from_slice(std::hint::black_box(&self.from[..length]));
                std::hint::black_box(&mut self.to);
                left -= length;
            }
            samples.add(started.elapsed());
        }
        samples.median()
    }
}
