//! The nearest double of a JSON number, however long its parts are.

/// Digits of an exponent that the standard library reads exactly. It cuts exponents of 655,360 and more, which matters
/// where as many digits stand before or after the point.
const SHORT_EXPONENT: usize = 5;

/// Digits that decide which double is nearest: 768 for one that lies halfway between two, and some more. Of the rest it
/// matters only whether any is not 0.
const DIGITS: usize = 800;

/// Where the first digit may stand for the value to be neither 0 nor infinite, with some to spare.
const PLACES: i64 = 400;

/// The nearest double of a JSON number; infinite beyond the doubles. The sign of zero stays.
pub fn nearest_double(number: &str) -> Option<f64> {
    match number.rfind(['e', 'E']) {
        Some(at) if number.len() - at - 1 > SHORT_EXPONENT => Some(of_long(&number[..at], &number[at + 1..])),
        _ => number.parse().ok(),
    }
}

/// As 0.DIGITS × 10^place.
fn of_long(mantissa: &str, exponent: &str) -> f64 {
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |magnitude| ("-", magnitude));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut text = format!("{sign}0.");
    let before = text.len();
    let mut place = integer.len() as i64;
    let mut rest_is_zero = true;
    for digit in integer.bytes().chain(fraction.bytes()) {
        match text.len() - before {
            0 if digit == b'0' => place -= 1,
            kept if kept < DIGITS => text.push(char::from(digit)),
            _ => rest_is_zero &= digit == b'0',
        }
    }
    if text.len() == before {
        return if sign.is_empty() { 0.0 } else { -0.0 };
    }
    if !rest_is_zero {
        text.push('1');
    }
    // An exponent beyond 64 bits has more digits than any text.
    let exponent = exponent.parse().unwrap_or(if exponent.starts_with('-') { i64::MIN } else { i64::MAX });
    place = place.saturating_add(exponent).clamp(-PLACES, PLACES);
    text.push_str(&format!("e{place}"));
    text.parse().unwrap_or_default()
}
