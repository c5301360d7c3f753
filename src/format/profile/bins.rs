//! How the numbers of a path are spread: how many of them there are in each of a few ranges of equal width.
//!
//! The width is a power of two, the smallest for which the ranges from the least to the greatest number are no more
//! than [`BINS`]. When a number comes that lies outside, neighbours are put together. So the counts are exact, and the
//! same in whatever order the numbers come.

use serde::{Deserialize, Serialize};

const BINS: usize = 32;

/// The least exponent of a width: its inverse can still be multiplied with.
const LEAST: i32 = -1_000;

/// The greatest: no double is as far from zero.
const MOST: i32 = 1_022;

const FRACTION: i32 = 52;

#[derive(Clone, Debug, Default)]
pub(super) struct NumberBins {
    bins: StoredBins,
    /// The inverse of the width.
    scale: f64,
}

impl NumberBins {
    /// Takes note of a number. What is no finite double is in no range.
    #[inline]
    pub(super) fn add(&mut self, text: &str) {
        self.add_times(text, 1);
    }

    #[inline]
    pub(super) fn add_times(&mut self, text: &str, times: u64) {
        let Some(number) = double(text) else { return };
        let index = self.index(number);
        match self.bins.counts.get_mut(index) {
            Some(count) => *count += times,
            None => self.widen(number, times),
        }
    }

    /// Forgets a number that goes so many times; `None` where it cannot have been there. The ranges stay as wide.
    pub(super) fn remove(&mut self, text: &str, times: u64) -> Option<()> {
        let Some(number) = double(text) else { return Some(()) };
        let index = self.index(number);
        let count = self.bins.counts.get_mut(index)?;
        *count = count.checked_sub(times)?;
        Some(())
    }

    #[inline]
    fn index(&self, number: f64) -> usize {
        let place = place(number, self.scale);
        usize::try_from(place.saturating_sub(self.bins.first)).unwrap_or(usize::MAX)
    }

    fn widen(&mut self, number: f64, times: u64) {
        let least = (exponent(number) - FRACTION).max(LEAST);
        if self.bins.counts.is_empty() {
            (self.bins.exponent, self.scale) = (least, power(-least));
            (self.bins.first, self.bins.counts) = (place(number, self.scale), vec![times]);
            return;
        }
        while self.bins.exponent < least {
            self.coarsen();
        }
        loop {
            let place = place(number, self.scale);
            let last = self.bins.first + self.bins.counts.len() as i64 - 1;
            let (first, last) = (self.bins.first.min(place), last.max(place));
            if last - first < BINS as i64 {
                let before = (self.bins.first - first) as usize;
                self.bins.counts.splice(..0, std::iter::repeat_n(0, before));
                self.bins.counts.resize((last - first + 1) as usize, 0);
                self.bins.first = first;
                self.bins.counts[(place - first) as usize] += times;
                return;
            }
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        (self.bins.first, self.bins.counts) = coarser(self.bins.first, &self.bins.counts);
        self.bins.exponent += 1;
        self.scale = power(-self.bins.exponent);
    }

    /// What is stored of them: nothing of numbers that are all in one range.
    pub(super) fn stored(&self) -> Option<StoredBins> {
        (self.bins.counts.len() > 1).then(|| self.bins.clone())
    }
}

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
    /// The first number above.
    pub to: String,
    /// How many are in it, each taken as its nearest double.
    pub count: u64,
    /// Whether a filter finds just these: beyond, whole numbers differ that share a double.
    pub is_exact: bool,
}

