//! Tests one scalar for `filter` and `filter_contains` (docs/reference/filters.md, filter; docs/reference/filters.md,
//! filter_contains). A needle is prepared once per request.

use memchr::memmem;

use super::cursor::Scalar;
use super::fold::{fold, fold_into, fold_text_into};
use super::number::NumericValue;
use super::text::Text;

#[derive(Clone, Debug)]
pub struct EqualNeedle {
    folded: String,
    /// The value as a number, if it is one.
    pub number: Option<NumericValue>,
}

impl EqualNeedle {
    pub fn new(value: &str) -> EqualNeedle {
        EqualNeedle { folded: fold(value), number: NumericValue::parse(value) }
    }
}

/// Rule 5: the scalar's text equals the needle, case-insensitively; or both are numbers of one value; or it is null and
/// the needle is `null`.
pub fn matches_equal(scalar: Scalar<'_>, needle: &EqualNeedle) -> bool {
    match scalar {
        Scalar::Null => needle.folded == "null",
        Scalar::Bool(value) => needle.folded == boolean_text(value),
        Scalar::Number(text) => {
            // The only letter in a number is its exponent's.
            text.eq_ignore_ascii_case(&needle.folded)
                || needle.number.as_ref().is_some_and(|number| NumericValue::parse(text).as_ref() == Some(number))
        }
        Scalar::String(text) => folds_to(text, needle.folded.as_bytes()),
    }
}

#[derive(Clone, Debug)]
pub struct ContainsNeedle {
    finder: memmem::Finder<'static>,
}

impl ContainsNeedle {
    pub fn new(value: &str) -> ContainsNeedle {
        ContainsNeedle { finder: memmem::Finder::new(&fold(value)).into_owned() }
    }

    fn is_in_folded(&self, text: &[u8]) -> bool {
        self.finder.find(text).is_some()
    }
}

/// Rule 6: the scalar's text contains the needle, case-insensitively. Null has no text.
pub fn matches_contains(scalar: Scalar<'_>, needle: &ContainsNeedle) -> bool {
    match scalar {
        Scalar::Null => false,
        Scalar::Bool(value) => needle.is_in_folded(boolean_text(value).as_bytes()),
        Scalar::Number(text) => contains_folded(Text::with_plainness(text.as_bytes(), true), needle),
        Scalar::String(text) => contains_folded(text, needle),
    }
}

/// Appends the scalar's text, folded, and says whether it has one (null has none).
pub fn fold_scalar_into(scalar: Scalar<'_>, out: &mut Vec<u8>) -> bool {
    match scalar {
        Scalar::Null => return false,
        Scalar::Bool(value) => out.extend_from_slice(boolean_text(value).as_bytes()),
        Scalar::Number(text) => fold_into(text, out),
        Scalar::String(text) => fold_text_into(text, out),
    }
    true
}

fn boolean_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn folds_to(text: Text<'_>, folded: &[u8]) -> bool {
    let raw = text.raw();
    // Up to the first character that is not plain ASCII, bytes alone decide.
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        if byte == b'\\' || !byte.is_ascii() {
            let mut rest = Vec::with_capacity(raw.len());
            fold_text_into(Text::new(&raw[at..]), &mut rest);
            return rest == folded[at..];
        }
        if folded.get(at) != Some(&byte.to_ascii_lowercase()) {
            return false;
        }
        at += 1;
    }
    at == folded.len()
}

fn contains_folded(text: Text<'_>, needle: &ContainsNeedle) -> bool {
    const SHORT_BYTES: usize = 256;

    if needle.finder.needle().is_empty() {
        return true;
    }
    let raw = text.raw();
    // Short ASCII text, the usual case, is folded on the stack.
    if text.is_plain()
        && raw.is_ascii()
        && let Some(folded) = [0; SHORT_BYTES].get_mut(..raw.len())
    {
        folded.copy_from_slice(raw);
        folded.make_ascii_lowercase();
        return needle.is_in_folded(folded);
    }
    let mut folded = Vec::with_capacity(raw.len());
    fold_text_into(text, &mut folded);
    needle.is_in_folded(&folded)
}
