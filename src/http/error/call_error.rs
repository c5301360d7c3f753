//! Errors of management calls that do not reach a service: credentials, request bodies, and fields.

use axum::http::StatusCode;
use strata_types::suggest;

use crate::display_text::quote_for_display;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(
        "The request has no valid credentials. Send a session cookie (POST /session/login) or an API token \
         (Authorization: Bearer strata_…)."
    )]
    Unauthenticated,
    #[error(
        "No public dataset has this dataset_id. If the dataset is private, authenticate as its owner: send a session \
         cookie (POST /session/login) or an API token (Authorization: Bearer strata_…)."
    )]
    NoPublicDataset,
    /// A request that needs no `Authorization` header, but has one without a valid API token.
    #[error(
        "The Authorization header does not contain a valid API token. Public datasets need no authentication, so you \
         can omit the header. A dataset's private key is valid only for queries of that dataset (/api/…)."
    )]
    InvalidToken,
    #[error(
        "The request has no valid API token. Create one (POST /token/create) and send it as Authorization: Bearer \
         strata_…. You cannot use a session cookie instead."
    )]
    TokenRequired,
    #[error(
        "This API token has only the read scope, but this operation can change data. Use a session, or a token with \
         the write scope (POST /token/create)."
    )]
    ReadOnlyToken,
    #[error("The Origin header does not match the origin of this service.")]
    ForeignOrigin,
    #[error(
        "The Host header is {}, which is not a host of this service. Valid hosts are IP addresses, localhost, the host \
         of server.public_url, and the names in server.allowed_hosts.",
        quote_for_display(.host)
    )]
    ForeignHost { host: String },
    #[error(
        "This form has expired or is not from your session. Nothing was changed. Open the page again and resubmit \
         the form."
    )]
    InvalidFormToken,
    #[error("The body must be a form with Content-Type: application/x-www-form-urlencoded.")]
    FormRequired,
    #[error(
        "The body must be an uncompressed JSON object with Content-Type: application/json, for example curl -H \
         'Content-Type: application/json' -d '{{\"dataset_id\":1}}'. Without this header, curl sends a form content \
         type. Send the fields of this operation in the body, not in the query string."
    )]
    JsonRequired,
    #[error(
        "The body must be one uncompressed JSON-RPC 2.0 message with Content-Type: application/json, for example curl \
         -H 'Authorization: Bearer strata_…' -H 'Content-Type: application/json' -H 'Accept: application/json, \
         text/event-stream' -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}}'."
    )]
    JsonRpcRequired,
    #[error(
        "The body must be JSON, JSON lines, CSV, TSV, or Parquet, uncompressed or compressed with gzip or zstd. Set \
         Content-Type to its format or to application/octet-stream. For example, curl -H 'Content-Type: \
         application/json' -d '{{\"dataset_id\":1}}', or curl -H 'Content-Type: text/csv' --data-binary @FILE with \
         ?dataset_id=1 in the URL."
    )]
    SourceFormatRequired,
    #[error("The body is longer than {limit} bytes{}.", option.map(|name| format!(" ({name})")).unwrap_or_default())]
    BodyTooLarge { limit: u64, option: Option<&'static str> },
    #[error(
        "The body is longer than {limit} bytes, the limit for tools. To push entities of any size, call POST \
         /agent/push_alt_version with the same token."
    )]
    ToolBodyTooLarge { limit: u64 },
    #[error("The message is longer than {limit} bytes, not counting the pushed entities and edits.")]
    MessageTooLarge { limit: u64 },
    #[error("The body did not arrive within {seconds} s.")]
    BodyTimeout { seconds: u64 },
    #[error(
        "The body is arriving too slowly: {received_bytes} of {expected_bytes} bytes after {after_s} s. The body must \
         arrive at a steady rate, within {seconds} s."
    )]
    BodyTooSlow {
        received_bytes: u64,
        /// The `Content-Length` of the body, or the size limit if there is none.
        expected_bytes: u64,
        after_s: u64,
        seconds: u64,
    },
    #[error("The body is incomplete.")]
    IncompleteBody,
    #[error("Invalid body: {problem}.")]
    InvalidBody { problem: String },
    /// An MCP message that is not JSON.
    #[error("Invalid body: {problem}.")]
    InvalidJsonText { problem: String },
    #[error("Invalid request: {field}: {problem}.")]
    InvalidField { field: &'static str, problem: String },
    #[error("Invalid request: edits[{index}]: {problem}.")]
    InvalidEdit { index: usize, problem: String },
    #[error(
        "Invalid request: unknown parameter {}; send the fields of this operation in the body, as a JSON object, not \
         in the query string.",
        quote_for_display(.name)
    )]
    FieldInQuery { name: String },
    #[error(
        "Invalid request: {} in the query string is not UTF-8; valid: percent-encoded UTF-8.",
        quote_for_display(.raw)
    )]
    QueryNotUtf8 { raw: String },
    #[error("Invalid request: form field {} is not UTF-8; valid: percent-encoded UTF-8.", quote_for_display(.name))]
    FormNotUtf8 { name: String },
    #[error("Invalid request: {}.", describe_unknown_field(.name, .known))]
    UnknownField { name: String, known: Vec<&'static str> },
}

pub(crate) fn describe_unknown_field(name: &str, known: &[&'static str]) -> String {
    let meant = suggest::did_you_mean(name, known.iter().copied());
    let valid = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("unknown field {};{meant} valid: {valid}", quote_for_display(name))
}

impl CallError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            CallError::Unauthenticated
            | CallError::NoPublicDataset
            | CallError::InvalidToken
            | CallError::TokenRequired => StatusCode::UNAUTHORIZED,
            CallError::ReadOnlyToken
            | CallError::ForeignOrigin
            | CallError::ForeignHost { .. }
            | CallError::InvalidFormToken => StatusCode::FORBIDDEN,
            CallError::FormRequired
            | CallError::JsonRequired
            | CallError::JsonRpcRequired
            | CallError::SourceFormatRequired => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            CallError::BodyTooLarge { .. } | CallError::ToolBodyTooLarge { .. } | CallError::MessageTooLarge { .. } => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            CallError::BodyTimeout { .. } | CallError::BodyTooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            CallError::IncompleteBody
            | CallError::InvalidBody { .. }
            | CallError::InvalidJsonText { .. }
            | CallError::InvalidField { .. }
            | CallError::InvalidEdit { .. }
            | CallError::FieldInQuery { .. }
            | CallError::QueryNotUtf8 { .. }
            | CallError::FormNotUtf8 { .. }
            | CallError::UnknownField { .. } => StatusCode::BAD_REQUEST,
        }
    }

    pub fn for_field(field: &'static str, problem: impl ToString) -> CallError {
        CallError::InvalidField { field, problem: problem.to_string() }
    }

    pub fn check_field_names<'a>(names: impl IntoIterator<Item = &'a str>, known: &[&'static str]) -> Result<(), Self> {
        match names.into_iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(CallError::UnknownField { name: name.to_owned(), known: known.to_vec() }),
        }
    }
}
