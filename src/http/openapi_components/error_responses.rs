//! Plain-text error responses in the OpenAPI document: one table for reads and several other operations, and one for
//! the operations of owners.

use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::{Ref, Response, ResponseBuilder};

use super::response_headers::{self, COMMON_HEADERS, CORS_HEADERS, RATE_LIMIT_HEADERS};
use super::{TEXT_CONTENT_TYPE, text_content};
use crate::endpoint::setters;

pub(crate) struct ErrorResponseSpec {
    pub status: u16,
    pub component_name: &'static str,
    description: &'static str,
    example: &'static str,
    /// The headers of this error response, in addition to the headers that all errors in the table have.
    headers: &'static [&'static [&'static str]],
}

impl ErrorResponseSpec {
    pub(crate) const fn new(
        status: u16,
        component_name: &'static str,
        headers: &'static [&'static [&'static str]],
    ) -> ErrorResponseSpec {
        ErrorResponseSpec { status, component_name, description: "", example: "", headers }
    }

    setters! { description: &'static str, example: &'static str }

    /// Converts the error response to an OpenAPI component. `shared` lists the headers of all errors in the table.
    pub(crate) fn to_component(&self, shared: &[&[&str]]) -> (&'static str, Response) {
        let response =
            ResponseBuilder::new().description(self.description).content(TEXT_CONTENT_TYPE, text_content(self.example));
        let headers = [shared, self.headers].concat();
        (self.component_name, response_headers::with_header_refs(response, &headers).build())
    }
}

const READ_ERROR_HEADERS: &[&[&str]] = &[RATE_LIMIT_HEADERS, &["X-Unknown-Parameters"]];

pub(crate) const READ_ERRORS: &[ErrorResponseSpec] = &[
    ErrorResponseSpec::new(400, "BadRequest", READ_ERROR_HEADERS)
        .description(
            "The path is malformed, a parameter has an invalid value, or a parameter occurs more than once although it \
             cannot be repeated. The message contains the name of the parameter, the value, and the valid values. \
             strata also returns 400 if a table would have too many columns, or if a Parquet file would need more \
             memory or disk space than a single client can use. With `strict=true`, unknown parameters and fields also \
             cause 400.",
        )
        .example(
            "Invalid query: parameter limit: \"x\" is not a whole number; valid: decimal digits only, from 0 to \
             18446744073709551615.",
        ),
    ErrorResponseSpec::new(
        401,
        "Unauthorized",
        &[&["WWW-Authenticate"], RATE_LIMIT_HEADERS, &["X-Unknown-Parameters"]],
    )
    .description("The dataset is private, and the request has no `Authorization` header.")
    .example("This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>."),
    ErrorResponseSpec::new(403, "Forbidden", READ_ERROR_HEADERS)
        .description("The dataset is private, and `Authorization` does not contain its private key.")
        .example("The Authorization header does not contain this dataset's private key."),
    ErrorResponseSpec::new(404, "NotFound", READ_ERROR_HEADERS)
        .description(
            "The dataset, the version, or the version's alternate does not exist, or the slug does not match the \
             dataset.",
        )
        .example("There is no dataset with this dataset_id and name_slug."),
    ErrorResponseSpec::new(405, "MethodNotAllowed", &[&["Allow", "Referrer-Policy"]])
        .description("The path does not allow this method.")
        .example("This path does not allow this method. Allowed: GET."),
    ErrorResponseSpec::new(410, "Gone", READ_ERROR_HEADERS)
        .description("The dataset is frozen.")
        .example("This dataset is frozen and no longer served."),
    ErrorResponseSpec::new(412, "PreconditionFailed", READ_ERROR_HEADERS)
        .description("`If-Match` does not match the `ETag` of the response.")
        .example(
            "The If-Match header does not match the ETag of this response: the data has changed, or the request is \
             different. To start over, repeat the request without If-Match.",
        ),
    ErrorResponseSpec::new(414, "UriTooLong", &[])
        .description("The query string is longer than 32 KiB.")
        .example("Invalid query: the query string is 40009 bytes long; valid: at most 32768 bytes."),
    ErrorResponseSpec::new(
        416,
        "RangeNotSatisfiable",
        &[&["Content-Range", "Accept-Ranges"], RATE_LIMIT_HEADERS, &["X-Unknown-Parameters"]],
    )
    .description("`Range` requests bytes beyond the end of a parquet file.")
    .example("The Range header requests bytes outside the body, which has 146515 bytes; valid: bytes=0-146514."),
    ErrorResponseSpec::new(429, "TooManyRequests", &[&["Retry-After"], RATE_LIMIT_HEADERS, &["X-Unknown-Parameters"]])
        .description("The client has exceeded its rate limit.")
        .example("Too many requests. Try again in 42 s."),
    ErrorResponseSpec::new(500, "InternalServerError", READ_ERROR_HEADERS)
        .description(
            "strata cannot read the version from storage, or an internal error occurred. The log contains the cause.",
        )
        .example("Failed to read the dataset from storage. The error was logged."),
    ErrorResponseSpec::new(503, "ServiceUnavailable", READ_ERROR_HEADERS)
        .description("The request exceeded its time or memory limit, or the service is not ready.")
        .example("The query was stopped after 30 s. A narrower query might finish in time."),
];

const NO_STORE_HEADERS: &[&[&str]] = &[&["Cache-Control"]];
const PRIVATE_HEADERS: &[&[&str]] = &[&["Cache-Control", "Referrer-Policy"]];

pub(crate) const OWNER_ERRORS: &[ErrorResponseSpec] = &[
    ErrorResponseSpec::new(400, "InvalidRequest", NO_STORE_HEADERS)
        .description(
            "The body is not a JSON object, or a field or parameter is missing or invalid. The message contains the \
             name of the field or parameter.",
        )
        .example("Invalid request: dataset_id: missing; valid: a positive integer."),
    ErrorResponseSpec::new(401, "NotAuthenticated", &[&["Cache-Control", "WWW-Authenticate"]])
        .description(
            "The request has neither an active session nor a valid API token. At login, 401 means that the email \
             address or password is wrong.",
        )
        .example("There is no user with this email and password."),
    ErrorResponseSpec::new(403, "NotAllowed", NO_STORE_HEADERS)
        .description(
            "The API token has only the scope `read`, your plan does not include the operation, or the old password is \
             wrong. strata also returns 403 if a page from another origin sends the request with a cookie.",
        )
        .example("Your plan allows at most 3 active datasets; frozen datasets do not count."),
    ErrorResponseSpec::new(404, "NotTheCallers", PRIVATE_HEADERS)
        .description(
            "The dataset does not exist, is not available to you, or does not have this version, alternate, or \
             webhook. strata also returns 404 if you have no such token or session.",
        )
        .example("You have no dataset with this dataset_id."),
    ErrorResponseSpec::new(408, "TooSlow", NO_STORE_HEADERS)
        .description("The body did not arrive in time.")
        .example("The body did not arrive within 60 s."),
    ErrorResponseSpec::new(409, "Conflict", PRIVATE_HEADERS)
        .description(
            "The operation conflicts with the current state: a name is already in use, an etag is stale, or the \
             dataset is frozen, is not frozen, or is being refreshed.",
        )
        .example("You already have a dataset with this name."),
    ErrorResponseSpec::new(413, "TooLarge", NO_STORE_HEADERS)
        .description("The body is too large.")
        .example("The body is longer than 2097152 bytes (limits.body_bytes)."),
    ErrorResponseSpec::new(415, "UnsupportedMediaType", NO_STORE_HEADERS)
        .description("`Content-Type` is neither JSON nor a source format that the operation accepts.")
        .example("The body must be an uncompressed JSON object with Content-Type: application/json."),
    ErrorResponseSpec::new(422, "UnusableEntities", PRIVATE_HEADERS)
        .description("The document is invalid. The message contains the position of the error.")
        .example("No version was created: item 3: an entity must be a JSON object, not an array."),
    ErrorResponseSpec::new(429, "TooManyTries", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .description("The client has sent too many login attempts, pings, or unauthenticated requests.")
        .example("Too many login attempts. Try again in 42 s."),
    ErrorResponseSpec::new(500, "Failure", PRIVATE_HEADERS)
        .description("An internal error occurred. The log contains the cause.")
        .example("The operation failed because of an internal error. The error was logged."),
    ErrorResponseSpec::new(502, "SourceUnreachable", PRIVATE_HEADERS)
        .description("strata cannot fetch the source.")
        .example("No version was created: failed to fetch the source: the server returned 404 Not Found."),
    ErrorResponseSpec::new(503, "TooBusy", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .description(
            "The service is overloaded or shutting down, or the metadata database is unavailable. strata also returns \
             503 if a diff or an explained query exceeds its time or memory limit.",
        )
        .example("Too many concurrent logins. Try again in 5 s."),
];

pub(crate) fn read_error_components() -> impl Iterator<Item = (&'static str, Response)> {
    READ_ERRORS.iter().map(|error| error.to_component(&[COMMON_HEADERS, CORS_HEADERS, &["Cache-Control"]]))
}

pub(crate) fn with_error_refs(
    operation: OperationBuilder,
    errors: &[ErrorResponseSpec],
    statuses: &[u16],
) -> OperationBuilder {
    errors.iter().filter(|error| statuses.contains(&error.status)).fold(operation, |operation, error| {
        operation.response(error.status.to_string(), Ref::from_response_name(error.component_name))
    })
}
