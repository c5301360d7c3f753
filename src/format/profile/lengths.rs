//! How long the strings of a path are: how many of them there are in each range of lengths. The ranges are those of the
//! powers of two, so a path needs few of them however long its strings are.

use std::ops::RangeInclusive;

use strata_json::{Part, Text};

/// Counts a string, where `counts` are the numbers of strings with 0, 1, 2 to 3, 4 to 7, … characters.
#[inline]
pub(super) fn count_length(counts: &mut Vec<u64>, text: Text<'_>) {
    // The bits of the length are the place of its range.
    let place = (u64::BITS - characters(text).leading_zeros()) as usize;
    if place >= counts.len() {
        counts.resize(place + 1, 0);
    }
    counts[place] += 1;
}

/// The lengths that the count at this place is of.
pub fn lengths_at(place: usize) -> RangeInclusive<u64> {
    match place {
        0 => 0..=0,
        // Longer ones than there can be share the last range.
        place => {
            let first = 1_u64 << (place - 1).min(63);
            first..=first - 1 + first
        }
    }
}

#[inline]
fn characters(text: Text<'_>) -> u64 {
    if text.is_plain() {
        return begun(text.raw());
    }
    let mut sum = 0;
    text.for_each_part(|part| {
        sum += match part {
            Part::Plain(bytes) => begun(bytes),
            Part::Escaped(_) => 1,
        }
    });
    sum
}

/// The characters that begin in UTF-8: all bytes but those that go on with one.
#[inline]
fn begun(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from((*byte as i8) >= -0x40)).sum()
}
