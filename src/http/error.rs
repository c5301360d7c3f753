//! Every error answer: one exhaustive match from what went wrong to a status and a public text.
//!
//! All of them are plain text (docs/semantics.md, Errors). A text says what the caller can know and do; causes inside
//! the service are logged here, once, and never sent.

use axum::http::header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::management::CallError;
use super::params::ParameterError;
use super::path::ReadPathError;
use super::text::quoted;
use crate::catalog::{CatalogError, Unavailability};
use crate::model::causes::Causes;
use crate::model::version::{VersionNumber, VersionSelector};
use crate::service::{
    AlternateError, DiffError, ExplainError, ManageError, NotReady, ProfileError, PullError, ReadError, RefreshError,
    Refused, UnknownCause, UnknownField,
};
use crate::source::SourceError;
use crate::storage::budget::SpoolFull;
use crate::storage::shortage::Shortage;

/// Why a request gets no other answer.
#[derive(Debug)]
pub enum HttpError {
    /// No route has this path.
    NoSuchPath,
    /// The path exists, but does not take the method.
    MethodNotAllowed {
        /// The header `Allow`; `None` where the router knows it and adds it.
        allowed: Option<&'static str>,
    },
    /// An HTTP/1.1 request without the header `Host`, or with several.
    Host,
    /// The path under `/api/` is not that of a read.
    Path(ReadPathError),
    /// The query string is not that of a read.
    Parameter(ParameterError),
    /// The client has made more requests than it may.
    RateLimited {
        /// How long it has to wait.
        retry_after_s: u64,
    },
    /// The body has none of the bytes that the header `Range` asks for.
    RangeNotSatisfiable {
        /// The body's length in bytes.
        length: u64,
    },
    /// The service could not answer the read. Of 503, only the text says when to ask again (docs/semantics.md, Errors).
    Read(ReadError),
    /// The service could not read what an owner or an agent asks for: as a read, but that a header, too, says when to
    /// ask again.
    Inspect(ReadError),
    /// The service is too busy for what an owner or an agent sends.
    Busy(Refused),
    /// A management call is not one.
    Call(CallError),
    /// The service refused a management call, or could not do it.
    Manage(ManageError),
    /// The service did not compare two versions.
    Diff(DiffError),
    /// The service made no version.
    Refresh(RefreshError),
    /// There is no profile to be seen.
    Profile(ProfileError),
    /// No dataset has this ping URL.
    NoSuchPing,
    /// Entities that were sent cannot be used, or not be received.
    Entities(SourceError),
    /// The service cannot do its work now.
    NotReady(NotReady),
    /// A handler panicked; holds the panic's message.
    Panic(String),
}

impl From<ReadPathError> for HttpError {
    fn from(error: ReadPathError) -> Self {
        HttpError::Path(error)
    }
}

impl From<ParameterError> for HttpError {
    fn from(error: ParameterError) -> Self {
        HttpError::Parameter(error)
    }
}

impl From<ReadError> for HttpError {
    fn from(error: ReadError) -> Self {
        HttpError::Read(error)
    }
}

impl From<CallError> for HttpError {
    fn from(error: CallError) -> Self {
        HttpError::Call(error)
    }
}

impl From<ManageError> for HttpError {
    fn from(error: ManageError) -> Self {
        HttpError::Manage(error)
    }
}

impl From<DiffError> for HttpError {
    fn from(error: DiffError) -> Self {
        HttpError::Diff(error)
    }
}

impl From<RefreshError> for HttpError {
    fn from(error: RefreshError) -> Self {
        HttpError::Refresh(error)
    }
}

impl From<AlternateError> for HttpError {
    fn from(error: AlternateError) -> Self {
        match error {
            AlternateError::Manage(error) => HttpError::Manage(error),
            AlternateError::Body(error) => HttpError::Entities(error),
            AlternateError::Full(full) => HttpError::Refresh(full.into()),
            AlternateError::Refused(refused) => HttpError::Refresh(refused.into()),
            AlternateError::Stopping => HttpError::NotReady(NotReady::Draining),
        }
    }
}

