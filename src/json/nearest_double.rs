//! Conversion of JSON numbers of any length to the nearest double.

/// Number of exponent digits that the standard library parses exactly. The standard library truncates exponents of
/// 655,360 and more, which matters if the mantissa has as many digits before or after the point.
const MAX_EXACT_EXPONENT_DIGITS: usize = 5;
/// Number of leading digits that determine the nearest double: 768 for a number halfway between two doubles, plus a
/// margin. Of the remaining digits, only whether any is not 0 matters.
const MAX_SIGNIFICANT_DIGITS: usize = 800;
/// Maximum magnitude of the decimal exponent of a finite double that is not 0, plus a margin.
const MAX_DECIMAL_EXPONENT: i64 = 400;

/// Returns the double nearest to a JSON number, or infinity if the number is out of range. Zero keeps its sign.
pub fn nearest_double(number: &str) -> Option<f64> {
    match number.rfind(['e', 'E']) {
        Some(at) if number.len() - at - 1 > MAX_EXACT_EXPONENT_DIGITS => {
            Some(parse_long_exponent(&number[..at], &number[at + 1..]))
        }
        _ => number.parse().ok(),
    }
}

fn parse_long_exponent(mantissa: &str, exponent: &str) -> f64 {
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |magnitude| ("-", magnitude));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut text = format!("{sign}0.");
    let before = text.len();
    let mut decimal_exponent = integer.len() as i64;
    let mut rest_is_zero = true;
    for digit in integer.bytes().chain(fraction.bytes()) {
        match text.len() - before {
            0 if digit == b'0' => decimal_exponent -= 1,
            digits if digits < MAX_SIGNIFICANT_DIGITS => text.push(char::from(digit)),
            _ => rest_is_zero &= digit == b'0',
        }
    }
    if text.len() == before {
        return if sign.is_empty() { 0.0 } else { -0.0 };
    }
    if !rest_is_zero {
        text.push('1');
    }
    // An exponent that exceeds 64 bits is out of range, because no text has enough digits to compensate for it.
    let exponent = exponent.parse().unwrap_or(if exponent.starts_with('-') { i64::MIN } else { i64::MAX });
    decimal_exponent = decimal_exponent.saturating_add(exponent).clamp(-MAX_DECIMAL_EXPONENT, MAX_DECIMAL_EXPONENT);
    text.push_str(&format!("e{decimal_exponent}"));
    text.parse().unwrap_or_default()
}
