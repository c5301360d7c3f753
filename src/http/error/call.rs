//! Errors of management calls before they reach a use case.

use axum::http::StatusCode;
use strata_types::similar;

use crate::text::quoted;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(
        "The request has no valid credentials. Send a session cookie (POST /session/login) or an API token \
         (Authorization: Bearer strata_…)."
    )]
    Unauthenticated,
    /// No public dataset has this ID, and the caller is anonymous.
    #[error(
        "No public dataset has this dataset_id. If the dataset is private, authenticate as its owner: send a session \
         cookie (POST /session/login) or an API token (Authorization: Bearer strata_…)."
    )]
    NoPublicDataset,
    /// An unnecessary `Authorization` that is not a valid API token.
    #[error(
        "The Authorization header does not contain a valid API token. Public datasets need no authentication, so you \
         can omit the header. A dataset's private key is valid only for queries of that dataset (/api/…)."
    )]
    NotToken,
    #[error(
        "The request has no valid API token. Create one (POST /token/create) and send it as Authorization: Bearer \
         strata_…. You cannot use a session cookie instead."
    )]
    NoToken,
    #[error(
        "This API token has only the read scope, but this operation can change data. Use a session, or a token with \
         the write scope (POST /token/create)."
    )]
    ReadOnly,
    #[error("The Origin header does not match the origin of this service.")]
    ForeignOrigin,
    #[error(
        "The Host header is {}, which is not a host of this service. Valid hosts are IP addresses, localhost, the host \
         of server.public_url, and the names in server.allowed_hosts.",
        quoted(.host)
    )]
    ForeignHost { host: String },
    #[error(
        "This form has expired or is not from your session. Nothing was changed. Open the page again and resubmit \
         the form."
    )]
    ForgedForm,
    #[error("The body must be a form with Content-Type: application/x-www-form-urlencoded.")]
    NotForm,
    #[error(
        "The body must be an uncompressed JSON object with Content-Type: application/json, for example curl -H \
         'Content-Type: application/json' -d '{{\"dataset_id\":1}}'. Without this header, curl sends a form content \
         type. Send the fields of this operation in the body, not in the query string."
    )]
    NotJson,
    #[error(
        "The body must be one uncompressed JSON-RPC 2.0 message with Content-Type: application/json, for example curl -H \
         'Authorization: Bearer strata_…' -H 'Content-Type: application/json' -H 'Accept: application/json, \
         text/event-stream' -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}}'."
    )]
    NotMessage,
    #[error(
        "The body must be JSON, JSON lines, CSV, TSV, or Parquet, uncompressed or compressed with gzip or zstd. Set \
         Content-Type to its format or to application/octet-stream. For example, curl -H 'Content-Type: \
         application/json' -d '{{\"dataset_id\":1}}', or curl -H 'Content-Type: text/csv' --data-binary @FILE with \
         ?dataset_id=1 in the URL."
    )]
    NotSource,
    /// `option` is the name of the option that sets the limit.
    #[error("The body is longer than {limit} bytes{}.", option.map(|name| format!(" ({name})")).unwrap_or_default())]
    TooLarge { limit: u64, option: Option<&'static str> },
    #[error(
        "The body is longer than {limit} bytes, the limit for tools. To push entities of any size, call POST \
         /agent/push_alt_version with the same token."
    )]
    TooLargeForTools { limit: u64 },
    #[error("The message is longer than {limit} bytes, not counting the pushed entities and edits.")]
    MessageTooLarge { limit: u64 },
    #[error("The body did not arrive within {seconds} s.")]
    TooSlow { seconds: u64 },
    #[error(
        "The body is arriving too slowly: {took_bytes} of {most_bytes} bytes after {after_s} s. The body must arrive \
         at a steady rate, within {seconds} s."
    )]
    NotSteady {
        took_bytes: u64,
        /// The `Content-Length`, or the limit.
        most_bytes: u64,
        after_s: u64,
        seconds: u64,
    },
    #[error("The body is incomplete.")]
    Cut,
    #[error("Invalid body: {problem}.")]
    Body { problem: String },
    /// A message to the tools that is not JSON.
    #[error("Invalid body: {problem}.")]
    NotJsonText { problem: String },
    #[error("Invalid request: {field}: {problem}.")]
    Field { field: &'static str, problem: String },
    #[error("Invalid request: edits[{index}]: {problem}.")]
    Edit { index: usize, problem: String },
    #[error(
        "Invalid request: unknown parameter {}; send the fields of this operation in the body, as a JSON object, not \
         in the query string.",
        quoted(.name)
    )]
    InQuery { name: String },
    /// `raw` is the name and the value of a parameter, as they were sent.
    #[error("Invalid request: {} in the query string is not UTF-8; valid: percent-encoded UTF-8.", quoted(.raw))]
    NotUtf8 { raw: String },
    #[error("Invalid request: form field {} is not UTF-8; valid: percent-encoded UTF-8.", quoted(.name))]
    FormNotUtf8 { name: String },
    #[error("Invalid request: {}.", unknown(.name, .known))]
    NoSuchField { name: String, known: Vec<&'static str> },
}

pub(crate) fn unknown(name: &str, known: &[&'static str]) -> String {
    let meant = similar::suggestion(name, known.iter().copied());
    let valid = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("unknown field {};{meant} valid: {valid}", quoted(name))
}

impl CallError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            CallError::Unauthenticated | CallError::NoPublicDataset | CallError::NotToken | CallError::NoToken => {
                StatusCode::UNAUTHORIZED
            }
            CallError::ReadOnly | CallError::ForeignOrigin | CallError::ForeignHost { .. } | CallError::ForgedForm => {
                StatusCode::FORBIDDEN
            }
            CallError::NotForm | CallError::NotJson | CallError::NotMessage | CallError::NotSource => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            CallError::TooLarge { .. } | CallError::TooLargeForTools { .. } | CallError::MessageTooLarge { .. } => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            CallError::TooSlow { .. } | CallError::NotSteady { .. } => StatusCode::REQUEST_TIMEOUT,
            CallError::Cut
            | CallError::Body { .. }
            | CallError::NotJsonText { .. }
            | CallError::Field { .. }
            | CallError::Edit { .. }
            | CallError::InQuery { .. }
            | CallError::NotUtf8 { .. }
            | CallError::FormNotUtf8 { .. }
            | CallError::NoSuchField { .. } => StatusCode::BAD_REQUEST,
        }
    }

    pub fn field(field: &'static str, problem: impl ToString) -> CallError {
        CallError::Field { field, problem: problem.to_string() }
    }

    /// Rejects the first name that the operation does not know, so that no typo is ignored.
    pub fn check_known<'a>(names: impl IntoIterator<Item = &'a str>, known: &[&'static str]) -> Result<(), CallError> {
        match names.into_iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(CallError::NoSuchField { name: name.to_owned(), known: known.to_vec() }),
        }
    }
}
