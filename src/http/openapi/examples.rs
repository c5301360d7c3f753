//! Examples of requests and their responses, for the document and for the API reference.
//!
//! `examples.json` lists them in the order in which a test performs them on a demo server. The test fails if a response
//! differs in anything but times, sizes, and random values (`tests/it/documentation/api.rs`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::description::JSON;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    pub operation: String,
    #[serde(default)]
    pub path: BTreeMap<String, Value>,
    /// The query string, percent-encoded.
    #[serde(default)]
    pub query: String,
    pub body: Option<Value>,
    /// Whether the request is sent with a session cookie instead of an API token.
    #[serde(default)]
    pub session: bool,
    /// The body of the response: JSON, or a string with any other text.
    pub response: Option<Value>,
}

static EXAMPLES: LazyLock<Vec<Example>> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default());

pub fn examples() -> &'static [Example] {
    &EXAMPLES
}

/// The main example of an operation. Every operation has one; a test checks that.
pub(super) fn example(operation: &str) -> Option<&'static Example> {
    examples_of(operation).next()
}

fn examples_of(operation: &str) -> impl Iterator<Item = &'static Example> {
    examples().iter().filter(move |example| example.operation == operation)
}

/// An example of a response of this content type.
pub(super) fn response(operation: &str, media: &str) -> Option<&'static Value> {
    let is_text = media != JSON;
    examples_of(operation).filter_map(|example| example.response.as_ref()).find(|value| value.is_string() == is_text)
}
