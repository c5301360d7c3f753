//! Histogram of the numbers of a path, with exact counts in bins of equal width.
//!
//! The width is the smallest power of two for which all numbers fit into [`MAX_BINS`] bins. When a number outside the
//! bins is added, adjacent bins are merged. Therefore, the histogram does not depend on the order of the numbers.

use serde::{Deserialize, Serialize};

const MAX_BINS: usize = 32;
/// Smallest exponent of a bin width. The inverse of a smaller width might not be a normal double.
const MIN_EXPONENT: i32 = -1_000;
/// Largest exponent of a bin width. Bins of this width cover all doubles.
const MAX_EXPONENT: i32 = 1_022;
const FRACTION_BITS: i32 = 52;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberHistogram {
    /// The bins have the width `2^exponent`, and the first one starts at `first` times the width.
    exponent: i32,
    first: i64,
    counts: Vec<u64>,
}

/// Numbers from `from` (inclusive) to `to` (exclusive).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRange {
    pub from: String,
    pub to: String,
    pub count: u64,
    /// Whether a range filter selects exactly the counted numbers. Beyond 2^53, integers share doubles.
    pub is_exact: bool,
}

const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

impl NumberHistogram {
    /// Counts a number `times` times, and returns its nearest double. Numbers outside the range of doubles have no bin.
    #[inline]
    pub(super) fn add(&mut self, text: &str, times: u64) -> Option<f64> {
        let number = parse_double(text)?;
        let index = self.bin_index(number);
        match self.counts.get_mut(index) {
            Some(count) => *count += times,
            None => self.widen_and_add(number, times),
        }
        Some(number)
    }

    /// Removes a number `times` times, or returns `None` if it is not in the histogram. The width does not change.
    pub(super) fn remove(&mut self, text: &str, times: u64) -> Option<()> {
        let Some(number) = parse_double(text) else { return Some(()) };
        let index = self.bin_index(number);
        let count = self.counts.get_mut(index)?;
        *count = count.checked_sub(times)?;
        Some(())
    }

