//! Cron expressions, and the times at which datasets are due.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Datelike, TimeDelta, Utc};
use croner::{Cron, YEAR_UPPER_LIMIT};
use strata_types::dataset::DEFAULT_CRON_SCHEDULE;
use strata_types::ids::DatasetId;
use strata_types::schedule::RefreshSchedule;

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn id(number: u64) -> DatasetId {
    number.to_string().parse().unwrap()
}

#[track_caller]
fn check_next(expression: &str, after: &str, expected: &[&str]) {
    let schedule: RefreshSchedule = expression.parse().unwrap();
    let mut moment = utc(after);
    for expected in expected {
        moment = schedule.next_occurrence(moment).unwrap();
        assert_eq!(moment, utc(expected), "{expression}");
    }
}

#[test]
fn next_occurrences_follow_expression() {
    check_next("0 2 * * *", "2024-02-28T02:00:00Z", &["2024-02-29T02:00:00Z", "2024-03-01T02:00:00Z"]);
    check_next("0 2 * * *", "2024-02-28T01:59:59.5Z", &["2024-02-28T02:00:00Z"]);
    check_next("*/20 * * * *", "2024-12-31T23:39:00Z", &["2024-12-31T23:40:00Z", "2025-01-01T00:00:00Z"]);
    check_next("30 6 * * MON-FRI", "2024-03-01T07:00:00Z", &["2024-03-04T06:30:00Z", "2024-03-05T06:30:00Z"]);
    check_next("0 0 1 jan *", "2024-01-01T00:00:00Z", &["2025-01-01T00:00:00Z"]);
    check_next("0 0 29 2 *", "2024-03-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
    check_next("0 0 29 2 *", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    // If both days are set, either of them is sufficient: the 13th, and Fridays.
    check_next("0 0 13 * 5", "2024-03-09T00:00:00Z", &["2024-03-13T00:00:00Z", "2024-03-15T00:00:00Z"]);
    check_next("0 0 L * *", "2023-02-01T00:00:00Z", &["2023-02-28T00:00:00Z", "2023-03-31T00:00:00Z"]);
    // The hour that clocks skip at the start of summer time is not special in UTC.
    check_next("30 2 31 3 *", "2024-03-30T00:00:00Z", &["2024-03-31T02:30:00Z"]);
    check_next("* * * * *", "2024-01-01T00:00:00Z", &["2024-01-01T00:01:00Z", "2024-01-01T00:02:00Z"]);
}

#[test]
fn invalid_schedules_are_rejected() {
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
        let error = text.parse::<RefreshSchedule>().unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("0 2 * * *"), "{text}: {error}");
    }
}

#[test]
fn dates_occur_within_28_years_or_never() {
    let years = (YEAR_UPPER_LIMIT - 28)..YEAR_UPPER_LIMIT;
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
        assert_eq!(expression.parse::<RefreshSchedule>().is_ok(), fits, "{expression}");
        let cron: Cron = expression.parse().unwrap();
        assert_eq!(cron.find_next_occurrence(&DateTime::UNIX_EPOCH, false).is_ok(), fits, "{expression}");
    }
}

#[test]
fn schedule_prints_normalized_expression() {
    assert_eq!("  0\t2 *  * * ".parse::<RefreshSchedule>().unwrap().to_string(), "0 2 * * *");
    assert_eq!(DEFAULT_CRON_SCHEDULE.parse::<RefreshSchedule>().unwrap().to_string(), DEFAULT_CRON_SCHEDULE);
}

#[test]
fn due_time_offsets_are_bounded_and_constant() {
    let spread = Duration::from_secs(900);
    let nightly: RefreshSchedule = DEFAULT_CRON_SCHEDULE.parse().unwrap();
    let evening = utc("2024-05-01T20:00:00Z");
    let offsets: Vec<i64> = (1..=400)
        .map(|number| {
            let due = nightly.next_due_time(evening, id(number), spread).unwrap();
            let again = nightly.next_due_time(due, id(number), spread).unwrap();
            assert_eq!(again - due, TimeDelta::days(1), "the offset changes between nights");
            (due - utc("2024-05-02T02:00:00Z")).num_seconds()
        })
        .collect();
    assert!(offsets.iter().all(|offset| (0..900).contains(offset)), "{offsets:?}");
    for third in 0..3 {
        let within = offsets.iter().filter(|offset| **offset / 300 == third).count();
        assert!((80..190).contains(&within), "{within} of 400 offsets are in one third");
    }
    assert_eq!(nightly.next_due_time(evening, id(7), Duration::ZERO), Some(utc("2024-05-02T02:00:00Z")));
}

#[test]
fn each_occurrence_is_due_once_and_in_order() {
    let spread = Duration::from_secs(3600);
    for expression in ["* * * * *", "*/7 3-4 * * *", "0,1 * * * *", "0 0 29 2 *", "0 2 * * *"] {
        let schedule: RefreshSchedule = expression.parse().unwrap();
        for number in [1, 2, 3, 1_000_000] {
            let mut occurrence = utc("2024-02-28T22:58:30Z");
            let mut due = occurrence - TimeDelta::seconds(1);
            for _ in 0..50 {
                occurrence = schedule.next_occurrence(occurrence).unwrap();
                due = match schedule.next_due_time(due, id(number), spread).unwrap() {
                    // The offset of the occurrence before the first one can be later.
                    early if early < occurrence => schedule.next_due_time(early, id(number), spread).unwrap(),
                    due => due,
                };
                let following = schedule.next_occurrence(occurrence).unwrap();
                assert!(
                    occurrence <= due && due - occurrence <= (following - occurrence) / 10,
                    "{expression}: {occurrence} {due}"
                );
            }
        }
    }
}
