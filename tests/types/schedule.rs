//! Cron expressions, and the times at which datasets are due.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Datelike, TimeDelta, Utc};
use croner::{Cron, YEAR_UPPER_LIMIT};
use strata_types::dataset::DEFAULT_SCHEDULE;
use strata_types::ids::DatasetId;
use strata_types::schedule::Schedule;

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
        assert_eq!(expression.parse::<Schedule>().is_ok(), fits, "{expression}");
        let cron: Cron = expression.parse().unwrap();
        assert_eq!(cron.find_next_occurrence(&DateTime::UNIX_EPOCH, false).is_ok(), fits, "{expression}");
    }
}

#[test]
fn a_schedule_prints_as_it_parses() {
    assert_eq!("  0\t2 *  * * ".parse::<Schedule>().unwrap().to_string(), "0 2 * * *");
    assert_eq!(DEFAULT_SCHEDULE.parse::<Schedule>().unwrap().to_string(), DEFAULT_SCHEDULE);
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
