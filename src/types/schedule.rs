//! Times of scheduled refreshes: a cron expression in UTC, plus an offset for each dataset.
//!
//! An expression has five fields: minute, hour, day of month, month, and day of week. Each field is `*`, a number, a
//! list `1,15`, a range `1-5`, or steps `*/10`. Months and days of the week can be names (`JAN`, `MON`). If both days
//! are set, either of them is sufficient, as in cron. `L` is the last day of a month, `MON#2` the second Monday, and
//! `15W` the weekday nearest to the 15th.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, YEAR_UPPER_LIMIT};
use sha2::{Digest, Sha256};

use super::ids::DatasetId;
use super::limits::MAX_SCHEDULE_BYTES;

/// Number of years that are searched for an occurrence. An expression contains no year, so only leap years and the
/// weekday of January 1 matter. The last 28 years that [`croner`] searches contain all 14 combinations, because no
/// century is among them. A search from the present would cover 3,000 years.
const SEARCH_SPAN_YEARS: i32 = 28;

pub const SCHEDULE_SYNTAX: &str = "five fields in UTC (minute, hour, day of month, month, day of week), each of which is \
                                 *, a number, a list such as 1,15, a range such as 1-5, or steps such as */10; for \
                                 example \"0 2 * * *\" (every day at 2:00), \"*/15 * * * *\" (every 15 minutes), \
                                 or \"30 6 * * MON-FRI\"; or null for no schedule";

/// A cron schedule with exactly five fields that occurs repeatedly. Impossible dates such as February 31 are rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshSchedule {
    /// The five fields of the cron expression, separated by single spaces.
    expression: String,
    cron: Cron,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expression:?} is not a schedule: {reason}; valid: {SCHEDULE_SYNTAX}")]
pub struct InvalidSchedule {
    /// The invalid expression, truncated to a readable length.
    pub expression: String,
    pub reason: String,
}

impl RefreshSchedule {
    pub fn next_occurrence(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.cron.find_next_occurrence(&after, false).ok()
    }

    /// Returns the first time after `after` at which the dataset is due: an occurrence plus the dataset's constant
    /// fraction of `spread`, but at most a tenth of the time until the next occurrence. Datasets with the same schedule
    /// therefore do not start together, and no due time overtakes another one.
    pub fn next_due_time(&self, after: DateTime<Utc>, dataset: DatasetId, spread: Duration) -> Option<DateTime<Utc>> {
        let spread = TimeDelta::from_std(spread).unwrap_or(TimeDelta::zero());
        // The search starts before `after`, because an occurrence before `after` can be due after it.
        let mut occurrence =
            self.next_occurrence(after.checked_sub_signed(spread)?.checked_sub_signed(TimeDelta::seconds(1))?)?;
        loop {
            let following = self.next_occurrence(occurrence);
            let widest = following.map_or(spread, |following| spread.min((following - occurrence) / 10));
            let due = occurrence + spread_offset(dataset, widest);
            if due > after {
                return Some(due);
            }
            occurrence = following?;
        }
    }
}

impl fmt::Display for RefreshSchedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.expression)
    }
}

impl FromStr for RefreshSchedule {
    type Err = InvalidSchedule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid =
            |reason: String| InvalidSchedule { expression: text.chars().take(MAX_SCHEDULE_BYTES).collect(), reason };
        if text.len() > MAX_SCHEDULE_BYTES {
            return Err(invalid(format!("it is longer than {MAX_SCHEDULE_BYTES} bytes")));
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
        let cron = cron_parser().parse(&expression).map_err(|_| invalid(describe_invalid_field(&fields)))?;
        let schedule = Self { expression, cron };
        let searched_from = Utc.with_ymd_and_hms(YEAR_UPPER_LIMIT - SEARCH_SPAN_YEARS, 1, 1, 0, 0, 0).single();
        if searched_from.and_then(|from| schedule.next_occurrence(from)).is_none() {
            return Err(invalid("it matches no date".to_owned()));
        }
        Ok(schedule)
    }
}

fn cron_parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build()
}

const CRON_FIELDS: [(&str, std::ops::RangeInclusive<u32>); 5] =
    [("minute", 0..=59), ("hour", 0..=23), ("day of month", 1..=31), ("month", 1..=12), ("day of week", 0..=7)];

fn describe_invalid_field(fields: &[&str]) -> String {
    let parse_single_field = |index: usize| {
        let mut expression = ["*"; CRON_FIELDS.len()];
        expression[index] = fields[index];
        cron_parser().parse(&expression.join(" "))
    };
    let Some(index) = (0..CRON_FIELDS.len().min(fields.len())).find(|index| parse_single_field(*index).is_err()) else {
        return "the combination of its fields is invalid".to_owned();
    };
    let (name, range) = &CRON_FIELDS[index];
    let field = fields[index];
    let bounds = field.split(',').filter_map(|item| item.split('/').next()).flat_map(|item| item.split('-'));
    let mut numbers = bounds.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    match numbers.find(|text| text.parse().map_or(true, |number| !range.contains(&number))) {
        Some(number) => format!("{name} {number} is not between {} and {}", range.start(), range.end()),
        None => format!("the field {field:?} ({name}) is invalid"),
    }
}

fn spread_offset(dataset: DatasetId, spread: TimeDelta) -> TimeDelta {
    let digest = Sha256::digest(dataset.get().to_be_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    let fraction = u128::from(u64::from_be_bytes(first));
    let seconds = u128::try_from(spread.num_seconds()).unwrap_or(0);
    TimeDelta::seconds(i64::try_from((fraction * seconds) >> 64).unwrap_or(0))
}
