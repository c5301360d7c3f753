//! The error answers of reads and of several other operations: plain text, each described once.

use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::{Ref, Response, ResponseBuilder};

use super::headers::{self, CORS, EVERY, RATE};
use super::{TEXT, text};

/// The answer to a request that fails in one way.
pub(in crate::http) struct ErrorAnswer {
    pub status: u16,
    pub component: &'static str,
    when: &'static str,
    example: &'static str,
    /// Its headers besides those that all have.
    headers: &'static [&'static [&'static str]],
}

impl ErrorAnswer {
    pub(in crate::http) const fn new(
        status: u16,
        component: &'static str,
        headers: &'static [&'static [&'static str]],
    ) -> ErrorAnswer {
        ErrorAnswer { status, component, when: "", example: "", headers }
    }

    pub(in crate::http) const fn when(self, when: &'static str) -> ErrorAnswer {
        ErrorAnswer { when, ..self }
    }

    pub(in crate::http) const fn example(self, example: &'static str) -> ErrorAnswer {
        ErrorAnswer { example, ..self }
    }

    /// Its component, with these headers beside its own.
    pub(in crate::http) fn described(&self, shared: &[&[&str]]) -> (&'static str, Response) {
        let response = ResponseBuilder::new().description(self.when).content(TEXT, text(Some(self.example)));
        (self.component, headers::with(headers::with(response, shared), self.headers).build())
    }
}

/// The headers of most errors of reads.
const READ: &[&[&str]] = &[RATE, &["X-Unknown-Parameters"]];

pub(in crate::http) const ERRORS: &[ErrorAnswer] = &[
    ErrorAnswer::new(400, "BadRequest", READ)
        .when(
            "The path is not that of a read; or a parameter has a value that is not valid, or is given twice: \
             the text names it, the value, and what would be valid; or a table would have too many columns, or \
             a Parquet file would need more memory or disk than one client may ever have; or `strict=true` \
             refuses a field or a parameter that does not exist.",
        )
        .example(
            "Invalid query: parameter limit: \"x\" is not a whole number; valid: decimal digits only, from 0 to \
             18446744073709551615.",
        ),
    ErrorAnswer::new(401, "Unauthorized", &[&["WWW-Authenticate"], RATE, &["X-Unknown-Parameters"]])
        .when("The dataset is private, and the request has no `Authorization`.")
        .example("This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>."),
    ErrorAnswer::new(403, "Forbidden", READ)
        .when("The dataset is private, and `Authorization` does not hold its private key.")
        .example("The Authorization header does not hold this dataset's private key."),
    ErrorAnswer::new(404, "NotFound", READ)
        .when("There is no such dataset, its slug is another, or it has no such version or no alternate of it.")
        .example("There is no dataset with this dataset_id and name_slug."),
    ErrorAnswer::new(405, "MethodNotAllowed", &[&["Allow", "Referrer-Policy"]])
        .when("The path does not allow this method.")
        .example("This path does not allow this method. Allowed: GET."),
    ErrorAnswer::new(410, "Gone", READ)
        .when("The dataset is frozen.")
        .example("This dataset is frozen and no longer served."),
    ErrorAnswer::new(412, "PreconditionFailed", READ)
        .when("`If-Match` names another `ETag` than that of the answer.")
        .example(
            "The header If-Match names another ETag than that of this answer: it has changed since, or the \
             request is another one. Read it without If-Match, from its beginning.",
        ),
    ErrorAnswer::new(414, "UriTooLong", &[])
        .when("The query string is longer than 32 KiB.")
        .example("Invalid query: the query string is 40009 bytes long; valid: at most 32768 bytes."),
    ErrorAnswer::new(
        416,
        "RangeNotSatisfiable",
        &[&["Content-Range", "Accept-Ranges"], RATE, &["X-Unknown-Parameters"]],
    )
    .when("`Range` asks for bytes beyond the end of a parquet file.")
    .example("The header Range asks for bytes outside of the body, which has 146515 bytes; valid: bytes=0-146514."),
    ErrorAnswer::new(429, "TooManyRequests", &[&["Retry-After"], RATE, &["X-Unknown-Parameters"]])
        .when("The rate limit of the tier is exceeded.")
        .example("Too many requests. Try again in 42 s."),
    ErrorAnswer::new(500, "InternalServerError", READ)
        .when("The version cannot be read from storage, or the service failed. The cause is in its log.")
        .example("The dataset cannot be read from storage. The failure was logged."),
    ErrorAnswer::new(503, "ServiceUnavailable", READ)
        .when("The request took longer or needed more memory than it may, or the service is not ready.")
        .example("The query was stopped after 30 s. A narrower query may finish in time."),
];

/// The components that [`with_errors`] refers to.
pub(in crate::http) fn shared() -> impl Iterator<Item = (&'static str, Response)> {
    ERRORS.iter().map(|error| error.described(&[EVERY, CORS, &["Cache-Control"]]))
}

/// The operation with the error answers of these statuses, as far as they are among those that are described.
pub(in crate::http) fn with_errors(
    operation: OperationBuilder,
    described: &[ErrorAnswer],
    statuses: &[u16],
) -> OperationBuilder {
    let errors = described.iter().filter(|error| statuses.contains(&error.status));
    errors.fold(operation, |operation, error| {
        operation.response(error.status.to_string(), Ref::from_response_name(error.component))
    })
}
