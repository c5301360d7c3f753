//! Parsers for the values of several parameters: booleans, whole numbers, lists of paths, and paths with values.

use strata_types::field_path::{FieldPath, FieldPathError};
use strata_types::limits;
use strata_types::read_request::PathValue;

use super::InvalidValue;
use crate::scalar_parsers;

pub(super) fn parse_boolean(value: &str) -> Result<bool, InvalidValue> {
    scalar_parsers::parse_boolean(value).ok_or_else(|| InvalidValue::new("is not a boolean", "true, false, 1, or 0"))
}

/// Parses a whole number of decimal digits, up to the largest `u64`. Leading zeros are allowed.
pub(super) fn parse_whole_number(value: &str) -> Result<u64, InvalidValue> {
    let valid = || format!("decimal digits only, from 0 to {}", u64::MAX);
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidValue::new("is not a whole number", valid()));
    }
    value.parse().map_err(|_| InvalidValue::new("is too large", valid()))
}

/// The maximum number of keys in a path, which is the maximum depth of entities (docs/reference/paths-and-values.md,
/// Paths). The limit allows code that follows a path to recurse.
pub const MAX_PATH_KEYS: usize = limits::MAX_PATH_KEYS;

pub(super) fn parse_paths(value: &str) -> Result<Vec<FieldPath>, InvalidValue> {
    FieldPath::parse_list(value).into_iter().map(check_path_length).collect()
}

/// Splits `path:value` at the first unescaped colon. The value has no escapes. Only the value can be empty.
pub(super) fn parse_path_value(value: &str) -> Result<PathValue, InvalidValue> {
    const VALID: &str = "path:value, such as address.city:Berlin";
    match FieldPath::parse_path_value(value) {
        Ok((path, value)) => Ok(PathValue { path: check_path_length(path)?, value: value.to_owned() }),
        Err(FieldPathError::MissingColon) => Err(InvalidValue::new("has no colon between a path and a value", VALID)),
        Err(FieldPathError::Empty) => Err(InvalidValue::new("has an empty path", VALID)),
    }
}

fn check_path_length(path: FieldPath) -> Result<FieldPath, InvalidValue> {
    match path.keys().len() {
        ..=MAX_PATH_KEYS => Ok(path),
        keys => Err(InvalidValue::new(
            format!("has a path of {keys} keys"),
            format!("paths of at most {MAX_PATH_KEYS} keys, the maximum depth of entities"),
        )),
    }
}
