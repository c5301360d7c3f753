//! Numbers and times in the format of the pages.

use chrono::{DateTime, SecondsFormat, Utc};

pub(super) fn group_thousands(number: u64) -> String {
    insert_commas(&number.to_string())
}

fn insert_commas(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Like [`group_thousands`], for a JSON number with at least five integer digits, because `2026` can be a year.
pub(super) fn group_decimal_thousands(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, decimals) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if whole.len() < 5 || !is_plain {
        return number.to_owned();
    }
    format!("{sign}{}{decimals}", insert_commas(whole))
}

/// Formats a count with its noun: `1 entity` or `2,000 entities`.
pub(super) fn pluralize(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", group_thousands(number), if number == 1 { singular } else { plural })
}

pub(super) fn byte_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1_000 {
        return pluralize(bytes, "byte", "bytes");
    }
    let mut value = bytes as f64 / 1_000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let decimals = usize::from(value < 9.95);
    format!("{value:.decimals$} {}", UNITS[unit])
}

pub(super) fn duration_us(microseconds: u64) -> String {
    match microseconds {
        0..10_000_000 => format!("{:.2} ms", microseconds as f64 / 1e3),
        _ => format!("{:.2} s", microseconds as f64 / 1e6),
    }
}

const MAX_SHOWN_DIGITS: usize = 40;

pub(super) fn truncate_digits(digits: &str) -> String {
    match digits.char_indices().nth(MAX_SHOWN_DIGITS) {
        None => digits.to_owned(),
        Some((end, _)) => format!("{}…", &digits[..end]),
    }
}

pub(super) fn position_not_found_text(position: &str, what: &str, entities: u64) -> String {
    let there_are = match entities {
        0 => "no entities".to_owned(),
        1 => "1 entity, at position 0".to_owned(),
        _ => format!("{} entities, at positions 0 to {}", group_thousands(entities), group_thousands(entities - 1)),
    };
    format!("There is no position {position}: this {what} has {there_are}.")
}

pub(super) fn duration_ms(milliseconds: u64) -> String {
    match milliseconds {
        0 => "less than 1 ms".to_owned(),
        1..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1e3),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds / 1_000 % 60),
    }
}

pub(super) fn group_thousands_ref(number: &(impl Copy + TryInto<u64>)) -> String {
    group_thousands((*number).try_into().unwrap_or(u64::MAX))
}

/// Formats the change from `before` to `now`: `+12`, `−3`, or `±0`.
pub(super) fn signed_difference(before: u64, now: u64) -> String {
    match now.cmp(&before) {
        std::cmp::Ordering::Less => format!("−{}", group_thousands(before - now)),
        std::cmp::Ordering::Equal => "±0".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", group_thousands(now - before)),
    }
}

/// Formats a rounded percentage. Only a whole is shown as `100%`, and only zero as `0%`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0%".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        _ if part >= whole => "100%".to_owned(),
        _ if part == 0 => "0%".to_owned(),
        percent if percent < 1.0 => "<1%".to_owned(),
        percent => format!("{:.0}%", percent.min(99.0)),
    }
}

pub(super) struct FormattedTime {
    pub(super) rfc3339: String,
    pub(super) utc_text: String,
    pub(super) relative_text: String,
}

impl FormattedTime {
    pub(super) fn new(time: DateTime<Utc>, now: DateTime<Utc>) -> FormattedTime {
        FormattedTime {
            rfc3339: time.to_rfc3339_opts(SecondsFormat::Secs, true),
            utc_text: time.format("%Y-%m-%d %H:%M UTC").to_string(),
            relative_text: relative_time((now - time).num_seconds()),
        }
    }

    pub(super) fn for_future(time: DateTime<Utc>) -> FormattedTime {
        FormattedTime::new(time, time)
    }

    /// Like [`FormattedTime::for_future`], with the weekday and seconds: `Mon 2026-11-23 02:07:31 UTC`.
    pub(super) fn for_future_with_seconds(time: DateTime<Utc>) -> FormattedTime {
        FormattedTime {
            utc_text: time.format("%a %Y-%m-%d %H:%M:%S UTC").to_string(),
            ..FormattedTime::for_future(time)
        }
    }
}

fn relative_time(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let (number, one, many) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute", "minutes"),
        3_600..86_400 => (seconds / 3_600, "hour", "hours"),
        86_400..2_678_400 => (seconds / 86_400, "day", "days"),
        2_678_400..31_536_000 => (seconds / 2_629_800, "month", "months"),
        _ => (seconds / 31_536_000, "year", "years"),
    };
    format!("{} ago", pluralize(number, one, many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_have_units() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(group_thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [1, 999, 1_000, 9_960, 999_600, 1_234_567, u64::MAX].map(byte_size),
            ["1 byte", "999 bytes", "1.0 kB", "10 kB", "1.0 MB", "1.2 MB", "18447 PB"]
        );
        assert_eq!(
            [(1, 1), (1, 2_001), (5, 1)].map(|(before, now)| signed_difference(before, now)),
            ["±0", "+2,000", "−4"]
        );
        assert_eq!(
            [(0, 0), (0, 9), (1, 1_000), (999, 1_000), (9, 9), (1, 2)].map(|(part, whole)| percent(part, whole)),
            ["0%", "0%", "<1%", "99%", "100%", "50%"]
        );
        assert_eq!(position_not_found_text("0", "list", 0), "There is no position 0: this list has no entities.");
        assert_eq!(
            position_not_found_text("1", "list", 1),
            "There is no position 1: this list has 1 entity, at position 0."
        );
    }

    #[test]
    fn decimal_has_commas_if_it_is_long_and_plain() {
        assert_eq!(
            ["0", "-2026", "10000", "-9000000", "123456.123456", "0.000001"].map(group_decimal_thousands),
            ["0", "-2026", "10,000", "-9,000,000", "123,456.123456", "0.000001"]
        );
        for unchanged in ["100000e20", "1.0E+400", "12345…", ""] {
            assert_eq!(group_decimal_thousands(unchanged), unchanged);
        }
    }

    #[test]
    fn times_are_rounded_to_one_unit() {
        // Regression: a few milliseconds were shown as 0.0 s.
        assert_eq!(
            [0, 1, 999, 1_000, 59_949, 61_000, 7_200_000].map(duration_ms),
            ["less than 1 ms", "1 ms", "999 ms", "1.0 s", "59.9 s", "1 min 1 s", "120 min 0 s"]
        );
        assert_eq!(
            [-5, 59, 60, 7_200, 2_678_399].map(relative_time),
            ["just now", "just now", "1 minute ago", "2 hours ago", "30 days ago"]
        );
        assert_eq!(
            [2_678_400, 31_535_999, 31_536_000].map(relative_time),
            ["1 month ago", "11 months ago", "1 year ago"]
        );
    }
}
