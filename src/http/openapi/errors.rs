//! The errors of what owners do: one table of them, by status.

use crate::http::description::responses::ErrorAnswer;

const NO_STORE: &[&[&str]] = &[&["Cache-Control"]];
const PRIVATE: &[&[&str]] = &[&["Cache-Control", "Referrer-Policy"]];

pub(super) const ERRORS: &[ErrorAnswer] = &[
    ErrorAnswer::new(400, "InvalidRequest", NO_STORE)
        .when(
            "The body is not a JSON object, or a field or parameter is missing or invalid. The message names the field \
             or parameter.",
        )
        .example("Invalid request: dataset_id: it is missing; valid: a positive integer."),
    ErrorAnswer::new(401, "NotAuthenticated", &[&["Cache-Control", "WWW-Authenticate"]])
        .when(
            "The request has neither an active session nor a valid, unexpired API token. At login, no user has this \
             email address and password.",
        )
        .example("There is no user with this email and password."),
    ErrorAnswer::new(403, "NotAllowed", NO_STORE)
        .when(
            "The API token has only the scope `read`, your plan does not include the operation, or the old password is \
             wrong. strata also returns 403 if the request has a cookie and comes from a page of another origin.",
        )
        .example("Your plan allows at most 3 active datasets; frozen ones do not count."),
    ErrorAnswer::new(404, "NotTheCallers", PRIVATE)
        .when(
            "The dataset does not exist or is not available to you, or there is no such token or session. strata also \
             returns 404 if the dataset has no such version, alternate, or webhook.",
        )
        .example("You have no dataset with this dataset_id."),
    ErrorAnswer::new(408, "TooSlow", NO_STORE)
        .when("The body did not arrive in time.")
        .example("The body did not come within 60 s."),
    ErrorAnswer::new(409, "Conflict", PRIVATE)
        .when(
            "The operation conflicts with the current state: a name is already in use, an etag is stale, or the \
             dataset is frozen, not frozen, or being refreshed.",
        )
        .example("You already have a dataset of this name."),
    ErrorAnswer::new(413, "TooLarge", NO_STORE)
        .when("The body is too large.")
        .example("The body is longer than 2097152 bytes (limits.body_bytes)."),
    ErrorAnswer::new(415, "UnsupportedMediaType", NO_STORE)
        .when("`Content-Type` is not JSON, or a source format if the operation accepts one.")
        .example("The body must be JSON, uncompressed: send it with Content-Type: application/json."),
    ErrorAnswer::new(422, "UnusableEntities", PRIVATE)
        .when("The document is invalid. The message names the position of the error.")
        .example("No version was made: item 3: it is not an object."),
    ErrorAnswer::new(429, "TooManyTries", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .when("There were too many logins, pings, or requests without credentials.")
        .example("Too many log-ins. Try again in 42 s."),
    ErrorAnswer::new(500, "Failure", PRIVATE)
        .when("An internal error occurred. The log contains the cause.")
        .example("The service could not do this. The failure was logged."),
    ErrorAnswer::new(502, "SourceUnreachable", PRIVATE)
        .when("strata cannot fetch the source.")
        .example("No version was made: the source cannot be fetched: it answered 404 Not Found."),
    ErrorAnswer::new(503, "TooBusy", &[&["Cache-Control", "Referrer-Policy", "Retry-After"]])
        .when(
            "The service is overloaded or shutting down, or the metadata database is unavailable. strata also returns \
             503 if a comparison or an explained read exceeds its time or memory limit.",
        )
        .example("Too many log-ins at the same time. Try again in 5 s."),
];