impl From<PullError> for HttpError {
    fn from(error: PullError) -> Self {
        match error {
            PullError::Manage(error) => HttpError::Manage(error),
            PullError::Read(error) => HttpError::Inspect(error),
        }
    }
}

impl From<ProfileError> for HttpError {
    fn from(error: ProfileError) -> Self {
        match error {
            ProfileError::Unauthenticated => HttpError::Call(CallError::Unauthenticated),
            ProfileError::Read(error) => HttpError::Inspect(error),
            error @ (ProfileError::DatasetNotFound | ProfileError::NotKept { .. }) => HttpError::Profile(error),
        }
    }
}

impl From<ExplainError> for HttpError {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Manage(error) => HttpError::Manage(error),
            ExplainError::Read(error) => HttpError::Inspect(error),
        }
    }
}

impl From<std::convert::Infallible> for HttpError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl HttpError {
    /// What is used up or gone at the moment, if that is why there is no answer.
    fn shortage(&self) -> Option<Shortage> {
        match self {
            HttpError::Read(error @ ReadError::Unreadable(_))
            | HttpError::Inspect(error @ ReadError::Unreadable(_))
            | HttpError::Diff(DiffError::Read(error @ ReadError::Unreadable(_))) => Shortage::of(error),
            HttpError::Refresh(error @ (RefreshError::Storage(_) | RefreshError::Source(SourceError::Io(_)))) => {
                Shortage::of(error)
            }
            HttpError::Entities(error @ SourceError::Io(_)) => Shortage::of(error),
            HttpError::Manage(ManageError::Storage(error)) => Shortage::of(error),
            _ => None,
        }
    }

