//! Every error answer: one exhaustive match from what went wrong to a status and a public text.
//!
//! All of them are plain text (docs/reference/errors.md, Errors). A text says what the caller can know and do; causes
//! inside the service are logged here, once, and never sent.
//!
//! It depends on no endpoint: errors of paths and parameters become [`HttpError::Invalid`] where they are.
//!
//! | Module | Holds |
//! |---|---|
//! | `call` | why a call is refused before any use case is asked |
//! | `public` | the texts for what the service refused, or could not do |

mod call;
mod public;

use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
pub use call::CallError;
pub(super) use call::unknown;
pub(super) use public::log_read as log_read_error;
use strata_catalog::Unavailability;
use strata_ingest::SourceError;
use strata_service::{
    AlternateError, DiffError, EditError, InspectError, ManageError, NotReady, Overloaded, ProfileError, ReadError,
    RefreshError,
};
use strata_store::budget::SpoolFull;
use strata_store::shortage::Shortage;
use strata_types::causes::Causes;

use public::{PublicError, bad_request, failed, not_found, too_many, unavailable};

#[derive(Debug)]
pub enum HttpError {
    NoSuchPath,
    /// No route has this path, and one is much like it.
    MisspeltPath {
        nearest: &'static str,
    },
    /// The process has not the role for requests.
    NotServed,
    /// The path exists, but does not take the method. The router adds the header `Allow` if `allowed` is `None`.
    MethodNotAllowed {
        allowed: Option<&'static str>,
    },
    /// An HTTP/1.1 request without the header `Host`, or with several.
    Host,
    /// The request is not one: its path or its query string is wrong.
    Invalid {
        status: StatusCode,
        text: String,
    },
    RateLimited {
        retry_after_s: u64,
    },
    /// The header `If-Match` names other answers than this one.
    PreconditionFailed,
    /// The body has none of the bytes that the header `Range` asks for.
    RangeNotSatisfiable {
        length: u64,
    },
    /// The service could not answer the read. Its 503 says only in its text when to try again.
    Read(ReadError),
    /// As [`HttpError::Read`], for owners and agents: a header says, too, when to ask again.
    Inspect(ReadError),
    /// The service is too busy for what an owner or an agent sends.
    Busy(Overloaded),
    Call(CallError),
    Manage(ManageError),
    Diff(DiffError),
    Refresh(RefreshError),
    /// An alternate was not saved, for what a refresh would make no version for.
    NotSaved(RefreshError),
    NoSuchPing,
    /// Entities that were sent cannot be used, or not be received.
    Entities(SourceError),
    NotReady(NotReady),
    /// A handler panicked; holds the panic's message.
    Panic(String),
}

/// The errors that are variants as they are.
macro_rules! from_errors {
    ($($variant:ident($error:ident)),+) => { $(
        impl From<$error> for HttpError {
            fn from(error: $error) -> Self {
                HttpError::$variant(error)
            }
        }
    )+ };
}

from_errors!(Read(ReadError), Call(CallError), Manage(ManageError), Diff(DiffError), Refresh(RefreshError));

impl From<AlternateError> for HttpError {
    fn from(error: AlternateError) -> Self {
        match error {
            AlternateError::Manage(error) => HttpError::Manage(error),
            AlternateError::Body(error) => HttpError::Entities(error),
            AlternateError::Edit(EditError { index, problem }) => {
                CallError::Edit { index, problem: problem.to_string() }.into()
            }
            AlternateError::Full(full) => HttpError::NotSaved(full.into()),
            AlternateError::Refused(refused) => HttpError::NotSaved(refused.into()),
            AlternateError::Stopping => HttpError::NotReady(NotReady::Draining),
        }
    }
}

impl From<InspectError> for HttpError {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::Manage(error) => HttpError::Manage(error),
            InspectError::Read(error) => HttpError::Inspect(error),
        }
    }
}

impl From<ProfileError> for HttpError {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::Unauthenticated => HttpError::Call(CallError::NoPublicDataset),
            ProfileError::Read(error) => HttpError::Inspect(error),
            ProfileError::DatasetNotFound => HttpError::Inspect(ReadError::NotReadable),
        }
    }
}

