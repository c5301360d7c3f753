//! The examples of the API reference.

use strata_http::openapi::{examples, reference};

/// The address to which the examples send their requests.
pub const EXAMPLE_ADDRESS: &str = reference::BASE;

/// An example of an operation.
pub struct ApiExample {
    pub operation: &'static str,
    /// The command with curl. A webhook has none.
    pub command: Option<String>,
}

/// All examples, in the order in which they follow from each other on a new demo server.
pub fn api_examples() -> Vec<ApiExample> {
    let examples = examples::examples().iter();
    examples.map(|example| ApiExample { operation: &example.operation, command: reference::curl_of(example) }).collect()
}
