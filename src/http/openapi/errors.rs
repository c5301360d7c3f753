//! The errors of what owners do: one table of them, by status.

use crate::http::description::responses::ErrorAnswer;

pub(super) const ERRORS: &[ErrorAnswer] = &[
    ErrorAnswer {
        status: 400,
        component: "InvalidRequest",
        when: "The body is not a JSON object, or a field or parameter is missing or cannot be used: the text names it.",
        example: "Invalid request: dataset_id: it is missing; valid: a positive integer.",
        headers: &[&["Cache-Control"]],
    },
    ErrorAnswer {
        status: 401,
        component: "NotAuthenticated",
        when: "There is neither a session that lasts nor a valid API token that has not expired; or, at the log-in, no user with this email and \
         password.",
        example: "There is no user with this email and password.",
        headers: &[&["Cache-Control", "WWW-Authenticate"]],
    },
    ErrorAnswer {
        status: 403,
        component: "NotAllowed",
        when: "The API token has the scope `read`; or the caller's plan does not include it; or the old password is wrong; or the call \
         has a cookie and comes from a page of another origin.",
        example: "Your plan allows at most 3 active datasets; frozen ones do not count.",
        headers: &[&["Cache-Control"]],
    },
    ErrorAnswer {
        status: 404,
        component: "NotTheCallers",
        when: "There is no such dataset that the caller may use, or no such token or session; or the dataset has no such version, alternate or \
         webhook.",
        example: "You have no dataset with this dataset_id.",
        headers: &[&["Cache-Control", "Referrer-Policy"]],
    },
    ErrorAnswer {
        status: 408,
        component: "TooSlow",
        when: "The body did not come in time.",
        example: "The body did not come within 60 s.",
        headers: &[&["Cache-Control"]],
    },
    ErrorAnswer {
        status: 409,
        component: "Conflict",
        when: "What is there does not allow it: a name is taken, the dataset is frozen, or not, or being refreshed; an etag is \
         stale.",
        example: "You already have a dataset of this name.",
        headers: &[&["Cache-Control", "Referrer-Policy"]],
    },
    ErrorAnswer {
        status: 413,
        component: "TooLarge",
        when: "The body is too large.",
        example: "The body is longer than 2097152 bytes (limits.body_bytes).",
        headers: &[&["Cache-Control"]],
    },
    ErrorAnswer {
        status: 415,
        component: "UnsupportedMediaType",
        when: "`Content-Type` does not say that the body is JSON, or of a source format where one is taken.",
        example: "The body must be JSON, uncompressed: send it with Content-Type: application/json.",
        headers: &[&["Cache-Control"]],
    },
    ErrorAnswer {
        status: 422,
        component: "UnusableEntities",
        when: "The document cannot be used: the text names the place.",
        example: "No version was made: item 3: it is not an object.",
        headers: &[&["Cache-Control", "Referrer-Policy"]],
    },
    ErrorAnswer {
        status: 429,
        component: "TooManyTries",
        when: "Too many log-ins, pings, or calls without credentials.",
        example: "Too many log-ins. Try again in 42 s.",
        headers: &[&["Cache-Control", "Referrer-Policy", "Retry-After"]],
    },
    ErrorAnswer {
        status: 500,
        component: "Failure",
        when: "The service failed. The cause is in its log.",
        example: "The service could not do this. The failure was logged.",
        headers: &[&["Cache-Control", "Referrer-Policy"]],
    },
    ErrorAnswer {
        status: 502,
        component: "SourceUnreachable",
        when: "The source cannot be fetched.",
        example: "No version was made: the source cannot be fetched: it answered 404 Not Found.",
        headers: &[&["Cache-Control", "Referrer-Policy"]],
    },
    ErrorAnswer {
        status: 503,
        component: "TooBusy",
        when: "The service has too much to do, or is about to stop; or its catalog is not available; or a comparison or an explained read took too long, or needed \
         more memory than it may.",
        example: "Too many log-ins at the same time. Try again in 5 s.",
        headers: &[&["Cache-Control", "Referrer-Policy", "Retry-After"]],
    },
];