impl HttpError {
    /// What is used up or gone at the moment, if that is why there is no answer.
    fn shortage(&self) -> Option<Shortage> {
        if let Some(error @ ReadError::Unreadable(_)) = self.read_error() {
            return Shortage::of(error);
        }
        match self {
            HttpError::Refresh(error @ (RefreshError::Storage(_) | RefreshError::Source(SourceError::Io(_)))) => {
                Shortage::of(error)
            }
            HttpError::Entities(error @ SourceError::Io(_)) => Shortage::of(error),
            HttpError::Manage(ManageError::Storage(error)) => Shortage::of(error),
            _ => None,
        }
    }

    /// The status and the text that the caller sees. Logs nothing.
    pub(super) fn public(&self) -> PublicError {
        if let Some(shortage) = self.shortage() {
            let seconds = shortage.retry_after_s();
            return unavailable(format!(
                "The service cannot complete this request at the moment: {shortage}. Try again in {seconds} s."
            ));
        }
        match self {
            HttpError::NoSuchPath => not_found(
                "This path does not exist. To query a dataset, use /api/{dataset_id}/{name_slug}/{version}/. \
                 /openapi.json describes all paths except /mcp.",
            ),
            HttpError::MisspeltPath { nearest } => not_found(format!(
                "This path does not exist. Did you mean {nearest}? /openapi.json describes all paths except /mcp."
            )),
            HttpError::NotServed => unavailable(
                "This node does not serve requests (server.roles does not include http). Send the request to a node \
                 that does.",
            ),
            HttpError::MethodNotAllowed { allowed } => (StatusCode::METHOD_NOT_ALLOWED, wrong_method(*allowed)),
            HttpError::Host => {
                bad_request("An HTTP/1.1 request must have exactly one Host header (RFC 9112, section 3.2).")
            }
            HttpError::Invalid { status, text } => (*status, text.clone()),
            HttpError::RateLimited { retry_after_s } => {
                too_many(format!("Too many requests. Try again in {retry_after_s} s."))
            }
            HttpError::PreconditionFailed => (
                StatusCode::PRECONDITION_FAILED,
                "The If-Match header does not match the ETag of this response: the data has changed, or the request \
                 is different. To start over, repeat the request without If-Match."
                    .into(),
            ),
            HttpError::RangeNotSatisfiable { length } => (
                StatusCode::RANGE_NOT_SATISFIABLE,
                format!(
                    "The Range header requests bytes outside the body, which has {length} bytes; valid: bytes=0-{}.",
                    length.saturating_sub(1)
                ),
            ),
            HttpError::Read(error) | HttpError::Inspect(error) => public::read(error),
            HttpError::Busy(refused) => public::busy(refused),
            HttpError::Call(error) => (error.status(), error.to_string()),
            HttpError::Manage(error) => public::manage(error),
            HttpError::Diff(error) => public::diff(error),
            HttpError::Refresh(error) => public::refresh(error),
            HttpError::NotSaved(error) => public::edit(error),
            HttpError::NoSuchPing => not_found("No dataset has this ping URL."),
            HttpError::Entities(error) => public::entities(error),
            HttpError::NotReady(error) => unavailable(format!("The service is not ready: {error}.")),
            HttpError::Panic(_) => {
                failed("An internal error occurred while handling this request. The error was logged.")
            }
        }
    }

    /// Why a read has no answer, also one that is part of another operation.
    fn read_error(&self) -> Option<&ReadError> {
        match self {
            HttpError::Read(error) | HttpError::Inspect(error) | HttpError::Diff(DiffError::Read(error)) => Some(error),
            _ => None,
        }
    }

    /// Why the catalog cannot be used, where that is the reason and passes.
    fn unavailability(&self) -> Option<Unavailability> {
        if let Some(ReadError::CatalogUnavailable { reason, .. }) = self.read_error() {
            return Some(*reason);
        }
        match self {
            HttpError::Manage(ManageError::Catalog(error))
            | HttpError::Diff(DiffError::Manage(ManageError::Catalog(error)))
            | HttpError::Refresh(RefreshError::Catalog(error)) => error.unavailability(),
            _ => None,
        }
    }

