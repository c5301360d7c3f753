//! A tool, its limited results, and its errors.

use std::sync::Arc;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use strata_service::{AnswerBody, ReadError};
use strata_types::scope::Scope;
use strata_types::similar;

use super::Caller;
use crate::error::HttpError;
use crate::management::Fields;
use crate::text::quoted;

pub(super) struct Tool {
    pub name: &'static str,
    /// One line without a final full stop, also for tables.
    pub summary: &'static str,
    /// Instructions for a model, after the summary.
    pub details: &'static str,
    /// A tool with [`Scope::Write`] replaces data, and rejects the same call if it is repeated.
    pub scope: Scope,
    pub arguments: Arguments,
    pub required: &'static [&'static str],
    /// Another tool whose arguments it accepts, and these arguments.
    pub like: Option<(&'static str, Arguments)>,
    pub call: for<'a> fn(&'a Caller, Fields) -> BoxFuture<'a, ToolResult>,
}

pub(super) type Argument = (&'static str, Value);
pub(super) type Arguments = fn() -> Vec<Argument>;

pub(super) type ToolResult = Result<Output, ToolError>;

#[derive(Debug)]
pub(super) enum ToolError {
    /// The error of the same call over HTTP.
    Http(HttpError),
    NoSuchArgument {
        name: String,
        known: Vec<&'static str>,
    },
    /// The result would be too long. `instead` is the advice.
    TooLong {
        limit_bytes: usize,
        instead: &'static str,
    },
    TooSlow {
        seconds: u64,
    },
    Left,
}

impl<E: Into<HttpError>> From<E> for ToolError {
    fn from(error: E) -> Self {
        ToolError::Http(error.into())
    }
}

impl ToolError {
    /// Whether the error is in the service, and the text for the caller. Logs the cause.
    pub(super) fn log_and_render(&self) -> (bool, String) {
        match self {
            ToolError::Http(error) => {
                let (status, text) = error.log_and_render();
                (status.is_server_error(), text)
            }
            ToolError::NoSuchArgument { name, known } => {
                let meant = similar::suggestion(name, known.iter().copied());
                let valid = known.join(", ");
                (false, format!("Invalid request: unknown argument {};{meant} valid: {valid}.", quoted(name)))
            }
            ToolError::TooLong { limit_bytes, instead } => {
                (false, format!("The result would be longer than {limit_bytes} bytes. {instead}"))
            }
            ToolError::TooSlow { seconds } => (true, format!("The tool was stopped after {seconds} s.")),
            ToolError::Left => (false, "The client disconnected.".to_owned()),
        }
    }
}

/// The strings of a result. Entities are exact, while a tree of values would change the notation of some numbers. A
/// structured result would send each record twice, because clients without schemas need the string.
pub(super) struct Output(pub Vec<String>);

/// A record as JSON.
pub(super) fn record(record: &impl Serialize, limit_bytes: usize, instead: &'static str) -> ToolResult {
    let text = serde_json::to_string(record).map_err(|error| HttpError::Panic(error.to_string()))?;
    bounded(text, limit_bytes, instead)
}

pub(super) fn bounded(text: String, limit_bytes: usize, instead: &'static str) -> ToolResult {
    if text.len() > limit_bytes {
        return Err(ToolError::TooLong { limit_bytes, instead });
    }
    Ok(Output(vec![text]))
}

pub(super) async fn text(body: AnswerBody, limit_bytes: usize, instead: &'static str) -> Result<String, ToolError> {
    let too_long = ToolError::TooLong { limit_bytes, instead };
    let mut parts = match body {
        AnswerBody::Whole(bytes) if bytes.len() > limit_bytes => return Err(too_long),
        AnswerBody::Whole(bytes) => return utf8(bytes.into()),
        AnswerBody::Stream(parts) => parts,
        AnswerBody::Export(export) => export.whole(),
    };
    let mut text = Vec::new();
    while let Some(part) = parts.try_next().await? {
        if text.len() + part.len() > limit_bytes {
            return Err(too_long);
        }
        text.extend_from_slice(&part);
    }
    utf8(text)
}

fn utf8(bytes: Vec<u8>) -> Result<String, ToolError> {
    String::from_utf8(bytes).map_err(|error| ReadError::Unreadable(Arc::new(error)).into())
}
