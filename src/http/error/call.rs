//! Why a management call is refused before any use case is asked.

use axum::http::StatusCode;
use strata_types::similar;

use crate::http::text::quoted;

/// The texts are for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(
        "This call needs a session cookie (POST /session/login) or an API token as Authorization: Bearer strata_…. \
         The call has none, or an invalid one."
    )]
    Unauthenticated,
    /// No public dataset has this id, and nobody has authenticated who may own one.
    #[error(
        "No public dataset has this dataset_id. If it is a private one, this call needs its owner: by a session cookie \
         (POST /session/login) or an API token as Authorization: Bearer strata_…."
    )]
    NoPublicDataset,
    /// An `Authorization` where none is needed, and it is no API token that is valid.
    #[error(
        "The Authorization of this call is no valid API token. A call about a public dataset needs none: leave the \
         header out. The key of a private dataset is for reads of it (/api/…) alone."
    )]
    NotToken,
    #[error(
        "This call needs an API token as Authorization: Bearer strata_… (POST /token/create). The call has none, or an \
         invalid one. A session is not enough."
    )]
    NoToken,
    #[error(
        "This API token has the scope read, and this call can change something. It needs a token with the scope write \
         (POST /token/create), or a session."
    )]
    ReadOnly,
    #[error("The header Origin names another origin than this service's.")]
    ForeignOrigin,
    #[error(
        "The header Host names {}, which is not a host of this service. Valid hosts are IP addresses, localhost, the \
         host of server.public_url and the names in server.allowed_hosts.",
        quoted(.host)
    )]
    ForeignHost { host: String },
    #[error(
        "This form is not of your session, or is too old. Nothing was changed. Open the page again, and try once more."
    )]
    ForgedForm,
    #[error("The body must be a form, with Content-Type: application/x-www-form-urlencoded.")]
    NotForm,
    #[error(
        "The body must be an uncompressed JSON object with Content-Type: application/json, for example curl -H \
         'Content-Type: application/json' -d '{{\"dataset_id\":1}}'. Without the header, curl sends the type of a form. \
         The fields of this call go into its body, not into the query."
    )]
    NotJson,
    #[error(
        "The body must be one uncompressed JSON-RPC 2.0 message with Content-Type: application/json, for example curl -H \
         'Authorization: Bearer strata_…' -H 'Content-Type: application/json' -H 'Accept: application/json, \
         text/event-stream' -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}}'."
    )]
    NotMessage,
    #[error(
        "The body must be JSON, JSON lines, CSV, TSV or Parquet, plain, gzip or zstd: send it with its Content-Type, or as \
         application/octet-stream. For example curl -H 'Content-Type: application/json' -d '{{\"dataset_id\":1}}', or curl -H \
         'Content-Type: text/csv' --data-binary @FILE with ?dataset_id=1 in the URL."
    )]
    NotSource,
    /// `option` is the name of the option that sets the limit.
    #[error("The body is longer than {limit} bytes{}.", option.map(|name| format!(" ({name})")).unwrap_or_default())]
    TooLarge { limit: u64, option: Option<&'static str> },
    #[error(
        "The body is longer than {limit} bytes, too much for a tool. POST /agent/push_alt_version takes entities of any \
         size, with the same token."
    )]
    TooLargeForTools { limit: u64 },
    #[error("The message is longer than {limit} bytes, without the pushed entities and the edits.")]
    MessageTooLarge { limit: u64 },
    #[error("The body did not come within {seconds} s.")]
    TooSlow { seconds: u64 },
    #[error(
        "The body comes too slowly: {took_bytes} of {most_bytes} bytes after {after_s} s. It must come steadily, within \
         {seconds} s."
    )]
    NotSteady {
        took_bytes: u64,
        /// What is announced, or the most that there may be.
        most_bytes: u64,
        /// Since it has room.
        after_s: u64,
        seconds: u64,
    },
    #[error("The body broke off.")]
    Cut,
    /// The body is not a JSON object.
    #[error("Invalid body: {problem}.")]
    Body { problem: String },
    /// The message to the tools is no JSON.
    #[error("Invalid body: {problem}.")]
    NotJsonText { problem: String },
    #[error("Invalid request: {field}: {problem}.")]
    Field { field: &'static str, problem: String },
    #[error("Invalid request: edits[{index}]: {problem}.")]
    Edit { index: usize, problem: String },
    #[error(
        "Invalid request: unknown parameter {}; the fields of this call go into its body, a JSON object, not into the \
         query.",
        quoted(.name)
    )]
    InQuery { name: String },
    /// `raw` is the name and the value of a parameter, as they were sent.
    #[error("Invalid request: {} in the query is not UTF-8; valid: percent-encoded UTF-8.", quoted(.raw))]
    NotUtf8 { raw: String },
    #[error("Invalid request: field {} of the form is not UTF-8; valid: percent-encoded UTF-8.", quoted(.name))]
    FormNotUtf8 { name: String },
    #[error("Invalid request: {}.", unknown(.name, .known))]
    NoSuchField { name: String, known: Vec<&'static str> },
}

pub(in crate::http) fn unknown(name: &str, known: &[&'static str]) -> String {
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

    /// Refuses the first of these names that the operation does not know: a slip must not go unnoticed.
    pub fn check_known<'a>(names: impl IntoIterator<Item = &'a str>, known: &[&'static str]) -> Result<(), CallError> {
        match names.into_iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(CallError::NoSuchField { name: name.to_owned(), known: known.to_vec() }),
        }
    }
}