    /// The status and the text that the caller sees.
    fn public(&self) -> (StatusCode, String) {
        if let Some(shortage) = self.shortage() {
            let text =
                format!("The service cannot do this now: {shortage}. Try again in {} s.", shortage.retry_after_s());
            return (StatusCode::SERVICE_UNAVAILABLE, text);
        }
        match self {
            HttpError::NoSuchPath => (
                StatusCode::NOT_FOUND,
                "There is nothing at this path. Datasets are read at /api/{dataset_id}/{name_slug}/{version}/; \
                 /openapi.json describes all paths."
                    .into(),
            ),
            HttpError::MethodNotAllowed { allowed: Some(allowed) } => {
                (StatusCode::METHOD_NOT_ALLOWED, wrong_method(allowed))
            }
            HttpError::MethodNotAllowed { allowed: None } => (
                StatusCode::METHOD_NOT_ALLOWED,
                "This path does not take this method; the header Allow lists those it takes.".into(),
            ),
            HttpError::Host => (
                StatusCode::BAD_REQUEST,
                "An HTTP/1.1 request must have the header Host, and have it once (RFC 9112, section 3.2).".into(),
            ),
            HttpError::Path(error) => (StatusCode::BAD_REQUEST, format!("Invalid path: {error}.")),
            HttpError::Parameter(error) => {
                let status = match error {
                    ParameterError::QueryTooLong { .. } => StatusCode::URI_TOO_LONG,
                    ParameterError::NameNotUtf8 { .. }
                    | ParameterError::ValueNotUtf8 { .. }
                    | ParameterError::GivenTwice { .. }
                    | ParameterError::Invalid { .. }
                    | ParameterError::Unknown { .. }
                    | ParameterError::TooManyItems { .. } => StatusCode::BAD_REQUEST,
                };
                (status, format!("Invalid query: {error}."))
            }
            HttpError::RateLimited { retry_after_s } => (
                StatusCode::TOO_MANY_REQUESTS,
                format!("Too many requests; the next one is answered in {retry_after_s} s."),
            ),
            HttpError::RangeNotSatisfiable { length } => (
                StatusCode::RANGE_NOT_SATISFIABLE,
                format!(
                    "The header Range asks for bytes beyond the body's {length}; valid: bytes=0-{}.",
                    length.saturating_sub(1)
                ),
            ),
            HttpError::Read(error) | HttpError::Inspect(error) => public_read_error(error),
            HttpError::Busy(refused) => (StatusCode::SERVICE_UNAVAILABLE, busy(refused)),
            HttpError::Call(error) => (call_status(error), error.to_string()),
            HttpError::Manage(error) => public_manage_error(error),
            HttpError::Diff(error) => public_diff_error(error),
            HttpError::Refresh(error) => public_refresh_error(error),
            HttpError::Profile(error) => (
                StatusCode::NOT_FOUND,
                match error {
                    ProfileError::NotKept { version } => format!(
                        "Version {version} was written before profiles were kept. Refresh the dataset: its next version \
                         has a profile."
                    ),
                    _ => "There is no dataset with this dataset_id that is public or yours.".into(),
                },
            ),
            HttpError::NoSuchPing => (StatusCode::NOT_FOUND, "No dataset has this ping URL.".into()),
            HttpError::Entities(error) => public_entities_error(error),
            HttpError::NotReady(error) => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("The service is not ready: {error}."))
            }
            HttpError::Panic(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The service failed while it handled this request. The failure was logged.".into(),
            ),
        }
    }

    /// Why the catalog cannot be used, where that is the reason and passes.
    fn unavailability(&self) -> Option<Unavailability> {
        match self {
            HttpError::Read(ReadError::CatalogUnavailable { reason, .. })
            | HttpError::Inspect(ReadError::CatalogUnavailable { reason, .. })
            | HttpError::Diff(DiffError::Read(ReadError::CatalogUnavailable { reason, .. })) => Some(*reason),
            HttpError::Manage(ManageError::Catalog(error))
            | HttpError::Diff(DiffError::Manage(ManageError::Catalog(error)))
            | HttpError::Refresh(RefreshError::Catalog(error)) => error.unavailability(),
            _ => None,
        }
    }

    /// Logs what the caller is not told; nothing for errors that are the caller's own.
    fn log_cause(&self) {
        match self {
            HttpError::NoSuchPath
            | HttpError::MethodNotAllowed { .. }
            | HttpError::Host
            | HttpError::Path(_)
            | HttpError::Parameter(_)
            | HttpError::RateLimited { .. }
            | HttpError::RangeNotSatisfiable { .. } => {}
            HttpError::Call(_) => {}
            HttpError::Entities(SourceError::Io(error)) => {
                tracing::error!(cause = %error, "entities could not be received");
            }
            HttpError::Entities(_) => {}
            HttpError::Read(error) | HttpError::Inspect(error) => log_read_error(error),
            HttpError::Busy(refused) => tracing::warn!(cause = %refused, "a request was refused"),
            HttpError::Diff(DiffError::Read(error)) => log_read_error(error),
            HttpError::Diff(DiffError::VersionNotFound { .. }) => {}
            HttpError::Manage(error @ (ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Failed(_)))
            | HttpError::Diff(DiffError::Manage(error @ (ManageError::Catalog(_) | ManageError::Failed(_)))) => {
                tracing::error!(cause = %Causes(error), "a management call failed");
            }
            HttpError::Manage(_)
            | HttpError::Diff(DiffError::Manage(_))
            | HttpError::Profile(_)
            | HttpError::NoSuchPing => {}
            HttpError::Refresh(error @ RefreshError::Catalog(_)) => {
                tracing::error!(cause = %Causes(error), "a refresh failed");
            }
            // Logged where it ran, whoever waited for it.
            HttpError::Refresh(_) => {}
            // Logged when it changes, not for each probe.
            HttpError::NotReady(_) => {}
            HttpError::Panic(message) => tracing::error!(cause = %message, "a handler panicked"),
        }
    }
}

/// Seconds after which a refresh that found no room may be tried again.
const RETRY_REFRESH_S: u64 = 10;

/// Marks an answer of status 5xx and holds its text, to which the layer that knows the request's id adds it.
#[derive(Clone, Debug)]
pub(super) struct ServerFailure(pub String);

