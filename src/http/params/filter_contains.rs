//! `filter_contains`: keeps entities by a case-insensitive substring.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `filter_contains`.
pub(super) struct FilterContains;

impl Parameter for FilterContains {
    fn name(&self) -> &'static str {
        "filter_contains"
    }

    fn kind(&self) -> Kind {
        Kind::PathValue
    }

    fn default_text(&self) -> &'static str {
        "none"
    }

    fn summary(&self) -> &'static str {
        "Case-insensitive substring match; dot-notation for nested fields; fans out across arrays; all must match"
    }

    fn documentation(&self) -> &'static str {
        "Keeps the entities in which the text of any value that the path reaches contains the value, whatever the case. Null \
         has no text. An empty value finds everything that has one. `a.b` reaches into objects and, through arrays, into every element. \
         Split at the first colon that is not escaped; `\\.`, `\\:` and `\\\\` in the path stand for the characters \
         themselves, the value has no escapes. May be repeated: all must match. Applied after `keep_field` and \
         `drop_field`, so that a field which they have removed is not found."
    }

    fn example(&self) -> Option<&'static str> {
        Some("name.official:republic")
    }

    fn repetition(&self) -> Repetition {
        Repetition::Repeat
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.filters_contain.push(value::path_value(value)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::path::Path;
    use crate::model::request::PathValue;

    #[test]
    fn every_occurrence_is_kept_in_order() {
        let mut request = ReadRequest::default();
        assert_eq!(FilterContains.apply("a.b:One", &mut request), Ok(()));
        assert_eq!(FilterContains.apply("c:", &mut request), Ok(()));
        let condition = |path, value: &str| PathValue { path: Path::parse(path).expect(path), value: value.to_owned() };
        let filters_contain = vec![condition("a.b", "One"), condition("c", "")];
        assert_eq!(request, ReadRequest { filters_contain, ..ReadRequest::default() });
    }

    #[test]
    fn refuses_what_has_no_path_or_no_colon() {
        for value in ["", "name", ":x", r"a\:b"] {
            assert!(FilterContains.apply(value, &mut ReadRequest::default()).is_err(), "{value}");
        }
    }
}
