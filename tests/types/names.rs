//! Names of values: each parses as it is printed, and no other text does.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use strata_types::dataset::RefreshTrigger;
use strata_types::scope::Scope;
use strata_types::source::SourceFormat;
use strata_types::user::Plan;

#[track_caller]
fn check<T>(all: &[T], name: fn(T) -> &'static str, others: &[&str], message: &str)
where
    T: Copy + Debug + PartialEq + FromStr<Err: Display>,
{
    for value in all {
        assert_eq!(name(*value).parse().ok(), Some(*value));
    }
    for text in others {
        match text.parse::<T>() {
            Ok(value) => panic!("{text:?} is {value:?}"),
            Err(error) => assert_eq!(error.to_string(), format!("{text:?} {message}")),
        }
    }
}

#[test]
fn values_parse_from_their_names_only() {
    let message = "is not a scope; valid: read, write";
    check(&Scope::ALL, Scope::name, &["", "Read", "write ", "admin"], message);
    let message = "is not a plan; valid: free, pro, scale";
    check(&Plan::ALL, Plan::name, &["", "Free", "PRO", "scale ", "enterprise"], message);
    let message = "is not a refresh trigger; valid: schedule, ping, manual, import";
    check(&RefreshTrigger::ALL, RefreshTrigger::name, &["Ping"], message);
    let message = "is not a source format; valid: json, jsonl, csv, tsv, parquet";
    check(&SourceFormat::ALL, SourceFormat::name, &["JSON", "ndjson"], message);
}

#[test]
fn only_what_changes_something_needs_more_than_reading() {
    let allowed = |scope: Scope| Scope::ALL.map(|needed| scope.allows(needed));
    assert_eq!(Scope::ALL.map(allowed), [[true, false], [true, true]]);
}
