//! Histogram of the string lengths of a path. The bins are powers of two, so even long strings need few bins.

use std::ops::RangeInclusive;

use strata_json::{JsonStr, JsonStrPart};

/// Counts a string by its length. `counts` are the numbers of strings with 0, 1, 2 to 3, 4 to 7, … characters.
#[inline]
pub(super) fn count_string_length(counts: &mut Vec<u64>, text: JsonStr<'_>) {
    // The bin of a string is the number of significant bits of its length in characters.
    let bin = (u64::BITS - count_characters(text).leading_zeros()) as usize;
    if bin >= counts.len() {
        counts.resize(bin + 1, 0);
    }
    counts[bin] += 1;
}

pub fn length_range(bin: usize) -> RangeInclusive<u64> {
    match bin {
        0 => 0..=0,
        // The last bin ends at the maximum of `u64`, so its range cannot overflow.
        bin => {
            let first = 1_u64 << (bin - 1).min(63);
            first..=first - 1 + first
        }
    }
}

#[inline]
fn count_characters(text: JsonStr<'_>) -> u64 {
    if text.is_plain() {
        return count_utf8_characters(text.raw());
    }
    let mut sum = 0;
    text.for_each_part(|part| {
        sum += match part {
            JsonStrPart::Plain(bytes) => count_utf8_characters(bytes),
            JsonStrPart::Escaped(_) => 1,
        }
    });
    sum
}

#[inline]
fn count_utf8_characters(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from((*byte as i8) >= -0x40)).sum()
}
