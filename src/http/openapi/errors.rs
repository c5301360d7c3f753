//! The errors of what owners do: one table of them, by status.

use crate::description::responses::ErrorAnswer;

const NO_STORE: &[&[&str]] = &[&["Cache-Control"]];
const PRIVATE: &[&[&str]] = &[&["Cache-Control", "Referrer-Policy"]];

pub(super) const ERRORS: &[ErrorAnswer] = &[
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