    #[inline]
    fn bin_index(&self, number: f64) -> usize {
        let bin = bin_number(number, power_of_two(-self.exponent));
        usize::try_from(bin.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }

    fn widen_and_add(&mut self, number: f64, times: u64) {
        let exponent = (binary_exponent(number) - FRACTION_BITS).max(MIN_EXPONENT);
        if self.counts.is_empty() {
            let first = bin_number(number, power_of_two(-exponent));
            *self = NumberHistogram { exponent, first, counts: vec![times] };
            return;
        }
        while self.exponent < exponent {
            self.coarsen();
        }
        loop {
            let bin = bin_number(number, power_of_two(-self.exponent));
            let last = self.first + self.counts.len() as i64 - 1;
            let first = self.first.min(bin);
            let last = last.max(bin);
            if last - first < MAX_BINS as i64 {
                let before = (self.first - first) as usize;
                self.counts.splice(..0, std::iter::repeat_n(0, before));
                self.counts.resize((last - first + 1) as usize, 0);
                self.first = first;
                self.counts[(bin - first) as usize] += times;
                return;
            }
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        (self.first, self.counts) = merge_adjacent_bins(self.first, &self.counts);
        self.exponent += 1;
    }

    pub(super) fn to_stored(&self) -> Option<NumberHistogram> {
        (self.counts.len() > 1).then(|| self.clone())
    }

    pub(super) fn is_valid(&self) -> bool {
        (MIN_EXPONENT..=MAX_EXPONENT).contains(&self.exponent) && (1..=MAX_BINS).contains(&self.counts.len())
    }

    /// Returns at most `max_ranges` ranges, but never fewer than 2. Ranges of integers have at least the width 1.
    pub fn to_ranges(&self, max_ranges: usize) -> Vec<NumberRange> {
        // The exponent comes from a stored file, so it might be invalid.
        if !(MIN_EXPONENT..=MAX_EXPONENT).contains(&self.exponent) {
            return Vec::new();
        }
        let mut exponent = self.exponent;
        let mut first = self.first;
        let mut counts = self.counts.clone();
        // If all occupied bins start at integers, the numbers are probably integers, so the minimum range width is 1.
        let whole = |exponent: i32| {
            let width_inverse =
                1_i64.checked_shl(exponent.unsigned_abs()).filter(|_| exponent > -63).unwrap_or(i64::MAX);
            bin_numbers_from(first).zip(&counts).all(|(bin, count)| *count == 0 || bin % width_inverse == 0)
        };
        let min_exponent = if exponent < 0 && whole(exponent) { 0 } else { exponent };
        while exponent < MAX_EXPONENT && (counts.len() > max_ranges.max(2) || exponent < min_exponent) {
            (first, counts) = merge_adjacent_bins(first, &counts);
            exponent += 1;
        }
        let edge = |bin: i64| bin as f64 * power_of_two(exponent);
        let range = |(bin, count): (i64, u64)| {
            let from = edge(bin);
            let to = edge(bin.saturating_add(1));
            let is_exact = from.abs() <= MAX_EXACT_INTEGER && to.abs() <= MAX_EXACT_INTEGER;
            NumberRange { from: format_double(from), to: format_double(to), count, is_exact }
        };
        bin_numbers_from(first).zip(counts).map(range).collect()
    }
}

fn format_double(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        1e-5..1e15 => number.to_string(),
        _ => format!("{number:e}"),
    }
}

/// Returns the index of the bin that contains a number. `scale` is the inverse of the bin width.
#[inline]
fn bin_number(number: f64, scale: f64) -> i64 {
    match (number * scale).floor() as i64 {
        // The product of a tiny negative number and `scale` can be zero, although the number is in bin -1.
        0 if number < 0.0 => -1,
        bin => bin,
    }
}

fn bin_numbers_from(first: i64) -> impl Iterator<Item = i64> {
    (0..).map(move |offset| first.saturating_add(offset))
}

fn merge_adjacent_bins(first: i64, counts: &[u64]) -> (i64, Vec<u64>) {
    let halved = first >> 1;
    let mut wider = Vec::with_capacity(counts.len() / 2 + 1);
    for (bin, count) in bin_numbers_from(first).zip(counts) {
        let index = ((bin >> 1) - halved) as usize;
        if index == wider.len() {
            wider.push(0);
        }
        wider[index] += count;
    }
    (halved, wider)
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1_023).clamp(1, 2_046) as u64) << FRACTION_BITS)
}

fn binary_exponent(number: f64) -> i32 {
    (number.to_bits() >> FRACTION_BITS & 0x7FF) as i32 - 1_023
}

#[inline]
fn parse_double(text: &str) -> Option<f64> {
    parse_short_decimal(text).or_else(|| text.parse().ok().filter(|number: &f64| number.is_finite()))
}

/// Parses a short decimal number without an exponent. Both the digits and the power of ten are exact doubles, so one
/// division rounds correctly.
#[inline]
fn parse_short_decimal(text: &str) -> Option<f64> {
    const POWERS_OF_TEN: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.len() > POWERS_OF_TEN.len() {
        return None;
    }
    let mut whole = 0_u64;
    let mut decimals = None;
    for byte in digits.bytes() {
        match byte {
            b'0'..=b'9' => {
                whole = whole * 10 + u64::from(byte - b'0');
                decimals = decimals.map(|decimals: usize| decimals + 1);
            }
            b'.' if decimals.is_none() => decimals = Some(0),
            _ => return None,
        }
    }
    // A number of 16 digits can exceed 2^53, beyond which not every integer is an exact double.
    if whole >= 1 << 53 {
        return None;
    }
    let number = whole as f64 / POWERS_OF_TEN.get(decimals.unwrap_or(0)).copied()?;
    Some(if digits.len() < text.len() { -number } else { number })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn short_decimal_equals_standard_parse(text in "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,8})?") {
            if let Some(number) = parse_short_decimal(&text) {
                prop_assert_eq!(number, text.parse::<f64>().expect("failed to parse number"), "{}", text);
            }
        }
    }
}
