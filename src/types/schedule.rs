//! The times of a dataset's scheduled refreshes: a cron expression in UTC, and a share of the spread.
//!
//! An expression has five fields: minute, hour, day of month, month, day of week. Each is `*`, a number, a list `1,15`,
//! a range `1-5` or steps `*/10`. Months and days of the week may be names (`JAN`, `MON`). As in cron, if both days are
//! given, a day counts when either the day of the month or that of the week fits. `L` is the last day of a month,
//! `MON#2` its second Monday, `15W` the weekday nearest to the 15th.
//!
//! Everything here is pure: the moment is an argument.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, YEAR_UPPER_LIMIT};
use sha2::{Digest, Sha256};

use super::ids::DatasetId;
use super::limits;

const EXPRESSION_BYTES_MAX: usize = limits::SCHEDULE_BYTES;

/// Years whose days are searched for one that fits. An expression names no year, so a day depends only on whether its
/// year is a leap year and on the weekday on which the year begins. The last 28 years that [`croner`] searches have all
/// 14 combinations, because no century is among them. A search from the present would go on for 3,000 years.
const SEARCHED_YEARS: i32 = 28;

pub const SCHEDULE_FORM: &str = "five fields in UTC (minute, hour, day of month, month, day of week), each of which is \
                                 *, a number, a list such as 1,15, a range such as 1-5, or steps such as */10; for \
                                 example \"0 2 * * *\" (every day at 2:00), \"*/15 * * * *\" (every 15 minutes), \
                                 or \"30 6 * * MON-FRI\"; or null for no schedule";

/// The moments at which a dataset is due.
///
/// - The expression has exactly five fields.
/// - It occurs again and again. Impossible dates such as 31 February are no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    expression: String,
    cron: Cron,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expression:?} is not a schedule: {reason}; valid: {SCHEDULE_FORM}")]
pub struct InvalidSchedule {
    /// The text, cut to a readable length.
    pub expression: String,
    pub reason: String,
}

impl Schedule {
    /// The expression, its fields separated by single blanks.
    pub fn as_str(&self) -> &str {
        &self.expression
    }

    /// The first moment after `after` that the expression names.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.cron.find_next_occurrence(&after, false).ok()
    }

    /// The first moment after `after` at which this dataset is due: a moment of the expression plus the dataset's share
    /// of `spread`. The share is always the same, and at most a tenth of the time until the expression's next moment.
    /// So datasets on one schedule do not start together, and no due time overtakes another.
    pub fn due_after(&self, after: DateTime<Utc>, dataset: DatasetId, spread: Duration) -> Option<DateTime<Utc>> {
        let spread = TimeDelta::from_std(spread).unwrap_or(TimeDelta::zero());
        // A moment before `after` may have its share after it.
        let mut named =
            self.next_after(after.checked_sub_signed(spread)?.checked_sub_signed(TimeDelta::seconds(1))?)?;
        loop {
            let following = self.next_after(named);
            let widest = following.map_or(spread, |following| spread.min((following - named) / 10));
            let due = named + share(dataset, widest);
            if due > after {
                return Some(due);
            }
            named = following?;
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.expression)
    }
}

impl FromStr for Schedule {
    type Err = InvalidSchedule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid =
            |reason: String| InvalidSchedule { expression: text.chars().take(EXPRESSION_BYTES_MAX).collect(), reason };
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(invalid(format!("it is longer than {EXPRESSION_BYTES_MAX} bytes")));
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        match fields.len() {
            5 => {}
            6 => return Err(invalid("it has six fields, but seconds are not supported".to_owned())),
            1 => return Err(invalid("it has 1 field, not five".to_owned())),
            count => return Err(invalid(format!("it has {count} fields, not five"))),
        }
        if text.contains('@') {
            return Err(invalid("nicknames such as @daily are not supported".to_owned()));
        }
        let expression = fields.join(" ");
        let cron = parser().parse(&expression).map_err(|_| invalid(wrong_field(&fields)))?;
        let schedule = Self { expression, cron };
        let searched_from = Utc.with_ymd_and_hms(YEAR_UPPER_LIMIT - SEARCHED_YEARS, 1, 1, 0, 0, 0).single();
        if searched_from.and_then(|from| schedule.next_after(from)).is_none() {
            return Err(invalid("it matches no date".to_owned()));
        }
        Ok(schedule)
    }
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build()
}

const FIELDS: [(&str, std::ops::RangeInclusive<u32>); 5] =
    [("minute", 0..=59), ("hour", 0..=23), ("day of month", 1..=31), ("month", 1..=12), ("day of week", 0..=7)];

