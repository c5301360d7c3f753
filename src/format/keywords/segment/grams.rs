//! Which parts of a text may hold a needle, by the bytes that stand together in it.
//!
//! A text is cut into blocks. For each of some hashes there is a bitmap of blocks: those in which three bytes with that
//! hash begin. A needle begins only in blocks that have its first three bytes, and of which they or the one behind have
//! each further three. So a needle is looked for in few blocks, however long the text is. The blocks say nothing for
//! sure: the bytes in them decide.

use memchr::memmem::Finder;

const BLOCK_BYTES: usize = 1 << 10;

const HASH_BITS: u32 = 12;

const GRAM: usize = 3;

/// How many of a needle are asked for: they reach no further than into the block behind.
const MAX_GRAMS: usize = 32;

#[derive(Debug)]
pub(super) struct Grams {
    blocks: usize,
    words: usize,
    bits: Vec<u64>,
}

pub(super) struct Blocks(Vec<u64>);

impl Grams {
    pub(super) fn new(text: &[u8]) -> Grams {
        let blocks = text.len().div_ceil(BLOCK_BYTES);
        let words = blocks.div_ceil(64);
        let mut bits = vec![0; words << HASH_BITS];
        for (at, gram) in text.windows(GRAM).enumerate() {
            let block = at / BLOCK_BYTES;
            if let Some(word) = bits.get_mut(hash(gram) * words + block / 64) {
                *word |= 1 << (block % 64);
            }
        }
        Grams { blocks, words, bits }
    }

    /// Memory that those of a text of so many bytes take.
    pub(super) fn memory_bytes(text_bytes: usize) -> usize {
        (text_bytes.div_ceil(BLOCK_BYTES).div_ceil(64) << HASH_BITS) * size_of::<u64>()
    }

    /// Where a needle may begin. `None` where it is too short to tell, or may begin almost anywhere.
    pub(super) fn blocks(&self, needle: &[u8]) -> Option<Blocks> {
        let mut grams = needle.windows(GRAM).take(MAX_GRAMS).map(|gram| {
            let start = hash(gram) * self.words;
            self.bits.get(start..start + self.words).unwrap_or_default()
        });
        let mut blocks = grams.next()?.to_vec();
        for gram in grams {
            for (number, block) in blocks.iter_mut().enumerate() {
                let this = gram.get(number).copied();
                let next = gram.get(number + 1).copied();
                // The blocks behind, in the place of each.
                let behind = this.unwrap_or_default() >> 1 | next.unwrap_or_default() << 63;
                *block &= this.unwrap_or_default() | behind;
            }
        }
        let count: usize = blocks.iter().map(|word| word.count_ones() as usize).sum();
        (count <= self.blocks / 2).then_some(Blocks(blocks))
    }
}

impl Blocks {
    /// The first place from `at` on where a text holds the needle.
    pub(super) fn find(&self, text: &[u8], finder: &Finder<'_>, mut at: usize) -> Option<usize> {
        loop {
            let first = self.next(at / BLOCK_BYTES, |word| word)?;
            let behind = self.next(first, |word| !word).unwrap_or(self.0.len() * 64);
            let from = at.max(first * BLOCK_BYTES);
            let end = text.len().min(behind * BLOCK_BYTES + finder.needle().len() - 1);
            if let Some(hit) = text.get(from..end).and_then(|part| finder.find(part)) {
                return Some(from + hit);
            }
            at = behind * BLOCK_BYTES;
        }
    }

    /// The first block from one on whose bit is set in what a function makes of the words.
    fn next(&self, block: usize, of: impl Fn(u64) -> u64) -> Option<usize> {
        let mut number = block / 64;
        let mut word = of(*self.0.get(number)?) & u64::MAX << (block % 64);
        while word == 0 {
            number += 1;
            word = of(*self.0.get(number)?);
        }
        Some(number * 64 + word.trailing_zeros() as usize)
    }
}

#[inline]
fn hash(gram: &[u8]) -> usize {
    const ODD: u32 = 0x9E37_79B1;
    let number = gram.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    (number.wrapping_mul(ODD) >> (u32::BITS - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_needle_has_few_blocks() {
        let text: Vec<u8> = (0..40_000).flat_map(|number: u32| format!("word{number}.").into_bytes()).collect();
        let grams = Grams::new(&text);
        assert_eq!(Grams::memory_bytes(text.len()), size_of_val(&grams.bits[..]));
        let blocks = grams.blocks(b"word31234.").expect("few");
        assert!(blocks.0.iter().map(|word| word.count_ones()).sum::<u32>() < 40);
        assert!(grams.blocks(b"wo").is_none() && grams.blocks(b"word").is_none());
    }
}
