//! The minimum and the maximum of a path's values: of its numbers by value, of its strings by code point.
//!
//! Most values lie between the two, and are told apart from those that do not by a few bytes.

use strata_json::{NumericValue, Text};

use super::VALUE_BYTES;

/// Numbers of more characters count as infinite if they are integers: what is kept is bounded.
const NUMBER_BYTES: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Cut {
    /// The first [`VALUE_BYTES`] bytes: perhaps a part of a character at the end.
    pub(super) bytes: Vec<u8>,
    /// Whether there are more. Of two that begin alike, the longer one is the greater.
    pub(super) cut: bool,
}

impl Cut {
    fn of(bytes: &[u8]) -> Cut {
        Cut { bytes: bytes[..bytes.len().min(VALUE_BYTES)].to_vec(), cut: bytes.len() > VALUE_BYTES }
    }

    pub(super) fn of_number(text: &str) -> Cut {
        Cut::of(text.as_bytes())
    }

    /// Of a string, unescaped. Costs as much however long it is.
    pub(super) fn of_string(text: Text<'_>) -> Cut {
        if text.is_plain() {
            return Cut::of(text.raw());
        }
        // No escape is longer than six bytes; a last one that is cut comes after what is shown.
        const ENOUGH: usize = 6 * VALUE_BYTES + 8;
        let raw = &text.raw()[..text.raw().len().min(ENOUGH)];
        let mut bytes = Vec::with_capacity(raw.len());
        Text::new(raw).unescape_into(&mut bytes);
        Cut { cut: bytes.len() > VALUE_BYTES, bytes: bytes[..bytes.len().min(VALUE_BYTES)].to_vec() }
    }

    pub(super) fn shown(&self) -> &str {
        let whole = match std::str::from_utf8(&self.bytes) {
            Ok(_) => self.bytes.len(),
            Err(error) => error.valid_up_to(),
        };
        std::str::from_utf8(&self.bytes[..whole]).unwrap_or_default()
    }
}

#[derive(Default)]
pub(super) struct NumberMinMax {
    /// With their texts; of equal ones, the first.
    pub(super) min_max: Option<Box<[(NumericValue, Cut); 2]>>,
    low: f64,
    high: f64,
}

impl NumberMinMax {
    #[inline]
    pub(super) fn add(&mut self, text: &str) {
        // A double's order is that of the values, but that values near each other may share one.
        if let Some((min, max)) = bounds(text)
            && self.min_max.is_some()
            && self.low < min
            && max < self.high
        {
            return;
        }
        self.compare(text);
    }

    fn compare(&mut self, text: &str) {
        let Some(value) = number(text) else { return };
        let Some(min_max) = &mut self.min_max else {
            (self.low, self.high) = (value.double(), value.double());
            let first = (value, Cut::of_number(text));
            self.min_max = Some(Box::new([first.clone(), first]));
            return;
        };
        let [min, max] = &mut **min_max;
        if value < min.0 {
            self.low = value.double();
            *min = (value, Cut::of_number(text));
        } else if value > max.0 {
            self.high = value.double();
            *max = (value, Cut::of_number(text));
        }
    }
}

pub(super) fn number(text: &str) -> Option<NumericValue> {
    let integer = !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match text {
        _ if text.len() <= NUMBER_BYTES || !integer => NumericValue::parse(text),
        _ if text.starts_with('-') => NumericValue::parse("-1e999"),
        _ => NumericValue::parse("1e999"),
    }
}

/// Doubles that a number without an exponent lies between, or on.
#[inline]
fn bounds(text: &str) -> Option<(f64, f64)> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let mut whole = 0_u64;
    let mut fraction = false;
    for (place, byte) in digits.bytes().enumerate() {
        match byte {
            b'0'..=b'9' if fraction => {}
            b'0'..=b'9' if place < 18 => whole = whole * 10 + u64::from(byte - b'0'),
            b'.' => fraction = true,
            _ => return None,
        }
    }
    let (near, far) = (whole as f64, (whole + u64::from(fraction)) as f64);
    Some(if digits.len() < text.len() { (-far, -near) } else { (near, far) })
}

#[derive(Default)]
pub(super) struct StringMinMax {
    pub(super) min_max: Option<Box<[Cut; 2]>>,
    low: u64,
    high: u64,
}

