//! Error responses: one exhaustive match maps each error to a status and a public text.
//!
//! All responses are plain text (docs/reference/errors.md, Errors). A text contains what the caller can know and do.
//! Internal causes are logged here, once, and never sent. For example, a damaged file returns 500 and "Failed to read
//! the dataset from storage."
//!
//! A handler returns [`HttpError`]. If a request does not reach a service, the error is a [`CallError`]. Errors of
//! services convert with `?`, and `public_error` contains their statuses and texts.

mod call_error;
mod public_error;

use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
pub use call_error::CallError;
pub(super) use call_error::describe_unknown_field;
pub(super) use public_error::log_read_error;
use strata_catalog::UnavailableReason;
use strata_ingest::SourceError;
use strata_service::{
    AlternateError, DiffError, EditError, ManageError, NotReadyReason, Overloaded, OwnerReadError, ProfileError,
    ReadError, RefreshError,
};
use strata_store::spool_quota::SpoolQuotaExceeded;
use strata_store::unavailable::ResourceUnavailable;
use strata_types::error_chain::ErrorChain;

use public_error::{PublicError, bad_request, internal_error, not_found, too_many_requests, unavailable};

pub(crate) type Result<T, E = HttpError> = std::result::Result<T, E>;

#[derive(Debug)]
pub enum HttpError {
    PathNotFound,
    PathNotFoundWithHint {
        nearest: &'static str,
    },
    RoleDisabled,
    /// A 405 response. If `allowed` is `None`, the router adds the header `Allow`.
    MethodNotAllowed {
        allowed: Option<&'static str>,
    },
    /// An HTTP/1.1 request that does not have exactly one `Host` header.
    InvalidHost,
    InvalidRequest {
        status: StatusCode,
        text: String,
    },
    RateLimited {
        retry_after_s: u64,
    },
    PreconditionFailed,
    RangeNotSatisfiable {
        length: u64,
    },
    /// A failed read of a dataset. Its 503 response has no `Retry-After` header.
    Read(ReadError),
    /// Like [`HttpError::Read`], but with a `Retry-After` header, for requests of owners and agents.
    InspectRead(ReadError),
    Busy(Overloaded),
    Call(CallError),
    Manage(ManageError),
    Diff(DiffError),
    Refresh(RefreshError),
    /// An edited copy was not saved for lack of disk space or permits. In a refresh, the error means no new version.
    AlternateNotSaved(RefreshError),
    PingNotFound,
    InvalidEntities(SourceError),
    NotReady(NotReadyReason),
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
            AlternateError::Source(error) => HttpError::InvalidEntities(error),
            AlternateError::Edit(EditError { index, problem }) => {
                CallError::InvalidEdit { index, problem: problem.to_string() }.into()
            }
            AlternateError::DiskQuotaExceeded(full) => HttpError::AlternateNotSaved(full.into()),
            AlternateError::Overloaded(refused) => HttpError::AlternateNotSaved(refused.into()),
            AlternateError::Stopping => HttpError::NotReady(NotReadyReason::Draining),
        }
    }
}

impl From<OwnerReadError> for HttpError {
    fn from(error: OwnerReadError) -> Self {
        match error {
            OwnerReadError::Manage(error) => HttpError::Manage(error),
            OwnerReadError::Read(error) => HttpError::InspectRead(error),
        }
    }
}

impl From<ProfileError> for HttpError {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::Unauthenticated => HttpError::Call(CallError::NoPublicDataset),
            ProfileError::Read(error) => HttpError::InspectRead(error),
            ProfileError::DatasetNotFound => HttpError::InspectRead(ReadError::NotReadable),
        }
    }
}

impl HttpError {
    /// The unavailable resource (such as file descriptors) that caused the error, if any.
    fn unavailable_resource(&self) -> Option<ResourceUnavailable> {
        if let Some(error @ ReadError::Unreadable(_)) = self.read_error() {
            return ResourceUnavailable::from_error(error);
        }
        match self {
            HttpError::Refresh(error @ (RefreshError::Storage(_) | RefreshError::Source(SourceError::Io(_)))) => {
                ResourceUnavailable::from_error(error)
            }
            HttpError::InvalidEntities(error @ SourceError::Io(_)) => ResourceUnavailable::from_error(error),
            HttpError::Manage(ManageError::Storage(error)) => ResourceUnavailable::from_error(error),
            _ => None,
        }
    }

