//! The numeric value of a JSON number (docs/reference/paths-and-values.md, Numeric value): an integer (no `.`, `e`,
//! `E`) of any length is exact. Every other number is its nearest double. The two compare mathematically.

use std::cmp::Ordering;
use std::hash::Hash;
use std::io::Write;

use super::canonicalize::number_end;
use super::nearest_double::nearest_double;

/// Whether `text` is a JSON number, to the letter.
pub fn is_number(text: &str) -> bool {
    number_end(text.as_bytes(), 0) == Ok(text.len())
}

/// A number by its value: `1`, `1.0` and `10e-1` are equal, and so are `0` and `-0`; `9007199254740993` is not
/// `9007199254740992`; `1e400` is infinite and above every integer.
///
/// No heap is used for integers that fit 64 bits, and none for doubles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NumericValue(Form);

/// Each value has only one form, so equality and hash are those of the form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Integer(i64),
    /// The bits of a double that is not such an integer: it has a fraction, is large, or is infinite. As it is neither
    /// NaN nor zero, equal values have equal bits.
    Double(u64),
    /// An integer that is neither of these.
    Long {
        negative: bool,
        /// Without sign or leading zeros; at least 19.
        digits: Box<str>,
    },
}

/// An integer that neither 64 bits nor a double hold.
pub(super) struct LongInteger<'a> {
    pub(super) negative: bool,
    pub(super) digits: &'a str,
    /// Whether it is above its double, and not below.
    pub(super) above_double: bool,
}

/// 2^63, the first integer above `i64`.
const ABOVE_I64: f64 = 9_223_372_036_854_775_808.0;

impl NumericValue {
    /// The value of a JSON number; `None` when `text` is not one, to the letter (`+1`, `01`, `1.`, ` 1`).
    pub fn parse(text: &str) -> Option<NumericValue> {
        if !is_number(text) {
            return None;
        }
        if text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
            return nearest_double(text).map(NumericValue::from_double);
        }
        // 18 digits and a sign always fit.
        if text.len() <= 20
            && let Ok(integer) = text.parse()
        {
            return Some(NumericValue(Form::Integer(integer)));
        }
        let digits = text.trim_start_matches('-');
        let negative = digits.len() < text.len();
        let nearest: f64 = text.parse().ok()?;
        if nearest.is_finite() && integer_digits(nearest) == digits {
            return Some(NumericValue::from_double(nearest));
        }
        Some(NumericValue(Form::Long { negative, digits: digits.into() }))
    }

    fn from_double(double: f64) -> NumericValue {
        if (-ABOVE_I64..ABOVE_I64).contains(&double) && double.trunc() == double {
            return NumericValue(Form::Integer(double as i64));
        }
        NumericValue(Form::Double(double.to_bits()))
    }

    /// The nearest double. Infinite for numbers beyond the doubles, integers too.
    pub fn double(&self) -> f64 {
        match &self.0 {
            Form::Integer(integer) => *integer as f64,
            Form::Double(bits) => f64::from_bits(*bits),
            Form::Long { negative, digits } => {
                let magnitude = digits.parse().unwrap_or(f64::INFINITY);
                if *negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The value minus [`double`](NumericValue::double), exactly. Both together give the value again. 0 except for
    /// integers that no double equals. `None` when it does not fit 64 bits, or the double of an integer is infinite.
    ///
    /// If two values have remainders, `(double, remainder)` orders as the values do.
    pub fn remainder(&self) -> Option<i64> {
        match &self.0 {
            Form::Integer(integer) => i64::try_from(i128::from(*integer) - *integer as f64 as i128).ok(),
            Form::Double(_) => Some(0),
            Form::Long { negative, digits } => {
                let double = self.double();
                if double.is_infinite() {
                    return None;
                }
                let difference = difference(digits, &integer_digits(double))?;
                Some(if *negative { -difference } else { difference })
            }
        }
    }

    /// The nearest double, and the value minus it as far as comparing needs it: exactly where
    /// [`remainder`](NumericValue::remainder) is, and else beyond all remainders of 64 bits on the side where the value
    /// is. Compared with a value that has a remainder, the pairs order as the values do.
    pub fn double_and_side(&self) -> (f64, i128) {
        (self.double(), self.side())
    }

    fn side(&self) -> i128 {
        match self.remainder() {
            Some(remainder) => i128::from(remainder),
            None if self.long_integer().is_some_and(|long| long.above_double) => i128::MAX,
            None => i128::MIN,
        }
    }

    pub fn integer(&self) -> Option<i64> {
        match self.0 {
            Form::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    /// The value as an integer that neither 64 bits nor a double hold, if it is one.
    pub(super) fn long_integer(&self) -> Option<LongInteger<'_>> {
        let Form::Long { negative, digits } = &self.0 else { return None };
        let double = self.double();
        // The integers of an infinite double all lie on its near side.
        let is_larger = double.is_finite() && compare_digits(digits, &integer_digits(double)).is_gt();
        Some(LongInteger { negative: *negative, digits, above_double: is_larger != *negative })
    }

    /// Appends bytes that are equal exactly for equal values, that end where they end by themselves when a comma or
    /// bracket follows, and that begin like no other JSON value: the digits of an integer, or `d` and the eight bytes
    /// of a double.
    pub(super) fn write_canonical(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Form::Integer(integer) => {
                // Writing to memory does not fail.
                let _ = write!(out, "{integer}");
            }
            Form::Double(bits) => {
                out.push(b'd');
                out.extend_from_slice(&bits.to_be_bytes());
            }
            Form::Long { negative, digits } => {
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
            (Form::Integer(left), Form::Integer(right)) => left.cmp(right),
            (Form::Long { negative, digits: left }, Form::Long { negative: other_negative, digits: right })
                if negative == other_negative =>
            {
                let magnitudes = compare_digits(left, right);
                if *negative { magnitudes.reverse() } else { magnitudes }
            }
            // No double is NaN or a negative zero.
            _ => self.double().total_cmp(&other.double()).then_with(|| self.side().cmp(&other.side())),
        }
    }
}

impl PartialOrd for NumericValue {
    fn partial_cmp(&self, other: &NumericValue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All digits of the magnitude of a finite double that is an integer.
fn integer_digits(double: f64) -> String {
    // With a precision given, the standard library writes doubles exactly.
    format!("{:.0}", double.abs())
}

fn compare_digits(left: &str, right: &str) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

fn difference(left: &str, right: &str) -> Option<i64> {
    if compare_digits(left, right).is_lt() {
        return difference(right, left).map(|difference| -difference);
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
