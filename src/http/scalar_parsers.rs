//! Parsers for scalars in query strings and JSON members.

use serde_json::Number;
use strata_json::NumericValue;
use strata_types::ids::DatasetId;

/// Parses `true`, `false`, `1`, or `0`, ignoring case.
pub(super) fn parse_boolean(text: &str) -> Option<bool> {
    if text == "1" || text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text == "0" || text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// Returns the value of a whole number in any notation: `7.0` is 7.
pub(super) fn whole_number_from_json(number: &Number) -> Option<u64> {
    let integer = NumericValue::parse(&number.to_string()).and_then(|value| value.as_i64());
    integer.and_then(|integer| u64::try_from(integer).ok()).or_else(|| number.as_u64())
}

/// Parses `[0-9]+`. A number that exceeds a `u64` becomes `u64::MAX`.
pub(super) fn parse_whole_number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Parses `[1-9][0-9]*`. A number that exceeds a `u64` becomes `u64::MAX`.
pub(super) fn parse_positive(text: &str) -> Option<u64> {
    text.parse::<DatasetId>().ok().map(DatasetId::get)
}
