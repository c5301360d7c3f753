//! How long the strings of a path are: how many of them there are in each range of lengths. The ranges are those of the
//! powers of two, so a path needs few of them however long its strings are.

use std::ops::RangeInclusive;

use strata_json::{Part, Text};

/// The numbers of strings with 0, 1, 2 to 3, 4 to 7, … characters.
#[derive(Default)]
pub(super) struct Lengths {
    /// As many as the longest string needs.
    pub(super) counts: Vec<u64>,
}

impl Lengths {
    #[inline]
    pub(super) fn add(&mut self, text: Text<'_>) {
        // The bits of the length are the place of its range.
        let place = (u64::BITS - characters(text).leading_zeros()) as usize;
        if place >= self.counts.len() {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_counted_by_their_characters() {
        for (raw, length) in [
            ("", 0),
            ("a", 1),
            ("é", 1),
            ("日本", 2),
            ("𐐀", 1),
            ("\\n", 1),
            ("\\u0001\\\\\\\"x", 4),
            ("é\\té", 3),
            ("👩\u{200d}👧", 3),
        ] {
            assert_eq!(characters(Text::new(raw.as_bytes())), length, "{raw}");
        }
        let long = "é".repeat(1_000);
        assert_eq!(characters(Text::new(long.as_bytes())), 1_000);
    }

    #[test]
    fn every_length_has_one_range() {
        let mut next = 0;
        for place in 0..=64 {
            let range = lengths_at(place);
            assert_eq!(*range.start(), next, "{place}");
            next = range.end().wrapping_add(1);
            let (first, last) = ("x".repeat(*range.start().min(&5_000) as usize), *range.end());
            if last < 5_000 {
                let mut lengths = Lengths::default();
                lengths.add(Text::new(first.as_bytes()));
                lengths.add(Text::new("x".repeat(last as usize).as_bytes()));
                assert_eq!((lengths.counts.len(), lengths.counts[place]), (place + 1, 2));
            }
        }
        assert_eq!(next, 0, "all that can be counted");
    }
}
