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
use super::limits::SCHEDULE_BYTES;

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
    /// Its fields are separated by single spaces.
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
            |reason: String| InvalidSchedule { expression: text.chars().take(SCHEDULE_BYTES).collect(), reason };
        if text.len() > SCHEDULE_BYTES {
            return Err(invalid(format!("it is longer than {SCHEDULE_BYTES} bytes")));
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
    let (name, range) = &FIELDS[index];
    let field = fields[index];
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
