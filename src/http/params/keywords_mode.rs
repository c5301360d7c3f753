//! `keywords_mode`: how several keywords combine.

use super::{InvalidValue, Kind, Parameter, Repetition};
use crate::model::request::{KeywordsMode, ReadRequest};

/// The parameter `keywords_mode`. Not called `KeywordsMode`, which is the value it sets.
pub(super) struct KeywordsModeParameter;

impl Parameter for KeywordsModeParameter {
    fn name(&self) -> &'static str {
        "keywords_mode"
    }

    fn kind(&self) -> Kind {
        Kind::OneOf(vec!["or", "and"])
    }

    fn default_text(&self) -> &'static str {
        "or"
    }

    fn summary(&self) -> &'static str {
        "`or`: any keyword matches; `and`: all must be present, in whatever fields"
    }

    fn documentation(&self) -> &'static str {
        "With `or` any of the `keywords` is enough; with `and` all of them must be present, in the same field or in different \
         ones. Does nothing without `keywords`."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.keywords_mode = match value {
            "or" => KeywordsMode::Or,
            "and" => KeywordsMode::And,
            _ => return Err(InvalidValue::new("is not a mode", "or, and")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_both_modes() {
        for (value, keywords_mode) in [("or", KeywordsMode::Or), ("and", KeywordsMode::And)] {
            let mut request = ReadRequest::default();
            assert_eq!(KeywordsModeParameter.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { keywords_mode, ..ReadRequest::default() });
        }
    }

    #[test]
    fn names_are_exact() {
        for value in ["", "OR", "And", " or", "xor", "or,and"] {
            assert!(KeywordsModeParameter.apply(value, &mut ReadRequest::default()).is_err(), "{value:?}");
        }
    }
}
