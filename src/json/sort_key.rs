//! Sort keys: bytes that compare like the values in `sort` (docs/reference/sort-and-dedup.md, sort).
//!
//! The order is: numbers by value, strings by code point, false, true, and values that cannot be sorted. Integers in a
//! key are big-endian:
//!
//! | Value | Bytes |
//! |---|---|
//! | number | 1, [`sortable_bits`] of its double, 1, remainder as a `u64` with the sign bit inverted |
//! | integer without a remainder | 1, these bits, 0 or 2 (below or above the double), `u64` number of digits, digits |
//! | string | 2, UTF-8 with a `0xFF` after each NUL, 0, 1 |
//! | false, true | 3, 4 |
//! | missing, null, object, array | `0xFF` |
//!
//! For example, the key of `"a"` is `02 61 00 01`, or `fd 9e ff fe` in descending order.
//!
//! - The number of digits and the digits of a negative integer are inverted.
//! - A descending key has all bytes inverted. Values that cannot be sorted are last in both directions.
//! - No key is a prefix of another key, so more bytes (a position) can follow.

use super::cursor::JsonScalar;
use super::number::{LongInteger, NumericValue};

const NUMBER_TAG: u8 = 1;
const STRING_TAG: u8 = 2;
const FALSE_TAG: u8 = 3;
const TRUE_TAG: u8 = 4;
const UNSORTABLE_TAG: u8 = 0xFF;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortDirection {
    Ascending,
    Descending,
}

impl SortDirection {
    fn invert_if_descending(self, key: &mut [u8]) {
        if self == SortDirection::Descending {
            invert_bytes(key);
        }
    }
}

/// Appends the sort key of a value. `None` represents a missing value, an object, or an array, which cannot be sorted.
pub fn write_sort_key(value: Option<JsonScalar<'_>>, direction: SortDirection, out: &mut Vec<u8>) {
    match value {
        None | Some(JsonScalar::Null) => out.push(UNSORTABLE_TAG),
        Some(JsonScalar::Bool(value)) => write_sort_key_bool(value, direction, out),
        Some(JsonScalar::String(text)) => write_sort_key_string(text.unescape().as_bytes(), direction, out),
        Some(JsonScalar::Number(text)) => match NumericValue::parse(text) {
            Some(number) => write_sort_key_number(&number, direction, out),
            None => out.push(UNSORTABLE_TAG),
        },
    }
}

pub fn write_sort_key_bool(value: bool, direction: SortDirection, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(if value { TRUE_TAG } else { FALSE_TAG });
    direction.invert_if_descending(&mut out[start..]);
}

pub fn write_sort_key_string(text: &[u8], direction: SortDirection, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(STRING_TAG);
    // In the key, a NUL becomes 0 and 0xFF, and the end of the string 0 and 1, so the end sorts before any character.
    let mut rest = text;
    while let Some(nul) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=nul]);
        out.push(0xFF);
        rest = &rest[nul + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 1]);
    direction.invert_if_descending(&mut out[start..]);
}

fn write_sort_key_number(number: &NumericValue, direction: SortDirection, out: &mut Vec<u8>) {
    if let Some(remainder) = number.double_remainder() {
        return write_sort_key_double(number.nearest_double(), remainder, direction, out);
    }
    let Some(LongInteger { negative, digits, above_double }) = number.long_integer() else { return };
    let start = out.len();
    out.push(NUMBER_TAG);
    out.extend_from_slice(&sortable_bits(number.nearest_double()).to_be_bytes());
    out.push(if above_double { EXACT_REMAINDER_TAG + 1 } else { EXACT_REMAINDER_TAG - 1 });
    let digits_start = out.len();
    out.extend_from_slice(&(digits.len() as u64).to_be_bytes());
    out.extend_from_slice(digits.as_bytes());
    if negative {
        invert_bytes(&mut out[digits_start..]);
    }
    direction.invert_if_descending(&mut out[start..]);
}

pub fn write_sort_key_double(double: f64, remainder: i64, direction: SortDirection, out: &mut Vec<u8>) {
    let mut key = [0; 18];
    key[0] = NUMBER_TAG;
    key[1..9].copy_from_slice(&sortable_bits(double).to_be_bytes());
    key[9] = EXACT_REMAINDER_TAG;
    key[10..].copy_from_slice(&((remainder as u64) ^ (1 << 63)).to_be_bytes());
    direction.invert_if_descending(&mut key);
    out.extend_from_slice(&key);
}

/// Tag in the sort key of a number that has a [`NumericValue::double_remainder`]. Integers with the same nearest double
/// but without a remainder have the tag below or above.
const EXACT_REMAINDER_TAG: u8 = 1;

/// Returns bits that order like the doubles. Both zeros have the same bits.
pub fn sortable_bits(double: f64) -> u64 {
    let bits = if double == 0.0 { 0 } else { double.to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn invert_bytes(key: &mut [u8]) {
    for byte in key {
        *byte = !*byte;
    }
}
