//! The checksums of a file's blocks, computed while it is written, so that readers get only what was written.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a block, which has a checksum, and is read for a client as a whole.
pub(super) const BLOCK_BYTES: u64 = 256 << 10;

#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) bytes: u64,
    /// Of the complete blocks. All clones share them, so an older clone has checksums of later blocks, too.
    whole: Arc<RwLock<Vec<u32>>>,
    last: crc32fast::Hasher,
}

impl Sums {
    /// The checksums of a file of `bytes` bytes, from the checksum of each of its blocks.
    pub(super) fn from_blocks(bytes: u64, mut blocks: Vec<u32>) -> Sums {
        let last = if bytes.is_multiple_of(BLOCK_BYTES) { 0 } else { blocks.pop().unwrap_or_default() };
        let last = crc32fast::Hasher::new_with_initial(last);
        Sums { bytes, whole: Arc::new(RwLock::new(blocks)), last }
    }

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

    /// The checksums of all blocks, in order, of a complete file.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let mut all = self.whole.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !self.bytes.is_multiple_of(BLOCK_BYTES) {
            all.push(self.last.clone().finalize());
        }
        all
    }

    /// The range of the block that contains a byte, as far as it is written.
    pub(super) fn block(&self, at: u64) -> Range<u64> {
        let start = at - at % BLOCK_BYTES;
        start..self.bytes.min(start + BLOCK_BYTES)
    }

    /// Whether these are the blocks of the file that begin at `start`.
    pub(super) fn verify(&self, start: u64, bytes: &[u8]) -> bool {
        let starts = (start..).step_by(BLOCK_BYTES as usize);
        bytes.chunks(BLOCK_BYTES as usize).zip(starts).all(|(block, start)| self.verify_block(start, block))
    }

    fn verify_block(&self, start: u64, block: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetched_checksums_equal_computed_ones() {
        for bytes in [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES] {
            let mut file: Vec<u8> = (0..bytes).map(|number| (number % 251) as u8).collect();
            let mut written = Sums::default();
            written.update(&file);
            let fetched = Sums::from_blocks(bytes, written.blocks());
            assert!(fetched.verify(0, &file) && fetched.blocks() == written.blocks(), "{bytes}");
            *file.last_mut().expect("a byte") ^= 1;
            assert!(!fetched.verify(0, &file), "{bytes}");
        }
    }
}
