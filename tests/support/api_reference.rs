//! The examples of the API reference.

use strata_http::openapi::{examples, reference};

/// The address to which the examples send their requests.
pub const EXAMPLE_ADDRESS: &str = reference::EXAMPLE_BASE_URL;

pub struct ApiExample {
    pub operation: &'static str,
    /// The curl command; `None` for a webhook.
    pub command: Option<String>,
}

/// Returns all examples, in the order in which they can be run on a new demo server.
pub fn api_examples() -> Vec<ApiExample> {
    let examples = examples::examples().iter();
    examples
        .map(|example| ApiExample { operation: &example.operation, command: reference::example_command(example) })
        .collect()
}
