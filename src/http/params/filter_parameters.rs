//! The parameters that select fields and entities.

use strata_types::read_request::{KeywordsMode, RangeBound};

use super::{InvalidValue, ParameterKind, ParameterRepetition, QueryParameter, value_parsers};

pub(super) const KEEP_FIELD: QueryParameter = QueryParameter {
    name: "keep_field",
    kind: ParameterKind::Paths,
    default_text: "none",
    documentation: "Keeps only the listed fields, in their original order. `a.b` keeps `a` with only its field `b`, \
         and `a,a.b` keeps all of `a`. If a path leads through an array, strata applies the path to every object in \
         the array, at any depth, and removes scalars from the array. `_source` is kept only if you list it. Later \
         steps (`filter`, `keywords`, `sort`, `dedup`) can find only the fields that you keep. To write a literal dot, \
         comma, or backslash in a path, use `\\.`, `\\,`, or `\\\\`. strata ignores empty items, and spaces or tabs \
         around a path. An empty list has no effect.",
    example: Some("name,region,area"),
    repetition: ParameterRepetition::List,
    apply: |value, request| value_parsers::parse_paths(value).map(|value| request.keep_fields.extend(value)),
};

pub(super) const DROP_FIELD: QueryParameter = QueryParameter {
    name: "drop_field",
    documentation: "Removes the listed fields from every entity. `a.b` removes `b` from the object `a`. If `a` is an \
         array, `a.b` removes `b` from each element. A parent that becomes empty remains. This step runs after \
         `keep_field` and before `filter`, `keywords`, `sort`, and `dedup`, so these steps cannot find the removed \
         fields. To write a literal dot, comma, or backslash in a path, use `\\.`, `\\,`, or `\\\\`. strata ignores \
         empty items, and spaces or tabs around a path. An empty list has no effect.",
    example: Some("name.native"),
    apply: |value, request| value_parsers::parse_paths(value).map(|value| request.drop_fields.extend(value)),
    ..KEEP_FIELD
};

pub(super) const DEDUP_KEY: QueryParameter = QueryParameter {
    name: "dedup_key",
    documentation: "With `dedup=true`, strata compares only the values at these paths, which can include `_source`. A \
         missing field equals only another missing field, and an array is compared as a whole. Without `dedup=true`, \
         this parameter has no effect. To write a literal dot, comma, or backslash in a path, use `\\.`, `\\,`, or \
         `\\\\`. strata ignores empty items, and spaces or tabs around a path. An empty list has no effect.",
    example: Some("region,subregion"),
    apply: |value, request| value_parsers::parse_paths(value).map(|value| request.dedup_key.extend(value)),
    ..KEEP_FIELD
};

pub(super) const FILTER: QueryParameter = QueryParameter {
    name: "filter",
    kind: ParameterKind::PathValue,
    default_text: "none",
    documentation: "Keeps the entities in which any value at the path equals the specified value, ignoring case. \
         Numbers are also compared as numbers (`10` matches `10.0`), and `null` matches null. `a.b` stands for the \
         field `b` of the object `a`. If `a` is an array, `a.b` stands for the field `b` of each element. The first \
         unescaped colon separates the path from the value. To write a literal dot, colon, or backslash in the path, \
         use `\\.`, `\\:`, or `\\\\`. The value has no escapes. If you repeat the parameter, all filters must match. \
         Filters cannot match fields that `keep_field` or `drop_field` has removed.",
    example: Some("region:Europe"),
    repetition: ParameterRepetition::Repeated,
    apply: |value, request| value_parsers::parse_path_value(value).map(|value| request.filters.push(value)),
};

pub(super) const FILTER_CONTAINS: QueryParameter = QueryParameter {
    name: "filter_contains",
    documentation: "Keeps the entities in which the text of any value at the path contains the specified value, \
         ignoring case. Null has no text. An empty value matches every scalar except null. `a.b` stands for the field \
         `b` of the object `a`. If `a` is an array, `a.b` stands for the field `b` of each element. The first \
         unescaped colon separates the path from the value. To write a literal dot, colon, or backslash in the path, \
         use `\\.`, `\\:`, or `\\\\`. The value has no escapes. If you repeat the parameter, all filters must match. \
         Filters cannot match fields that `keep_field` or `drop_field` has removed.",
    example: Some("name.official:republic"),
    apply: |value, request| value_parsers::parse_path_value(value).map(|value| request.contains_filters.push(value)),
    ..FILTER
};

/// Defines the parameter of a range filter from its bound, such as `gt`, its comparison in words, and an example.
macro_rules! range {
    ($bound:ident, $words:literal, $example:literal) => {
        QueryParameter {
            name: RangeBound::$bound.parameter_name(),
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
                value_parsers::parse_path_value(value)
                    .map(|value| request.range_filters[RangeBound::$bound as usize].push(value))
            },
            ..FILTER
        }
    };
}

pub(super) const FILTER_GT: QueryParameter = range!(Greater, "greater than", "area:1000");
pub(super) const FILTER_GTE: QueryParameter = range!(GreaterOrEqual, "greater than or equal to", "name.common:C");
pub(super) const FILTER_LT: QueryParameter = range!(Less, "less than", "area:500000");
pub(super) const FILTER_LTE: QueryParameter = range!(LessOrEqual, "less than or equal to", "name.common:\"Z\"");

pub(super) const KEYWORDS: QueryParameter = QueryParameter {
    name: "keywords",
    kind: ParameterKind::Keywords,
    default_text: "none",
    documentation: "Keeps the entities in which the text of any value, at any depth, contains a keyword, ignoring \
         case. With `keywords_mode=and`, all keywords must occur, but each can be in a different value. strata does \
         not search field names or fields that earlier steps have removed. A comma always separates keywords, because \
         you cannot escape it. strata ignores empty keywords, and spaces or tabs around a keyword. An empty list has \
         no effect.",
    example: Some("republic,kingdom"),
    repetition: ParameterRepetition::List,
    apply: |value, request| {
        request.keywords.extend(split_keywords(value).map(str::to_owned));
        Ok(())
    },
};

pub(super) const KEYWORDS_MODE: QueryParameter = QueryParameter {
    name: "keywords_mode",
    kind: ParameterKind::OneOf(&["or", "and"]),
    default_text: "or",
    documentation: "With `or`, at least one of the `keywords` must match. With `and`, all of them must match, in the \
         same field or in different fields. Without `keywords`, this parameter has no effect.",
    example: None,
    repetition: ParameterRepetition::Single,
    apply: |value, request| {
        request.keywords_mode = match value {
            "or" => KeywordsMode::Or,
            "and" => KeywordsMode::And,
            _ => return Err(InvalidValue::new("is not a mode", "or, and")),
        };
        Ok(())
    },
};

/// Splits a comma-separated list of values, trims spaces and tabs, and removes empty items.
fn split_keywords(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|keyword| keyword.trim_matches([' ', '\t'])).filter(|keyword| !keyword.is_empty())
}
