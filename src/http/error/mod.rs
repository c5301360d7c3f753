//! Every error response: one exhaustive match from an error to a status and a public text.
//!
//! All responses are plain text (docs/reference/errors.md, Errors). A text says what the caller can know and do. Causes
//! inside the service are logged here, once, and never sent. For example, a damaged file returns 500 and "Failed to
//! read the dataset from storage."

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
    /// No route has this path, but one has a similar path.
    MisspeltPath {
        nearest: &'static str,
    },
    /// The process does not have the role `http`.
    NotServed,
    /// The router adds the header `Allow` if `allowed` is `None`.
    MethodNotAllowed {
        allowed: Option<&'static str>,
    },
    /// An HTTP/1.1 request that does not have exactly one `Host`.
    Host,
    /// An error of a path, a query string, or a form.
    Invalid {
        status: StatusCode,
        text: String,
    },
    RateLimited {
        retry_after_s: u64,
    },
    /// `If-Match` does not match the response.
    PreconditionFailed,
    /// The body has no bytes in `Range`.
    RangeNotSatisfiable {
        length: u64,
    },
    /// A failed read. Its 503 has no `Retry-After`.
    Read(ReadError),
    /// Like [`HttpError::Read`], with `Retry-After`, for owners and agents.
    Inspect(ReadError),
    Busy(Overloaded),
    Call(CallError),
    Manage(ManageError),
    Diff(DiffError),
    Refresh(RefreshError),
    /// An alternate was not saved, for a reason for which a refresh would create no version.
    NotSaved(RefreshError),
    NoSuchPing,
    /// Entities that are invalid, or that could not be received.
    Entities(SourceError),
    NotReady(NotReady),
    /// The message of a panic in a handler.
    Panic(String),
}

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
    /// The resource that is unavailable, if that is the cause.
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

    /// The status and the text for the caller. Logs nothing.
    pub(super) fn to_public(&self) -> PublicError {
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

    fn read_error(&self) -> Option<&ReadError> {
        match self {
            HttpError::Read(error) | HttpError::Inspect(error) | HttpError::Diff(DiffError::Read(error)) => Some(error),
            _ => None,
        }
    }

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

    /// Logs causes that the caller must not see, except for failed refreshes and readiness, which are logged where they
    /// happen.
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
    pub(super) fn log_and_render(&self) -> PublicError {
        self.log_cause();
        self.to_public()
    }
}

const RETRY_REFRESH_S: u64 = 10;

/// Marks a 5xx response. The layer that knows the ID of the request adds the ID to this text.
#[derive(Clone, Debug)]
pub(super) struct ServerFailure(pub String);

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let (status, text) = self.log_and_render();
        let mut response = (status, text.clone()).into_response();
        if status.is_server_error() {
            response.extensions_mut().insert(ServerFailure(text));
        }
        let headers = response.headers_mut();
        headers.extend(self.retry_after_s().map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        // The text can quote the request, so browsers must not treat it as HTML.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Otherwise, a cache could store some statuses, such as 404.
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
