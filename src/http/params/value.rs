//! The kinds of values that several parameters share: booleans, whole numbers, lists of paths, and a path with a value.

use strata_types::limits;
use strata_types::path::{Path, PathError};
use strata_types::request::PathValue;

use super::InvalidValue;
use crate::values;

/// `true`, `false`, `1` or `0`, in any case.
pub(super) fn boolean(value: &str) -> Result<bool, InvalidValue> {
    values::boolean(value).ok_or_else(|| InvalidValue::new("is not a boolean", "true, false, 1, or 0"))
}

/// Decimal digits only, up to the largest `u64`. Leading zeros do not matter; a sign or a blank is not a digit.
pub(super) fn whole_number(value: &str) -> Result<u64, InvalidValue> {
    let valid = || format!("decimal digits only, from 0 to {}", u64::MAX);
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidValue::new("is not a whole number", valid()));
    }
    // Only digits are left, so the one way to fail is to be too large.
    value.parse().map_err(|_| InvalidValue::new("is too large", valid()))
}

/// Most keys of a path. Entities nest no deeper (docs/reference/paths-and-values.md, Paths), and what walks a path may
/// recurse.
pub const PATH_KEYS_LIMIT: usize = limits::PATH_KEYS;

/// A comma-separated list of paths, empty items left out; none left is an empty list.
pub(super) fn paths(value: &str) -> Result<Vec<Path>, InvalidValue> {
    Path::parse_list(value).into_iter().map(bounded).collect()
}

/// `path:value`, split at the first unescaped colon. The value has no escapes and may be empty; the path may not.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_in_any_case() {
        for value in ["true", "TRUE", "tRuE", "1"] {
            assert_eq!(boolean(value), Ok(true), "{value}");
        }
        for value in ["false", "False", "0"] {
            assert_eq!(boolean(value), Ok(false), "{value}");
        }
        for value in ["", "yes", "on", "2", "01", " true", "tru"] {
            assert!(boolean(value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn whole_numbers_up_to_the_largest() {
        assert_eq!(whole_number("0"), Ok(0));
        assert_eq!(whole_number("007"), Ok(7));
        assert_eq!(whole_number("0000000000000000000000018446744073709551615"), Ok(u64::MAX));
        assert!(whole_number("18446744073709551616").is_err());
        assert!(whole_number("").is_err());
    }

    #[test]
    fn lists_of_paths() {
        let written = |list| paths(list).map(|paths| paths.iter().map(Path::to_string).collect::<Vec<_>>());
        assert_eq!(written(r" a.b ,, c\,d ,\\ "), Ok(vec!["a.b".to_owned(), r"c\,d".to_owned(), r"\\".to_owned()]));
        assert_eq!(written(" ,\t"), Ok(Vec::new()));
    }

    #[test]
    fn paths_are_not_deeper_than_entities() {
        let longest = vec!["a"; PATH_KEYS_LIMIT].join(".");
        assert!(paths(&longest).is_ok() && path_value(&format!("{longest}:x")).is_ok());
        let longer = format!("{longest}.a");
        for refused in [paths(&format!("b,{longer}")).map(drop), path_value(&format!("{longer}:x")).map(drop)] {
            assert_eq!(refused.map_err(|reason| reason.problem), Err("has a path of 129 keys".into()));
        }
    }

    #[test]
    fn a_path_with_a_value() {
        let check = |text: &str, path: &str, value: &str| {
            let parsed = path_value(text).map(|parsed| (parsed.path.to_string(), parsed.value));
            assert_eq!(parsed, Ok((path.to_owned(), value.to_owned())), "{text}");
        };
        check("a:b", "a", "b");
        check("a..b:", "a..b", "");
        check(r"a\:b:c\:d", r"a\:b", r"c\:d");
        check("url:https://example.test/", "url", "https://example.test/");
        for (text, problem) in
            [("name", "has no colon"), ("", "has no colon"), (r"a\:b", "has no colon"), (":x", "has an empty path")]
        {
            let refused = path_value(text).expect_err(text);
            assert!(refused.problem.starts_with(problem), "{text}: {refused:?}");
        }
    }
}