/// Whole numbers up to this one have doubles of their own.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl StoredBins {
    /// The numbers, to which others come; `None` of what no profile has stored.
    pub(super) fn numbers(&self) -> Option<NumberBins> {
        let is_ours = (LEAST..=MOST).contains(&self.exponent) && (1..=BINS).contains(&self.counts.len());
        is_ours.then(|| NumberBins { bins: self.clone(), scale: power(-self.exponent) })
    }

    /// At most so many ranges, which are no narrower than 1 where all numbers are whole.
    pub fn ranges(&self, most: usize) -> Vec<NumberRange> {
        // What a file says may be anything.
        if !(LEAST..=MOST).contains(&self.exponent) {
            return Vec::new();
        }
        let (mut exponent, mut first, mut counts) = (self.exponent, self.first, self.counts.clone());
        // Where all begin at whole numbers, they hold nothing else, as far as that can be told.
        let whole = |exponent: i32| {
            let below = 1_i64.checked_shl(exponent.unsigned_abs()).filter(|_| exponent > -63).unwrap_or(i64::MAX);
            places(first).zip(&counts).all(|(place, count)| *count == 0 || place % below == 0)
        };
        let least = if exponent < 0 && whole(exponent) { 0 } else { exponent };
        while exponent < MOST && (counts.len() > most.max(2) || exponent < least) {
            (first, counts) = coarser(first, &counts);
            exponent += 1;
        }
        let edge = |place: i64| place as f64 * power(exponent);
        let range = |(place, count): (i64, u64)| {
            let (from, to) = (edge(place), edge(place.saturating_add(1)));
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
    let (mut whole, mut decimals) = (0_u64, None);
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

    #[test]
    fn ranges_are_few_and_end_where_a_filter_can() {
        let ranges = |texts: &[&str], most| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let ranges = of(&texts).stored().map(|bins| bins.ranges(most)).unwrap_or_default();
            let told = ranges.iter().filter(|range| range.count > 0);
            told.map(|range| format!("{} to {}: {}", range.from, range.to, range.count)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(ranges(&["5", "5.0"], 16), "");
        assert_eq!(ranges(&["1", "2", "2", "4"], 16), "1 to 2: 1, 2 to 3: 2, 4 to 5: 1");
        assert_eq!(ranges(&["0", "99", "100"], 16), "0 to 8: 1, 96 to 104: 2");
        assert_eq!(ranges(&["0.5", "0.75"], 16), "0.5 to 0.53125: 1, 0.75 to 0.78125: 1");
        assert_eq!(ranges(&["-1", "1e300"], 4).split(": ").count(), 3);
        assert_eq!(ranges(&["-3", "2"], 2), "-4 to 0: 1, 0 to 4: 1");
        // Of a file that is not ours.
        for (exponent, first, number) in [
            (i32::MIN, i64::MAX, 0),
            (i32::MAX, i64::MIN, 0),
            (LEAST, i64::MAX, 16),
            (LEAST, i64::MIN, 16),
            (MOST, i64::MIN, 100),
        ] {
            let odd = StoredBins { exponent, first, counts: vec![1; 100] }.ranges(16);
            assert!(odd.len() <= number.max(1), "{exponent} {first}: {}", odd.len());
        }
    }

    fn of(texts: &[String]) -> NumberBins {
        let mut bins = NumberBins::default();
        texts.iter().for_each(|text| bins.add(text));
        bins
    }

    /// The number of the range, as division without a bound would have it.
    fn floor(number: f64, exponent: i32) -> i64 {
        let quotient = number * power(-exponent);
        if quotient == 0.0 && number < 0.0 { -1 } else { quotient.floor() as i64 }
    }

    fn reference(texts: &[String]) -> StoredBins {
        let numbers: Vec<f64> =
            texts.iter().filter_map(|text| text.parse().ok()).filter(|number: &f64| number.is_finite()).collect();
        let Some(mut width) = numbers.iter().map(|number| (exponent(*number) - 52).max(LEAST)).max() else {
            return StoredBins::default();
        };
        loop {
            let places: Vec<i64> = numbers.iter().map(|number| floor(*number, width)).collect();
            let (first, last) = (*places.iter().min().expect("one"), *places.iter().max().expect("one"));
            if last - first < BINS as i64 {
                let counts = (first..=last).map(|at| places.iter().filter(|place| **place == at).count() as u64);
                return StoredBins { exponent: width, first, counts: counts.collect() };
            }
            width += 1;
        }
    }

    fn numbers() -> impl Strategy<Value = Vec<String>> {
        let number = prop_oneof![
            (-50_i64..50).prop_map(|number| number.to_string()),
            (-5_000_i64..5_000).prop_map(|number| format!("{:.2}", number as f64 / 100.0)),
            any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
            any::<i64>().prop_map(|number| number.to_string()),
            Just("0".to_owned()),
            Just("-0.0".to_owned()),
            Just("1e400".to_owned()),
            Just("4.9e-324".to_owned()),
        ];
        proptest::collection::vec(number, 0..40)
    }

    proptest! {
        #[test]
        fn counts_are_exact_in_any_order(texts in numbers(), seed in any::<u64>()) {
            let expected = reference(&texts);
            let bins = of(&texts);
            prop_assert_eq!(&bins.bins, &expected);
            let mut shuffled = texts;
            shuffled.sort_by_key(|text| seed.wrapping_mul(text.bytes().map(u64::from).sum::<u64>() | 1));
            let bins = of(&shuffled);
            prop_assert_eq!(&bins.bins, &expected);
        }

        #[test]
        fn what_is_stored_can_be_changed(texts in numbers(), more in numbers()) {
            let all: Vec<String> = [&texts[..], &more].concat();
            let mut bins = of(&texts);
            if let Some(stored) = bins.stored() {
                bins = stored.numbers().expect("ours");
            }
            more.iter().for_each(|text| bins.add_times(text, 2));
            more.iter().for_each(|text| bins.remove(text, 1).expect("it was there"));
            prop_assert_eq!(bins.bins, reference(&all));
        }

        #[test]
        fn a_short_number_is_what_parse_gives(text in "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,8})?") {
            if let Some(number) = short(&text) {
                prop_assert_eq!(number, text.parse::<f64>().expect("a number"), "{}", text);
            }
        }
    }
}
