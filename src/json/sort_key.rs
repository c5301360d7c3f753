//! Sort keys: bytes that compare like the values in `sort` (docs/reference/sort-and-dedup.md, sort).
//!
//! The order is: numbers by value, strings by code point, false, true, and values that cannot be sorted. A descending
//! key has all bytes inverted, except for values that cannot be sorted, which are last in both directions. No key is a
//! prefix of another key, so more bytes (a position) can follow.

use super::cursor::JsonScalar;
use super::number::{LongInteger, NumericValue};

const NUMBER_TAG: u8 = 1;
const STRING_TAG: u8 = 2;
const FALSE_TAG: u8 = 3;
const TRUE_TAG: u8 = 4;
const UNSORTABLE_TAG: u8 = 0xFF;

/// Appends the sort key of a value. `None` represents a missing value, an object, or an array, which cannot be sorted.
pub fn write_sort_key(value: Option<JsonScalar<'_>>, descending: bool, out: &mut Vec<u8>) {
    match value {
        None | Some(JsonScalar::Null) => out.push(UNSORTABLE_TAG),
        Some(JsonScalar::Bool(value)) => write_sort_key_bool(value, descending, out),
        Some(JsonScalar::String(text)) => write_sort_key_string(text.unescape().as_bytes(), descending, out),
        Some(JsonScalar::Number(text)) => match NumericValue::parse(text) {
            Some(number) => write_sort_key_number(&number, descending, out),
            None => out.push(UNSORTABLE_TAG),
        },
    }
}

pub fn write_sort_key_bool(value: bool, descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(if value { TRUE_TAG } else { FALSE_TAG });
    invert_if_descending(descending, &mut out[start..]);
}

pub fn write_sort_key_string(text: &[u8], descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(STRING_TAG);
    // A NUL becomes 0 and 0xFF, and the end becomes 0 and 1, so that the end sorts before any further character.
    let mut rest = text;
    while let Some(nul) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=nul]);
        out.push(0xFF);
        rest = &rest[nul + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 1]);
    invert_if_descending(descending, &mut out[start..]);
}

fn write_sort_key_number(number: &NumericValue, descending: bool, out: &mut Vec<u8>) {
    match number.remainder() {
        Some(remainder) => write_sort_key_double(number.nearest_double(), remainder, descending, out),
        None => {
            let start = out.len();
            out.push(NUMBER_TAG);
            out.extend_from_slice(&sortable_bits(number.nearest_double()).to_be_bytes());
            write_sort_key_long_integer(number, out);
            invert_if_descending(descending, &mut out[start..]);
        }
    }
}

pub fn write_sort_key_double(double: f64, remainder: i64, descending: bool, out: &mut Vec<u8>) {
    let mut key = [0; 18];
    key[0] = NUMBER_TAG;
    key[1..9].copy_from_slice(&sortable_bits(double).to_be_bytes());
    key[9] = EXACT_REMAINDER_TAG;
    key[10..].copy_from_slice(&((remainder as u64) ^ (1 << 63)).to_be_bytes());
    invert_if_descending(descending, &mut key);
    out.extend_from_slice(&key);
}

/// Tag of numbers with a remainder. Integers with the same double but without a remainder have the tag below or above.
const EXACT_REMAINDER_TAG: u8 = 1;

/// Appends bytes that order integers without a remainder by value, below or above [`EXACT_REMAINDER_TAG`].
fn write_sort_key_long_integer(number: &NumericValue, out: &mut Vec<u8>) {
    let Some(LongInteger { negative, digits, above_double }) = number.long_integer() else { return };
    out.push(if above_double { EXACT_REMAINDER_TAG + 1 } else { EXACT_REMAINDER_TAG - 1 });
    let start = out.len();
    out.extend_from_slice(&(digits.len() as u64).to_be_bytes());
    out.extend_from_slice(digits.as_bytes());
    invert_if_descending(negative, &mut out[start..]);
}

/// Returns bits that order like the doubles. Both zeros have the same bits.
pub fn sortable_bits(double: f64) -> u64 {
    let bits = if double == 0.0 { 0 } else { double.to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn invert_if_descending(descending: bool, key: &mut [u8]) {
    if descending {
        for byte in key {
            *byte = !*byte;
        }
    }
}
