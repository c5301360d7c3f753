//! Durations on the command line.

use std::time::Duration;

use strata_config as config;

/// A longer duration is a typing error, and too long for dates.
const HUNDRED_YEARS_S: u64 = 100 * 366 * 86_400;

/// Parses a duration in the format of the configuration: `90s`, `90min`, `1h 30min`, `7d`, or a number of seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    match config::seconds(text)? {
        seconds if seconds > HUNDRED_YEARS_S => Err("the maximum is 100 years".to_owned()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// As [`parse`], but a number needs a unit, because people who omit it mean days.
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
    fn token_lifetime_requires_unit() {
        assert_eq!(parse_with_unit("90d"), Ok(Duration::from_secs(90 * 86_400)));
        let error = parse_with_unit("90").expect_err("no unit");
        assert!(error.contains("the unit is missing; valid: 90d for days"), "{error}");
    }

    #[test]
    fn duration_is_limited_to_100_years() {
        assert_eq!(parse("1h 30min"), Ok(Duration::from_secs(5_400)));
        for text in ["", "-1s", "500ms", "99999999999999999999s", "400000d", "soon"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