impl HttpError {
    /// The status and the text that the caller sees; the cause that is not told is logged.
    pub(super) fn told(&self) -> (StatusCode, String) {
        self.log_cause();
        self.public()
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let (status, text) = self.told();
        let failure = status.is_server_error().then(|| ServerFailure(text.clone()));
        let mut response = (status, text).into_response();
        if let Some(failure) = failure {
            response.extensions_mut().insert(failure);
        }
        let headers = response.headers_mut();
        let gone = self.unavailability().map(Unavailability::retry_after_s);
        let gone = gone.or_else(|| self.shortage().map(Shortage::retry_after_s));
        if let Some(seconds) = gone.filter(|_| !matches!(self, HttpError::Read(_))) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        // The text may quote the request: no browser may take it for anything but text.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        match self {
            HttpError::MethodNotAllowed { allowed: Some(allowed) } => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            HttpError::RateLimited { retry_after_s } => {
                headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_s));
            }
            HttpError::Busy(_)
            | HttpError::Inspect(ReadError::Busy(_))
            | HttpError::Diff(DiffError::Read(ReadError::Busy(_)))
            | HttpError::Manage(ManageError::Refused(_))
            | HttpError::Diff(DiffError::Manage(ManageError::Refused(_))) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(Refused::RETRY_AFTER_S));
            }
            HttpError::RangeNotSatisfiable { length } => {
                // Digits and punctuation are always a valid value.
                if let Ok(value) = HeaderValue::try_from(format!("bytes */{length}")) {
                    headers.insert(CONTENT_RANGE, value);
                }
            }
            HttpError::Refresh(
                RefreshError::Full(SpoolFull::Share { .. } | SpoolFull::All { .. } | SpoolFull::Disk { .. })
                | RefreshError::Refused(_)
                | RefreshError::LeaseLost
                | RefreshError::Stopping,
            ) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_REFRESH_S));
            }
            HttpError::Manage(ManageError::TooManyLogins { retry_after_s }) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_s));
            }
            HttpError::Manage(ManageError::LoginsBusy) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(Refused::RETRY_AFTER_S));
            }
            HttpError::Read(ReadError::Unauthorized)
            | HttpError::Inspect(ReadError::Unauthorized)
            | HttpError::Call(CallError::Unauthenticated | CallError::NoToken) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// Why a method is refused by a path that takes these.
fn wrong_method(allowed: &str) -> String {
    let allowed: Vec<&str> = allowed.split(',').map(str::trim).collect();
    let allowed = match allowed.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => allowed.concat(),
    };
    format!("This path does not take this method; it takes {allowed}.")
}

/// Fields that a refusal of a strict request names.
const NAMED_FIELDS: usize = 3;

/// Which fields a strict request names in vain, and what would do.
fn unknown_fields(fields: &[UnknownField]) -> String {
    let mut text = "Invalid query: strict=true takes only fields that are there.".to_owned();
    for UnknownField { parameter, path, cause } in fields.iter().take(NAMED_FIELDS) {
        let path = path.to_string();
        let (path, cause) = (
            quoted(&path),
            match cause {
                UnknownCause::Absent { nearest: Some(nearest) } => {
                    format!("no entity of this version has it; did you mean {}?", quoted(nearest))
                }
                UnknownCause::Absent { nearest: None } => {
                    "no entity of this version has it; GET /dataset/profile lists the paths that there are.".to_owned()
                }
                UnknownCause::Taken { step } => format!("{step} has taken it from every entity before."),
            },
        );
        text.push_str(&format!(" {parameter}: {path}: {cause}"));
    }
    match fields.len().saturating_sub(NAMED_FIELDS) {
        0 => {}
        more => text.push_str(&format!(" And {more} more.")),
    }
    text
}