    /// Returns the status and the text for the caller. Logs nothing.
    pub(super) fn to_public(&self) -> PublicError {
        if let Some(resource) = self.unavailable_resource() {
            let seconds = resource.retry_after_s();
            return unavailable(format!(
                "The service cannot complete this request at the moment: {resource}. Try again in {seconds} s."
            ));
        }
        match self {
            HttpError::PathNotFound => not_found(
                "This path does not exist. To query a dataset, use /api/{dataset_id}/{name_slug}/{version}/. \
                 /openapi.json describes all paths except /mcp.",
            ),
            HttpError::PathNotFoundWithHint { nearest } => not_found(format!(
                "This path does not exist. Did you mean {nearest}? /openapi.json describes all paths except /mcp."
            )),
            HttpError::RoleDisabled => unavailable(
                "This node does not serve requests (server.roles does not include http). Send the request to a node \
                 that does.",
            ),
            HttpError::MethodNotAllowed { allowed } => {
                (StatusCode::METHOD_NOT_ALLOWED, method_not_allowed_text(*allowed))
            }
            HttpError::InvalidHost => {
                bad_request("An HTTP/1.1 request must have exactly one Host header (RFC 9112, section 3.2).")
            }
            HttpError::InvalidRequest { status, text } => (*status, text.clone()),
            HttpError::RateLimited { retry_after_s } => {
                too_many_requests(format!("Too many requests. Try again in {retry_after_s} s."))
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
            HttpError::Read(error) | HttpError::InspectRead(error) => public_error::from_read_error(error),
            HttpError::Busy(refused) => public_error::from_overloaded(refused),
            HttpError::Call(error) => (error.status(), error.to_string()),
            HttpError::Manage(error) => public_error::from_manage_error(error),
            HttpError::Diff(error) => public_error::from_diff_error(error),
            HttpError::Refresh(error) => public_error::from_refresh_error(error),
            HttpError::AlternateNotSaved(error) => public_error::from_alternate_error(error),
            HttpError::PingNotFound => not_found("No dataset has this ping URL."),
            HttpError::InvalidEntities(error) => public_error::from_entities_error(error),
            HttpError::NotReady(error) => unavailable(format!("The service is not ready: {error}.")),
            HttpError::Panic(_) => {
                internal_error("An internal error occurred while handling this request. The error was logged.")
            }
        }
    }

    fn read_error(&self) -> Option<&ReadError> {
        match self {
            HttpError::Read(error) | HttpError::InspectRead(error) | HttpError::Diff(DiffError::Read(error)) => {
                Some(error)
            }
            _ => None,
        }
    }

    fn catalog_unavailability(&self) -> Option<UnavailableReason> {
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

    /// Logs causes that the caller must not see. Refreshes and readiness checks log their own causes.
    fn log_cause(&self) {
        self.read_error().into_iter().for_each(public_error::log_read_error);
        match self {
            HttpError::InvalidEntities(SourceError::Io(error)) => tracing::error!(%error, "failed to receive entities"),
            HttpError::Busy(refused) => tracing::warn!(error = %refused, "rejected request"),
            HttpError::Manage(
                error @ (ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Internal(_)),
            )
            | HttpError::Diff(DiffError::Manage(error @ (ManageError::Catalog(_) | ManageError::Internal(_)))) => {
                tracing::error!(error = %ErrorChain(error), "failed to run management operation");
            }
            HttpError::Refresh(error @ RefreshError::Catalog(_)) => {
                tracing::error!(error = %ErrorChain(error), "failed to create version");
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
            | HttpError::InspectRead(ReadError::Busy(_))
            | HttpError::Diff(DiffError::Read(ReadError::Busy(_) | ReadError::OutOfMemory | ReadError::OutOfDisk(_)))
            | HttpError::Manage(ManageError::Overloaded(_) | ManageError::LoginsBusy)
            | HttpError::Diff(DiffError::Manage(ManageError::Overloaded(_))) => Some(Overloaded::RETRY_AFTER_S),
            HttpError::Refresh(RefreshError::LeaseLost | RefreshError::RoleDisabled | RefreshError::Stopping) => {
                Some(REFRESH_RETRY_AFTER_S)
            }
            HttpError::Refresh(RefreshError::DiskQuotaExceeded(full))
            | HttpError::AlternateNotSaved(RefreshError::DiskQuotaExceeded(full)) => {
                (!matches!(full, SpoolQuotaExceeded::User { .. })).then_some(REFRESH_RETRY_AFTER_S)
            }
            HttpError::Refresh(RefreshError::Overloaded(_))
            | HttpError::AlternateNotSaved(RefreshError::Overloaded(_)) => Some(REFRESH_RETRY_AFTER_S),
            HttpError::Read(_) => None,
            _ => {
                let unavailability = self.catalog_unavailability().map(UnavailableReason::retry_after_s);
                unavailability.or_else(|| self.unavailable_resource().map(ResourceUnavailable::retry_after_s))
            }
        }
    }

    pub(super) fn log_and_render(&self) -> PublicError {
        self.log_cause();
        self.to_public()
    }
}

const REFRESH_RETRY_AFTER_S: u64 = 10;

/// Marks a 5xx response with its error text, to which the access log layer appends the request ID.
#[derive(Clone, Debug)]
pub(super) struct ServerErrorText(pub String);

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let (status, text) = self.log_and_render();
        let mut response = (status, text.clone()).into_response();
        if status.is_server_error() {
            response.extensions_mut().insert(ServerErrorText(text));
        }
        let headers = response.headers_mut();
        headers.extend(self.retry_after_s().map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        // The error text can quote the request, so browsers must not treat it as HTML.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // By default, caches can store responses with some error statuses, such as 404.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            HttpError::MethodNotAllowed { allowed: Some(allowed) } => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            HttpError::RangeNotSatisfiable { length } => {
                // The value has only visible ASCII characters, so it is a valid header value.
                if let Ok(value) = HeaderValue::try_from(format!("bytes */{length}")) {
                    headers.insert(CONTENT_RANGE, value);
                }
            }
            HttpError::Read(ReadError::Unauthorized)
            | HttpError::InspectRead(ReadError::Unauthorized)
            | HttpError::Call(
                CallError::Unauthenticated
                | CallError::NoPublicDataset
                | CallError::InvalidToken
                | CallError::TokenRequired,
            ) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

fn method_not_allowed_text(allowed: Option<&str>) -> String {
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
