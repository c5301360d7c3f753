//! The errors of management: one table of them, by status.

use utoipa::openapi::{ContentBuilder, ObjectBuilder, Response, ResponseBuilder, Type};

use crate::http::openapi::headers::{self, CORS, EVERY, RATE};
use crate::http::openapi::responses::TEXT;

/// An error of management: its status, its component, when it is given, an example of its text, its headers.
pub(super) struct Error(u16, &'static str, &'static str, &'static str, &'static [&'static str]);

impl Error {
    pub(super) fn status(&self) -> u16 {
        self.0
    }

    /// The name of its component.
    pub(super) fn name(&self) -> &'static str {
        self.1
    }
}

pub(super) const ERRORS: &[Error] = &[
    Error(
        400,
        "InvalidRequest",
        "The body is not a JSON object, or a field or parameter is missing or cannot be used: the text names it.",
        "Invalid request: dataset_id: it is missing; valid: a positive integer.",
        &["Cache-Control"],
    ),
    Error(
        401,
        "NotAuthenticated",
        "There is neither a session that lasts nor a valid API token; or, at the log-in, no user with this email and \
         password.",
        "There is no user with this email and password.",
        &["Cache-Control", "WWW-Authenticate"],
    ),
    Error(
        403,
        "NotAllowed",
        "The caller's plan does not include it; or the call has a cookie and comes from a page of another origin.",
        "Your plan allows at most 3 active datasets; frozen ones do not count.",
        &["Cache-Control"],
    ),
    Error(
        404,
        "NotTheCallers",
        "There is no such dataset that the caller may use, or no such token; or the dataset has no such version, alternate or \
         webhook.",
        "You have no dataset with this dataset_id.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(408, "TooSlow", "The body did not come in time.", "The body did not come within 60 s.", &["Cache-Control"]),
    Error(
        409,
        "Conflict",
        "What is there does not allow it: a name is taken, the dataset is frozen, or not, or being refreshed; an etag is \
         stale.",
        "You have another dataset of this name.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(413, "TooLarge", "The body is too large.", "The body is longer than 2097152 bytes.", &["Cache-Control"]),
    Error(
        415,
        "UnsupportedMediaType",
        "`Content-Type` does not say that the body is JSON, or of a source format where one is taken.",
        "The body must be JSON, uncompressed: send it with Content-Type: application/json.",
        &["Cache-Control"],
    ),
    Error(
        422,
        "UnusableEntities",
        "The document cannot be used: the text names the place.",
        "No version was made: item 3: it is not an object.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(
        429,
        "TooManyTries",
        "Too many log-ins, pings, or calls without credentials.",
        "Too many log-ins; the next one is tried in 42 s.",
        &["Cache-Control", "Referrer-Policy", "Retry-After"],
    ),
    Error(
        500,
        "Failure",
        "The service failed. The cause is in its log.",
        "The service could not do this. The failure was logged.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(
        502,
        "SourceUnreachable",
        "The source cannot be fetched.",
        "No version was made: the source cannot be fetched: it answered 404 Not Found.",
        &["Cache-Control", "Referrer-Policy"],
    ),
    Error(
        503,
        "TooBusy",
        "The service has too much to do, or is about to stop; or its catalog is not available; or a comparison or an explained read took too long, or needed \
         more memory than it may.",
        "Too many log-ins are being checked. Try again in a moment.",
        &["Cache-Control", "Referrer-Policy", "Retry-After"],
    ),
];

pub(super) fn error(error: &Error) -> (&'static str, Response) {
    let Error(_, name, description, example, more) = error;
    let text = ContentBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).build()))
        .example(Some((*example).into()))
        .build();
    let response = ResponseBuilder::new().description(*description).content(TEXT, text);
    (*name, headers::with(response, &[EVERY, RATE, CORS, more]).build())
}