/// The status and the text for a read that the service could not answer.
fn public_read_error(error: &ReadError) -> (StatusCode, String) {
    match error {
        ReadError::DatasetNotFound => {
            (StatusCode::NOT_FOUND, "There is no dataset with this dataset_id and name_slug.".into())
        }
        ReadError::NotReadable => {
            (StatusCode::NOT_FOUND, "There is no dataset with this dataset_id that is public or yours.".into())
        }
        ReadError::Unauthorized => (
            StatusCode::UNAUTHORIZED,
            "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.".into(),
        ),
        ReadError::Forbidden => {
            (StatusCode::FORBIDDEN, "The Authorization header does not hold this dataset's private key.".into())
        }
        ReadError::Frozen => (StatusCode::GONE, "This dataset is frozen and no longer served.".into()),
        ReadError::VersionNotFound(selector) => (StatusCode::NOT_FOUND, version_not_found(selector)),
        ReadError::AltNotFound(version) => {
            (StatusCode::NOT_FOUND, format!("Version {version} of this dataset has no alternate."))
        }
        ReadError::TooManyColumns { limit } => (
            StatusCode::BAD_REQUEST,
            format!(
                "The table would have more than {limit} columns. Choose fewer fields with keep_field, or a format that is \
                 not a table: json, jsonl or xml."
            ),
        ),
        ReadError::EntityTooLarge { limit_bytes } => (
            StatusCode::BAD_REQUEST,
            format!(
                "An entity of the answer would take more than {limit_bytes} bytes in this form. Choose fewer fields with \
                 keep_field, or a form that repeats nothing: format=jsonl, or pretty=false, without flatten."
            ),
        ),
        ReadError::UnknownFields(fields) => (StatusCode::BAD_REQUEST, unknown_fields(fields)),
        ReadError::Timeout { seconds } => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("The query was stopped after {seconds} s. A narrower query may finish in time."),
        ),
        ReadError::OutOfMemory => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The query needed more memory than the service has for it now. Try again later, or ask for less.".into(),
        ),
        ReadError::TooMuchMemory { needed_bytes, limit_bytes } => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "The answer needs {needed_bytes} bytes of memory while it is made, and query.memory_bytes allows \
                 one client {limit_bytes}. Ask for fewer columns with keep_field, or for another format."
            ),
        ),
        ReadError::Busy(refused) => (StatusCode::SERVICE_UNAVAILABLE, busy(refused)),
        ReadError::CatalogUnavailable { reason, .. } => catalog_unavailable(*reason),
        ReadError::Unreadable(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The dataset cannot be read from storage. The failure was logged.".into(),
        ),
    }
}

/// The text for a request that found a gate shut.
fn busy(refused: &Refused) -> String {
    let Refused { gate, waited } = refused;
    let waited = waited.map_or(String::new(), |waited| format!(" This one waited for {} s.", waited.as_secs()));
    format!(
        "The service has as many {} as it takes, from one client or in all.{waited} Try again in {} s, or ask for less.",
        gate.what,
        Refused::RETRY_AFTER_S
    )
}

/// The text for a version that a dataset does not have.
fn no_version_of(number: VersionNumber, there_are: &str) -> String {
    match number.get() {
        // Longer numbers are read as the largest.
        u64::MAX => format!("This dataset has no version with so large a number; {there_are}."),
        number => format!("This dataset has no version {number}; {there_are}."),
    }
}

/// The status and the text for two versions that were not compared.
fn public_diff_error(error: &DiffError) -> (StatusCode, String) {
    match error {
        DiffError::Manage(error) => public_manage_error(error),
        DiffError::VersionNotFound { number, there_are } => (StatusCode::NOT_FOUND, no_version_of(*number, there_are)),
        DiffError::Read(ReadError::Timeout { seconds }) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("Comparing these versions was stopped after {seconds} s."))
        }
        DiffError::Read(ReadError::OutOfMemory) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Comparing these versions needed more memory than the service has for it now. Try again later.".into(),
        ),
        DiffError::Read(error) => public_read_error(error),
    }
}

