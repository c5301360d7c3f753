//! Every error answer: one exhaustive match from what went wrong to a status and a public text.
//!
//! All of them are plain text (specification, "Errors"). A text says what the caller can know and do; causes inside
//! the service are logged here, once, and never sent.

use std::{error::Error, fmt};

use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
};

use super::{params::ParameterError, path::ReadPathError};
use crate::{model::version::VersionSelector, service::ReadError};

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
    /// The service could not answer the read.
    Read(ReadError),
    /// The service cannot serve requests now; holds the cause.
    NotReady(Box<dyn Error + Send + Sync>),
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

impl HttpError {
    /// The status and the text that the caller sees.
    fn public(&self) -> (StatusCode, String) {
        match self {
            HttpError::NoSuchPath => (
                StatusCode::NOT_FOUND,
                "There is nothing at this path. Datasets are read at /api/{dataset_id}/{name_slug}/{version}/; \
                 /openapi.json describes all paths."
                    .into(),
            ),
            HttpError::MethodNotAllowed { .. } => (
                StatusCode::METHOD_NOT_ALLOWED,
                "This path does not take this method; the header Allow lists those it takes.".into(),
            ),
            HttpError::Path(error) => (StatusCode::BAD_REQUEST, format!("Invalid path: {error}.")),
            HttpError::Parameter(error) => {
                let status = match error {
                    ParameterError::QueryTooLong { .. } => StatusCode::URI_TOO_LONG,
                    ParameterError::NameNotUtf8 { .. }
                    | ParameterError::ValueNotUtf8 { .. }
                    | ParameterError::GivenTwice { .. }
                    | ParameterError::Invalid { .. }
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
            HttpError::Read(error) => public_read_error(error),
            HttpError::NotReady(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "The service is not ready to serve requests.".into())
            }
            HttpError::Panic(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The service failed while it handled this request. The failure was logged.".into(),
            ),
        }
    }

    /// Logs what the caller is not told; nothing for errors that are the caller's own.
    fn log_cause(&self) {
        match self {
            HttpError::NoSuchPath
            | HttpError::MethodNotAllowed { .. }
            | HttpError::Path(_)
            | HttpError::Parameter(_)
            | HttpError::RateLimited { .. }
            | HttpError::RangeNotSatisfiable { .. } => {}
            HttpError::Read(error) => log_read_error(error),
            HttpError::NotReady(cause) => tracing::warn!(cause = %Causes(&**cause), "not ready"),
            HttpError::Panic(message) => tracing::error!(cause = %message, "a handler panicked"),
        }
    }
}

/// Marks an answer of status 5xx and holds its text, to which the layer that knows the request's id adds it.
#[derive(Clone, Debug)]
pub(super) struct ServerFailure(pub String);

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        self.log_cause();
        let (status, text) = self.public();
        let failure = status.is_server_error().then(|| ServerFailure(text.clone()));
        let mut response = (status, text).into_response();
        if let Some(failure) = failure {
            response.extensions_mut().insert(failure);
        }
        let headers = response.headers_mut();
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
            HttpError::RangeNotSatisfiable { length } => {
                // Digits and punctuation are always a valid value.
                if let Ok(value) = HeaderValue::try_from(format!("bytes */{length}")) {
                    headers.insert(CONTENT_RANGE, value);
                }
            }
            HttpError::Read(ReadError::Unauthorized) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// The status and the text for a read that the service could not answer.
fn public_read_error(error: &ReadError) -> (StatusCode, String) {
    match error {
        ReadError::DatasetNotFound => {
            (StatusCode::NOT_FOUND, "There is no dataset with this dataset_id and name_slug.".into())
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
        ReadError::Timeout { seconds } => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("The query was stopped after {seconds} s. A narrower query may finish in time."),
        ),
        ReadError::OutOfMemory => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The query needed more memory than the service has for it now. Try again later, or ask for less.".into(),
        ),
        ReadError::Busy { retry_after_s } => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "The service has as many heavy requests as it can take. Try again in {retry_after_s} s, or ask for less."
            ),
        ),
        ReadError::Unreadable(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The dataset cannot be read from storage. The failure was logged.".into(),
        ),
    }
}

/// Logs a failed read when the reason is the service's own.
///
/// Also for a body that fails after its first byte, whose status can no longer change.
pub(super) fn log_read_error(error: &ReadError) {
    match error {
        ReadError::DatasetNotFound
        | ReadError::Unauthorized
        | ReadError::Forbidden
        | ReadError::Frozen
        | ReadError::VersionNotFound(_)
        | ReadError::AltNotFound(_)
        | ReadError::TooManyColumns { .. } => {}
        ReadError::Timeout { .. } | ReadError::OutOfMemory | ReadError::Busy { .. } => {
            tracing::warn!(cause = %Causes(error), "a read was stopped");
        }
        ReadError::Unreadable(_) => tracing::error!(cause = %Causes(error), "a dataset cannot be read"),
    }
}

fn version_not_found(selector: &VersionSelector) -> String {
    match selector {
        VersionSelector::Active => "This dataset has no active version.".into(),
        VersionSelector::Latest => "This dataset has no version yet.".into(),
        VersionSelector::Number(number) => format!("This dataset has no version {number}."),
    }
}

/// Displays an error with all its sources, outermost first, on one line.
pub(super) struct Causes<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        formatter.write_str(&said)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            // Transparent errors repeat the text of their source.
            if text != said {
                write!(formatter, ": {text}")?;
            }
            said = text;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::version::VersionNumber;

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
    fn a_missing_key_is_asked_for() {
        let text = "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.";
        let response = check(ReadError::Unauthorized, 401, text);
        assert_eq!(response.headers().get(WWW_AUTHENTICATE), Some(&HeaderValue::from_static("Bearer")));
    }

    #[test]
    fn causes_are_joined_and_repetitions_left_out() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read the page")]
        struct Outer(#[source] Transparent);
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Transparent(#[source] std::io::Error);

        let error = Outer(Transparent(std::io::Error::other("disk gone")));
        assert_eq!(Causes(&error).to_string(), "cannot read the page: disk gone");
    }
}
