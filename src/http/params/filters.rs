//! The parameters that keep the entities in which a field has a value.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const FILTER: Parameter = Parameter {
    name: "filter",
    kind: ParameterKind::PathValue,
    default_text: "none",
    summary: "Exact, case-insensitive match; dot-notation for nested fields; fans out across arrays; all must match",
    documentation: "Keeps the entities in which any value that the path reaches equals the value, regardless of case. \
         Numbers are also compared as numbers (`10` finds `10.0`), and `null` finds null. `a.b` reaches into objects \
         and, through arrays, into every element. Split at the first colon that is not escaped; `\\.`, `\\:` and \
         `\\\\` in the path stand for the characters themselves, the value has no escapes. May be repeated: all must \
         match. Applied after `keep_field` and `drop_field`, so that a field which they have removed is not found.",
    example: Some("region:Europe"),
    repetition: Repetition::Repeat,
    apply: |value, request| value::path_value(value).map(|value| request.filters.push(value)),
};

pub(super) const FILTER_CONTAINS: Parameter = Parameter {
    name: "filter_contains",
    summary: "Case-insensitive substring match; dot-notation for nested fields; fans out across arrays; all must match",
    documentation: "Keeps the entities in which the text of any value that the path reaches contains the value, \
         regardless of case. Null has no text. An empty value matches every scalar that has a text. `a.b` reaches \
         into objects and, through arrays, into every element. Split at the first colon that is not escaped; `\\.`, \
         `\\:` and `\\\\` in the path stand for the characters themselves, the value has no escapes. May be repeated: \
         all must match. Applied after `keep_field` and `drop_field`, so that a field which they have removed is not \
         found.",
    example: Some("name.official:republic"),
    apply: |value, request| value::path_value(value).map(|value| request.filters_contain.push(value)),
    ..FILTER
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::path::Path;
    use crate::model::request::{PathValue, ReadRequest};

    #[test]
    fn every_occurrence_is_kept_in_order() {
        let mut request = ReadRequest::default();
        for parameter in [FILTER, FILTER_CONTAINS] {
            assert_eq!((parameter.apply)("a.b:One", &mut request), Ok(()));
            assert_eq!((parameter.apply)("c:", &mut request), Ok(()));
        }
        let condition = |path, value: &str| PathValue { path: Path::parse(path).expect(path), value: value.to_owned() };
        let conditions = || vec![condition("a.b", "One"), condition("c", "")];
        let default = ReadRequest::default();
        assert_eq!(request, ReadRequest { filters: conditions(), filters_contain: conditions(), ..default });
    }

    #[test]
    fn refuses_what_has_no_path_or_no_colon() {
        for value in ["", "name", ":x", r"a\:b"] {
            for parameter in [FILTER, FILTER_CONTAINS] {
                assert!((parameter.apply)(value, &mut ReadRequest::default()).is_err(), "{value}");
            }
        }
    }
}
