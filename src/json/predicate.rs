//! Predicates of `filter` and `filter_contains` on one scalar (docs/reference/filters.md), prepared once per request.

use memchr::memmem;

use super::case_folding::{fold_case, fold_case_into, fold_json_str_into};
use super::cursor::JsonScalar;
use super::json_str::JsonStr;
use super::number::NumericValue;

#[derive(Clone, Debug)]
pub struct EqualsPredicate {
    folded: String,
    pub number: Option<NumericValue>,
}

impl EqualsPredicate {
    pub fn new(value: &str) -> EqualsPredicate {
        EqualsPredicate { folded: fold_case(value), number: NumericValue::parse(value) }
    }
}

/// Tests a scalar with `filter`: its text equals the operand case-insensitively, or both are equal numbers, or the
/// scalar is null and the operand is `null`.
pub fn matches_equal(scalar: JsonScalar<'_>, needle: &EqualsPredicate) -> bool {
    match scalar {
        JsonScalar::Null => needle.folded == "null",
        JsonScalar::Bool(value) => needle.folded == boolean_text(value),
        JsonScalar::Number(text) => {
            // The comparison can ignore case, because a number contains no letter except for the `e` of its exponent.
            text.eq_ignore_ascii_case(&needle.folded)
                || needle.number.as_ref().is_some_and(|number| NumericValue::parse(text).as_ref() == Some(number))
        }
        JsonScalar::String(text) => folded_eq(text, needle.folded.as_bytes()),
    }
}

#[derive(Clone, Debug)]
pub struct ContainsPredicate {
    finder: memmem::Finder<'static>,
}

impl ContainsPredicate {
    pub fn new(value: &str) -> ContainsPredicate {
        ContainsPredicate { finder: memmem::Finder::new(&fold_case(value)).into_owned() }
    }

    fn is_contained_in(&self, text: &[u8]) -> bool {
        self.finder.find(text).is_some()
    }
}

pub fn matches_contains(scalar: JsonScalar<'_>, needle: &ContainsPredicate) -> bool {
    match scalar {
        JsonScalar::Null => false,
        JsonScalar::Bool(value) => needle.is_contained_in(boolean_text(value).as_bytes()),
        JsonScalar::Number(text) => contains_folded(JsonStr::from_parts(text.as_bytes(), true), needle),
        JsonScalar::String(text) => contains_folded(text, needle),
    }
}

/// Appends the folded text of a scalar. Returns false for null, which has no text.
pub fn fold_scalar_into(scalar: JsonScalar<'_>, out: &mut Vec<u8>) -> bool {
    match scalar {
        JsonScalar::Null => return false,
        JsonScalar::Bool(value) => out.extend_from_slice(boolean_text(value).as_bytes()),
        JsonScalar::Number(text) => fold_case_into(text, out),
        JsonScalar::String(text) => fold_json_str_into(text, out),
    }
    true
}

fn boolean_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn folded_eq(text: JsonStr<'_>, folded: &[u8]) -> bool {
    let raw = text.raw();
    // Up to the first escape or non-ASCII character, the bytes are compared directly.
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        if byte == b'\\' || !byte.is_ascii() {
            let mut rest = Vec::with_capacity(raw.len());
            fold_json_str_into(JsonStr::new(&raw[at..]), &mut rest);
            return rest == folded[at..];
        }
        if folded.get(at) != Some(&byte.to_ascii_lowercase()) {
            return false;
        }
        at += 1;
    }
    at == folded.len()
}

fn contains_folded(text: JsonStr<'_>, needle: &ContainsPredicate) -> bool {
    const STACK_BUFFER_BYTES: usize = 256;

    if needle.finder.needle().is_empty() {
        return true;
    }
    let raw = text.raw();
    // Short ASCII text, the usual case, is folded on the stack.
    if text.is_plain()
        && raw.is_ascii()
        && let Some(folded) = [0; STACK_BUFFER_BYTES].get_mut(..raw.len())
    {
        folded.copy_from_slice(raw);
        folded.make_ascii_lowercase();
        return needle.is_contained_in(folded);
    }
    let mut folded = Vec::with_capacity(raw.len());
    fold_json_str_into(text, &mut folded);
    needle.is_contained_in(&folded)
}
