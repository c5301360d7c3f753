//! Names of enum variants: each parses as it is printed, and no other text parses.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use strata_types::dataset::RefreshTrigger;
use strata_types::source::SourceFormat;
use strata_types::token_scope::TokenScope;
use strata_types::user::UserPlan;

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
    check(&TokenScope::ALL, TokenScope::name, &["", "Read", "write ", "admin"], message);
    let message = "is not a plan; valid: free, pro, scale";
    check(&UserPlan::ALL, UserPlan::name, &["", "Free", "PRO", "scale ", "enterprise"], message);
    let message = "is not a refresh trigger; valid: schedule, ping, manual, import";
    check(&RefreshTrigger::ALL, RefreshTrigger::name, &["Ping"], message);
    let message = "is not a source format; valid: json, jsonl, csv, tsv, parquet";
    check(&SourceFormat::ALL, SourceFormat::name, &["JSON", "ndjson"], message);
}

#[test]
fn read_scope_allows_only_read_calls() {
    let accessible = |scope: TokenScope| TokenScope::ALL.map(|needed| scope.can_access(needed));
    assert_eq!(TokenScope::ALL.map(accessible), [[true, false], [true, true]]);
}
