//! The descriptions of all response headers in the OpenAPI document.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::{ObjectBuilder, Ref, RefOr, ResponseBuilder, Type};

const RESPONSE_HEADERS: [(&str, Type, &str, &str); 29] = [
    ("X-RateLimit-Limit", Type::Integer, "The number of requests that you can send per minute.", "100"),
    ("X-RateLimit-Remaining", Type::Integer, "The number of requests left in the current window.", "99"),
    ("X-RateLimit-Reset", Type::Integer, "The Unix time at which the current window ends.", "1767225600"),
    ("X-Dataset-ID", Type::Integer, "The ID of the dataset.", "1"),
    ("X-Dataset-Version", Type::String, "The version that strata returned, in the form `vN`.", "v3"),
    ("X-Dataset-Alt", Type::Boolean, "`true` if strata returned the version's alternate, otherwise `false`.", "false"),
    (
        "X-Total-Count",
        Type::Integer,
        "The number of entities in the response, after filters, `dedup`, `sample`, `offset`, and `limit`.",
        "250",
    ),
    (
        "X-Total-Matches",
        Type::Integer,
        "With `total=true`, the number of entities after filters, `keywords`, and `dedup`, but before `sample`, \
         `offset`, and `limit`.",
        "1250",
    ),
    ("X-Total-Changes", Type::Integer, "The number of edits in the response.", "3"),
    (
        "Repr-Digest",
        Type::String,
        "The SHA-256 of a whole Parquet file, or of a whole version as uncompressed JSON Lines (RFC 9530).",
        "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
    ),
    (
        "Link",
        Type::String,
        "URLs of the adjacent pages (RFC 8288): `next` if this page is full, and `prev` if `offset` is not 0.",
        "<https://data.example.org/api/1/world-countries/v3/?limit=100&offset=100>; rel=\"next\"",
    ),
    (
        "X-Unknown-Parameters",
        Type::String,
        "The names of unknown parameters, which strata ignored. They are percent-encoded and separated by commas.",
        "lmit",
    ),
    (
        "X-Unknown-Fields",
        Type::String,
        "The paths in the request that no entity of the version has, or that an earlier step removed from every \
         entity. They are percent-encoded and separated by commas.",
        "nmae",
    ),
    ("X-Request-Id", Type::String, "The ID of the request, which also appears in the log.", "00c0ffee00c0ffee"),
    (
        "X-Alternate",
        Type::String,
        "`true` if the version has an alternate, otherwise `false`. If `true`, edit positions refer to the alternate.",
        "false",
    ),
    (
        "ETag",
        Type::String,
        "Identifies exactly this response, for use in `If-None-Match` and `If-Range`.",
        "\"8f14e45fceea167a\"",
    ),
    (
        "Cache-Control",
        Type::String,
        "Caches can store most responses, but must revalidate them each time. Only the client's own cache can store \
         responses from private datasets. No cache can store errors or samples without `seed`.",
        "public, no-cache",
    ),
    ("Vary", Type::String, "The request headers that the response depends on.", "Accept-Encoding"),
    (
        "Content-Encoding",
        Type::String,
        "The compression of the body, negotiated with `Accept-Encoding`: `zstd`, `br`, or `gzip`.",
        "zstd",
    ),
    (
        "Content-Disposition",
        Type::String,
        "The file name of a table (`csv`, `tsv`, or `parquet`).",
        "attachment; filename=\"world-countries-v1.csv\"",
    ),
    ("Accept-Ranges", Type::String, "`bytes` if you can request ranges of the response (`parquet` only).", "bytes"),
    (
        "Content-Range",
        Type::String,
        "The range of bytes in the body. With status 416, only the total number of bytes.",
        "bytes 0-1023/146515",
    ),
    ("Retry-After", Type::Integer, "The number of seconds to wait before the next request.", "42"),
    ("WWW-Authenticate", Type::String, "The authentication scheme to use.", "Bearer"),
    (
        "Set-Cookie",
        Type::String,
        "Sets the session ID, or clears it when the session has ended.",
        "strata_session=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff; HttpOnly; SameSite=Lax; \
         Path=/; Max-Age=7776000",
    ),
    ("Referrer-Policy", Type::String, "`no-referrer`, because the URL contains a secret.", "no-referrer"),
    ("Allow", Type::String, "The methods that the path allows.", "GET"),
    (
        "Access-Control-Allow-Origin",
        Type::String,
        "`*`, so that scripts from any origin can read the response. Not sent for private datasets.",
        "*",
    ),
    (
        "Access-Control-Expose-Headers",
        Type::String,
        "The response headers that scripts from other origins can read.",
        "X-Dataset-Version, X-Total-Count",
    ),
];

pub(crate) fn header_components() -> BTreeMap<String, RefOr<Header>> {
    RESPONSE_HEADERS
        .into_iter()
        .map(|(name, value_type, description, example)| {
            let example = match value_type {
                Type::String => Value::from(example),
                _ => example.parse().unwrap_or_default(),
            };
            let header = HeaderBuilder::new()
                .schema(Some(ObjectBuilder::new().schema_type(value_type).build()))
                .description(Some(description))
                .example(Some(example))
                .build();
            (name.to_owned(), RefOr::T(header))
        })
        .collect()
}

pub(crate) fn with_header_refs(response: ResponseBuilder, names: &[&[&str]]) -> ResponseBuilder {
    names
        .concat()
        .into_iter()
        .fold(response, |response, name| response.header_ref(name, Ref::new(format!("#/components/headers/{name}"))))
}

pub(crate) const COMMON_HEADERS: &[&str] = &["X-Request-Id"];

/// The headers that report the rate limit. They are missing if the operator has disabled the rate limit.
pub(crate) const RATE_LIMIT_HEADERS: &[&str] = &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];

pub(crate) const DATASET_HEADERS: &[&str] = &["X-Dataset-ID", "X-Dataset-Version", "X-Dataset-Alt"];

pub(crate) const CORS_HEADERS: &[&str] = &["Access-Control-Allow-Origin", "Access-Control-Expose-Headers"];

pub(crate) const CACHING_HEADERS: &[&str] = &["ETag", "Cache-Control", "Vary"];
