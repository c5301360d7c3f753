//! Checksums of the blocks of an export file, computed while the file is written. Readers verify each block, so that a
//! damaged file never reaches a client.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

pub(super) const BLOCK_BYTES: u64 = 256 << 10;

#[derive(Clone, Debug, Default)]
pub(super) struct BlockChecksums {
    pub(super) size_bytes: u64,
    /// CRC-32 of each complete block of the export. Clones share the list, so older clones also have later checksums.
    full_blocks: Arc<RwLock<Vec<u32>>>,
    last_hasher: crc32fast::Hasher,
}

impl BlockChecksums {
    pub(super) fn from_blocks(size_bytes: u64, mut blocks: Vec<u32>) -> BlockChecksums {
        let last = if size_bytes.is_multiple_of(BLOCK_BYTES) { 0 } else { blocks.pop().unwrap_or_default() };
        let last_hasher = crc32fast::Hasher::new_with_initial(last);
        BlockChecksums { size_bytes, full_blocks: Arc::new(RwLock::new(blocks)), last_hasher }
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let missing_bytes = BLOCK_BYTES - self.size_bytes % BLOCK_BYTES;
            let (block, rest) = bytes.split_at(bytes.len().min(usize::try_from(missing_bytes).unwrap_or(usize::MAX)));
            self.last_hasher.update(block);
            self.size_bytes += block.len() as u64;
            if self.size_bytes.is_multiple_of(BLOCK_BYTES) {
                let checksum = std::mem::take(&mut self.last_hasher).finalize();
                self.full_blocks.write().push(checksum);
            }
            bytes = rest;
        }
    }

    pub(super) fn block_checksums(&self) -> Vec<u32> {
        let mut all = self.full_blocks.read().clone();
        if !self.size_bytes.is_multiple_of(BLOCK_BYTES) {
            all.push(self.last_hasher.clone().finalize());
        }
        all
    }

    pub(super) fn block_range(&self, offset: u64) -> Range<u64> {
        let start = offset - offset % BLOCK_BYTES;
        start..self.size_bytes.min(start + BLOCK_BYTES)
    }

    pub(super) fn verify(&self, start: u64, bytes: &[u8]) -> bool {
        let starts = (start..).step_by(BLOCK_BYTES as usize);
        bytes.chunks(BLOCK_BYTES as usize).zip(starts).all(|(block, start)| self.verify_block(start, block))
    }

    fn verify_block(&self, start: u64, block: &[u8]) -> bool {
        let full_block = || {
            let full_block = self.full_blocks.read();
            full_block.get(usize::try_from(start / BLOCK_BYTES).ok()?).copied()
        };
        let expected = match start + BLOCK_BYTES <= self.size_bytes {
            true => full_block(),
            false => Some(self.last_hasher.clone().finalize()),
        };
        expected == Some(crc32fast::hash(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetched_checksums_equal_computed_checksums() {
        for size_bytes in [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES] {
            let mut file: Vec<u8> = (0..size_bytes).map(|number| (number % 251) as u8).collect();
            let mut written = BlockChecksums::default();
            written.update(&file);
            let fetched = BlockChecksums::from_blocks(size_bytes, written.block_checksums());
            assert!(fetched.verify(0, &file) && fetched.block_checksums() == written.block_checksums(), "{size_bytes}");
            *file.last_mut().expect("a byte") ^= 1;
            assert!(!fetched.verify(0, &file), "{size_bytes}");
        }
    }
}
