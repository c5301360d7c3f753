//! The value of `max_drop_percent`, an exact decimal: 0.3 % of 1,000 entities are 3, which the nearest double is not.

use serde_json::Number;
use strata_json::NumericValue;

/// Decimals that count; further ones are ignored. The products below fit 128 bits.
const DECIMALS: usize = 17;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DropPercent {
    text: String,
    /// The percentage times 10^[`DECIMALS`].
    scaled: u128,
}

impl DropPercent {
    pub(crate) fn parse(number: &Number) -> Option<DropPercent> {
        let text = number.to_string();
        let value = NumericValue::parse(&text)?.nearest_double();
        (0.0..=100.0).contains(&value).then(|| DropPercent { scaled: scale(&text), text })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether `new` is smaller than `old` by more than the percentage.
    pub(crate) fn is_exceeded(&self, old: u64, new: u64) -> bool {
        let dropped = u128::from(old.saturating_sub(new)) * 100 * 10_u128.pow(DECIMALS as u32);
        dropped > self.scaled * u128::from(old)
    }
}

/// Returns the value of a number from 0 to 100, times 10^[`DECIMALS`], rounded down.
fn scale(text: &str) -> u128 {
    let text = text.trim_start_matches('-');
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [integer, fraction].concat();
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return 0;
    }
    // An exponent beyond 64 bits is negative, because the number is at most 100.
    let exponent: i64 = exponent.parse().unwrap_or(i64::MIN / 2);
    let point = integer.len() as i64 - (digits.len() - significant.len()) as i64;
    let count = usize::try_from(point.saturating_add(exponent).saturating_add(DECIMALS as i64)).unwrap_or(0);
    // A number that rounds to the double 100 can be slightly larger.
    let digits = significant.bytes().chain(std::iter::repeat(b'0')).take(count.min(DECIMALS + 3));
    let scaled = digits.fold(0, |scaled, digit| scaled * 10 + u128::from(digit - b'0'));
    scaled.min(100 * 10_u128.pow(DECIMALS as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_is_exact_decimal() {
        let percent = |text: &str| DropPercent::parse(&text.parse().expect("failed to parse number"));
        for (text, old, new, exceeded) in [
            ("0", 10, 10, false),
            ("0", 10, 11, false),
            ("0", 10, 9, true),
            ("-0.0", 10, 9, true),
            ("0.3", 1_000, 997, false),
            ("0.3", 1_000, 996, true),
            ("3e-1", 1_000, 997, false),
            ("0.003e2", 1_000, 996, true),
            ("100", 10, 0, false),
            ("1e2", 10, 0, false),
            ("99.99999999999999999", u64::MAX, 0, true),
            ("33.33333333333333333", 3, 2, true),
            ("1e-99999999999999999999", 10, 10, false),
            ("1e-99999999999999999999", 10, 9, true),
            ("50", 0, 0, false),
        ] {
            let percent = percent(text).unwrap_or_else(|| panic!("{text} is invalid"));
            assert_eq!(percent.is_exceeded(old, new), exceeded, "{text} {old} {new}");
        }
        for text in ["-1", "100.1", "1e3", "1e400", "-1e-3"] {
            assert_eq!(percent(text), None, "{text}");
        }
    }
}
