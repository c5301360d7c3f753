//! The order of `sort`, as bytes (docs/reference/sort-and-dedup.md, sort).
//!
//! Keys compare as bytes in the order of the values: numbers by value, strings by code point, false, true, and last the
//! values that cannot be sorted. In a descending key every byte is inverted, except for the values that come last in
//! both directions. No key is the beginning of another, so more bytes (a position) may follow.

use super::cursor::Scalar;
use super::number::{LongInteger, NumericValue};

const NUMBER: u8 = 1;
const STRING: u8 = 2;
const FALSE: u8 = 3;
const TRUE: u8 = 4;
const LAST: u8 = 0xFF;

/// Appends the key of a value. `None` stands for values that cannot be sorted: null, missing, objects and arrays.
pub fn write_order(value: Option<Scalar<'_>>, descending: bool, out: &mut Vec<u8>) {
    match value {
        None | Some(Scalar::Null) => out.push(LAST),
        Some(Scalar::Bool(value)) => write_order_boolean(value, descending, out),
        Some(Scalar::String(text)) => write_order_string(text.unescape().as_bytes(), descending, out),
        Some(Scalar::Number(text)) => match NumericValue::parse(text) {
            Some(number) => write_order_number(&number, descending, out),
            None => out.push(LAST),
        },
    }
}

pub fn write_order_boolean(value: bool, descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(if value { TRUE } else { FALSE });
    direct(descending, &mut out[start..]);
}

pub fn write_order_string(text: &[u8], descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(STRING);
    // 0xFF follows a NUL, and 1 follows the end. So the end sorts before any further character.
    let mut rest = text;
    while let Some(nul) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..=nul]);
        out.push(0xFF);
        rest = &rest[nul + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 1]);
    direct(descending, &mut out[start..]);
}

fn write_order_number(number: &NumericValue, descending: bool, out: &mut Vec<u8>) {
    match number.remainder() {
        Some(remainder) => write_order_double(number.double(), remainder, descending, out),
        None => {
            let start = out.len();
            out.push(NUMBER);
            out.extend_from_slice(&ordered_bits(number.double()).to_be_bytes());
            write_long_integer(number, out);
            direct(descending, &mut out[start..]);
        }
    }
}

/// The key of a number that is `double + remainder`.
pub fn write_order_double(double: f64, remainder: i64, descending: bool, out: &mut Vec<u8>) {
    let mut key = [0; 18];
    key[0] = NUMBER;
    key[1..9].copy_from_slice(&ordered_bits(double).to_be_bytes());
    key[9] = WITHIN;
    key[10..].copy_from_slice(&((remainder as u64) ^ (1 << 63)).to_be_bytes());
    direct(descending, &mut key);
    out.extend_from_slice(&key);
}

/// Between integers below and above that share a double but are too far from it for a remainder.
const WITHIN: u8 = 1;

/// Appends bytes that order integers too far from their double for a remainder: among themselves by value, and around
/// [`WITHIN`], which stands for all that have one.
fn write_long_integer(number: &NumericValue, out: &mut Vec<u8>) {
    let Some(LongInteger { negative, digits, above_double }) = number.long_integer() else { return };
    out.push(if above_double { WITHIN + 1 } else { WITHIN - 1 });
    let start = out.len();
    out.extend_from_slice(&(digits.len() as u64).to_be_bytes());
    out.extend_from_slice(digits.as_bytes());
    direct(negative, &mut out[start..]);
}

/// Bits that order as the doubles do. Zero is one value.
pub fn ordered_bits(double: f64) -> u64 {
    let bits = if double == 0.0 { 0 } else { double.to_bits() };
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn direct(descending: bool, key: &mut [u8]) {
    if descending {
        for byte in key {
            *byte = !*byte;
        }
    }
}
