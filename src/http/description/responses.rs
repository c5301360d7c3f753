//! The error responses in plain text: one table for reads and several other operations, and one for owners.

use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::{Ref, Response, ResponseBuilder};

use super::headers::{self, CORS, EVERY, RATE};
use super::{TEXT, text};
use crate::endpoint::setters;

pub(crate) struct ErrorAnswer {
    pub status: u16,
    pub component: &'static str,
    when: &'static str,
    example: &'static str,
    /// Headers in addition to those of all errors in the table.
    headers: &'static [&'static [&'static str]],
}

impl ErrorAnswer {
    pub(crate) const fn new(
        status: u16,
        component: &'static str,
        headers: &'static [&'static [&'static str]],
    ) -> ErrorAnswer {
        ErrorAnswer { status, component, when: "", example: "", headers }
    }

    setters! { when: &'static str, example: &'static str }

    /// Its component, with the headers of all errors in the table.
    pub(crate) fn described(&self, shared: &[&[&str]]) -> (&'static str, Response) {
        let response = ResponseBuilder::new().description(self.when).content(TEXT, text(self.example));
        (self.component, headers::with(headers::with(response, shared), self.headers).build())
    }
}

const READ: &[&[&str]] = &[RATE, &["X-Unknown-Parameters"]];

pub(crate) const ERRORS: &[ErrorAnswer] = &[
    ErrorAnswer::new(400, "BadRequest", READ)
        .when(
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
    ErrorAnswer::new(401, "Unauthorized", &[&["WWW-Authenticate"], RATE, &["X-Unknown-Parameters"]])
        .when("The dataset is private, and the request has no `Authorization` header.")
        .example("This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>."),
    ErrorAnswer::new(403, "Forbidden", READ)
        .when("The dataset is private, and `Authorization` does not contain its private key.")
        .example("The Authorization header does not contain this dataset's private key."),
    ErrorAnswer::new(404, "NotFound", READ)
        .when(
            "The dataset, the version, or the version's alternate does not exist, or the slug does not match the \
             dataset.",
        )
        .example("There is no dataset with this dataset_id and name_slug."),
    ErrorAnswer::new(405, "MethodNotAllowed", &[&["Allow", "Referrer-Policy"]])
        .when("The path does not allow this method.")
        .example("This path does not allow this method. Allowed: GET."),
    ErrorAnswer::new(410, "Gone", READ)
        .when("The dataset is frozen.")
        .example("This dataset is frozen and no longer served."),
    ErrorAnswer::new(412, "PreconditionFailed", READ)
        .when("`If-Match` does not match the `ETag` of the response.")
        .example(
            "The If-Match header does not match the ETag of this response: the data has changed, or the request is \
             different. To start over, repeat the request without If-Match.",
        ),
    ErrorAnswer::new(414, "UriTooLong", &[])
        .when("The query string is longer than 32 KiB.")
        .example("Invalid query: the query string is 40009 bytes long; valid: at most 32768 bytes."),
    ErrorAnswer::new(
        416,
        "RangeNotSatisfiable",
        &[&["Content-Range", "Accept-Ranges"], RATE, &["X-Unknown-Parameters"]],
    )
    .when("`Range` requests bytes beyond the end of a parquet file.")
    .example("The Range header requests bytes outside the body, which has 146515 bytes; valid: bytes=0-146514."),
    ErrorAnswer::new(429, "TooManyRequests", &[&["Retry-After"], RATE, &["X-Unknown-Parameters"]])
        .when("The client has exceeded its rate limit.")
        .example("Too many requests. Try again in 42 s."),
    ErrorAnswer::new(500, "InternalServerError", READ)
        .when("strata cannot read the version from storage, or an internal error occurred. The log contains the cause.")
        .example("Failed to read the dataset from storage. The error was logged."),
    ErrorAnswer::new(503, "ServiceUnavailable", READ)
        .when("The request exceeded its time or memory limit, or the service is not ready.")
        .example("The query was stopped after 30 s. A narrower query might finish in time."),
];

const NO_STORE: &[&[&str]] = &[&["Cache-Control"]];
const PRIVATE: &[&[&str]] = &[&["Cache-Control", "Referrer-Policy"]];

pub(crate) const OWNER_ERRORS: &[ErrorAnswer] = &[
    ErrorAnswer::new(400, "InvalidRequest", NO_STORE)
        .when(
            "The body is not a JSON object, or a field or parameter is missing or invalid. The message contains the \
             name of the field or parameter.",
        )
        .example("Invalid request: dataset_id: missing; valid: a positive integer."),
    ErrorAnswer::new(401, "NotAuthenticated", &[&["Cache-Control", "WWW-Authenticate"]])
        .when(
            "The request has neither an active session nor a valid API token. At login, 401 means that the email \
             address or password is wrong.",
        )
        .example("There is no user with this email and password."),
    ErrorAnswer::new(403, "NotAllowed", NO_STORE)
        .when(
            "The API token has only the scope `read`, your plan does not include the operation, or the old password is \
             wrong. strata also returns 403 if a page from another origin sends the request with a cookie.",
        )
        .example("Your plan allows at most 3 active datasets; frozen datasets do not count."),
    ErrorAnswer::new(404, "NotTheCallers", PRIVATE)
        .when(
            "The dataset does not exist, is not available to you, or does not have this version, alternate, or \
             webhook. strata also returns 404 if you have no such token or session.",
        )
        .example("You have no dataset with this dataset_id."),
    ErrorAnswer::new(408, "TooSlow", NO_STORE)
        .when("The body did not arrive in time.")
        .example("The body did not arrive within 60 s."),
    ErrorAnswer::new(409, "Conflict", PRIVATE)
        .when(
            "The operation conflicts with the current state: a name is already in use, an etag is stale, or the \
             dataset is frozen, is not frozen, or is being refreshed.",
        )
        .example("You already have a dataset with this name."),
    ErrorAnswer::new(413, "TooLarge", NO_STORE)
        .when("The body is too large.")
        .example("The body is longer than 2097152 bytes (limits.body_bytes)."),
    ErrorAnswer::new(415, "UnsupportedMediaType", NO_STORE)
        .when("`Content-Type` is neither JSON nor a source format that the operation accepts.")
        .example("The body must be an uncompressed JSON object with Content-Type: application/json."),
    ErrorAnswer::new(422, "UnusableEntities", PRIVATE)
        .when("The document is invalid. The message contains the position of the error.")
        .example("No version was created: item 3: an entity must be a JSON object, not an array."),
    ErrorAnswer::new(429, "TooManyTries", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .when("The client has sent too many login attempts, pings, or unauthenticated requests.")
        .example("Too many login attempts. Try again in 42 s."),
    ErrorAnswer::new(500, "Failure", PRIVATE)
        .when("An internal error occurred. The log contains the cause.")
        .example("The operation failed because of an internal error. The error was logged."),
    ErrorAnswer::new(502, "SourceUnreachable", PRIVATE)
        .when("strata cannot fetch the source.")
        .example("No version was created: failed to fetch the source: the server returned 404 Not Found."),
    ErrorAnswer::new(503, "TooBusy", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .when(
            "The service is overloaded or shutting down, or the metadata database is unavailable. strata also returns \
             503 if a diff or an explained query exceeds its time or memory limit.",
        )
        .example("Too many concurrent logins. Try again in 5 s."),
];

pub(crate) fn shared() -> impl Iterator<Item = (&'static str, Response)> {
    ERRORS.iter().map(|error| error.described(&[EVERY, CORS, &["Cache-Control"]]))
}

/// Adds the described errors that have one of these statuses.
pub(crate) fn with_errors(
    operation: OperationBuilder,
    described: &[ErrorAnswer],
    statuses: &[u16],
) -> OperationBuilder {
    let errors = described.iter().filter(|error| statuses.contains(&error.status));
    errors.fold(operation, |operation, error| {
        operation.response(error.status.to_string(), Ref::from_response_name(error.component))
    })
}