    /// Logs causes that the caller must not see. Logs nothing for the caller's own errors, nor what is logged where it
    /// happens: failed refreshes, and readiness when it changes.
    fn log_cause(&self) {
        self.read_error().into_iter().for_each(public::log_read);
        match self {
            HttpError::Entities(SourceError::Io(error)) => {
                tracing::error!(%error, "failed to receive entities");
            }
            HttpError::Busy(refused) => tracing::warn!(error = %refused, "rejected request"),
            HttpError::Manage(error @ (ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Failed(_)))
            | HttpError::Diff(DiffError::Manage(error @ (ManageError::Catalog(_) | ManageError::Failed(_)))) => {
                tracing::error!(error = %Causes(error), "failed to run management operation");
            }
            HttpError::Refresh(error @ RefreshError::Catalog(_)) => {
                tracing::error!(error = %Causes(error), "failed to create version");
            }
            HttpError::Panic(message) => tracing::error!(error = %message, "handler panicked"),
            _ => {}
        }
    }

    fn retry_after_s(&self) -> Option<u64> {
        match self {
            HttpError::RateLimited { retry_after_s }
            | HttpError::Manage(ManageError::TooManyLogins { retry_after_s }) => Some(*retry_after_s),
            HttpError::Busy(_)
            | HttpError::Inspect(ReadError::Busy(_))
            | HttpError::Diff(DiffError::Read(ReadError::Busy(_) | ReadError::OutOfMemory | ReadError::OutOfDisk(_)))
            | HttpError::Manage(ManageError::Refused(_) | ManageError::LoginsBusy)
            | HttpError::Diff(DiffError::Manage(ManageError::Refused(_))) => Some(Overloaded::RETRY_AFTER_S),
            HttpError::Refresh(RefreshError::LeaseLost | RefreshError::NotHere | RefreshError::Stopping) => {
                Some(RETRY_REFRESH_S)
            }
            HttpError::Refresh(RefreshError::Full(full)) | HttpError::NotSaved(RefreshError::Full(full)) => {
                (!matches!(full, SpoolFull::User { .. })).then_some(RETRY_REFRESH_S)
            }
            HttpError::Refresh(RefreshError::Refused(_)) | HttpError::NotSaved(RefreshError::Refused(_)) => {
                Some(RETRY_REFRESH_S)
            }
            HttpError::Read(_) => None,
            _ => {
                let unavailability = self.unavailability().map(Unavailability::retry_after_s);
                unavailability.or_else(|| self.shortage().map(Shortage::retry_after_s))
            }
        }
    }

    /// The status and the public text. Logs the cause.
    pub(super) fn told(&self) -> PublicError {
        self.log_cause();
        self.public()
    }
}

/// Seconds after which a refresh that found no room may be tried again.
const RETRY_REFRESH_S: u64 = 10;

/// Marks an answer of status 5xx and holds its text, to which the layer that knows the request's id adds it.
#[derive(Clone, Debug)]
pub(super) struct ServerFailure(pub String);

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let (status, text) = self.told();
        let mut response = (status, text.clone()).into_response();
        if status.is_server_error() {
            response.extensions_mut().insert(ServerFailure(text));
        }
        let headers = response.headers_mut();
        headers.extend(self.retry_after_s().map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        // The text may quote the request: no browser may take it for anything but text.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // A cache may otherwise keep some statuses, such as 404, for a time of its choice.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            HttpError::MethodNotAllowed { allowed: Some(allowed) } => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            HttpError::RangeNotSatisfiable { length } => {
                // Digits and punctuation are always a valid value.
                if let Ok(value) = HeaderValue::try_from(format!("bytes */{length}")) {
                    headers.insert(CONTENT_RANGE, value);
                }
            }
            HttpError::Read(ReadError::Unauthorized)
            | HttpError::Inspect(ReadError::Unauthorized)
            | HttpError::Call(
                CallError::Unauthenticated | CallError::NoPublicDataset | CallError::NotToken | CallError::NoToken,
            ) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// Why a method is refused by a path that takes these, if they are known here.
