//! Values of several parameters: booleans, whole numbers, lists of paths, and a path with a value.

use strata_types::limits;
use strata_types::path::{Path, PathError};
use strata_types::request::PathValue;

use super::InvalidValue;
use crate::values;

/// `true`, `false`, `1` or `0`, in any case.
pub(super) fn boolean(value: &str) -> Result<bool, InvalidValue> {
    values::boolean(value).ok_or_else(|| InvalidValue::new("is not a boolean", "true, false, 1, or 0"))
}

/// Decimal digits, up to the largest `u64`, also with leading zeros.
pub(super) fn whole_number(value: &str) -> Result<u64, InvalidValue> {
    let valid = || format!("decimal digits only, from 0 to {}", u64::MAX);
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidValue::new("is not a whole number", valid()));
    }
    value.parse().map_err(|_| InvalidValue::new("is too large", valid()))
}

/// Entities are not nested deeper (docs/reference/paths-and-values.md, Paths), and code that follows a path can
/// recurse.
pub const PATH_KEYS_LIMIT: usize = limits::PATH_KEYS;

/// A comma-separated list of paths, without empty items.
pub(super) fn paths(value: &str) -> Result<Vec<Path>, InvalidValue> {
    Path::parse_list(value).into_iter().map(bounded).collect()
}

/// `path:value`, split at the first unescaped colon. The value has no escapes and can be empty; the path cannot.
pub(super) fn path_value(value: &str) -> Result<PathValue, InvalidValue> {
    const VALID: &str = "path:value, such as address.city:Berlin";
    match Path::parse_prefix(value) {
        Ok((path, value)) => Ok(PathValue { path: bounded(path)?, value: value.to_owned() }),
        Err(PathError::NoColon) => Err(InvalidValue::new("has no colon between a path and a value", VALID)),
        Err(PathError::Empty) => Err(InvalidValue::new("has an empty path", VALID)),
    }
}

fn bounded(path: Path) -> Result<Path, InvalidValue> {
    match path.keys().len() {
        ..=PATH_KEYS_LIMIT => Ok(path),
        keys => Err(InvalidValue::new(
            format!("has a path of {keys} keys"),
            format!("paths of at most {PATH_KEYS_LIMIT} keys, the maximum depth of entities"),
        )),
    }
}
