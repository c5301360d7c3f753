//! The response headers of the document, each described once.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::{ObjectBuilder, Ref, RefOr, ResponseBuilder, Type};

/// What an answer says about itself: the name, the type, the meaning and an example of each header. Which of them an
/// answer has is said by the answers.
const HEADERS: [(&str, Type, &str, &str); 27] = [
    ("X-RateLimit-Limit", Type::Integer, "Requests per minute for the tier.", "100"),
    ("X-RateLimit-Remaining", Type::Integer, "Requests left in the current window.", "99"),
    ("X-RateLimit-Reset", Type::Integer, "Unix time at which the window resets.", "1767225600"),
    ("X-Dataset-ID", Type::Integer, "The dataset served.", "1"),
    ("X-Dataset-Version", Type::String, "The version served, as `vN`.", "v3"),
    ("X-Dataset-Alt", Type::Boolean, "Whether the alternate of the version was served.", "false"),
    ("X-Total-Count", Type::Integer, "Entities in the answer, after filters, dedup, sample, offset and limit.", "250"),
    (
        "X-Total-Matches",
        Type::Integer,
        "With `total=true`: entities after filters, keywords and dedup, before sample, offset and limit.",
        "1250",
    ),
    (
        "Link",
        Type::String,
        "The pages beside this one (RFC 8288): `next` when this one is full, `prev` when `offset` is not 0.",
        "<https://data.example.org/api/1/world-countries/v3/?limit=100&offset=100>; rel=\"next\"",
    ),
    (
        "X-Unknown-Parameters",
        Type::String,
        "Parameters of the request that do not exist and were ignored: percent-encoded, separated by commas.",
        "lmit",
    ),
    (
        "X-Unknown-Fields",
        Type::String,
        "Paths that the request names and that no entity of the version has, or that an earlier step has taken from all of \
         them: percent-encoded, separated by commas.",
        "nmae",
    ),
    ("X-Request-Id", Type::String, "Names the request in the service's log.", "00c0ffee00c0ffee"),
    (
        "X-Alternate",
        Type::String,
        "`true` if the version has an alternate, else `false`: positions of edits count in the alternate.",
        "false",
    ),
    ("ETag", Type::String, "Names this very answer, for `If-None-Match` and `If-Range`.", "\"8f14e45fceea167a\""),
    (
        "Cache-Control",
        Type::String,
        "Most answers may be stored and must be revalidated, those from private datasets only by the client itself; errors and \
         what `sample` chose without `seed` may not be stored.",
        "public, no-cache",
    ),
    ("Vary", Type::String, "The request headers that the answer depends on.", "Accept-Encoding"),
    (
        "Content-Encoding",
        Type::String,
        "How the body is compressed, as `Accept-Encoding` asks: `zstd`, `br` or `gzip`.",
        "zstd",
    ),
    (
        "Content-Disposition",
        Type::String,
        "The file name of a table (csv, tsv, parquet).",
        "attachment; filename=\"world-countries-v1.csv\"",
    ),
    ("Accept-Ranges", Type::String, "`bytes` where `Range` is heeded: for parquet.", "bytes"),
    ("Content-Range", Type::String, "Which bytes the body holds; on 416, how many there are.", "bytes 0-1023/146515"),
    ("Retry-After", Type::Integer, "Seconds to wait before the next request.", "42"),
    ("WWW-Authenticate", Type::String, "The scheme to authenticate with.", "Bearer"),
    (
        "Set-Cookie",
        Type::String,
        "The session's id, or that there is none any more.",
        "strata_session=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff; HttpOnly; SameSite=Lax; Path=/; \
         Max-Age=7776000",
    ),
    ("Referrer-Policy", Type::String, "`no-referrer`: the URL holds a secret.", "no-referrer"),
    ("Allow", Type::String, "The methods that the path takes.", "GET"),
    (
        "Access-Control-Allow-Origin",
        Type::String,
        "`*`: scripts of any origin may read the answer. Not for private datasets.",
        "*",
    ),
    (
        "Access-Control-Expose-Headers",
        Type::String,
        "The headers that such scripts may read.",
        "X-Dataset-Version, X-Total-Count",
    ),
];

/// The components that [`with`] refers to.
pub(in crate::http) fn shared() -> BTreeMap<String, RefOr<Header>> {
    HEADERS
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

pub(in crate::http) fn with(response: ResponseBuilder, names: &[&[&str]]) -> ResponseBuilder {
    names
        .concat()
        .into_iter()
        .fold(response, |response, name| response.header_ref(name, Ref::new(format!("#/components/headers/{name}"))))
}

/// Of every answer of the service.
pub(in crate::http) const EVERY: &[&str] = &["X-Request-Id"];

/// How much of the rate is left; of none when the operator has switched the limit off.
pub(in crate::http) const RATE: &[&str] = &["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];

pub(in crate::http) const DATASET: &[&str] = &["X-Dataset-ID", "X-Dataset-Version", "X-Dataset-Alt"];

/// Of what scripts of other origins may read.
pub(in crate::http) const CORS: &[&str] = &["Access-Control-Allow-Origin", "Access-Control-Expose-Headers"];

/// Of what caches may store.
pub(in crate::http) const CACHING: &[&str] = &["ETag", "Cache-Control", "Vary"];
