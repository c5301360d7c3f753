//! The checksums of a file's blocks, taken while it is made: what is read of it is what was written.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes that have a checksum, and that are read for a client at once.
pub(super) const BLOCK_BYTES: u64 = 256 << 10;

#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) bytes: u64,
    /// Of the whole blocks, at least as many as have been written.
    whole: Arc<RwLock<Vec<u32>>>,
    last: crc32fast::Hasher,
}

impl Sums {
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = BLOCK_BYTES - self.bytes % BLOCK_BYTES;
            let (block, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.last.update(block);
            self.bytes += block.len() as u64;
            if self.bytes.is_multiple_of(BLOCK_BYTES) {
                let sum = std::mem::take(&mut self.last).finalize();
                self.whole.write().unwrap_or_else(PoisonError::into_inner).push(sum);
            }
            bytes = rest;
        }
    }

    /// The checksums of all blocks, in order, of a file that is written.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let mut all = self.whole.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !self.bytes.is_multiple_of(BLOCK_BYTES) {
            all.push(self.last.clone().finalize());
        }
        all
    }

    /// Where the block lies that holds a byte, as far as it is written.
    pub(super) fn block(&self, at: u64) -> Range<u64> {
        let start = at - at % BLOCK_BYTES;
        start..self.bytes.min(start + BLOCK_BYTES)
    }

    /// Whether this is what was written as the block that begins there.
    pub(super) fn verify(&self, start: u64, block: &[u8]) -> bool {
        let whole = || {
            let whole = self.whole.read().unwrap_or_else(PoisonError::into_inner);
            whole.get(usize::try_from(start / BLOCK_BYTES).ok()?).copied()
        };
        let expected = match start + BLOCK_BYTES <= self.bytes {
            true => whole(),
            false => Some(self.last.clone().finalize()),
        };
        expected == Some(crc32fast::hash(block))
    }
}
