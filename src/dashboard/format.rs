//! Numbers and times for people.

use chrono::{DateTime, SecondsFormat, Utc};

/// A number with commas between its thousands.
pub(super) fn grouped(number: u64) -> String {
    with_commas(&number.to_string())
}

/// Digits with commas between their thousands.
fn with_commas(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A JSON number with commas between its thousands if it has at least five digits before its decimals: a year has none.
/// A number with an exponent, and a text that is not a number, stay as they are.
pub(super) fn grouped_decimal(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, decimals) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if whole.len() < 5 || !is_plain {
        return number.to_owned();
    }
    format!("{sign}{}{decimals}", with_commas(whole))
}

/// For example, `1 entity` or `2,000 entities`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1_000 {
        return counted(bytes, "byte", "bytes");
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

pub(super) fn duration(microseconds: u64) -> String {
    match microseconds {
        0..10_000_000 => format!("{:.2} ms", microseconds as f64 / 1e3),
        _ => format!("{:.2} s", microseconds as f64 / 1e6),
    }
}

const DIGITS: usize = 40;

/// The digits of a number of any size.
pub(super) fn as_sent(digits: &str) -> String {
    match digits.char_indices().nth(DIGITS) {
        None => digits.to_owned(),
        Some((end, _)) => format!("{}…", &digits[..end]),
    }
}

/// The error for a position without an entity.
pub(super) fn no_position(position: &str, what: &str, entities: u64) -> String {
    let there_are = match entities {
        0 => "no entities".to_owned(),
        1 => "1 entity, at position 0".to_owned(),
        _ => format!("{} entities, at positions 0 to {}", grouped(entities), grouped(entities - 1)),
    };
    format!("There is no position {position}: this {what} has {there_are}.")
}

pub(super) fn took(milliseconds: u64) -> String {
    match milliseconds {
        0 => "less than 1 ms".to_owned(),
        1..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1e3),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds / 1_000 % 60),
    }
}

/// [`grouped`] for templates, which pass references.
pub(super) fn many(number: &(impl Copy + TryInto<u64>)) -> String {
    grouped((*number).try_into().unwrap_or(u64::MAX))
}

/// For example, `+12`, `−3` or `±0`.
pub(super) fn change(before: u64, now: u64) -> String {
    match now.cmp(&before) {
        std::cmp::Ordering::Less => format!("−{}", grouped(before - now)),
        std::cmp::Ordering::Equal => "±0".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", grouped(now - before)),
    }
}

/// A share in percent. Only the whole is 100%, and only nothing is 0%.
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

pub(super) struct Time {
    pub(super) machine: String,
    pub(super) full: String,
    pub(super) ago: String,
}

impl Time {
    pub(super) fn new(time: DateTime<Utc>, now: DateTime<Utc>) -> Time {
        Time {
            machine: time.to_rfc3339_opts(SecondsFormat::Secs, true),
            full: time.format("%Y-%m-%d %H:%M UTC").to_string(),
            ago: ago((now - time).num_seconds()),
        }
    }

    /// A time in the future, without a relative time.
    pub(super) fn to_come(time: DateTime<Utc>) -> Time {
        Time::new(time, time)
    }

    /// The same with day and seconds, such as `Mon 2026-11-23 02:07:31 UTC`.
    pub(super) fn to_the_second(time: DateTime<Utc>) -> Time {
        Time { full: time.format("%a %Y-%m-%d %H:%M:%S UTC").to_string(), ..Time::to_come(time) }
    }
}

fn ago(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let (number, one, many) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute", "minutes"),
        3_600..86_400 => (seconds / 3_600, "hour", "hours"),
        86_400..2_678_400 => (seconds / 86_400, "day", "days"),
        2_678_400..31_536_000 => (seconds / 2_629_800, "month", "months"),
        _ => (seconds / 31_536_000, "year", "years"),
    };
    format!("{} ago", counted(number, one, many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_have_units() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [1, 999, 1_000, 9_960, 999_600, 1_234_567, u64::MAX].map(size),
            ["1 byte", "999 bytes", "1.0 kB", "10 kB", "1.0 MB", "1.2 MB", "18447 PB"]
        );
        assert_eq!([(1, 1), (1, 2_001), (5, 1)].map(|(before, now)| change(before, now)), ["±0", "+2,000", "−4"]);
        assert_eq!(
            [(0, 0), (0, 9), (1, 1_000), (999, 1_000), (9, 9), (1, 2)].map(|(part, whole)| percent(part, whole)),
            ["0%", "0%", "<1%", "99%", "100%", "50%"]
        );
        assert_eq!(no_position("0", "list", 0), "There is no position 0: this list has no entities.");
        assert_eq!(no_position("1", "list", 1), "There is no position 1: this list has 1 entity, at position 0.");
    }

    #[test]
    fn decimal_has_commas_if_it_is_long_and_plain() {
        assert_eq!(
            ["0", "-2026", "10000", "-9000000", "123456.123456", "0.000001"].map(grouped_decimal),
            ["0", "-2026", "10,000", "-9,000,000", "123,456.123456", "0.000001"]
        );
        for unchanged in ["100000e20", "1.0E+400", "12345…", ""] {
            assert_eq!(grouped_decimal(unchanged), unchanged);
        }
    }

    #[test]
    fn times_are_rounded_to_one_unit() {
        // A few milliseconds were shown as 0.0 s.
        assert_eq!(
            [0, 1, 999, 1_000, 59_949, 61_000, 7_200_000].map(took),
            ["less than 1 ms", "1 ms", "999 ms", "1.0 s", "59.9 s", "1 min 1 s", "120 min 0 s"]
        );
        assert_eq!(
            [-5, 59, 60, 7_200, 2_678_399].map(ago),
            ["just now", "just now", "1 minute ago", "2 hours ago", "30 days ago"]
        );
        assert_eq!([2_678_400, 31_535_999, 31_536_000].map(ago), ["1 month ago", "11 months ago", "1 year ago"]);
    }
}
