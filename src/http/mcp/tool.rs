//! The definition of a tool, its limited results, and its errors.

use std::sync::Arc;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use strata_service::{ReadError, ResponseBody};
use strata_types::suggest;
use strata_types::token_scope::TokenScope;

use super::ToolCaller;
use crate::display_text::quote_for_display;
use crate::error::HttpError;
use crate::management::CallFields;

pub(super) struct ToolSpec {
    pub name: &'static str,
    /// A description of the tool in one line, without a final full stop. The documentation shows it in tables.
    pub summary: &'static str,
    pub details: &'static str,
    /// A tool with [`TokenScope::Write`] replaces data. A repeated call fails because its etag is stale.
    pub scope: TokenScope,
    pub arguments: ToolArgumentsFn,
    pub required: &'static [&'static str],
    /// The name and the arguments of another tool whose arguments this tool also accepts.
    pub inherited_arguments: Option<(&'static str, ToolArgumentsFn)>,
    pub call: for<'a> fn(&'a ToolCaller, CallFields) -> BoxFuture<'a, ToolResult>,
}

pub(super) type ToolArgument = (&'static str, Value);
pub(super) type ToolArgumentsFn = fn() -> Vec<ToolArgument>;

pub(super) type ToolResult = Result<ToolOutput, ToolError>;

#[derive(Debug)]
pub(super) enum ToolError {
    Http(HttpError),
    UnknownArgument { name: String, known: Vec<&'static str> },
    ResultTooLong { limit_bytes: usize, advice: &'static str },
    Timeout { seconds: u64 },
    ClientDisconnected,
}

impl<E: Into<HttpError>> From<E> for ToolError {
    fn from(error: E) -> Self {
        ToolError::Http(error.into())
    }
}

impl ToolError {
    /// Logs the cause of the error. Returns whether the error is internal, and the error text for the caller.
    pub(super) fn log_and_render(&self) -> (bool, String) {
        match self {
            ToolError::Http(error) => {
                let (status, text) = error.log_and_render();
                (status.is_server_error(), text)
            }
            ToolError::UnknownArgument { name, known } => {
                let meant = suggest::did_you_mean(name, known.iter().copied());
                let name = quote_for_display(name);
                let valid = known.join(", ");
                (false, format!("Invalid request: unknown argument {name};{meant} valid: {valid}."))
            }
            ToolError::ResultTooLong { limit_bytes, advice } => {
                (false, format!("The result would be longer than {limit_bytes} bytes. {advice}"))
            }
            ToolError::Timeout { seconds } => (true, format!("The tool was stopped after {seconds} s.")),
            ToolError::ClientDisconnected => (false, "The client disconnected.".to_owned()),
        }
    }
}

/// The strings of a tool's result. Strings preserve entities exactly, but a tree of values would change the notation of
/// some numbers. A structured result would send each record twice, because clients without schemas need the string.
pub(super) struct ToolOutput(pub Vec<String>);

pub(super) fn json_output(record: &impl Serialize, limit_bytes: usize, advice: &'static str) -> ToolResult {
    let text = serde_json::to_string(record).map_err(|error| HttpError::Panic(error.to_string()))?;
    checked_output(text, limit_bytes, advice)
}

pub(super) fn checked_output(text: String, limit_bytes: usize, advice: &'static str) -> ToolResult {
    if text.len() > limit_bytes {
        return Err(ToolError::ResultTooLong { limit_bytes, advice });
    }
    Ok(ToolOutput(vec![text]))
}

pub(super) async fn collect_text(
    body: ResponseBody,
    limit_bytes: usize,
    advice: &'static str,
) -> Result<String, ToolError> {
    let too_long = ToolError::ResultTooLong { limit_bytes, advice };
    let mut parts = match body {
        ResponseBody::Whole(bytes) if bytes.len() > limit_bytes => return Err(too_long),
        ResponseBody::Whole(bytes) => return into_utf8(bytes.into()),
        ResponseBody::Stream(parts) => parts,
        ResponseBody::Export(export) => export.into_chunks(),
    };
    let mut text = Vec::new();
    while let Some(part) = parts.try_next().await? {
        if text.len() + part.len() > limit_bytes {
            return Err(too_long);
        }
        text.extend_from_slice(&part);
    }
    into_utf8(text)
}

fn into_utf8(bytes: Vec<u8>) -> Result<String, ToolError> {
    String::from_utf8(bytes).map_err(|error| ReadError::Unreadable(Arc::new(error)).into())
}
