//! Examples of requests and their responses, for the document and for the API reference.
//!
//! `examples.json` contains the examples in the order in which a test performs them on a demo server. The test fails if
//! a response differs in anything except times, sizes, and random values (`tests/it/documentation/api.rs`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::openapi_components::JSON_CONTENT_TYPE;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationExample {
    pub operation: String,
    #[serde(default)]
    pub path: BTreeMap<String, Value>,
    /// The query string of the request, percent-encoded.
    #[serde(default)]
    pub query: String,
    pub body: Option<Value>,
    /// Whether the request is sent with a session cookie instead of an API token.
    #[serde(default)]
    pub session: bool,
    /// The body of the response: JSON, or a string for any other content type.
    pub response: Option<Value>,
}

static EXAMPLES: LazyLock<Vec<OperationExample>> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

pub fn examples() -> &'static [OperationExample] {
    &EXAMPLES
}

/// Returns the main example of an operation. A test checks that every operation has one.
pub(super) fn main_example(operation: &str) -> Option<&'static OperationExample> {
    operation_examples(operation).next()
}

fn operation_examples(operation: &str) -> impl Iterator<Item = &'static OperationExample> {
    examples().iter().filter(move |example| example.operation == operation)
}

pub(super) fn example_response(operation: &str, content_type: &str) -> Option<&'static Value> {
    let is_text = content_type != JSON_CONTENT_TYPE;
    operation_examples(operation)
        .filter_map(|example| example.response.as_ref())
        .find(|value| value.is_string() == is_text)
}
