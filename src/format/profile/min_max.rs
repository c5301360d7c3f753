//! The minimum and the maximum of a path's values: of its numbers by value, of its strings by code point.
//!
//! Most values lie between the two, and are told apart from those that do not by a few bytes.

use strata_json::{NumericValue, Text};

use super::limits::VALUE_BYTES;

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
    pub(super) fn new(bytes: &[u8]) -> Cut {
        Cut { bytes: bytes[..bytes.len().min(VALUE_BYTES)].to_vec(), cut: bytes.len() > VALUE_BYTES }
    }

    /// Of a string, unescaped. Costs as much however long it is.
    pub(super) fn of_string(text: Text<'_>) -> Cut {
        if text.is_plain() {
            return Cut::new(text.raw());
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
    /// Compares a number, whose nearest double is `double`.
    #[inline]
    pub(super) fn add(&mut self, text: &str, double: Option<f64>) {
        // Doubles are ordered as their values are, except that close values can share one.
        if self.min_max.is_none() || double.is_none_or(|double| double <= self.low || double >= self.high) {
            self.compare(text);
        }
    }

    fn compare(&mut self, text: &str) {
        let Some(value) = number(text) else { return };
        let Some(min_max) = &mut self.min_max else {
            (self.low, self.high) = (value.double(), value.double());
            let first = (value, Cut::new(text.as_bytes()));
            self.min_max = Some(Box::new([first.clone(), first]));
            return;
        };
        let [min, max] = &mut **min_max;
        if value < min.0 {
            self.low = value.double();
            *min = (value, Cut::new(text.as_bytes()));
        } else if value > max.0 {
            self.high = value.double();
            *max = (value, Cut::new(text.as_bytes()));
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
