//! The errors of what owners do: one table of them, by status.

use crate::http::description::responses::ErrorAnswer;

const NO_STORE: &[&[&str]] = &[&["Cache-Control"]];
const PRIVATE: &[&[&str]] = &[&["Cache-Control", "Referrer-Policy"]];

pub(super) const ERRORS: &[ErrorAnswer] = &[
    ErrorAnswer::new(400, "InvalidRequest", NO_STORE)
        .when("The body is not a JSON object, or a field or parameter is missing or cannot be used: the text names it.")
        .example("Invalid request: dataset_id: it is missing; valid: a positive integer."),
    ErrorAnswer::new(401, "NotAuthenticated", &[&["Cache-Control", "WWW-Authenticate"]])
        .when(
            "There is neither a session that lasts nor a valid API token that has not expired; or, at the \
             log-in, no user with this email and password.",
        )
        .example("There is no user with this email and password."),
    ErrorAnswer::new(403, "NotAllowed", NO_STORE)
        .when(
            "The API token has the scope `read`; or the caller's plan does not include it; or the old password \
             is wrong; or the call has a cookie and comes from a page of another origin.",
        )
        .example("Your plan allows at most 3 active datasets; frozen ones do not count."),
    ErrorAnswer::new(404, "NotTheCallers", PRIVATE)
        .when(
            "There is no such dataset that the caller may use, or no such token or session; or the dataset has \
             no such version, alternate or webhook.",
        )
        .example("You have no dataset with this dataset_id."),
    ErrorAnswer::new(408, "TooSlow", NO_STORE)
        .when("The body did not come in time.")
        .example("The body did not come within 60 s."),
    ErrorAnswer::new(409, "Conflict", PRIVATE)
        .when(
            "What is there does not allow it: a name is taken, the dataset is frozen, or not, or being \
             refreshed; an etag is stale.",
        )
        .example("You already have a dataset of this name."),
    ErrorAnswer::new(413, "TooLarge", NO_STORE)
        .when("The body is too large.")
        .example("The body is longer than 2097152 bytes (limits.body_bytes)."),
    ErrorAnswer::new(415, "UnsupportedMediaType", NO_STORE)
        .when("`Content-Type` does not say that the body is JSON, or of a source format where one is taken.")
        .example("The body must be JSON, uncompressed: send it with Content-Type: application/json."),
    ErrorAnswer::new(422, "UnusableEntities", PRIVATE)
        .when("The document cannot be used: the text names the place.")
        .example("No version was made: item 3: it is not an object."),
    ErrorAnswer::new(429, "TooManyTries", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .when("Too many log-ins, pings, or calls without credentials.")
        .example("Too many log-ins. Try again in 42 s."),
    ErrorAnswer::new(500, "Failure", PRIVATE)
        .when("The service failed. The cause is in its log.")
        .example("The service could not do this. The failure was logged."),
    ErrorAnswer::new(502, "SourceUnreachable", PRIVATE)
        .when("The source cannot be fetched.")
        .example("No version was made: the source cannot be fetched: it answered 404 Not Found."),
    ErrorAnswer::new(503, "TooBusy", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .when(
            "The service has too much to do, or is about to stop; or its catalog is not available; or a \
             comparison or an explained read took too long, or needed more memory than it may.",
        )
        .example("Too many log-ins at the same time. Try again in 5 s."),
];
