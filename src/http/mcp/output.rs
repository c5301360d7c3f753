//! Results of tools, bounded.

use futures::TryStreamExt;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;

use super::error::ToolError;
use crate::http::error::HttpError;
use crate::service::{AnswerBody, ReadError};

/// What a tool gives: texts, entities among them, to the byte. A tree of values would write some numbers otherwise, and
/// a structured result would send every record twice, since clients without schemas need the text.
pub(super) struct Output(pub Vec<String>);

impl From<Output> for CallToolResult {
    fn from(Output(texts): Output) -> Self {
        CallToolResult::success(texts.into_iter().map(ContentBlock::text).collect())
    }
}

/// A record, as the text of one JSON object.
///
/// # Errors
/// [`ToolError::TooLong`] with what to do `instead`.
pub(super) fn record(record: &impl Serialize, limit_bytes: usize, instead: &'static str) -> Result<Output, ToolError> {
    let text = serde_json::to_string(record).map_err(|error| HttpError::Panic(error.to_string()))?;
    bounded(text, limit_bytes, instead)
}

/// A text.
///
/// # Errors
/// [`ToolError::TooLong`] with what to do `instead`.
pub(super) fn bounded(text: String, limit_bytes: usize, instead: &'static str) -> Result<Output, ToolError> {
    if text.len() > limit_bytes {
        return Err(ToolError::TooLong { limit_bytes, instead });
    }
    Ok(Output(vec![text]))
}

/// A body as one text.
///
/// # Errors
/// [`ToolError::TooLong`] with what to do `instead`; what the rest of the body fails with.
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
    String::from_utf8(bytes).map_err(|error| ReadError::Unreadable(std::sync::Arc::new(error)).into())
}
