//! The parameters that are `true` or `false`.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const INCLUDE_SOURCE: Parameter = Parameter {
    name: "include_source",
    default_text: "true",
    summary: "`false` removes the top-level `_source`",
    documentation: "`false` removes the top-level `_source` from every entity before any other step, so that later \
         steps cannot find it. A `_source` deeper in an entity stays. If you set `keep_field`, strata keeps `_source` \
         only if you list it.",
    apply: |value, request| value::boolean(value).map(|value| request.include_source = value),
    ..DENULL
};

pub(super) const DENULL: Parameter = Parameter {
    name: "denull",
    kind: ParameterKind::Boolean,
    default_text: "false",
    summary: "Removes nulls and empty strings at every depth, and arrays that become empty",
    documentation: "Removes nulls and empty strings from objects and arrays at every depth. An array that becomes \
         empty is removed too, from the inside out. Arrays that were already empty stay. Objects stay, even if they \
         become empty. The number of entities does not change.",
    example: None,
    repetition: Repetition::Single,
    apply: |value, request| value::boolean(value).map(|value| request.denull = value),
};

pub(super) const DEDUP: Parameter = Parameter {
    name: "dedup",
    summary: "Keeps only the first of several equal entities, compared without `_source` or by `dedup_key`",
    documentation: "Keeps only the first entity of each group of equal entities, in the order of `sort` if you set it. \
         Entities are equal if their JSON values are equal. The order of keys and the notation of numbers (`1`, `1.0`) \
         do not matter. Strings must match exactly, and null differs from a missing field. The top-level `_source` is \
         not compared. To compare only certain fields, set `dedup_key`.",
    apply: |value, request| value::boolean(value).map(|value| request.dedup = value),
    ..DENULL
};

pub(super) const FLATTEN: Parameter = Parameter {
    name: "flatten",
    summary: "Turns nested objects into `parent.field` keys; always on for csv, tsv, and parquet",
    documentation: "Flattens entities. The fields of an object become `parent.field`. An array whose elements are all \
         objects becomes `parent_0_field`, `parent_1_field`, and so on. Any other array becomes one string that \
         contains the array as compact JSON, and an empty object leaves no key. This is the last step, so filters, \
         `sort`, and field lists must use the original field names. `csv`, `tsv`, and `parquet` are always flat, \
         regardless of this parameter.",
    apply: |value, request| value::boolean(value).map(|value| request.flatten = value),
    ..DENULL
};

pub(super) const PRETTY: Parameter = Parameter {
    name: "pretty",
    default_text: "true",
    summary: "Indents JSON; `false` returns compact JSON on a single line; no effect on other formats",
    documentation: "Indents JSON by two spaces. `false` returns compact JSON on a single line. This parameter has no \
         effect on other formats.",
    apply: |value, request| value::boolean(value).map(|value| request.pretty = value),
    ..DENULL
};

pub(super) const COUNT: Parameter = Parameter {
    name: "count",
    summary: "Returns only `{\"count\":…,\"dataset_id\":…,\"version\":…,\"alt\":…}`",
    documentation: "Returns one JSON object with the fields `count`, `dataset_id`, `version`, and `alt` instead of the \
         entities. `count` is the number of entities that the same request would return without this parameter, after \
         `offset` and `limit`. The response is always JSON, regardless of `format`.",
    apply: |value, request| value::boolean(value).map(|value| request.count = value),
    ..DENULL
};

pub(super) const ALT: Parameter = Parameter {
    name: "alt",
    summary: "Returns the version's alternate; same as the path suffix `/alt/`",
    documentation: "Returns the alternate of the requested version, or 404 if the version has none. The path suffix \
         `/alt/` has the same effect and overrides `alt=false`.",
    apply: |value, request| value::boolean(value).map(|value| request.alt = value),
    ..DENULL
};

pub(super) const STRICT: Parameter = Parameter {
    name: "strict",
    summary: "Rejects parameters that do not exist and fields that no entity has",
    documentation: "Returns 400 if a parameter does not exist, or if a path in a filter, `sort`, `keep_field`, \
         `drop_field`, or `dedup_key` does not exist in any entity of the version. It also returns 400 if \
         `include_source`, `denull`, `keep_field`, or `drop_field` has removed such a path from every entity. The \
         error message names the nearest existing path, or the step that removed the path. Without `strict`, strata \
         lists these names in the headers `X-Unknown-Parameters` and `X-Unknown-Fields`. If the request succeeds, the \
         response is the same with and without `strict`.",
    apply: |value, request| value::boolean(value).map(|value| request.strict = value),
    ..DENULL
};

pub(super) const TOTAL: Parameter = Parameter {
    name: "total",
    summary: "Returns the total number of matching entities in `X-Total-Matches`, regardless of the page",
    documentation: "Adds the header `X-Total-Matches`: the number of entities after `dedup`, but before `sample`, \
         `offset`, and `limit`. You can also use it with `count`. The response body does not change. If strata cannot \
         derive the number from the page, it counts once and caches the count for the next pages.",
    apply: |value, request| value::boolean(value).map(|value| request.total = value),
    ..DENULL
};

pub(super) const TYPED: Parameter = Parameter {
    name: "typed",
    summary: "Assigns types to parquet columns: BOOLEAN, INT64, DOUBLE, or text; no effect on other formats",
    documentation: "With `format=parquet`, assigns a type to each column, based on its values in the response and \
         ignoring nulls. A column is BOOLEAN if all values are booleans, INT64 if all are 64-bit integers (`1.0` is \
         not an integer), and DOUBLE if all are numbers that fit a double. Numbers out of range, such as `1e400`, and \
         integers that a double cannot represent exactly do not fit. All other columns, including columns without \
         values, stay text. Names and rows are the same as without `typed`. Row groups have a fixed size, and pages \
         have an index, so that tools can skip data that they do not need.",
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
