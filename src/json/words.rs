//! The words of a search text, 64 bytes at a time.
//!
//! Bytes are of three kinds: *breaks* (up to 0x20, and 0xFF), *word* bytes (ASCII letters and digits, and all other
//! bytes from 0x80) and *marks* (the rest). Bytes one after another are told apart without a branch for each: words are
//! short, and where they end is what a processor guesses worst.

use super::scan::{BLOCK_BYTES, LANE_BYTES, Lane, block_at};

/// The kinds of 64 bytes: one bit per byte, the lowest for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kinds {
    breaks: u64,
    words: u64,
}

impl Kinds {
    #[inline]
    fn new(bytes: &[u8; BLOCK_BYTES]) -> Kinds {
        let mut kinds = Kinds { breaks: 0, words: 0 };
        for (number, bytes) in bytes.as_chunks::<LANE_BYTES>().0.iter().enumerate() {
            let shift = number * LANE_BYTES;
            let lane = Lane::load(bytes);
            // Letters of both cases differ in this bit only.
            let lower = lane.or(0x20);
            let letters = lower.at_most(b'z') & !lower.at_most(b'a' - 1);
            let digits = lane.at_most(b'9') & !lane.at_most(b'0' - 1);
            let last = lane.equal(0xff);
            kinds.breaks |= u64::from(lane.at_most(b' ') | last) << shift;
            kinds.words |= u64::from((letters | digits | lane.not_ascii()) & !last) << shift;
        }
        kinds
    }
}

/// Calls `piece` with the start and the end of each piece of a text, in their order. A text is cut on both sides of
/// each break, and between a mark and a word byte that follows it. Its pieces are what is left without breaks.
#[inline]
pub fn for_each_piece(text: &[u8], mut piece: impl FnMut(usize, usize)) {
    // Of the byte before the block: whether it is a break, or a mark. There is none before the first.
    let mut after_break = 1;
    let mut after_mark = 0;
    // Where the piece began that goes on.
    let mut open = None;
    let mut at = 0;
    while at < text.len() {
        // Behind the end are blanks, which are breaks.
        let Kinds { breaks, words } = Kinds::new(&block_at(text, at).0);
        let marks = !(breaks | words);
        let behind_break = breaks << 1 | after_break;
        let behind_mark = marks << 1 | after_mark;
        let starts = !breaks & (behind_break | (words & behind_mark));
        let mut cuts = starts | (breaks & !behind_break);
        while cuts != 0 {
            let bit = cuts.trailing_zeros();
            let place = at + bit as usize;
            cuts &= cuts - 1;
            let begins = starts >> bit & 1 == 1;
            if let Some(start) = std::mem::replace(&mut open, begins.then_some(place)) {
                piece(start, place);
            }
        }
        (after_break, after_mark) = (breaks >> 63, marks >> 63);
        at += BLOCK_BYTES;
    }
    if let Some(start) = open {
        piece(start, text.len());
    }
}
