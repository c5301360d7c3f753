//! Spans of time on the command line.

use std::time::Duration;

use strata_config as config;

/// More is a slip, and too far back for dates.
const HUNDRED_YEARS_S: u64 = 100 * 366 * 86_400;

/// Parses a span of time as the configuration writes it: `90s`, `90min`, `1h 30min`, `7d`, or a number of seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    match config::seconds(text)? {
        seconds if seconds > HUNDRED_YEARS_S => Err("the maximum is 100 years".to_owned()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// As [`parse`], but a number needs a unit: people who leave it out mean days.
pub(super) fn parse_with_unit(text: &str) -> Result<Duration, String> {
    let parsed = parse(text)?;
    match text.bytes().all(|byte| byte.is_ascii_digit()) && !parsed.is_zero() {
        true => Err(format!("the unit is missing; valid: {text}d for days, {text}h for hours, {text}s for seconds")),
        false => Ok(parsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_no_span_where_a_unit_is_wanted() {
        assert_eq!(parse_with_unit("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(parse_with_unit("1h 30min"), Ok(Duration::from_secs(5_400)));
        let error = parse_with_unit("90").expect_err("no unit");
        assert!(error.contains("the unit is missing; valid: 90d for days"), "{error}");
    }

    #[test]
    fn spans_of_time_are_written_as_in_the_configuration() {
        for (text, seconds) in [
            ("0s", 0),
            ("90", 90),
            ("90s", 90),
            ("15m", 900),
            ("90min", 5_400),
            ("2hours", 7_200),
            ("1h 30min", 5_400),
            ("12h", 43_200),
            ("7d", 604_800),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "s", "-1s", "+1s", "500ms", "99999999999999999999s", "400000d", "1é"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let error = parse("soon").expect_err("no span of time");
        assert!(error.contains("a whole number of seconds, or a duration such as"), "{error}");
    }
}
