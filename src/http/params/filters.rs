//! The parameters that keep the entities in which a field has a value, or one on one side of another.

use strata_types::request::RangeBound;

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const FILTER: Parameter = Parameter {
    name: "filter",
    kind: ParameterKind::PathValue,
    default_text: "none",
    summary: "Matches the value exactly, ignoring case; dot notation for nested fields; searches array elements; all \
              filters must match",
    documentation: "Keeps the entities in which any value at the path equals the specified value, ignoring case. \
         Numbers are also compared as numbers (`10` matches `10.0`), and `null` matches null. `a.b` stands for the \
         field `b` of the object `a`. If `a` is an array, `a.b` stands for the field `b` of each element. The first \
         unescaped colon separates the path from the value. To write a literal dot, colon, or backslash in the path, \
         use `\\.`, `\\:`, or `\\\\`. The value has no escapes. If you repeat the parameter, all filters must match. \
         Filters cannot match fields that `keep_field` or `drop_field` has removed.",
    example: Some("region:Europe"),
    repetition: Repetition::Repeat,
    apply: |value, request| value::path_value(value).map(|value| request.filters.push(value)),
};

pub(super) const FILTER_CONTAINS: Parameter = Parameter {
    name: "filter_contains",
    summary: "Matches a substring, ignoring case; dot notation for nested fields; searches array elements; all filters \
              must match",
    documentation: "Keeps the entities in which the text of any value at the path contains the specified value, \
         ignoring case. Null has no text. An empty value matches every scalar except null. `a.b` stands for the field \
         `b` of the object `a`. If `a` is an array, `a.b` stands for the field `b` of each element. The first \
         unescaped colon separates the path from the value. To write a literal dot, colon, or backslash in the path, \
         use `\\.`, `\\:`, or `\\\\`. The value has no escapes. If you repeat the parameter, all filters must match. \
         Filters cannot match fields that `keep_field` or `drop_field` has removed.",
    example: Some("name.official:republic"),
    apply: |value, request| value::path_value(value).map(|value| request.filters_contain.push(value)),
    ..FILTER
};

/// One of the four ranges: its bound, how it compares in words, and an example.
macro_rules! range {
    ($bound:ident, $words:literal, $example:literal) => {
        Parameter {
            name: RangeBound::$bound.parameter(),
            summary: concat!(
                "Matches numbers or strings ",
                $words,
                " the value; a value in double quotes is a string; dot notation for nested fields; searches array \
                 elements; all filters must match"
            ),
            documentation: concat!(
                "Keeps the entities in which any value at the path is ",
                $words,
                " the specified value. If the specified value is a JSON number, strata compares numbers by their exact \
                 numeric value. Otherwise, it compares strings by code point, so case matters. For example, `2024-05`, \
                 `+1`, `01`, and `NaN` are strings. A value in double quotes is always a string: `\"5\"` is the string \
                 `5`. The quotes cannot contain escapes, and strata does not trim whitespace. Numbers match only \
                 numbers, and strings match only strings. Null and booleans never match. `a.b` stands for the field \
                 `b` of the object `a`. If `a` is an array, `a.b` stands for the field `b` of each element, and \
                 different elements can satisfy different filters. The first unescaped colon separates the path from \
                 the value. To write a literal dot, colon, or backslash in the path, use `\\.`, `\\:`, or `\\\\`. If \
                 you repeat the parameter, all filters must match. Filters cannot match fields that `keep_field` or \
                 `drop_field` has removed."
            ),
            example: Some($example),
            apply: |value, request| {
                value::path_value(value).map(|range| request.ranges[RangeBound::$bound as usize].push(range))
            },
            ..FILTER
        }
    };
}

pub(super) const FILTER_GT: Parameter = range!(Greater, "greater than", "area:1000");

pub(super) const FILTER_GTE: Parameter = range!(GreaterOrEqual, "greater than or equal to", "name.common:C");

pub(super) const FILTER_LT: Parameter = range!(Less, "less than", "area:500000");

pub(super) const FILTER_LTE: Parameter = range!(LessOrEqual, "less than or equal to", "name.common:\"Z\"");

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::path::Path;
    use strata_types::request::{PathValue, ReadRequest};

    const RANGES: [Parameter; 4] = [FILTER_GT, FILTER_GTE, FILTER_LT, FILTER_LTE];

    #[test]
    fn every_occurrence_is_kept_in_order() {
        let conditions = [("a.b", "\"One\""), ("c", ""), ("a.b", " 1 ")];
        let (mut request, mut expected) = (ReadRequest::default(), ReadRequest::default());
        for parameter in [FILTER, FILTER_CONTAINS].into_iter().chain(RANGES) {
            for (path, value) in conditions {
                assert_eq!((parameter.apply)(&format!("{path}:{value}"), &mut request), Ok(()));
            }
        }
        let conditions = conditions.map(|(path, value)| {
            let path = Path::parse(path).expect(path);
            PathValue { path, value: value.to_owned() }
        });
        (expected.filters, expected.filters_contain) = (conditions.to_vec(), conditions.to_vec());
        for (parameter, bound) in RANGES.into_iter().zip(RangeBound::ALL) {
            assert_eq!(parameter.name, bound.parameter());
            expected.ranges[bound as usize] = conditions.to_vec();
        }
        assert_eq!(request, expected);
    }

    #[test]
    fn refuses_what_has_no_path_or_no_colon() {
        for value in ["", "name", ":x", r"a\:b"] {
            for parameter in [FILTER, FILTER_CONTAINS].into_iter().chain(RANGES) {
                assert!((parameter.apply)(value, &mut ReadRequest::default()).is_err(), "{value}");
            }
        }
    }
}
