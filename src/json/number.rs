//! Numeric values of JSON numbers (docs/reference/paths-and-values.md, Numeric value). An integer (no `.`, `e`, `E`) of
//! any length is exact. Every other number is its nearest double. Both kinds compare mathematically.

use std::cmp::Ordering;
use std::hash::Hash;
use std::io::Write;

use super::canonicalize::find_number_end;
use super::nearest_double::nearest_double;

pub fn is_number(text: &str) -> bool {
    find_number_end(text.as_bytes(), 0) == Ok(text.len())
}

/// A number that compares by its value. `1`, `1.0`, and `10e-1` are equal, and so are `0` and `-0`; `9007199254740993`
/// and `9007199254740992` differ; `1e400` is infinite and greater than every integer.
///
/// Only integers that fit neither 64 bits nor a double allocate memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NumericValue(NumericForm);

/// The form of a numeric value. Each value has exactly one form, so the derived equality and hash are correct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NumericForm {
    Integer(i64),
    /// The bits of a double that is not a 64-bit integer, NaN, or zero, so that equal values have equal bits.
    Double(u64),
    /// An integer that fits neither 64 bits nor a double.
    LongInteger {
        negative: bool,
        /// At least 19 digits, without a sign or leading zeros.
        digits: Box<str>,
    },
}

pub(super) struct LongInteger<'a> {
    pub(super) negative: bool,
    pub(super) digits: &'a str,
    /// True if the integer is greater than its nearest double, false if the integer is less.
    pub(super) above_double: bool,
}

const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

impl NumericValue {
    /// Parses exactly one JSON number. Returns `None` for other texts, such as `+1`, `01`, `1.`, or ` 1`.
    pub fn parse(text: &str) -> Option<NumericValue> {
        if !is_number(text) {
            return None;
        }
        if text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
            return nearest_double(text).map(NumericValue::from_double);
        }
        // A 64-bit integer has at most 19 digits and a sign.
        if text.len() <= 20
            && let Ok(integer) = text.parse()
        {
            return Some(NumericValue(NumericForm::Integer(integer)));
        }
        let digits = text.trim_start_matches('-');
        let negative = digits.len() < text.len();
        let nearest: f64 = text.parse().ok()?;
        if nearest.is_finite() && integer_digits(nearest) == digits {
            return Some(NumericValue::from_double(nearest));
        }
        Some(NumericValue(NumericForm::LongInteger { negative, digits: digits.into() }))
    }

    fn from_double(double: f64) -> NumericValue {
        if (-TWO_POW_63..TWO_POW_63).contains(&double) && double.trunc() == double {
            return NumericValue(NumericForm::Integer(double as i64));
        }
        NumericValue(NumericForm::Double(double.to_bits()))
    }

    /// Returns the nearest double, which is infinite if the number is out of range.
    pub fn nearest_double(&self) -> f64 {
        match &self.0 {
            NumericForm::Integer(integer) => *integer as f64,
            NumericForm::Double(bits) => f64::from_bits(*bits),
            NumericForm::LongInteger { negative, digits } => {
                let magnitude = digits.parse().unwrap_or(f64::INFINITY);
                if *negative { -magnitude } else { magnitude }
            }
        }
    }

    /// Returns the exact difference between the value and its nearest double: 0, except for integers that no double
    /// equals. Returns `None` for integers whose difference does not fit 64 bits. If two values have remainders, the
    /// pairs `(nearest_double, double_remainder)` order like the values.
    pub fn double_remainder(&self) -> Option<i64> {
        match &self.0 {
            NumericForm::Integer(integer) => i64::try_from(i128::from(*integer) - *integer as f64 as i128).ok(),
            NumericForm::Double(_) => Some(0),
            NumericForm::LongInteger { negative, digits } => {
                let double = self.nearest_double();
                if double.is_infinite() {
                    return None;
                }
                let difference = subtract_digits(digits, &integer_digits(double))?;
                Some(if *negative { -difference } else { difference })
            }
        }
    }

    /// Returns the nearest double and a tie breaker: the [`Self::double_remainder`], or, if there is none,
    /// the minimum or maximum of `i128`. Compared with a value that has a remainder, the pairs order like the values.
    pub fn double_and_tie_breaker(&self) -> (f64, i128) {
        (self.nearest_double(), self.tie_breaker())
    }

    fn tie_breaker(&self) -> i128 {
        match self.double_remainder() {
            Some(remainder) => i128::from(remainder),
            None if self.long_integer().is_some_and(|long| long.above_double) => i128::MAX,
            None => i128::MIN,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        if let NumericForm::Integer(integer) = self.0 { Some(integer) } else { None }
    }

    pub(super) fn long_integer(&self) -> Option<LongInteger<'_>> {
        let NumericForm::LongInteger { negative, digits } = &self.0 else { return None };
        let double = self.nearest_double();
        // Integers whose nearest double is infinite are always closer to zero than that double.
        let is_larger = double.is_finite() && compare_digits(digits, &integer_digits(double)).is_gt();
        Some(LongInteger { negative: *negative, digits, above_double: is_larger != *negative })
    }

    /// Appends the digits of an integer, or `d` and the eight bytes of a double. The bytes are equal exactly if the
    /// values are equal, have a defined end before a comma or bracket, and start like no other JSON value.
    pub(super) fn write_canonical(&self, out: &mut Vec<u8>) {
        match &self.0 {
            NumericForm::Integer(integer) => {
                let _ = write!(out, "{integer}");
            }
            NumericForm::Double(bits) => {
                out.push(b'd');
                out.extend_from_slice(&bits.to_be_bytes());
            }
            NumericForm::LongInteger { negative, digits } => {
                if *negative {
                    out.push(b'-');
                }
                out.extend_from_slice(digits.as_bytes());
            }
        }
    }
}

impl Ord for NumericValue {
    fn cmp(&self, other: &NumericValue) -> Ordering {
        match (&self.0, &other.0) {
            (NumericForm::Integer(left), NumericForm::Integer(right)) => left.cmp(right),
            (
                NumericForm::LongInteger { negative, digits: left },
                NumericForm::LongInteger { negative: other_negative, digits: right },
            ) if negative == other_negative => {
                let magnitudes = compare_digits(left, right);
                if *negative { magnitudes.reverse() } else { magnitudes }
            }
            // `total_cmp` orders by value, because no double of a `NumericValue` is NaN or negative zero.
            _ => self
                .nearest_double()
                .total_cmp(&other.nearest_double())
                .then_with(|| self.tie_breaker().cmp(&other.tie_breaker())),
        }
    }
}

impl PartialOrd for NumericValue {
    fn partial_cmp(&self, other: &NumericValue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats the magnitude of a finite double that is an integer.
fn integer_digits(double: f64) -> String {
    // With an explicit precision, the standard library formats all digits exactly.
    format!("{:.0}", double.abs())
}

fn compare_digits(left: &str, right: &str) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

fn subtract_digits(left: &str, right: &str) -> Option<i64> {
    if compare_digits(left, right).is_lt() {
        return subtract_digits(right, left).map(|difference| -difference);
    }
    let mut borrow = 0;
    let mut digits: Vec<u8> = Vec::with_capacity(left.len());
    let right = right.bytes().rev().chain(std::iter::repeat(b'0'));
    for (left, right) in left.bytes().rev().zip(right) {
        let digit = 10 + (left - b'0') - (right - b'0') - borrow;
        borrow = u8::from(digit < 10);
        digits.push(digit % 10);
    }
    digits.iter().rev().try_fold(0_i64, |sum, &digit| sum.checked_mul(10)?.checked_add(i64::from(digit)))
}
