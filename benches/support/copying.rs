//! The time to copy bytes on one thread, as a baseline.

use std::time::{Duration, Instant};

use super::samples::Samples;

/// Two buffers for copies, large enough that no processor cache can hold them.
pub struct Memcpy {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Memcpy {
    const BYTES: usize = 256 << 20;

    /// Allocates the buffers and touches their memory.
    pub fn new() -> Memcpy {
        Memcpy { from: vec![1; Memcpy::BYTES], to: vec![2; Memcpy::BYTES] }
    }

    /// Returns the time to copy `bytes` bytes on one thread: the median of a few copies.
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