fn wrong_method(allowed: Option<&str>) -> String {
    let Some(allowed) = allowed else {
        return "This path does not allow this method. The Allow header lists the allowed methods.".to_owned();
    };
    let allowed: Vec<&str> = allowed.split(',').map(str::trim).collect();
    let allowed = match allowed.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => allowed.concat(),
    };
    format!("This path does not allow this method. Allowed: {allowed}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_store::StorageError;
    use strata_types::version::{VersionNumber, VersionSelector};

    #[track_caller]
    fn check(error: ReadError, status: u16, text: &str) -> Response {
        let error = HttpError::Read(error);
        assert_eq!(error.public(), (StatusCode::from_u16(status).expect("a status"), text.to_owned()));
        error.into_response()
    }

    #[test]
    fn reads_that_fail() {
        check(ReadError::DatasetNotFound, 404, "There is no dataset with this dataset_id and name_slug.");
        check(
            ReadError::Forbidden,
            403,
            "The Authorization header does not contain this dataset's private key. API tokens are not valid here.",
        );
        check(ReadError::Frozen, 410, "This dataset is frozen and no longer served.");
        for (selector, text) in [
            (VersionSelector::Active, "This dataset has no active version."),
            (VersionSelector::Latest, "This dataset has no versions yet."),
            (VersionSelector::Number(VersionNumber::new(4)), "This dataset has no version 4; its versions are 1 to 3."),
            (
                VersionSelector::Number(VersionNumber::new(u64::MAX)),
                "This dataset has no version with such a large number; its versions are 1 to 3.",
            ),
        ] {
            check(ReadError::VersionNotFound { selector, latest: Some(VersionNumber::new(3)) }, 404, text);
        }
        check(ReadError::AltNotFound(VersionNumber::new(4)), 404, "Version 4 of this dataset has no alternate.");
        let text = "The table would have more than 10000 columns. Select fewer fields with keep_field, or use a format \
                    that is not a table: json, jsonl, or xml.";
        check(ReadError::TooManyColumns { limit: 10_000 }, 400, text);
        let text = "The query was stopped after 30 s. A narrower query might finish in time.";
        check(ReadError::Timeout { seconds: 30 }, 503, text);
    }

    #[test]
    fn what_is_used_up_or_gone_is_named() {
        let full = StorageError::Io(std::io::Error::from(std::io::ErrorKind::StorageFull));
        let text = "The service cannot complete this request at the moment: a disk is full. Try again in 30 s.";
        let error = ReadError::from(full);
        let response = check(error.clone(), 503, text);
        assert_eq!(response.headers().get(RETRY_AFTER), None, "of reads only 429 has it");
        let response = HttpError::Inspect(error).into_response();
        assert_eq!(response.headers().get(RETRY_AFTER), Some(&HeaderValue::from_static("30")));
        let failed = StorageError::Io(std::io::Error::from_raw_os_error(5));
        let text = "Failed to read the dataset from storage. The error was logged.";
        let response = check(ReadError::from(failed), 500, text);
        assert_eq!(response.headers().get(RETRY_AFTER), None);
    }

    #[test]
    fn an_edit_without_room_says_what_is_full_and_what_to_do() {
        let check = |full: SpoolFull, status, words: &[&str], retry_after: Option<&'static str>| {
            let error = HttpError::from(AlternateError::Full(full));
            let (told, text) = error.public();
            assert_eq!(told, StatusCode::from_u16(status).expect("a status"), "{text}");
            assert!(text.starts_with("Nothing was saved") && !text.contains("version"), "{text}");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            let header = error.into_response().headers().get(RETRY_AFTER).cloned();
            assert_eq!(header, retry_after.map(HeaderValue::from_static), "{text}");
        };
        let disk = ["the disk of the data directory", "sources.disk_reserve_bytes (7)", "Free some space"];
        check(SpoolFull::Disk { reserve: 7 }, 503, &disk, Some("10"));
        check(SpoolFull::All { limit: 7 }, 503, &["sources.spool_bytes (7)", "Try again"], Some("10"));
        check(SpoolFull::User { limit: 7 }, 413, &["sources.user_spool_bytes (7)", "Send less"], None);
    }

    #[test]
    fn management_that_is_refused_for_a_while_says_for_how_long() {
        for (error, seconds) in [
            (HttpError::Manage(ManageError::LoginsBusy), "5"),
            (HttpError::Diff(DiffError::Read(ReadError::OutOfMemory)), "5"),
            (HttpError::Diff(DiffError::Read(ReadError::OutOfDisk(String::new()))), "5"),
            (HttpError::Refresh(RefreshError::LeaseLost), "10"),
            (HttpError::Refresh(RefreshError::Stopping), "10"),
        ] {
            let response = error.into_response();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[RETRY_AFTER], seconds);
        }
    }

    #[test]
    fn a_missing_key_is_asked_for() {
        let text = "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.";
        let response = check(ReadError::Unauthorized, 401, text);
        assert_eq!(response.headers().get(WWW_AUTHENTICATE), Some(&HeaderValue::from_static("Bearer")));
    }
}
