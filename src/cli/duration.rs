//! Spans of time on the command line.

use std::time::Duration;

/// Parses a whole number with a unit, `90s`, `15m`, `12h`, `7d`, or without one, in seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        _ => None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_number);
    let product = number.zip(seconds).and_then(|(number, seconds)| number.checked_mul(seconds));
    // More than a hundred years is a slip, and too far back for dates.
    product
        .filter(|seconds| *seconds <= 100 * 366 * 86_400)
        .map(Duration::from_secs)
        .ok_or_else(|| "expected a whole number with a unit, such as 90s, 15m, 12h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_a_unit_is_a_span_of_time() {
        for (text, seconds) in [("0s", 0), ("90", 90), ("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "-1s", "+1s", "1.5h", "1 h", "1w", "1H", "99999999999999999999s", "400000d", "1é"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
