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
    let (mut place, mut rest_is_zero) = (integer.len() as i64, true);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(number: &str) -> Option<u64> {
        nearest_double(number).map(f64::to_bits)
    }

    #[test]
    fn digits_and_a_long_exponent_cancel_out() {
        let zeros = |count: usize| "0".repeat(count);
        let nines = format!("{}e-1000000", "9".repeat(1_000_000));
        assert_eq!(nearest_double(&nines), Some(1.0));
        assert_eq!(nearest_double(&format!("0.{}1e1000001", zeros(1_000_000))), Some(1.0));
        assert_eq!(nearest_double(&format!("-25{}.0E-0700001", zeros(700_000))), Some(-2.5));
        assert_eq!(nearest_double(&format!("12{}e-655361", zeros(655_360))), Some(1.2));
        assert_eq!(nearest_double(&format!("12{}e-655359", zeros(655_360))), Some(120.0));
        // Halfway between two doubles, and the least above that.
        let halfway = "9007199254740993";
        assert_eq!(nearest_double(&format!("{halfway}{}e-700000", zeros(700_000))), Some(9007199254740992.0));
        assert_eq!(nearest_double(&format!("{halfway}{}1e-700000", zeros(699_999))), Some(9007199254740994.0));
    }

    #[test]
    fn exponents_beyond_all_doubles() {
        for (number, expected) in [
            ("1e1000000", f64::INFINITY),
            ("-1e+99999999999999999999999", f64::NEG_INFINITY),
            ("1e-1000000", 0.0),
            ("-1e-99999999999999999999999", -0.0),
            ("0e99999999999999999999999", 0.0),
            ("-0.000e1000000", -0.0),
            ("5e-000324", 5e-324),
            ("1.5e+000001", 15.0),
            ("17976931348623157e0000292", f64::MAX),
        ] {
            assert_eq!(bits(number), Some(expected.to_bits()), "{number}");
        }
    }
}
