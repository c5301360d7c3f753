//! Numbers with units. The end of an option's name tells its unit. A number given as text may have another unit.
//!
//! `humantime` reads durations (`1h 30min`, `500ms`), `parse-size` reads sizes (`64MiB`, `1.5 GB`; `kB` is 1000 bytes,
//! `KiB` 1024).

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionUnit {
    /// Bytes, or bytes a second.
    Bytes,
    Seconds,
    Milliseconds,
}

impl OptionUnit {
    /// The unit that an option's name ends with, if it does.
    pub(super) fn from_option_name(name: &str) -> Option<OptionUnit> {
        // A rate ends with `_s`, too.
        match name {
            _ if name.ends_with("_bytes") || name.ends_with("bytes_per_s") => Some(OptionUnit::Bytes),
            _ if name.ends_with("_ms") => Some(OptionUnit::Milliseconds),
            _ if name.ends_with("_s") => Some(OptionUnit::Seconds),
            _ => None,
        }
    }

    pub(super) fn expectation(self) -> &'static str {
        match self {
            OptionUnit::Bytes => r#"a whole number of bytes, or a size such as "64MiB" or "1.5GB""#,
            OptionUnit::Seconds => r#"a whole number of seconds, or a duration such as "30s" or "1h 30min""#,
            OptionUnit::Milliseconds => r#"a whole number of milliseconds, or a duration such as "500ms" or "2s""#,
        }
    }

    /// Reads a number, with a unit or without. The error names the text and the right form.
    pub(super) fn parse(self, text: &str) -> Result<u64, String> {
        let number = text.trim();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            return number.parse().map_err(|_| too_large(text));
        }
        match self {
            OptionUnit::Bytes => self.size(text, number),
            OptionUnit::Seconds => self.duration(text, Duration::from_secs(1)),
            OptionUnit::Milliseconds => self.duration(text, Duration::from_millis(1)),
        }
    }

    fn size(self, text: &str, number: &str) -> Result<u64, String> {
        // Fractions are rounded to bytes. A fraction of one byte is a slip.
        if !number.contains(|character: char| character.is_ascii_alphabetic()) {
            return Err(self.not_understood(text));
        }
        parse_size::parse_size(number).map_err(|error| match error {
            parse_size::Error::PosOverflow => too_large(text),
            _ => self.not_understood(text),
        })
    }

    /// A duration as a number of steps.
    fn duration(self, text: &str, step: Duration) -> Result<u64, String> {
        let duration = humantime::parse_duration(text).map_err(|error| match error {
            // Also the error of a fraction that is finer than a nanosecond.
            humantime::DurationError::NumberOverflow if !text.contains('.') => too_large(text),
            _ => self.not_understood(text),
        })?;
        if !duration.as_nanos().is_multiple_of(step.as_nanos()) {
            return Err(self.not_understood(text));
        }
        u64::try_from(duration.as_nanos() / step.as_nanos()).map_err(|_| too_large(text))
    }

    fn not_understood(self, text: &str) -> String {
        format!("found {text:?}, expected {}", self.expectation())
    }
}

/// Seconds, written as the configuration takes them: `90`, `90s`, `1h 30min`.
pub fn seconds(text: &str) -> Result<u64, String> {
    OptionUnit::Seconds.parse(text)
}

/// Bytes, written as the configuration takes them: `8388608`, `8MiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    OptionUnit::Bytes.parse(text)
}

fn too_large(text: &str) -> String {
    format!("{text:?} is too large; the maximum is {}", u64::MAX)
}
