//! The parameters that are `true` or `false`.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const INCLUDE_SOURCE: Parameter = Parameter {
    name: "include_source",
    default_text: "true",
    summary: "`false` removes the top-level `_source`",
    documentation: "If `false`, strata removes the top-level `_source` from every entity before any other step, so \
         later steps cannot find it. A nested `_source` remains. If you set `keep_field`, strata keeps `_source` only \
         if you list it there.",
    apply: |value, request| value::boolean(value).map(|value| request.include_source = value),
    ..DENULL
};

pub(super) const DENULL: Parameter = Parameter {
    name: "denull",
    kind: ParameterKind::Boolean,
    default_text: "false",
    summary: "Removes nulls and empty strings at every depth, and arrays that become empty",
    documentation: "Removes nulls and empty strings from objects and arrays at every depth. strata also removes arrays \
         that become empty, starting with the innermost. Arrays that were already empty remain, and so do objects that \
         become empty. The number of entities does not change.",
    example: None,
    repetition: Repetition::Single,
    apply: |value, request| value::boolean(value).map(|value| request.denull = value),
};

pub(super) const DEDUP: Parameter = Parameter {
    name: "dedup",
    summary: "Keeps only the first of several equal entities; without `dedup_key`, compares all fields except \
              `_source`",
    documentation: "After sorting, keeps only the first entity of each group of equal entities. strata compares \
         entities as JSON values, without the top-level `_source`. The order of keys and the notation of numbers (`1` \
         or `1.0`) do not matter. Strings must match exactly, and null differs from a missing field. To compare only \
         certain fields, set `dedup_key`.",
    apply: |value, request| value::boolean(value).map(|value| request.dedup = value),
    ..DENULL
};

pub(super) const FLATTEN: Parameter = Parameter {
    name: "flatten",
    summary: "Turns nested objects into `parent.field` keys; always on for csv, tsv, and parquet",
    documentation: "Flattens entities. The fields of an object become `parent.field`, and an empty object leaves no \
         key. An array whose elements are all objects becomes `parent_0_field`, `parent_1_field`, and so on. Any other \
         array becomes a string that contains the array as compact JSON. This step runs last, so filters, `sort`, and \
         field lists use the original field names. `csv`, `tsv`, and `parquet` are always flat.",
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
    documentation: "Returns a JSON object with the fields `count`, `dataset_id`, `version`, and `alt` instead of the \
         entities. `count` is the number of entities that the same request would otherwise return, so `offset` and \
         `limit` apply. The response is always JSON, regardless of `format`.",
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
    summary: "Returns 400 for unknown parameters and for fields that no entity has",
    documentation: "Returns 400 if the request contains an unknown parameter or path. A path in a filter, `sort`, \
         `keep_field`, `drop_field`, or `dedup_key` is unknown if no entity of the version has it. It is also unknown \
         if `include_source`, `denull`, `keep_field`, or `drop_field` has removed it from every entity. The error \
         message suggests the nearest existing path, or names the step that removed the path. Without `strict`, strata \
         lists unknown names in the headers `X-Unknown-Parameters` and `X-Unknown-Fields`. If the request succeeds, \
         `strict` does not change the response.",
    apply: |value, request| value::boolean(value).map(|value| request.strict = value),
    ..DENULL
};

pub(super) const TOTAL: Parameter = Parameter {
    name: "total",
    summary: "Returns the total number of matching entities in `X-Total-Matches`, regardless of the page",
    documentation: "Returns the number of matching entities in the header `X-Total-Matches`. strata counts them after \
         `dedup`, but before `sample`, `offset`, and `limit`. The response body does not change. You can also use \
         `total` with `count`. If strata cannot derive the number from the page, it counts the matches once and caches \
         the result for the next pages.",
    apply: |value, request| value::boolean(value).map(|value| request.total = value),
    ..DENULL
};

pub(super) const TYPED: Parameter = Parameter {
    name: "typed",
    summary: "Assigns types to parquet columns: BOOLEAN, INT64, DOUBLE, or text; no effect on other formats",
    documentation: "With `format=parquet`, assigns a type to each column, based on the column's values in the \
         response. Nulls are ignored. A column is BOOLEAN if all values are booleans, and INT64 if all are 64-bit \
         integers (`1.0` is not an integer). A column is DOUBLE if all values are numbers that fit a double. Numbers \
         that are out of range, such as `1e400`, do not fit, and neither do integers that a double would round. All \
         other columns, including columns without values, remain text. The column names and rows are the same as \
         without `typed`. Row groups have a fixed size, and pages have an index, so that tools can skip data.",
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
