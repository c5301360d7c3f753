//! The parameters that are `true` or `false`.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const INCLUDE_SOURCE: Parameter = Parameter {
    name: "include_source",
    default_text: "true",
    summary: "`false` removes the top-level `_source`",
    documentation: "`false` removes the top-level `_source` of every entity before any other step. So no later step \
         finds it. A `_source` deeper in an entity stays. With `keep_field`, `_source` is kept only if it is listed.",
    apply: |value, request| value::boolean(value).map(|value| request.include_source = value),
    ..DENULL
};

pub(super) const DENULL: Parameter = Parameter {
    name: "denull",
    kind: ParameterKind::Boolean,
    default_text: "false",
    summary: "Removes nulls and empty strings at every depth, and arrays that become empty",
    documentation: "Removes nulls and empty strings from objects and arrays at every depth. An array that becomes \
         empty is removed too, from the inside out. Arrays that came empty stay. Objects stay, even when empty. The \
         number of entities does not change.",
    example: None,
    repetition: Repetition::Single,
    apply: |value, request| value::boolean(value).map(|value| request.denull = value),
};

pub(super) const DEDUP: Parameter = Parameter {
    name: "dedup",
    summary: "Keeps the first of equal entities, compared without `_source`, or by `dedup_key`",
    documentation: "Keeps the first of each group of equal entities, in the order of `sort` if it is given. Entities \
         are equal when their JSON values are. The order of keys and the spelling of numbers (`1`, `1.0`) do not \
         matter. Strings are compared exactly. Null and missing differ. The top-level `_source` is left out. \
         `dedup_key` compares chosen fields instead.",
    apply: |value, request| value::boolean(value).map(|value| request.dedup = value),
    ..DENULL
};

pub(super) const FLATTEN: Parameter = Parameter {
    name: "flatten",
    summary: "Makes `parent.field` keys of nested objects; always on for csv, tsv and parquet",
    documentation: "Makes entities flat. The fields of an object become `parent.field`; an array whose elements are all objects becomes \
         `parent_0_field`, `parent_1_field`; any other array becomes one string that holds it as compact JSON; an empty \
         object leaves no key. The last step: filters, `sort` and field lists name the original fields. `csv`, `tsv` and \
         `parquet` are always flat, whatever this says.",
    apply: |value, request| value::boolean(value).map(|value| request.flatten = value),
    ..DENULL
};

pub(super) const PRETTY: Parameter = Parameter {
    name: "pretty",
    default_text: "true",
    summary: "Indents JSON; `false` gives compact single-line output; no effect on other formats",
    documentation: "Indents JSON by two spaces; `false` gives compact output on a single line. Has no effect on other formats.",
    apply: |value, request| value::boolean(value).map(|value| request.pretty = value),
    ..DENULL
};

pub(super) const COUNT: Parameter = Parameter {
    name: "count",
    summary: "Returns only `{\"count\":…,\"dataset_id\":…,\"version\":…,\"alt\":…}`",
    documentation: "Returns, instead of the entities, one JSON object with the fields `count`, `dataset_id`, `version` and `alt`. \
         `count` is the number of entities that the same request would return without it, after `offset` and `limit`. \
         The answer is JSON whatever `format` says.",
    apply: |value, request| value::boolean(value).map(|value| request.count = value),
    ..DENULL
};

pub(super) const ALT: Parameter = Parameter {
    name: "alt",
    summary: "Serves the alternate of the version; equals the path suffix `/alt/`",
    documentation: "Serves the alternate of the requested version; 404 when the version has none. The path suffix `/alt/` means the \
         same, and wins over `alt=false`.",
    apply: |value, request| value::boolean(value).map(|value| request.alt = value),
    ..DENULL
};

pub(super) const STRICT: Parameter = Parameter {
    name: "strict",
    summary: "Refuses parameters that do not exist and fields that no entity has",
    documentation: "Answers 400 to a parameter that does not exist, and to a path in `filter`, `filter_contains`, \
         `sort`, `keep_field`, `drop_field` or `dedup_key` that no entity of the version has, or that \
         `include_source`, `denull`, `keep_field` or `drop_field` has removed from every entity. The text names the \
         nearest path that exists, or the step. Without it such names stand in the headers `X-Unknown-Parameters` and \
         `X-Unknown-Fields`. The answer itself is the same.",
    apply: |value, request| value::boolean(value).map(|value| request.strict = value),
    ..DENULL
};

pub(super) const TOTAL: Parameter = Parameter {
    name: "total",
    summary: "Tells in `X-Total-Matches` how many entities match, whatever the page",
    documentation: "Adds the header `X-Total-Matches`: the number of entities after `dedup`, before `sample`, `offset` \
         and `limit`. Also with `count`. The body is the same. Where the page does not tell the number, the service \
         counts once, and keeps the count for the next pages.",
    apply: |value, request| value::boolean(value).map(|value| request.total = value),
    ..DENULL
};

pub(super) const TYPED: Parameter = Parameter {
    name: "typed",
    summary: "Gives columns of parquet types: BOOLEAN, INT64, DOUBLE or text; no effect on other formats",
    documentation: "With `format=parquet`, a column of the answer whose values, nulls aside, are all booleans is BOOLEAN; \
         all integers of 64 bits INT64 (`1.0` is none); all numbers that a double holds DOUBLE. An integer that no double \
         equals, and `1e400`, are none of these. Any other column, and one without values, stays text. Names and rows \
         are as without it. Row groups have one size, and pages an index, so that tools skip what they need not read.",
    apply: |value, request| value::boolean(value).map(|value| request.typed = value),
    ..DENULL
};

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::request::ReadRequest;

    #[test]
    fn each_sets_its_own() {
        type Field = fn(&ReadRequest) -> bool;
        let read: [(Parameter, Field); 10] = [
            (INCLUDE_SOURCE, |request| request.include_source),
            (DENULL, |request| request.denull),
            (DEDUP, |request| request.dedup),
            (FLATTEN, |request| request.flatten),
            (PRETTY, |request| request.pretty),
            (COUNT, |request| request.count),
            (ALT, |request| request.alt),
            (STRICT, |request| request.strict),
            (TOTAL, |request| request.total),
            (TYPED, |request| request.typed),
        ];
        for (parameter, field) in &read {
            let name = parameter.name;
            let default = ReadRequest::default();
            assert_eq!(field(&default).to_string(), parameter.default_text, "{name}");
            for value in [!field(&default), field(&default)] {
                let mut request = ReadRequest::default();
                assert_eq!((parameter.apply)(&value.to_string(), &mut request), Ok(()), "{name}");
                assert_eq!(field(&request), value, "{name}");
                // And nothing else.
                let changed = read.iter().filter(|(_, other)| other(&request) != other(&default)).count();
                assert_eq!(changed, usize::from(value != field(&default)), "{name}");
            }
            assert!((parameter.apply)("yes", &mut ReadRequest::default()).is_err(), "{name}");
        }
    }
}