/// The status and the text for entities that were sent (docs/semantics.md, A version or nothing).
fn public_entities_error(error: &SourceError) -> (StatusCode, String) {
    match error {
        SourceError::BadBody { reason } => (StatusCode::BAD_REQUEST, format!("Invalid body: {reason}.")),
        SourceError::BadAddress { .. } | SourceError::Interrupted { .. } => {
            (StatusCode::BAD_REQUEST, format!("Invalid request: {error}."))
        }
        SourceError::BadDocument { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, format!("These entities cannot be used: {error}."))
        }
        SourceError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, format!("This is too large: {error}.")),
        SourceError::TooSlow { .. } => (StatusCode::REQUEST_TIMEOUT, format!("Invalid request: {error}.")),
        SourceError::Unreachable { .. } => (StatusCode::BAD_GATEWAY, format!("{error}.")),
        SourceError::Full(SpoolFull::User { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, format!("{error}.")),
        SourceError::Full(_) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}.")),
        SourceError::Io(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The service could not receive these entities. The failure was logged.".into(),
        ),
    }
}

fn call_status(error: &CallError) -> StatusCode {
    match error {
        CallError::Unauthenticated | CallError::NoToken => StatusCode::UNAUTHORIZED,
        CallError::ForeignOrigin => StatusCode::FORBIDDEN,
        CallError::NotJson | CallError::NotSource => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        CallError::TooLarge { .. } | CallError::TooLargeForTools { .. } | CallError::MessageTooLarge { .. } => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        CallError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
        CallError::Cut | CallError::Body { .. } | CallError::Field { .. } | CallError::NoSuchField { .. } => {
            StatusCode::BAD_REQUEST
        }
    }
}

