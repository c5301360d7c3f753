//! The parameters that keep the entities in which a field has a value on one side of another: four of a kind.

use super::{Parameter, ParameterKind, Repetition, value};
use crate::model::request::RangeBound;

/// One of the four: its bound, how it compares in words, and an example.
macro_rules! range {
    ($bound:ident, $words:literal, $example:literal) => {
        Parameter {
            name: RangeBound::$bound.parameter(),
            kind: ParameterKind::PathValue,
            default_text: "none",
            summary: concat!(
                "A number or string ",
                $words,
                " the value; a value in double quotes is text; dot-notation for nested fields; fans out across \
                 arrays; all must match"
            ),
            documentation: concat!(
                "Keeps the entities in which any value that the path reaches is ",
                $words,
                " the value. If the value is a JSON number, numbers are compared by numeric value, exactly. \
                 Otherwise, or if the value stands in double quotes, strings are compared by code point, with their \
                 case: `2024-05` is text, and so is `\"5\"`, which is compared as `5`. There are no escapes between \
                 the quotes, and nothing is trimmed: `+1`, `01` and `NaN` are text. A number never matches a text, \
                 nor a text a number. Null and booleans never match. `a.b` reaches into objects and, through arrays, \
                 into every element; different elements may satisfy different filters. Split at the first colon that \
                 is not escaped; `\\.`, `\\:` and `\\\\` in the path stand for the characters themselves. May be \
                 repeated: all must match. Applied after `keep_field` and `drop_field`, so that a field which they \
                 have removed is not found."
            ),
            example: Some($example),
            repetition: Repetition::Repeat,
            apply: |value, request| {
                value::path_value(value).map(|range| request.ranges[RangeBound::$bound as usize].push(range))
            },
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
    use crate::model::path::Path;
    use crate::model::request::{PathValue, ReadRequest};

    const ALL: [Parameter; 4] = [FILTER_GT, FILTER_GTE, FILTER_LT, FILTER_LTE];

    #[test]
    fn every_occurrence_is_kept_as_it_came() {
        let (mut request, mut expected) = (ReadRequest::default(), ReadRequest::default());
        for (parameter, bound) in ALL.into_iter().zip(RangeBound::ALL) {
            assert_eq!(parameter.name, bound.parameter());
            for (path, value) in [("a.b", "\"One\""), ("c", ""), ("a.b", " 1 ")] {
                assert_eq!((parameter.apply)(&format!("{path}:{value}"), &mut request), Ok(()));
                let path = Path::parse(path).expect(path);
                expected.ranges[bound as usize].push(PathValue { path, value: value.to_owned() });
            }
        }
        assert_eq!(request, expected);
    }

    #[test]
    fn refuses_what_has_no_path_or_no_colon() {
        for value in ["", "name", ":1", r"a\:1"] {
            for parameter in ALL {
                assert!((parameter.apply)(value, &mut ReadRequest::default()).is_err(), "{value}");
            }
        }
    }
}
