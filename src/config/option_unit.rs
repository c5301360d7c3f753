//! Numbers with units. The end of an option's name, such as `_bytes`, implies a unit, but a value can specify another.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionUnit {
    Bytes,
    Seconds,
    Milliseconds,
}

impl OptionUnit {
    pub(super) fn from_option_name(name: &str) -> Option<OptionUnit> {
        // Rates in bytes are matched before seconds, because the name of a rate ends with `_s`, too.
        match name {
            _ if name.ends_with("_bytes") || name.ends_with("bytes_per_s") => Some(OptionUnit::Bytes),
            _ if name.ends_with("_ms") => Some(OptionUnit::Milliseconds),
            _ if name.ends_with("_s") => Some(OptionUnit::Seconds),
            _ => None,
        }
    }

    pub(super) fn expected_form(self) -> &'static str {
        match self {
            OptionUnit::Bytes => r#"a whole number of bytes, or a size such as "64MiB" or "1.5GB""#,
            OptionUnit::Seconds => r#"a whole number of seconds, or a duration such as "30s" or "1h 30min""#,
            OptionUnit::Milliseconds => r#"a whole number of milliseconds, or a duration such as "500ms" or "2s""#,
        }
    }

    pub(super) fn parse_quantity(self, text: &str) -> Result<u64, String> {
        let number = text.trim();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            return number.parse().map_err(|_| too_large_message(text));
        }
        match self {
            OptionUnit::Bytes => self.parse_size(text, number),
            OptionUnit::Seconds => self.parse_duration(text, Duration::from_secs(1)),
            OptionUnit::Milliseconds => self.parse_duration(text, Duration::from_millis(1)),
        }
    }

    fn parse_size(self, text: &str, number: &str) -> Result<u64, String> {
        // A size can have a fraction only together with a unit, such as `1.5MiB`. The result is rounded to bytes.
        if !number.contains(|character: char| character.is_ascii_alphabetic()) {
            return Err(self.unexpected_value_message(text));
        }
        parse_size::parse_size(number).map_err(|error| match error {
            parse_size::Error::PosOverflow => too_large_message(text),
            _ => self.unexpected_value_message(text),
        })
    }

    fn parse_duration(self, text: &str, step: Duration) -> Result<u64, String> {
        let duration = humantime::parse_duration(text).map_err(|error| match error {
            // humantime reports an overflow also for a fraction that is finer than a nanosecond.
            humantime::DurationError::NumberOverflow if !text.contains('.') => too_large_message(text),
            _ => self.unexpected_value_message(text),
        })?;
        if !duration.as_nanos().is_multiple_of(step.as_nanos()) {
            return Err(self.unexpected_value_message(text));
        }
        u64::try_from(duration.as_nanos() / step.as_nanos()).map_err(|_| too_large_message(text))
    }

    fn unexpected_value_message(self, text: &str) -> String {
        format!("found {text:?}, expected {}", self.expected_form())
    }
}

/// Parses seconds in the format of the configuration: `90`, `90s`, `1h 30min`.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    OptionUnit::Seconds.parse_quantity(text)
}

/// Parses bytes in the format of the configuration: `8388608`, `8MiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    OptionUnit::Bytes.parse_quantity(text)
}

fn too_large_message(text: &str) -> String {
    format!("{text:?} is too large; the maximum is {}", u64::MAX)
}
