//! The error answers of the document: plain text, each described once.

use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, Response, ResponseBuilder, Type};

use super::headers::{self, CORS, EVERY, RATE};

/// An error: its status, its component, when it is given, an example of its text, its headers.
struct Error(u16, &'static str, &'static str, &'static str, &'static [&'static [&'static str]]);

const ERRORS: [Error; 11] = [
    Error(
        400,
        "BadRequest",
        "The path is not that of a read; or a parameter has a value that is not valid, or is given twice: the text names \
         it, the value, and what would be valid; or a table would have too many columns; or `strict=true` \
         refuses a field or a parameter that does not exist.",
        "Invalid query: parameter limit: \"x\" is not a whole number; valid: decimal digits only, from 0 to \
         18446744073709551615.",
        &[RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        401,
        "Unauthorized",
        "The dataset is private, and the request has no `Authorization`.",
        "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.",
        &[&["WWW-Authenticate"], RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        403,
        "Forbidden",
        "The dataset is private, and `Authorization` does not hold its private key.",
        "The Authorization header does not hold this dataset's private key.",
        &[RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        404,
        "NotFound",
        "There is no such dataset, its slug is another, or it has no such version or no alternate of it.",
        "There is no dataset with this dataset_id and name_slug.",
        &[RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        405,
        "MethodNotAllowed",
        "The path does not take this method.",
        "This path does not take this method; it takes GET.",
        &[&["Allow", "Referrer-Policy"]],
    ),
    Error(
        410,
        "Gone",
        "The dataset is frozen.",
        "This dataset is frozen and no longer served.",
        &[RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        414,
        "UriTooLong",
        "The query string is longer than 32 KiB.",
        "Invalid query: the query string is 40009 bytes long; valid: at most 32768 bytes.",
        &[],
    ),
    Error(
        416,
        "RangeNotSatisfiable",
        "`Range` asks for bytes beyond the end of a parquet file.",
        "The header Range asks for bytes beyond the body's 146515; valid: bytes=0-146514.",
        &[&["Content-Range", "Accept-Ranges"], RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        429,
        "TooManyRequests",
        "The rate limit of the tier is exceeded.",
        "Too many requests; the next one is answered in 42 s.",
        &[&["Retry-After"], RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        500,
        "InternalServerError",
        "The version cannot be read from storage, or the service failed. The cause is in its log.",
        "The dataset cannot be read from storage. The failure was logged.",
        &[RATE, &["X-Unknown-Parameters"]],
    ),
    Error(
        503,
        "ServiceUnavailable",
        "The request took longer or needed more memory than it may, or the service is not ready.",
        "The query was stopped after 30 s. A narrower query may finish in time.",
        &[RATE, &["X-Unknown-Parameters"]],
    ),
];

/// The components that [`with_errors`] refers to.
pub(super) fn shared() -> impl Iterator<Item = (&'static str, Response)> {
    ERRORS.into_iter().map(|Error(_, name, description, example, more)| {
        let text = ContentBuilder::new()
            .schema(Some(ObjectBuilder::new().schema_type(Type::String).build()))
            .example(Some(example.into()))
            .build();
        let response = ResponseBuilder::new().description(description).content(TEXT, text);
        (name, headers::with(headers::with(response, &[EVERY, CORS, &["Cache-Control"]]), more).build())
    })
}

/// The content type of every error.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// The operation with these error answers, and none with a status that is not in the list of all.
pub(super) fn with_errors(operation: OperationBuilder, statuses: &[u16]) -> OperationBuilder {
    ERRORS.iter().filter(|error| statuses.contains(&error.0)).fold(operation, |operation, Error(status, name, ..)| {
        operation.response(status.to_string(), Ref::from_response_name(*name))
    })
}
