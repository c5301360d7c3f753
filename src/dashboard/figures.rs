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

/// A JSON number with commas between its thousands where it has five digits or more before its decimals: a year has
/// none. One with an exponent stays as it is, and so does what is no number.
pub(super) fn grouped_decimal(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, decimals) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if whole.len() < 5 || !is_plain {
        return number.to_owned();
    }
    format!("{sign}{}{decimals}", with_commas(whole))
}

/// So many of something: `1 entity`, `2,000 entities`.
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

/// A number as it was sent, however large it is.
pub(super) fn as_sent(digits: &str) -> String {
    match digits.char_indices().nth(DIGITS) {
        None => digits.to_owned(),
        Some((end, _)) => format!("{}…", &digits[..end]),
    }
}

/// That an entity is not there, of a version or a list.
pub(super) fn no_position(position: &str, what: &str, entities: u64) -> String {
    let there_are = match entities {
        0 => "no entities".to_owned(),
        1 => "1 entity, at position 0".to_owned(),
        _ => format!("{} entities, at positions 0 to {}", grouped(entities), grouped(entities - 1)),
    };
    format!("There is no position {position}: this {what} has {there_are}.")
}

/// How long something took that may take long.
pub(super) fn took(milliseconds: u64) -> String {
    match milliseconds {
        0 => "less than 1 ms".to_owned(),
        1..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1e3),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds / 1_000 % 60),
    }
}

/// As [`grouped`], for templates, which give references.
pub(super) fn many(number: &(impl Copy + TryInto<u64>)) -> String {
    grouped((*number).try_into().unwrap_or(u64::MAX))
}

/// What has changed, with its sign: `+12`, `−3`, `±0`.
pub(super) fn change(before: u64, now: u64) -> String {
    match now.cmp(&before) {
        std::cmp::Ordering::Less => format!("−{}", grouped(before - now)),
        std::cmp::Ordering::Equal => "±0".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", grouped(now - before)),
    }
}

/// A share of a whole in percent. Neither is all of it 100% nor none of it 0% unless it is.
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

/// As [`size`], for templates.
pub(super) fn bytes(number: &u64) -> String {
    size(*number)
}

/// A time: for machines, for people, and how long ago it was.
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

    /// A time to come, which is not told by how far it is.
    pub(super) fn to_come(time: DateTime<Utc>) -> Time {
        Time::new(time, time)
    }

    /// The same with its day and its seconds: `Mon 2026-11-23 02:07:31 UTC`.
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
    fn positions_and_spans_are_told_from_the_first_to_the_last() {
        for (position, entities, text) in [
            ("0", 0, "There is no position 0: this list has no entities."),
            ("1", 1, "There is no position 1: this list has 1 entity, at position 0."),
            ("2000", 2_000, "There is no position 2000: this list has 2,000 entities, at positions 0 to 1,999."),
        ] {
            assert_eq!(no_position(position, "list", entities), text);
        }
        assert_eq!(as_sent(&"9".repeat(40)), "9".repeat(40));
        assert_eq!(as_sent(&"9".repeat(8_000)), format!("{}…", "9".repeat(40)));
        // What took a few milliseconds took 0.0 s.
        for (milliseconds, text) in [
            (0, "less than 1 ms"),
            (1, "1 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (59_949, "59.9 s"),
            (61_000, "1 min 1 s"),
            (7_200_000, "120 min 0 s"),
        ] {
            assert_eq!(took(milliseconds), text);
        }
    }

    #[test]
    fn values_have_commas_where_they_are_long() {
        for (number, text) in [
            ("0", "0"),
            ("-2026", "-2026"),
            ("10000", "10,000"),
            ("-9000000", "-9,000,000"),
            ("123456.123456", "123,456.123456"),
            ("0.000001", "0.000001"),
            ("100000e20", "100000e20"),
            ("1.0E+400", "1.0E+400"),
            ("12345…", "12345…"),
            ("", ""),
        ] {
            assert_eq!(grouped_decimal(number), text);
        }
    }

    #[test]
    fn numbers_read_well() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (bytes, text) in [
            (1, "1 byte"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (9_960, "10 kB"),
            (999_600, "1.0 MB"),
            (1_234_567, "1.2 MB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        for (before, now, text) in [(1, 1, "±0"), (1, 2_001, "+2,000"), (5, 1, "−4")] {
            assert_eq!(change(before, now), text);
        }
        for (part, whole, text) in
            [(0, 0, "0%"), (0, 9, "0%"), (1, 1_000, "<1%"), (999, 1_000, "99%"), (9, 9, "100%"), (1, 2, "50%")]
        {
            assert_eq!(percent(part, whole), text);
        }
        for (seconds, text) in [
            (-5, "just now"),
            (59, "just now"),
            (60, "1 minute ago"),
            (7_200, "2 hours ago"),
            (2_678_399, "30 days ago"),
            (2_678_400, "1 month ago"),
            (31_535_999, "11 months ago"),
            (31_536_000, "1 year ago"),
        ] {
            assert_eq!(ago(seconds), text);
        }
    }
}