/// The status and the text for a refresh that made nothing (docs/semantics.md, A version or nothing).
fn public_refresh_error(error: &RefreshError) -> (StatusCode, String) {
    let status = match error {
        RefreshError::NotFound => return (StatusCode::NOT_FOUND, "You have no dataset with this dataset_id.".into()),
        RefreshError::Frozen | RefreshError::Busy | RefreshError::NothingToFetch | RefreshError::NotPushed => {
            StatusCode::CONFLICT
        }
        RefreshError::Source(error) => match error {
            SourceError::BadAddress { .. } => StatusCode::BAD_REQUEST,
            SourceError::BadBody { reason } => return (StatusCode::BAD_REQUEST, format!("Invalid body: {reason}.")),
            SourceError::Interrupted { .. } => StatusCode::BAD_REQUEST,
            SourceError::Unreachable { .. } => StatusCode::BAD_GATEWAY,
            SourceError::BadDocument { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            SourceError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            SourceError::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            SourceError::Full(SpoolFull::User { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            SourceError::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            SourceError::Io(_) => return made_nothing(),
        },
        RefreshError::Full(SpoolFull::User { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        RefreshError::Full(SpoolFull::Share { .. } | SpoolFull::All { .. } | SpoolFull::Disk { .. })
        | RefreshError::Refused(_) => StatusCode::SERVICE_UNAVAILABLE,
        RefreshError::LeaseLost | RefreshError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        RefreshError::Catalog(CatalogError::Unavailable { reason, .. }) => {
            let (status, text) = catalog_unavailable(*reason);
            return (status, format!("No version was made. {text}"));
        }
        RefreshError::Storage(_) | RefreshError::Catalog(_) | RefreshError::RecordsPath(_) | RefreshError::Worker => {
            return made_nothing();
        }
    };
    (status, format!("No version was made: {error}."))
}

fn catalog_unavailable(reason: Unavailability) -> (StatusCode, String) {
    let text = format!("The catalog is not available: {reason}. Try again in {} s.", reason.retry_after_s());
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

fn made_nothing() -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, "The service failed to make the version. The failure was logged.".into())
}

/// The status and the text for a management call that the service refused, or could not do.
fn public_manage_error(error: &ManageError) -> (StatusCode, String) {
    let (status, text) = match error {
        ManageError::Invalid { field, problem } => {
            return (StatusCode::BAD_REQUEST, format!("Invalid request: {field}: {problem}."));
        }
        ManageError::WrongCredentials => (StatusCode::UNAUTHORIZED, "There is no user with this email and password."),
        ManageError::TooManyLogins { retry_after_s } => {
            let text = format!("Too many log-ins; the next one is tried in {retry_after_s} s.");
            return (StatusCode::TOO_MANY_REQUESTS, text);
        }
        ManageError::LoginsBusy => {
            (StatusCode::SERVICE_UNAVAILABLE, "Too many log-ins are being checked. Try again in a moment.")
        }
        ManageError::DatasetNotFound => (StatusCode::NOT_FOUND, "You have no dataset with this dataset_id."),
        ManageError::CloneNotFound => (
            StatusCode::NOT_FOUND,
            "There is no dataset with this dataset_id that you can clone: a public one, or one of your own.",
        ),
        ManageError::NothingToClone => {
            (StatusCode::CONFLICT, "This dataset has no version yet that a clone could begin with.")
        }
        ManageError::VersionNotFound => (StatusCode::NOT_FOUND, "This dataset has no such version."),
        ManageError::NoVersionYet => (StatusCode::NOT_FOUND, "This dataset has no version yet."),
        ManageError::NoVersionOf { number, there_are } => {
            return (StatusCode::NOT_FOUND, no_version_of(*number, there_are));
        }
        ManageError::AltNotFound => (StatusCode::NOT_FOUND, "This version has no alternate."),
        ManageError::WebhookNotFound => (StatusCode::NOT_FOUND, "This dataset has no webhook."),
        ManageError::TokenNotFound => (StatusCode::NOT_FOUND, "You have no API token of this name."),
        ManageError::PlanLimit { limit } => {
            let text = format!("Your plan allows at most {limit} active datasets; frozen ones do not count.");
            return (StatusCode::FORBIDDEN, text);
        }
        ManageError::PlanWebhooks => {
            (StatusCode::FORBIDDEN, "Your plan has no webhooks; they are part of the plans pro and scale.")
        }
        ManageError::TooManyTokens { limit } => {
            return (StatusCode::CONFLICT, format!("You have {limit} API tokens; delete one first."));
        }
        ManageError::NameTaken => (StatusCode::CONFLICT, "You have another dataset of this name."),
        ManageError::TokenNameTaken => (StatusCode::CONFLICT, "You have an API token of this name."),
        ManageError::Frozen => (StatusCode::CONFLICT, "This dataset is frozen; unfreeze it first."),
        ManageError::NotFrozen => (StatusCode::CONFLICT, "This dataset is not frozen."),
        ManageError::HasVersions => (
            StatusCode::CONFLICT,
            "This dataset has versions, which are permanent: it cannot be deleted. Freeze it (POST /dataset/rollback with freeze) \
             to stop serving it; a frozen dataset does not count for your plan.",
        ),
        ManageError::Public => (StatusCode::CONFLICT, "This dataset is public and has no private key."),
        ManageError::Busy => (StatusCode::CONFLICT, "Another refresh of this dataset is under way."),
        ManageError::Stale => (
            StatusCode::CONFLICT,
            "This is not the etag that the version has now: its alternate was saved or deleted after the etag was given, or the \
             etag is not written as pull_for_edit gave it, 32 hexadecimal digits in double quotes, the quotes included. Nothing \
             was saved. Pull again, edit what is there now, and push with the new etag.",
        ),
        ManageError::SourceChanged => (
            StatusCode::CONFLICT,
            "The dataset got another version, or another alternate, while its files were read; nothing was cloned. Clone \
             it again.",
        ),
        ManageError::Refused(refused) => return (StatusCode::SERVICE_UNAVAILABLE, busy(refused)),
        ManageError::Catalog(CatalogError::Unavailable { reason, .. }) => return catalog_unavailable(*reason),
        ManageError::Catalog(_) | ManageError::Storage(_) | ManageError::Failed(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "The service could not do this. The failure was logged.")
        }
    };
    (status, text.into())
}

/// Logs a failed read when the reason is the service's own.
///
/// Also for a body that fails after its first byte, whose status can no longer change.
pub(super) fn log_read_error(error: &ReadError) {
    match error {
        ReadError::DatasetNotFound
        | ReadError::NotReadable
        | ReadError::Unauthorized
        | ReadError::Forbidden
        | ReadError::Frozen
        | ReadError::VersionNotFound(_)
        | ReadError::AltNotFound(_)
        | ReadError::UnknownFields(_)
        | ReadError::TooManyColumns { .. }
        | ReadError::EntityTooLarge { .. } => {}
        ReadError::Timeout { .. }
        | ReadError::OutOfMemory
        | ReadError::TooMuchMemory { .. }
        | ReadError::Busy(_)
        | ReadError::CatalogUnavailable { .. } => {
            tracing::warn!(cause = %Causes(error), "a read was stopped");
        }
        ReadError::Unreadable(_) => tracing::error!(cause = %Causes(error), "a dataset cannot be read"),
    }
}

fn version_not_found(selector: &VersionSelector) -> String {
    match selector {
        VersionSelector::Active => "This dataset has no active version.".into(),
        VersionSelector::Latest => "This dataset has no version yet.".into(),
        // Longer numbers are read as the largest.
        VersionSelector::Number(number) if number.get() == u64::MAX => {
            "This dataset has no version with so large a number.".into()
        }
        VersionSelector::Number(number) => format!("This dataset has no version {number}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::version::VersionNumber;
    use crate::storage::StorageError;

    #[track_caller]
    fn check(error: ReadError, status: u16, text: &str) -> Response {
        let error = HttpError::Read(error);
        assert_eq!(error.public(), (StatusCode::from_u16(status).expect("a status"), text.to_owned()));
        error.into_response()
    }

    #[test]
    fn reads_that_fail() {
        check(ReadError::DatasetNotFound, 404, "There is no dataset with this dataset_id and name_slug.");
        check(ReadError::Forbidden, 403, "The Authorization header does not hold this dataset's private key.");
        check(ReadError::Frozen, 410, "This dataset is frozen and no longer served.");
        for (selector, text) in [
            (VersionSelector::Active, "This dataset has no active version."),
            (VersionSelector::Latest, "This dataset has no version yet."),
            (VersionSelector::Number(VersionNumber::new(4)), "This dataset has no version 4."),
            // It was said to have no version 18446744073709551615, whatever was asked for.
            (
                VersionSelector::Number(VersionNumber::new(u64::MAX)),
                "This dataset has no version with so large a number.",
            ),
        ] {
            check(ReadError::VersionNotFound(selector), 404, text);
        }
        check(ReadError::AltNotFound(VersionNumber::new(4)), 404, "Version 4 of this dataset has no alternate.");
        let text = "The table would have more than 10000 columns. Choose fewer fields with keep_field, or a format that \
                    is not a table: json, jsonl or xml.";
        check(ReadError::TooManyColumns { limit: 10_000 }, 400, text);
        let text = "The query was stopped after 30 s. A narrower query may finish in time.";
        check(ReadError::Timeout { seconds: 30 }, 503, text);
    }

    #[test]
    fn what_is_used_up_or_gone_is_named() {
        let full = StorageError::Io(std::io::Error::from(std::io::ErrorKind::StorageFull));
        let text = "The service cannot do this now: a disk is full. Try again in 30 s.";
        let error = ReadError::from(full);
        let response = check(error.clone(), 503, text);
        assert_eq!(response.headers().get(RETRY_AFTER), None, "of reads only 429 has it");
        let response = HttpError::Inspect(error).into_response();
        assert_eq!(response.headers().get(RETRY_AFTER), Some(&HeaderValue::from_static("30")));
        let failed = StorageError::Io(std::io::Error::from_raw_os_error(5));
        let text = "The dataset cannot be read from storage. The failure was logged.";
        let response = check(ReadError::from(failed), 500, text);
        assert_eq!(response.headers().get(RETRY_AFTER), None);
    }

    #[test]
    fn management_that_is_refused_for_a_while_says_for_how_long() {
        for (error, seconds) in [
            (HttpError::Manage(ManageError::LoginsBusy), "5"),
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
