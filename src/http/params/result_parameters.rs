//! The parameters that order, page, and format the result.

use strata_types::read_request::{ResponseFormat, SortField};

use super::{InvalidValue, ParameterKind, ParameterRepetition, QueryParameter, value_parsers};

pub(super) const SORT: QueryParameter = QueryParameter {
    name: "sort",
    kind: ParameterKind::Sort,
    default_text: "none",
    documentation: "Sorts the entities by one top-level field. The default direction is ascending: numbers by value, \
         then strings by code point, then false, then true. Descending order is the exact reverse. Entities in which \
         the field is null, missing, an object, or an array come last in both directions. The sort is stable. The last \
         colon separates the field name from the direction. The name has no escapes, and a dot is part of the name.",
    example: Some("area:desc"),
    repetition: ParameterRepetition::Single,
    apply: |value, request| parse_sort(value).map(|sort| request.sort = Some(sort)),
};

/// Parses `field:asc`, `field:desc`, or `field`, split at the last colon.
fn parse_sort(value: &str) -> Result<SortField, InvalidValue> {
    const VALID: &str =
        "field, field:asc, or field:desc, such as price:desc; a name that contains a colon needs a direction";
    let (field, direction) = value.rsplit_once(':').unwrap_or((value, "asc"));
    let descending = match direction {
        "asc" => false,
        "desc" => true,
        _ => return Err(InvalidValue::new("has an unknown direction", VALID)),
    };
    if field.is_empty() {
        return Err(InvalidValue::new("has no field name", VALID));
    }
    Ok(SortField { field: field.to_owned(), descending })
}

pub(super) const SAMPLE: QueryParameter = QueryParameter {
    name: "sample",
    kind: ParameterKind::WholeNumber,
    default_text: "none",
    documentation: "Returns N random entities from the result of the earlier steps, in random order and without \
         repetition. If there are fewer than N, strata returns all of them. Every selection is equally likely, and the \
         random number generator is cryptographically secure. Each request draws a new sample unless you set `seed`. \
         `offset` and `limit` apply to the sample.",
    example: Some("100"),
    repetition: ParameterRepetition::Single,
    apply: |value, request| value_parsers::parse_whole_number(value).map(|value| request.sample = Some(value)),
};

pub(super) const SEED: QueryParameter = QueryParameter {
    name: "seed",
    documentation: "Makes `sample` reproducible, so that you can page through, cache, and cite a sample. The sample \
         depends only on the version file, the values of `sample` and `seed`, and the steps up to `dedup`. It is the \
         same on every node and after a restart. If the `ETag` of the response changes, the sample might have changed, \
         too. Without `sample`, strata returns 400.",
    example: Some("1"),
    apply: |value, request| value_parsers::parse_whole_number(value).map(|value| request.seed = Some(value)),
    ..SAMPLE
};

pub(super) const OFFSET: QueryParameter = QueryParameter {
    name: "offset",
    default_text: "0",
    documentation: "Skips the first N entities in the result of the earlier steps. If the offset is past the end, the \
         result is empty. This step runs before `limit`.",
    example: Some("2"),
    apply: |value, request| value_parsers::parse_whole_number(value).map(|value| request.offset = value),
    ..SAMPLE
};

pub(super) const LIMIT: QueryParameter = QueryParameter {
    name: "limit",
    default_text: "all",
    documentation: "Returns at most N entities after `offset`. `limit=0` is valid and returns an empty result.",
    example: Some("5"),
    apply: |value, request| value_parsers::parse_whole_number(value).map(|value| request.limit = Some(value)),
    ..SAMPLE
};

pub(super) const FORMAT: QueryParameter = QueryParameter {
    name: "format",
    kind: ParameterKind::OneOf(&ResponseFormat::NAMES),
    default_text: "json",
    documentation: "The format of the response. `json` is an array of entities, `jsonl` is one compact entity per \
         line, and `xml` contains one `entity` element per entity. `csv`, `tsv`, and `parquet` are tables of flattened \
         entities, which strata returns as file downloads. The columns are the fields of the entities in the response. \
         Without `typed`, all `parquet` values are text.",
    example: None,
    repetition: ParameterRepetition::Single,
    apply: |value, request| {
        let invalid = |_| InvalidValue::new("is not a supported format", ResponseFormat::NAMES.join(", "));
        value.parse::<ResponseFormat>().map_err(invalid).map(|format| request.format = format)
    },
};

