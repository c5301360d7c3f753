//! Minimum and maximum of a path's values: numbers by value, strings by code point. To exclude most values between the
//! minimum and the maximum, it is enough to compare a double or the first bytes.

use strata_json::{JsonStr, NumericValue, sortable_prefix};

use super::limits::MAX_SHOWN_VALUE_BYTES;

/// Integers with more bytes are treated as infinite, to limit the memory for comparing them.
const MAX_NUMBER_BYTES: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TruncatedValue {
    /// The first [`MAX_SHOWN_VALUE_BYTES`] bytes of the value, which can end within a character.
    pub(super) bytes: Vec<u8>,
    /// Set if the value has more than the stored bytes. Of two values with equal `bytes`, the truncated one is greater.
    pub(super) is_truncated: bool,
}

impl TruncatedValue {
    pub(super) fn new(bytes: &[u8]) -> TruncatedValue {
        TruncatedValue {
            bytes: bytes[..bytes.len().min(MAX_SHOWN_VALUE_BYTES)].to_vec(),
            is_truncated: bytes.len() > MAX_SHOWN_VALUE_BYTES,
        }
    }

    /// Stores the unescaped start of a string. The cost does not depend on the length of the string.
    pub(super) fn from_string(text: JsonStr<'_>) -> TruncatedValue {
        if text.is_plain() {
            return TruncatedValue::new(text.raw());
        }
        // An escape has at most six bytes, so this many raw bytes contain all bytes to store. If they end within an
        // escape, it is beyond the bytes to store.
        const MAX_RAW_BYTES: usize = 6 * MAX_SHOWN_VALUE_BYTES + 8;
        let raw = &text.raw()[..text.raw().len().min(MAX_RAW_BYTES)];
        let mut bytes = Vec::with_capacity(raw.len());
        JsonStr::new(raw).unescape_into(&mut bytes);
        TruncatedValue::new(&bytes)
    }

    pub(super) fn as_str(&self) -> &str {
        self.bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }
}

#[derive(Default)]
pub(super) struct NumberMinMax {
    /// Minimum and maximum with their JSON texts. Among equal numbers, the first one is stored.
    pub(super) min_max: Option<Box<[(NumericValue, TruncatedValue); 2]>>,
    min_double: f64,
    max_double: f64,
}

impl NumberMinMax {
    #[inline]
    pub(super) fn add(&mut self, text: &str, double: Option<f64>) {
        // Doubles are ordered like the numbers that they approximate, except that close numbers can share a double.
        if self.min_max.is_none() || double.is_none_or(|double| double <= self.min_double || double >= self.max_double)
        {
            self.update(text);
        }
    }

    fn update(&mut self, text: &str) {
        let Some(value) = parse_number(text) else { return };
        let Some(min_max) = &mut self.min_max else {
            self.min_double = value.nearest_double();
            self.max_double = value.nearest_double();
            let first = (value, TruncatedValue::new(text.as_bytes()));
            self.min_max = Some(Box::new([first.clone(), first]));
            return;
        };
        let [min, max] = &mut **min_max;
        if value < min.0 {
            self.min_double = value.nearest_double();
            *min = (value, TruncatedValue::new(text.as_bytes()));
        } else if value > max.0 {
            self.max_double = value.nearest_double();
            *max = (value, TruncatedValue::new(text.as_bytes()));
        }
    }
}

pub(super) fn parse_number(text: &str) -> Option<NumericValue> {
    let is_integer = !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match text {
        _ if text.len() <= MAX_NUMBER_BYTES || !is_integer => NumericValue::parse(text),
        _ if text.starts_with('-') => NumericValue::parse("-1e999"),
        _ => NumericValue::parse("1e999"),
    }
}

#[derive(Default)]
pub(super) struct StringMinMax {
    pub(super) min_max: Option<Box<[TruncatedValue; 2]>>,
    min_prefix: u64,
    max_prefix: u64,
}

impl StringMinMax {
    #[inline]
    pub(super) fn add(&mut self, text: JsonStr<'_>) {
        if self.min_max.is_some()
            && let Some(prefix) = raw_prefix_key(text)
            && self.min_prefix < prefix
            && prefix < self.max_prefix
        {
            return;
        }
        self.update(TruncatedValue::from_string(text));
    }

    fn update(&mut self, value: TruncatedValue) {
        let prefix = sortable_prefix(&value.bytes);
        let Some(min_max) = &mut self.min_max else {
            self.min_prefix = prefix;
            self.max_prefix = prefix;
            self.min_max = Some(Box::new([value.clone(), value]));
            return;
        };
        let [min, max] = &mut **min_max;
        if value < *min {
            *min = value;
            self.min_prefix = prefix;
        } else if value > *max {
            *max = value;
            self.max_prefix = prefix;
        }
    }
}

#[inline]
fn raw_prefix_key(text: JsonStr<'_>) -> Option<u64> {
    let raw = text.raw();
    (text.is_plain() || !raw[..raw.len().min(8)].contains(&b'\\')).then(|| sortable_prefix(raw))
}
