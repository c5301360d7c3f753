//! The message of a request without its entities. rmcp parses messages into trees of values, which use many times the
//! memory of the JSON, and change the notation of some numbers.

use axum::body::Bytes;
use axum::http::HeaderMap;
use rmcp::model::ProtocolVersion;
use rmcp::transport::common::http_header::HEADER_MCP_PROTOCOL_VERSION;
use serde::de::IgnoredAny;
use serde_json::Value;
use strata_json::{DocumentError, member};
use strata_types::limits;

use crate::error::CallError;
use crate::management::alternate_edits::{EDITS, with_nulls};

/// The limit of a message without its entities.
const BYTES: usize = limits::TOOL_MESSAGE_BYTES;

/// The arguments that contain entities.
const HEAVY: [&str; 2] = ["entities", EDITS];

const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

pub(super) const EXPECTED: &str = "it must be one JSON-RPC 2.0 message";

pub(super) struct Message {
    /// The message with null in place of its entities and edits.
    pub without_entities: Bytes,
    pub arguments: Option<Bytes>,
}

impl Message {
    /// # Errors
    /// [`CallError::NotJsonText`] for text that is not JSON, [`CallError::Body`] for JSON that is not a message.
    pub(super) fn parse(body: &[u8]) -> Result<Message, CallError> {
        let mut message = Vec::new();
        strata_json::canonicalize(body, &mut message).map_err(|error| not_a_message(body, &error))?;
        let message = Bytes::from(message);
        let object = |text: &&[u8]| text.starts_with(b"{");
        let params = member(&message, "params").filter(object);
        let arguments = params.and_then(|params| member(params, "arguments")).filter(object);
        let heavy = |name| arguments.and_then(|arguments| member(arguments, name));
        let without_entities = with_nulls(&message, HEAVY.into_iter().filter_map(heavy));
        if without_entities.len() > BYTES {
            return Err(CallError::MessageTooLarge { limit: BYTES as u64 });
        }
        Ok(Message { arguments: arguments.map(|arguments| message.slice_ref(arguments)), without_entities })
    }

    /// The ID of the message, if it calls `initialize` in a revision of the protocol without this method.
    pub(super) fn removed_initialize(&self, headers: &HeaderMap) -> Option<Value> {
        let message = &self.without_entities;
        let parsed = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
        let object = |text: &&[u8]| text.starts_with(b"{");
        if member(message, "method").and_then(parsed)? != "initialize" {
            return None;
        }
        let meta = member(message, "params").filter(object).and_then(|params| member(params, "_meta")).filter(object);
        let in_meta = meta.and_then(|meta| member(meta, META_PROTOCOL_VERSION)).and_then(parsed);
        let in_header = headers.get(HEADER_MCP_PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
        let named = [in_header, in_meta.as_ref().and_then(Value::as_str)];
        let is_removed = named.contains(&Some(ProtocolVersion::V_2026_07_28.as_str()));
        member(message, "id").and_then(parsed).filter(|_| is_removed)
    }
}

/// JSON-RPC has different errors for text that is not JSON and for JSON that is not a message.
fn not_a_message(body: &[u8], error: &DocumentError) -> CallError {
    let problem = match error {
        DocumentError::NotAnObject { .. } => EXPECTED.to_owned(),
        error => format!("{EXPECTED}: {error}"),
    };
    let is_not_json = || serde_json::from_slice::<IgnoredAny>(body).is_err();
    match error.is_not_json().unwrap_or_else(is_not_json) {
        true => CallError::NotJsonText { problem },
        false => CallError::Body { problem },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_split_where_its_entities_are() {
        let check = |body: &str, without_entities: &str, arguments: Option<&str>| {
            let message = Message::parse(body.as_bytes()).expect(body);
            assert_eq!(message.without_entities, without_entities, "{body}");
            assert_eq!(message.arguments.as_deref(), arguments.map(str::as_bytes), "{body}");
        };
        check(
            r#"{"id": 1, "params": {"arguments": {"entities": [{"a": 1e2}], "b": 1.0}, "name": "x"}}"#,
            r#"{"id":1,"params":{"arguments":{"entities":null,"b":1.0},"name":"x"}}"#,
            Some(r#"{"entities":[{"a":1e2}],"b":1.0}"#),
        );
        // Of keys that come twice the last counts, however they are written.
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
