//! Numbers as exact decimals.

use std::cmp::Ordering;

/// Returns true if the text is a JSON number.
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

/// The numeric value: exact for an integer, otherwise the nearest double.
#[derive(Clone, Debug, PartialEq)]
struct Decimal {
    negative: bool,
    /// Digits before the decimal point, without leading zeros; for infinity, more digits than any finite number has.
    integer: String,
    /// Digits after the decimal point, without trailing zeros.
    fraction: String,
}

impl Decimal {
    fn parse(text: &str) -> Decimal {
        let exact = if text.contains(['.', 'e', 'E']) {
            let double = nearest_double(text);
            match double.is_infinite() {
                // Greater than every integer that a test can write.
                true => format!("{}{}", if double < 0.0 { "-" } else { "" }, "9".repeat(100_000)),
                // No double has more digits after the decimal point.
                false => format!("{double:.1074}"),
            }
        } else {
            text.to_owned()
        };
        let magnitude = exact.trim_start_matches('-');
        let (integer, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
        let integer = integer.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let zero = integer.is_empty() && fraction.is_empty();
        Decimal {
            negative: exact.starts_with('-') && !zero,
            integer: integer.to_owned(),
            fraction: fraction.to_owned(),
        }
    }
}

/// Returns the nearest double. The number is written without an exponent, which is exact for any length.
pub fn nearest_double(text: &str) -> f64 {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |magnitude| ("-", magnitude));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{integer}{fraction}");
    // The number of digits before the decimal point, which can be negative for small numbers.
    let exponent = exponent.parse().unwrap_or(if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 });
    let mut before = integer.len() as i64 + exponent;
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    digits.drain(..zeros);
    before -= zeros as i64;
    let plain = match before {
        _ if digits.is_empty() => "0".to_owned(),
        // At least 10^400, or less than 10^-400.
        401.. => return format!("{sign}inf").parse().expect("failed to parse infinity"),
        ..-400 => "0".to_owned(),
        -400..0 => format!("0.{}{digits}", "0".repeat(before.unsigned_abs() as usize)),
        _ => {
            let before = before as usize;
            digits.push_str(&"0".repeat(before.saturating_sub(digits.len())));
            format!("{}.{}", &digits[..before], &digits[before..])
        }
    };
    format!("{sign}0{plain}0").parse().expect("failed to parse number")
}

/// Compares two JSON numbers by value.
pub fn compare(left: &str, right: &str) -> Ordering {
    let left = Decimal::parse(left);
    let right = Decimal::parse(right);
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
