//! An index of the trigrams of a text, for fast substring search.
//!
//! The text is divided into blocks. For each trigram hash, a bitmap marks the blocks in which such a trigram starts. A
//! match can only start in a block with the needle's first trigram, and each further trigram must start in this block
//! or in the next one. Hashes can collide, so the remaining blocks are still searched.

use memchr::memmem::Finder;

const TRIGRAM_BLOCK_BYTES: usize = 1 << 10;
const TRIGRAM_HASH_BITS: u32 = 12;
const TRIGRAM_BYTES: usize = 3;
/// Max number of trigrams of a needle that are looked up. They reach at most into the block after the start of a match.
const MAX_NEEDLE_TRIGRAMS: usize = 32;

#[derive(Debug)]
pub(super) struct TrigramIndex {
    block_count: usize,
    words_per_bitmap: usize,
    bitmaps: Vec<u64>,
}

pub(super) struct CandidateBlocks(Vec<u64>);

impl TrigramIndex {
    pub(super) fn new(text: &[u8]) -> TrigramIndex {
        let block_count = text.len().div_ceil(TRIGRAM_BLOCK_BYTES);
        let words_per_bitmap = block_count.div_ceil(64);
        let mut bitmaps = vec![0; words_per_bitmap << TRIGRAM_HASH_BITS];
        for (offset, trigram) in text.windows(TRIGRAM_BYTES).enumerate() {
            let block = offset / TRIGRAM_BLOCK_BYTES;
            if let Some(word) = bitmaps.get_mut(hash_trigram(trigram) * words_per_bitmap + block / 64) {
                *word |= 1 << (block % 64);
            }
        }
        TrigramIndex { block_count, words_per_bitmap, bitmaps }
    }

    pub(super) fn memory_bytes(text_bytes: usize) -> usize {
        (text_bytes.div_ceil(TRIGRAM_BLOCK_BYTES).div_ceil(64) << TRIGRAM_HASH_BITS) * size_of::<u64>()
    }

    /// Returns the blocks in which a match can start, or `None` if the needle is too short or most blocks remain.
    pub(super) fn candidate_blocks(&self, needle: &[u8]) -> Option<CandidateBlocks> {
        let mut bitmaps = needle.windows(TRIGRAM_BYTES).take(MAX_NEEDLE_TRIGRAMS).map(|trigram| {
            let start = hash_trigram(trigram) * self.words_per_bitmap;
            self.bitmaps.get(start..start + self.words_per_bitmap).unwrap_or_default()
        });
        let mut blocks = bitmaps.next()?.to_vec();
        for bitmap in bitmaps {
            for (number, block) in blocks.iter_mut().enumerate() {
                let this = bitmap.get(number).copied();
                let next = bitmap.get(number + 1).copied();
                // The bitmap is shifted by one block: each bit shows whether the next block contains the trigram.
                let next_blocks = this.unwrap_or_default() >> 1 | next.unwrap_or_default() << 63;
                *block &= this.unwrap_or_default() | next_blocks;
            }
        }
        let count: usize = blocks.iter().map(|word| word.count_ones() as usize).sum();
        (count <= self.block_count / 2).then_some(CandidateBlocks(blocks))
    }
}

impl CandidateBlocks {
    pub(super) fn find(&self, text: &[u8], finder: &Finder<'_>, mut at: usize) -> Option<usize> {
        loop {
            let first = self.next_block(at / TRIGRAM_BLOCK_BYTES, |word| word)?;
            let end_block = self.next_block(first, |word| !word).unwrap_or(self.0.len() * 64);
            let from = at.max(first * TRIGRAM_BLOCK_BYTES);
            let end = text.len().min(end_block * TRIGRAM_BLOCK_BYTES + finder.needle().len() - 1);
            if let Some(hit) = text.get(from..end).and_then(|window| finder.find(window)) {
                return Some(from + hit);
            }
            at = end_block * TRIGRAM_BLOCK_BYTES;
        }
    }

    /// Finds the first block from `block` on whose bit is set after `map_word` is applied to each word of the bitmap.
    fn next_block(&self, block: usize, map_word: impl Fn(u64) -> u64) -> Option<usize> {
        let mut number = block / 64;
        let mut word = map_word(*self.0.get(number)?) & u64::MAX << (block % 64);
        while word == 0 {
            number += 1;
            word = map_word(*self.0.get(number)?);
        }
        Some(number * 64 + word.trailing_zeros() as usize)
    }
}

#[inline]
fn hash_trigram(trigram: &[u8]) -> usize {
    const HASH_MULTIPLIER: u32 = 0x9E37_79B1;
    let number = trigram.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    (number.wrapping_mul(HASH_MULTIPLIER) >> (u32::BITS - TRIGRAM_HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_needle_has_few_blocks() {
        let text: Vec<u8> = (0..40_000).flat_map(|number: u32| format!("word{number}.").into_bytes()).collect();
        let index = TrigramIndex::new(&text);
        assert_eq!(TrigramIndex::memory_bytes(text.len()), size_of_val(&index.bitmaps[..]));
        let blocks = index.candidate_blocks(b"word31234.").expect("failed to find candidate blocks");
        assert!(blocks.0.iter().map(|word| word.count_ones()).sum::<u32>() < 40);
        assert!(index.candidate_blocks(b"wo").is_none() && index.candidate_blocks(b"word").is_none());
    }
}