/// The first field of a wrong expression that is wrong, and why.
fn wrong_field(fields: &[&str]) -> String {
    let alone = |index: usize| {
        let mut expression = ["*"; FIELDS.len()];
        expression[index] = fields[index];
        parser().parse(&expression.join(" "))
    };
    let Some(index) = (0..FIELDS.len().min(fields.len())).find(|index| alone(*index).is_err()) else {
        return "the combination of its fields is invalid".to_owned();
    };
    let ((name, range), field) = (&FIELDS[index], fields[index]);
    let bounds = field.split(',').filter_map(|item| item.split('/').next()).flat_map(|item| item.split('-'));
    let mut numbers = bounds.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    match numbers.find(|text| text.parse().map_or(true, |number| !range.contains(&number))) {
        Some(number) => format!("{name} {number} is not between {} and {}", range.start(), range.end()),
        None => format!("the field {field:?} ({name}) is invalid"),
    }
}

/// A dataset's share of a spread, in whole seconds: from none to nearly all of it.
fn share(dataset: DatasetId, spread: TimeDelta) -> TimeDelta {
    let digest = Sha256::digest(dataset.get().to_be_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    let fraction = u128::from(u64::from_be_bytes(first));
    let seconds = u128::try_from(spread.num_seconds()).unwrap_or(0);
    TimeDelta::seconds(i64::try_from((fraction * seconds) >> 64).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use chrono::Datelike;

    use super::*;
    use crate::dataset::DEFAULT_SCHEDULE;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn id(number: u64) -> DatasetId {
        number.to_string().parse().unwrap()
    }

    #[track_caller]
    fn check_next(expression: &str, after: &str, expected: &[&str]) {
        let schedule: Schedule = expression.parse().unwrap();
        let mut moment = at(after);
        for expected in expected {
            moment = schedule.next_after(moment).unwrap();
            assert_eq!(moment, at(expected), "{expression}");
        }
    }

    #[test]
    fn the_moments_of_an_expression() {
        check_next("0 2 * * *", "2024-02-28T02:00:00Z", &["2024-02-29T02:00:00Z", "2024-03-01T02:00:00Z"]);
        check_next("0 2 * * *", "2024-02-28T01:59:59.5Z", &["2024-02-28T02:00:00Z"]);
        check_next("*/20 * * * *", "2024-12-31T23:39:00Z", &["2024-12-31T23:40:00Z", "2025-01-01T00:00:00Z"]);
        check_next("30 6 * * MON-FRI", "2024-03-01T07:00:00Z", &["2024-03-04T06:30:00Z", "2024-03-05T06:30:00Z"]);
        check_next("0 0 1 jan *", "2024-01-01T00:00:00Z", &["2025-01-01T00:00:00Z"]);
        check_next("0 0 29 2 *", "2024-03-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
        check_next("0 0 29 2 *", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
        // Either day counts when both are given: the 13th, and Fridays.
        check_next("0 0 13 * 5", "2024-03-09T00:00:00Z", &["2024-03-13T00:00:00Z", "2024-03-15T00:00:00Z"]);
        check_next("0 0 L * *", "2023-02-01T00:00:00Z", &["2023-02-28T00:00:00Z", "2023-03-31T00:00:00Z"]);
        // The hour that clocks skip where summer time begins is an hour like any other.
        check_next("30 2 31 3 *", "2024-03-30T00:00:00Z", &["2024-03-31T02:30:00Z"]);
        check_next("* * * * *", "2024-01-01T00:00:00Z", &["2024-01-01T00:01:00Z", "2024-01-01T00:02:00Z"]);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for (text, reason) in [
            ("", "it has 0 fields, not five"),
            ("nightly", "it has 1 field, not five;"),
            ("@daily", "it has 1 field, not five;"),
            ("@daily @daily @daily @daily @daily", "nicknames"),
            ("0 0 * *", "it has 4 fields"),
            ("0 0 2 * * *", "seconds are not supported"),
            ("0 0 0 2 * * 2030", "it has 7 fields"),
            ("60 0 * * *", ": minute 60 is not between 0 and 59; "),
            ("0 24 * * *", ": hour 24 is not between 0 and 23; "),
            ("0 1,25-26 * * *", ": hour 25 is not between 0 and 23; "),
            ("0 0 0 * *", ": day of month 0 is not between 1 and 31; "),
            ("0 0 * 13 *", ": month 13 is not between 1 and 12; "),
            ("0 0 * * 8", ": day of week 8 is not between 0 and 7; "),
            ("*/0 * * * *", ": the field \"*/0\" (minute) is invalid; "),
            ("5-1 * * * *", ": the field \"5-1\" (minute) is invalid; "),
            ("* a * * *", ": the field \"a\" (hour) is invalid; "),
            ("-1 * * * *", ": the field \"-1\" (minute) is invalid; "),
            ("0 0 31 2 *", "it matches no date"),
            ("0 0 30 2 *", "it matches no date"),
            ("0 0 31 4,6,9,11 *", "it matches no date"),
            (&"0,".repeat(200), "longer than 200 bytes"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("0 2 * * *"), "{text}: {error}");
        }
    }

    #[test]
    fn days_fit_in_28_years_or_never() {
        let years = (YEAR_UPPER_LIMIT - SEARCHED_YEARS)..YEAR_UPPER_LIMIT;
        let kinds: HashSet<_> = years
            .filter_map(|year| chrono::NaiveDate::from_ymd_opt(year, 1, 1))
            .map(|first| (first.weekday(), first.leap_year()))
            .collect();
        assert_eq!(kinds.len(), 14);
        for (expression, fits) in [
            ("0 0 29 2 +SUN", true),
            ("0 0 29 2 +MON#5", true),
            ("0 0 29 2 +MON#4", false),
            ("0 0 29W 2 +SAT", false),
            ("0 0 29W 2 +THU", true),
            ("0 0 L 2 +WED#5", true),
            ("0 0 1 1 +FRI", true),
            ("59 23 31 12 +TUE#5", true),
            ("0 0 LW 11 +SUN", false),
            ("0 0 1-7 * +MON#2", false),
            ("0 0 30-31 2 *", false),
        ] {
            assert_eq!(expression.parse::<Schedule>().is_ok(), fits, "{expression}");
            let cron: Cron = expression.parse().unwrap();
            assert_eq!(cron.find_next_occurrence(&DateTime::UNIX_EPOCH, false).is_ok(), fits, "{expression}");
        }
    }

    #[test]
    fn a_schedule_prints_as_it_parses() {
        assert_eq!("  0\t2 *  * * ".parse::<Schedule>().unwrap().to_string(), "0 2 * * *");
        assert_eq!(DEFAULT_SCHEDULE.parse::<Schedule>().unwrap().as_str(), DEFAULT_SCHEDULE);
    }

    #[test]
    fn shares_are_bounded_spread_and_steady() {
        let spread = Duration::from_secs(900);
        let nightly: Schedule = DEFAULT_SCHEDULE.parse().unwrap();
        let evening = at("2024-05-01T20:00:00Z");
        let shares: Vec<i64> = (1..=400)
            .map(|number| {
                let due = nightly.due_after(evening, id(number), spread).unwrap();
                let again = nightly.due_after(due, id(number), spread).unwrap();
                assert_eq!(again - due, TimeDelta::days(1), "the same share every night");
                (due - at("2024-05-02T02:00:00Z")).num_seconds()
            })
            .collect();
        assert!(shares.iter().all(|share| (0..900).contains(share)), "{shares:?}");
        for third in 0..3 {
            let within = shares.iter().filter(|share| **share / 300 == third).count();
            assert!((80..190).contains(&within), "{within} of 400 in one third");
        }
        assert_eq!(nightly.due_after(evening, id(7), Duration::ZERO), Some(at("2024-05-02T02:00:00Z")));
    }

    #[test]
    fn due_times_are_those_of_the_expression_each_once_and_in_order() {
        let spread = Duration::from_secs(3600);
        for expression in ["* * * * *", "*/7 3-4 * * *", "0,1 * * * *", "0 0 29 2 *", "0 2 * * *"] {
            let schedule: Schedule = expression.parse().unwrap();
            for number in [1, 2, 3, 1_000_000] {
                let mut named = at("2024-02-28T22:58:30Z");
                let mut due = named - TimeDelta::seconds(1);
                for _ in 0..50 {
                    named = schedule.next_after(named).unwrap();
                    due = match schedule.due_after(due, id(number), spread).unwrap() {
                        // The share of the moment before the first one may still be ahead.
                        early if early < named => schedule.due_after(early, id(number), spread).unwrap(),
                        due => due,
                    };
                    let following = schedule.next_after(named).unwrap();
                    assert!(named <= due && due - named <= (following - named) / 10, "{expression}: {named} {due}");
                }
            }
        }
    }
}
