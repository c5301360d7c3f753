//! Splits search text into tokens, 64 bytes at a time.
//!
//! There are three classes of bytes: *separators* (up to 0x20, and 0xFF), *word bytes* (ASCII letters and digits, and
//! all other bytes from 0x80), and *punctuation* (the rest). Bit masks classify the bytes without a branch for each
//! byte, because words are short and processors predict their ends badly.

use super::scan::{BLOCK_BYTES, ByteLane, LANE_BYTES, load_block};

/// The classes of 64 bytes: one bit per byte, the lowest bit for the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByteClassMasks {
    separators: u64,
    word_bytes: u64,
}

impl ByteClassMasks {
    #[inline]
    fn new(bytes: &[u8; BLOCK_BYTES]) -> ByteClassMasks {
        let mut classes = ByteClassMasks { separators: 0, word_bytes: 0 };
        for (number, bytes) in bytes.as_chunks::<LANE_BYTES>().0.iter().enumerate() {
            let shift = number * LANE_BYTES;
            let lane = ByteLane::load(bytes);
            // Uppercase and lowercase ASCII letters differ only in the bit 0x20.
            let lower = lane.or_byte(0x20);
            let letters = lower.le_mask(b'z') & !lower.le_mask(b'a' - 1);
            let digits = lane.le_mask(b'9') & !lane.le_mask(b'0' - 1);
            let last = lane.eq_mask(0xff);
            classes.separators |= u64::from(lane.le_mask(b' ') | last) << shift;
            classes.word_bytes |= u64::from((letters | digits | lane.non_ascii_mask()) & !last) << shift;
        }
        classes
    }
}

/// Calls `visit` with the start and the end of each token, in order. A token ends before a separator, and between
/// punctuation and a word byte: `ab-cd e` has the tokens `ab-`, `cd`, and `e`.
#[inline]
pub fn for_each_token(text: &[u8], mut visit: impl FnMut(usize, usize)) {
    // The class of the byte before the current block. The text begins as if a separator preceded it.
    let mut after_separator = 1;
    let mut after_punctuation = 0;
    let mut open = None;
    let mut at = 0;
    while at < text.len() {
        // The last block of the text is padded with spaces, which are separators.
        let ByteClassMasks { separators, word_bytes } = ByteClassMasks::new(&load_block(text, at).0);
        let punctuation = !(separators | word_bytes);
        let follows_separator = separators << 1 | after_separator;
        let follows_punctuation = punctuation << 1 | after_punctuation;
        let starts = !separators & (follows_separator | (word_bytes & follows_punctuation));
        let mut boundaries = starts | (separators & !follows_separator);
        while boundaries != 0 {
            let bit = boundaries.trailing_zeros();
            let position = at + bit as usize;
            boundaries &= boundaries - 1;
            let is_start = starts >> bit & 1 == 1;
            if let Some(start) = std::mem::replace(&mut open, is_start.then_some(position)) {
                visit(start, position);
            }
        }
        after_separator = separators >> 63;
        after_punctuation = punctuation >> 63;
        at += BLOCK_BYTES;
    }
    if let Some(start) = open {
        visit(start, text.len());
    }
}
