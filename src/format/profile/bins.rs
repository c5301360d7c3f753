//! How the numbers of a path are spread: how many of them there are in each of a few ranges of equal width.
//!
//! The width is a power of two, the smallest for which the ranges from the least to the greatest number are no more
//! than [`BINS`]. When a number comes that lies outside, neighbours are put together. So the counts are exact, and the
//! same in whatever order the numbers come.

use serde::{Deserialize, Serialize};

const BINS: usize = 32;

/// The least exponent of a width: its inverse can still be multiplied with.
const MIN_EXPONENT: i32 = -1_000;

/// The greatest: no double is as far from zero.
const MAX_EXPONENT: i32 = 1_022;

const FRACTION: i32 = 52;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBins {
    /// The width is 2 to the power of this.
    exponent: i32,
    /// The first range begins at this times the width.
    first: i64,
    counts: Vec<u64>,
}

/// How many numbers there are from one on and below another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRange {
    /// The first number that may be in it.
    pub from: String,
    pub to: String,
    /// How many are in it, each taken as its nearest double.
    pub count: u64,
    /// Whether a filter finds just these: beyond, whole numbers differ that share a double.
    pub is_exact: bool,
}

/// Whole numbers up to this one have doubles of their own.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl StoredBins {
    /// Counts a number that occurs `times`, and returns its nearest double. A number beyond the doubles is in no range.
    #[inline]
    pub(super) fn add(&mut self, text: &str, times: u64) -> Option<f64> {
        let number = double(text)?;
        let index = self.index(number);
        match self.counts.get_mut(index) {
            Some(count) => *count += times,
            None => self.widen(number, times),
        }
        Some(number)
    }

    /// Forgets a number that goes so many times; `None` where it cannot have been there. The ranges stay as wide.
    pub(super) fn remove(&mut self, text: &str, times: u64) -> Option<()> {
        let Some(number) = double(text) else { return Some(()) };
        let index = self.index(number);
        let count = self.counts.get_mut(index)?;
        *count = count.checked_sub(times)?;
        Some(())
    }

    #[inline]
    fn index(&self, number: f64) -> usize {
        let place = place(number, power(-self.exponent));
        usize::try_from(place.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }

    fn widen(&mut self, number: f64, times: u64) {
        let least = (exponent(number) - FRACTION).max(MIN_EXPONENT);
        if self.counts.is_empty() {
            *self = StoredBins { exponent: least, first: place(number, power(-least)), counts: vec![times] };
            return;
        }
        while self.exponent < least {
            self.coarsen();
        }
        loop {
            let place = place(number, power(-self.exponent));
            let last = self.first + self.counts.len() as i64 - 1;
            let first = self.first.min(place);
            let last = last.max(place);
            if last - first < BINS as i64 {
                let before = (self.first - first) as usize;
                self.counts.splice(..0, std::iter::repeat_n(0, before));
                self.counts.resize((last - first + 1) as usize, 0);
                self.first = first;
                self.counts[(place - first) as usize] += times;
                return;
            }
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        (self.first, self.counts) = coarser(self.first, &self.counts);
        self.exponent += 1;
    }

    /// The ranges, if a profile stores them: not those of numbers that are all in one range.
    pub(super) fn stored(&self) -> Option<StoredBins> {
        (self.counts.len() > 1).then(|| self.clone())
    }

    /// Whether a profile can have stored these ranges, so that they can be changed.
    pub(super) fn is_valid(&self) -> bool {
        (MIN_EXPONENT..=MAX_EXPONENT).contains(&self.exponent) && (1..=BINS).contains(&self.counts.len())
    }

    /// At most so many ranges, which are no narrower than 1 where all numbers are whole.
    pub fn ranges(&self, most: usize) -> Vec<NumberRange> {
        // What a file says may be anything.
        if !(MIN_EXPONENT..=MAX_EXPONENT).contains(&self.exponent) {
            return Vec::new();
        }
        let mut exponent = self.exponent;
        let mut first = self.first;
        let mut counts = self.counts.clone();
        // Where all begin at whole numbers, they hold nothing else, as far as that can be told.
        let whole = |exponent: i32| {
            let below = 1_i64.checked_shl(exponent.unsigned_abs()).filter(|_| exponent > -63).unwrap_or(i64::MAX);
            places(first).zip(&counts).all(|(place, count)| *count == 0 || place % below == 0)
        };
        let least = if exponent < 0 && whole(exponent) { 0 } else { exponent };
        while exponent < MAX_EXPONENT && (counts.len() > most.max(2) || exponent < least) {
            (first, counts) = coarser(first, &counts);
            exponent += 1;
        }
        let edge = |place: i64| place as f64 * power(exponent);
        let range = |(place, count): (i64, u64)| {
            let from = edge(place);
            let to = edge(place.saturating_add(1));
            let is_exact = from.abs() <= EXACT && to.abs() <= EXACT;
            NumberRange { from: decimal(from), to: decimal(to), count, is_exact }
        };
        places(first).zip(counts).map(range).collect()
    }
}

/// A double as a filter takes it: no digit more than tells it from its neighbours.
fn decimal(number: f64) -> String {
    match number.abs() {
        // Without the sign of zero.
        0.0 => "0".to_owned(),
        1e-5..1e15 => number.to_string(),
        _ => format!("{number:e}"),
    }
}

/// The range of a number, where this is the inverse of the width.
#[inline]
fn place(number: f64, scale: f64) -> i64 {
    match (number * scale).floor() as i64 {
        // The product of a tiny one is zero.
        0 if number < 0.0 => -1,
        place => place,
    }
}

fn places(first: i64) -> impl Iterator<Item = i64> {
    (0..).map(move |after| first.saturating_add(after))
}

fn coarser(first: i64, counts: &[u64]) -> (i64, Vec<u64>) {
    let halved = first >> 1;
    let mut wider = Vec::with_capacity(counts.len() / 2 + 1);
    for (place, count) in places(first).zip(counts) {
        let index = ((place >> 1) - halved) as usize;
        if index == wider.len() {
            wider.push(0);
        }
        wider[index] += count;
    }
    (halved, wider)
}

/// 2 to the power of a number, of which it is a normal double.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1_023).clamp(1, 2_046) as u64) << FRACTION)
}

/// The power of two at or below a number's distance from zero.
fn exponent(number: f64) -> i32 {
    (number.to_bits() >> FRACTION & 0x7FF) as i32 - 1_023
}

#[inline]
fn double(text: &str) -> Option<f64> {
    short(text).or_else(|| text.parse().ok().filter(|number: &f64| number.is_finite()))
}

/// A number of few digits without an exponent, as `parse` gives it: both parts are exact, so one division is.
#[inline]
fn short(text: &str) -> Option<f64> {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.len() > POWERS.len() {
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
    // At most 16 digits, of which those before a point are fewer.
    if whole >= 1 << 53 {
        return None;
    }
    let number = whole as f64 / POWERS.get(decimals.unwrap_or(0)).copied()?;
    Some(if digits.len() < text.len() { -number } else { number })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn short_number_is_what_parse_returns(text in "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,8})?") {
            if let Some(number) = short(&text) {
                prop_assert_eq!(number, text.parse::<f64>().expect("a number"), "{}", text);
            }
        }
    }
}