pub(super) const INCLUDE_SOURCE: QueryParameter = QueryParameter {
    name: "include_source",
    default_text: "true",
    documentation: "If `false`, strata removes the top-level `_source` from every entity before any other step, so \
         later steps cannot find it. A nested `_source` remains. If you set `keep_field`, strata keeps `_source` only \
         if you list it there.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.include_source = value),
    ..DENULL
};

pub(super) const DENULL: QueryParameter = QueryParameter {
    name: "denull",
    kind: ParameterKind::Boolean,
    default_text: "false",
    documentation: "Removes nulls and empty strings from objects and arrays at every depth. strata also removes arrays \
         that become empty, starting with the innermost. Arrays that were already empty remain, and so do objects that \
         become empty. The number of entities does not change.",
    example: None,
    repetition: ParameterRepetition::Single,
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.denull = value),
};

pub(super) const DEDUP: QueryParameter = QueryParameter {
    name: "dedup",
    documentation: "After sorting, keeps only the first entity of each group of equal entities. strata compares \
         entities as JSON values, without the top-level `_source`. The order of keys and the notation of numbers (`1` \
         or `1.0`) do not matter. Strings must match exactly, and null differs from a missing field. To compare only \
         certain fields, set `dedup_key`.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.dedup = value),
    ..DENULL
};

pub(super) const FLATTEN: QueryParameter = QueryParameter {
    name: "flatten",
    documentation: "Flattens entities. The fields of an object become `parent.field`, and an empty object leaves no \
         key. An array whose elements are all objects becomes `parent_0_field`, `parent_1_field`, and so on. Any other \
         array becomes a string that contains the array as compact JSON. This step runs last, so filters, `sort`, and \
         field lists use the original field names. `csv`, `tsv`, and `parquet` are always flat.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.flatten = value),
    ..DENULL
};

pub(super) const PRETTY: QueryParameter = QueryParameter {
    name: "pretty",
    default_text: "true",
    documentation: "Indents JSON by two spaces. `false` returns compact JSON on a single line. This parameter has no \
         effect on other formats.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.pretty = value),
    ..DENULL
};

pub(super) const COUNT: QueryParameter = QueryParameter {
    name: "count",
    documentation: "Returns a JSON object with the fields `count`, `dataset_id`, `version`, and `alt` instead of the \
         entities. `count` is the number of entities that the same request would otherwise return, so `offset` and \
         `limit` apply. The response is always JSON, regardless of `format`.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.count = value),
    ..DENULL
};

pub(super) const ALT: QueryParameter = QueryParameter {
    name: "alt",
    documentation: "Returns the alternate of the requested version, or 404 if the version has none. The path suffix \
         `/alt/` has the same effect and overrides `alt=false`.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.alt = value),
    ..DENULL
};

pub(super) const STRICT: QueryParameter = QueryParameter {
    name: "strict",
    documentation: "Returns 400 if the request contains an unknown parameter or path. A path in a filter, `sort`, \
         `keep_field`, `drop_field`, or `dedup_key` is unknown if no entity of the version has it. It is also unknown \
         if `include_source`, `denull`, `keep_field`, or `drop_field` has removed it from every entity. The error \
         message suggests the nearest existing path, or names the step that removed the path. Without `strict`, strata \
         lists unknown names in the headers `X-Unknown-Parameters` and `X-Unknown-Fields`. If the request succeeds, \
         `strict` does not change the response.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.strict = value),
    ..DENULL
};

pub(super) const TOTAL: QueryParameter = QueryParameter {
    name: "total",
    documentation: "Returns the number of matching entities in the header `X-Total-Matches`. strata counts them after \
         `dedup`, but before `sample`, `offset`, and `limit`. The response body does not change. You can also use \
         `total` with `count`. If strata cannot derive the number from the page, it counts the matches once and caches \
         the result for the next pages.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.total = value),
    ..DENULL
};

pub(super) const TYPED: QueryParameter = QueryParameter {
    name: "typed",
    documentation: "With `format=parquet`, assigns a type to each column, based on the column's values in the \
         response. Nulls are ignored. A column is BOOLEAN if all values are booleans, and INT64 if all are 64-bit \
         integers (`1.0` is not an integer). A column is DOUBLE if all values are numbers that fit a double. Numbers \
         that are out of range, such as `1e400`, do not fit, and neither do integers that a double would round. All \
         other columns, including columns without values, remain text. The column names and rows are the same as \
         without `typed`. Row groups have a fixed size, and pages have an index, so that tools can skip data.",
    apply: |value, request| value_parsers::parse_boolean(value).map(|value| request.typed = value),
    ..DENULL
};