impl StringMinMax {
    #[inline]
    pub(super) fn add(&mut self, text: Text<'_>) {
        if self.min_max.is_some()
            && let Some(prefix) = raw_prefix(text)
            && self.low < prefix
            && prefix < self.high
        {
            return;
        }
        self.compare(Cut::of_string(text));
    }

    fn compare(&mut self, value: Cut) {
        let prefix = prefix(&value.bytes);
        let Some(min_max) = &mut self.min_max else {
            (self.low, self.high) = (prefix, prefix);
            self.min_max = Some(Box::new([value.clone(), value]));
            return;
        };
        let [min, max] = &mut **min_max;
        if value < *min {
            (*min, self.low) = (value, prefix);
        } else if value > *max {
            (*max, self.high) = (value, prefix);
        }
    }
}

/// A number that orders as the first eight bytes do.
#[inline]
fn prefix(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => bytes.iter().rev().fold(0, |number, byte| number >> 8 | u64::from(*byte) << 56),
    }
}

/// The [`prefix`] of a string, unless an escape is in it.
#[inline]
fn raw_prefix(text: Text<'_>) -> Option<u64> {
    let raw = text.raw();
    (text.is_plain() || !raw[..raw.len().min(8)].contains(&b'\\')).then(|| prefix(raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(texts: &[&str], min: &str, max: &str) {
        let mut numbers = NumberMinMax::default();
        texts.iter().for_each(|text| numbers.add(text));
        let [found_min, found_max] = *numbers.min_max.expect("numbers");
        assert_eq!((found_min.1.shown(), found_max.1.shown()), (min, max));
    }

    #[test]
    fn numbers_compare_by_value_exactly() {
        check(&["1"], "1", "1");
        check(&["1.0", "1", "1e0"], "1.0", "1.0");
        check(&["-0", "0", "0.0"], "-0", "-0");
        check(&["5", "-7", "6.5", "0.5", "-7.25", "6.75", "6"], "-7.25", "6.75");
        check(
            &["9007199254740993", "9007199254740992", "9007199254740994", "9007199254740993"],
            "9007199254740992",
            "9007199254740994",
        );
        check(&["0", "1e400", "-1e400", "3"], "-1e400", "1e400");
        check(&["-5", "-4.5", "-4", "-5.5"], "-5.5", "-4");
        check(&["123456789012345678901", "123456789012345678902", "999"], "999", "123456789012345678902");
        let long = "1".repeat(NUMBER_BYTES + 1);
        check(&[&long, "5"], "5", &long[..VALUE_BYTES]);
        check(&[&format!("-{long}"), "1e400"], &format!("-{long}")[..VALUE_BYTES], "1e400");
    }

    #[test]
    fn strings_compare_by_code_point_and_are_cut() {
        let check = |raw: &[&str], min: (&str, bool), max: (&str, bool)| {
            let mut strings = StringMinMax::default();
            raw.iter().for_each(|raw| strings.add(Text::new(raw.as_bytes())));
            let [found_min, found_max] = *strings.min_max.expect("strings");
            assert_eq!((found_min.shown(), found_min.cut), min);
            assert_eq!((found_max.shown(), found_max.cut), max);
        };
        check(&["b", "", "a", "ab"], ("", false), ("b", false));
        check(&["0", "\\n", "\\u0001", "\\\""], ("\u{1}", false), ("0", false));
        check(&["abcdefgh2", "abcdefgh\\t", "abcdefgh1", "abcdefgh"], ("abcdefgh", false), ("abcdefgh2", false));
        check(&["z", "é", "日", "𐐀", "\u{ffff}"], ("z", false), ("𐐀", false));
        let (full, long) = ("x".repeat(VALUE_BYTES), "x".repeat(VALUE_BYTES + 1));
        check(&[&long, &full], (&full, false), (&full, true));
        // A character on the edge is not torn, and orders all the same.
        let (edge, head) = (format!("{}é", "x".repeat(VALUE_BYTES - 1)), "x".repeat(VALUE_BYTES - 1));
        check(&[&edge, &full], (&full, false), (&head, true));
        let escaped = "\\u0001".repeat(VALUE_BYTES);
        check(&[&escaped], (&"\u{1}".repeat(VALUE_BYTES), false), (&"\u{1}".repeat(VALUE_BYTES), false));
        check(&[&escaped.repeat(2)], (&"\u{1}".repeat(VALUE_BYTES), true), (&"\u{1}".repeat(VALUE_BYTES), true));
    }
}
