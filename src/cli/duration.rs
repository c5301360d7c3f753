//! Durations on the command line.

use std::time::Duration;

use strata_config as config;

/// Limit for durations on the command line. A longer duration is a mistake, and exceeds the range of dates.
const MAX_DURATION_S: u64 = 100 * 366 * 86_400;

/// Parses a duration in the format of the configuration: `90s`, `90min`, `1h 30min`, `7d`, or a number of seconds.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    match config::parse_seconds(text)? {
        seconds if seconds > MAX_DURATION_S => Err("the maximum is 100 years".to_owned()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// Like [`parse_duration`], but requires a unit, because people who omit it mean days.
pub(super) fn parse_duration_with_unit(text: &str) -> Result<Duration, String> {
    let parsed = parse_duration(text)?;
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
        assert_eq!(parse_duration_with_unit("90d"), Ok(Duration::from_secs(90 * 86_400)));
        let error = parse_duration_with_unit("90").expect_err("failed to require unit");
        assert!(error.contains("the unit is missing; valid: 90d for days"), "{error}");
    }

    #[test]
    fn duration_is_limited_to_100_years() {
        assert_eq!(parse_duration("1h 30min"), Ok(Duration::from_secs(5_400)));
        for text in ["", "-1s", "500ms", "99999999999999999999s", "400000d", "soon"] {
            assert!(parse_duration(text).is_err(), "{text:?}");
        }
    }
}
