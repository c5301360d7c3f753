//! Calls to the agent tools.

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use crate::service::TestService;

/// Returns the names of the tools in `tools/list`, in order. `authorization` is the value of the header.
pub async fn tool_names(service: &TestService, authorization: &str) -> Vec<String> {
    let request = Request::post("/mcp")
        .header("content-type", "application/json")
        .header("host", "127.0.0.1:8080")
        .header("accept", "application/json, text/event-stream")
        .header("authorization", authorization);
    let answer = service.call(request.body(Body::from(LIST_TOOLS)).expect("failed to build request")).await;
    listed_tools(answer.text())
}

/// The message that lists the tools.
pub const LIST_TOOLS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Returns the tool names in the response to [`LIST_TOOLS`].
pub fn listed_tools(response: &str) -> Vec<String> {
    let listed: Value = serde_json::from_str(response).expect("failed to parse JSON");
    let tools = listed["result"]["tools"].as_array().expect("missing tools");
    tools.iter().map(|tool| tool["name"].as_str().expect("missing name").to_owned()).collect()
}
