//! A tool message, separated from its entities. rmcp parses messages into trees of values, which use many times the
//! memory of the JSON and change the notation of some numbers. So rmcp gets the message without its entities.

use axum::body::Bytes;
use axum::http::HeaderMap;
use rmcp::model::ProtocolVersion;
use rmcp::transport::common::http_header::HEADER_MCP_PROTOCOL_VERSION;
use serde::de::IgnoredAny;
use serde_json::Value;
use strata_json::{DocumentError, find_member};
use strata_types::limits;

use crate::error::CallError;
use crate::management::alternate_edits::{EDITS_NAME, replace_with_null};

const MAX_MESSAGE_BYTES: usize = limits::MAX_TOOL_MESSAGE_BYTES;
const ENTITY_ARGUMENTS: [&str; 2] = ["entities", EDITS_NAME];

const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

pub(super) const EXPECTED_MESSAGE: &str = "it must be one JSON-RPC 2.0 message";

pub(super) struct ToolMessage {
    /// The message with null in place of the entities and edits in its arguments.
    pub without_entities: Bytes,
    pub arguments: Option<Bytes>,
}

impl ToolMessage {
    /// Fails with [`CallError::InvalidJsonText`] (not JSON) or [`CallError::InvalidBody`] (JSON, but not a message).
    pub(super) fn parse(body: &[u8]) -> Result<ToolMessage, CallError> {
        let mut message = Vec::new();
        strata_json::canonicalize(body, &mut message).map_err(|error| invalid_message_error(body, &error))?;
        let message = Bytes::from(message);
        let object = |text: &&[u8]| text.starts_with(b"{");
        let params = find_member(&message, "params").filter(object);
        let arguments = params.and_then(|params| find_member(params, "arguments")).filter(object);
        let heavy = |name| arguments.and_then(|arguments| find_member(arguments, name));
        let without_entities = replace_with_null(&message, ENTITY_ARGUMENTS.into_iter().filter_map(heavy));
        if without_entities.len() > MAX_MESSAGE_BYTES {
            return Err(CallError::MessageTooLarge { limit: MAX_MESSAGE_BYTES as u64 });
        }
        Ok(ToolMessage { arguments: arguments.map(|arguments| message.slice_ref(arguments)), without_entities })
    }

    /// Returns the ID of a call of `initialize` if the call uses a protocol revision that has removed this method.
    pub(super) fn unsupported_initialize_id(&self, headers: &HeaderMap) -> Option<Value> {
        let message = &self.without_entities;
        let parsed = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
        let object = |text: &&[u8]| text.starts_with(b"{");
        if find_member(message, "method").and_then(parsed)? != "initialize" {
            return None;
        }
        let meta = find_member(message, "params").filter(object).and_then(|p| find_member(p, "_meta")).filter(object);
        let in_meta = meta.and_then(|meta| find_member(meta, META_PROTOCOL_VERSION)).and_then(parsed);
        let in_header = headers.get(HEADER_MCP_PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
        let versions = [in_header, in_meta.as_ref().and_then(Value::as_str)];
        let is_removed = versions.contains(&Some(ProtocolVersion::V_2026_07_28.as_str()));
        find_member(message, "id").and_then(parsed).filter(|_| is_removed)
    }
}

/// Returns the error for an invalid body. JSON-RPC has different codes for invalid JSON and invalid messages.
fn invalid_message_error(body: &[u8], error: &DocumentError) -> CallError {
    let problem = match error {
        DocumentError::NotAnObject { .. } => EXPECTED_MESSAGE.to_owned(),
        error => format!("{EXPECTED_MESSAGE}: {error}"),
    };
    let is_not_json = || serde_json::from_slice::<IgnoredAny>(body).is_err();
    match error.is_syntax_error().unwrap_or_else(is_not_json) {
        true => CallError::InvalidJsonText { problem },
        false => CallError::InvalidBody { problem },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_message_extracts_entities() {
        let check = |body: &str, without_entities: &str, arguments: Option<&str>| {
            let message = ToolMessage::parse(body.as_bytes()).expect(body);
            assert_eq!(message.without_entities, without_entities, "{body}");
            assert_eq!(message.arguments.as_deref(), arguments.map(str::as_bytes), "{body}");
        };
        check(
            r#"{"id": 1, "params": {"arguments": {"entities": [{"a": 1e2}], "b": 1.0}, "name": "x"}}"#,
            r#"{"id":1,"params":{"arguments":{"entities":null,"b":1.0},"name":"x"}}"#,
            Some(r#"{"entities":[{"a":1e2}],"b":1.0}"#),
        );
        // The last of several equal keys counts, also if it contains escapes.
        check(
            r#"{"params":{"arguments":{"entities":[1]},"argument\u0073":{"entities":[2],"entit\u0069es":[3]}}}"#,
            r#"{"params":{"arguments":{"entities":null}}}"#,
            Some(r#"{"entities":[3]}"#),
        );
        check(
            r#"{"params":{"arguments":{"edits":[{"position":1e0}],"a":1,"entities":[]}}}"#,
            r#"{"params":{"arguments":{"edits":null,"a":1,"entities":null}}}"#,
            Some(r#"{"edits":[{"position":1e0}],"a":1,"entities":[]}"#),
        );
        for other in [
            "{}",
            r#"{"params":[]}"#,
            r#"{"params":{"entities":[]}}"#,
            r#"{"params":{"arguments":"x"}}"#,
            r#"{"arguments":{"entities":[]},"entities":[]}"#,
        ] {
            check(other, other, None);
        }
        check(r#"{"params":{"arguments":{}}}"#, r#"{"params":{"arguments":{}}}"#, Some("{}"));
    }
}
