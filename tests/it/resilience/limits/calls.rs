//! Tests of the operations in `/openapi.json` and of the tools of `/mcp` with values that are too large or of the wrong
//! type.
//!
//! Each field of each operation and each argument of each tool gets every value of [`large_values`], regardless of the
//! field's type. The service may accept or reject the value, but no call may fail with an internal error.

use std::fmt::Write;

use reqwest::Method;
use serde_json::{Value, json};

use super::{LimitFixture, nested_entity, percent_encoded, tool_call_message};

/// Returns pairs of a description and a JSON text. Each text is large in one respect: length, number of values, depth,
/// or digits.
fn large_values() -> Vec<(&'static str, String)> {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    vec![
        ("a long text", json!("x".repeat(100_000)).to_string()),
        ("a text of escapes", format!("\"{}\"", "\\u0000".repeat(15_000))),
        ("a path of many names", json!(vec!["a"; 16_000].join(".")).to_string()),
        ("a long list of texts", json!(vec!["a:b"; 10_000]).to_string()),
        ("a thousand paths", json!(vec!["a.b:c"; 1_000]).to_string()),
        ("a long list of objects", format!("[{}]", vec!["{}"; 10_000].join(","))),
        ("many members", {
            let members: Vec<String> = (0..5_000).map(|number| format!("\"m{number}\":{number}")).collect();
            format!("{{{}}}", members.join(","))
        }),
        ("nested arrays", deep(100)),
        ("too many nested arrays", deep(5_000)),
        ("nested objects", nested_entity(100, false)),
        ("the largest number", u64::MAX.to_string()),
        ("a larger number", "9".repeat(10_000)),
        ("a number with an exponent", format!("1e{}", "9".repeat(100))),
        ("a negative number", i64::MIN.to_string()),
        ("an empty text", "\"\"".to_owned()),
        ("null", "null".to_owned()),
    ]
}

/// An operation of the OpenAPI document with the names of its query parameters and body fields.
struct OpenApiOperation {
    method: Method,
    path: String,
    query: Vec<String>,
    body: Vec<String>,
}

/// Returns the operations that `/openapi.json` describes.
async fn operations(fixture: &LimitFixture) -> Vec<OpenApiOperation> {
    let document = fixture.get("/openapi.json").await.json();
    let resolved = |node: &Value| match node["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).expect(reference).clone(),
        None => node.clone(),
    };
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            let Ok(method) = Method::from_bytes(method.to_ascii_uppercase().as_bytes()) else { continue };
            if !operation["responses"].is_object() {
                continue;
            }
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let query = parameters.iter().map(resolved).filter(|parameter| parameter["in"] == "query");
            let query = query.map(|parameter| parameter["name"].as_str().expect("a name").to_owned()).collect();
            let body = resolved(&operation["requestBody"])["content"]["application/json"]["schema"].clone();
            let body = resolved(&body)["properties"].as_object().map(|fields| fields.keys().cloned().collect());
            all.push(OpenApiOperation { method, path: path.clone(), query, body: body.unwrap_or_default() });
        }
    }
    all
}

/// Returns a path template with a value in place of each parameter.
fn filled(path: &str) -> String {
    let path = path.replace("{dataset_id}", "1").replace("{name_slug}", "world-countries");
    path.replace("{version}", "active").replace("{token}", "no-such-token")
}

/// Returns a valid value for a field, so that the call is not rejected before it reaches the field under test.
fn usual(field: &str) -> Value {
    match field {
        // Dataset 2, because `LimitFixture::assert_healthy` reads dataset 1.
        "dataset_id" => json!(2),
        "version" | "version_number" | "v1" | "v2" => json!(1),
        "name" => json!("Usual"),
        "email" => json!("ada@example.test"),
        "entities" => json!([]),
        "url" => json!("http://127.0.0.1:9/"),
        _ => json!("usual"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_fields_with_large_values_never_crash() {
    let fixture = LimitFixture::new().await;
    let operations = operations(&fixture).await;
    assert!(operations.len() > 25, "{}", operations.len());
    let mut tried = 0;
    for OpenApiOperation { method, path, query, body } in &operations {
        // The loops make no call to operations without fields, such as a logout.
        let uri = filled(path);
        for field in query {
            for value in ["x".repeat(30_000), "9".repeat(30_000), "a.".repeat(15_000), "-1".to_owned(), String::new()] {
                let others: Vec<String> = ["dataset_id", "v1", "v2"]
                    .iter()
                    .filter(|other| query.iter().any(|name| name == *other) && *other != field)
                    .map(|other| format!("{other}=1&"))
                    .collect();
                let uri = format!("{uri}?{}{field}={}", others.concat(), percent_encoded(&value));
                let answer = fixture.call(method.clone(), &uri, "").await;
                assert!(answer.status < 500, "{method} {uri:.200}: {}", answer.summary());
                tried += 1;
            }
        }
        for field in body {
            for (what, value) in large_values() {
                let mut text = String::from("{");
                for other in body.iter().filter(|other| *other != field) {
                    // Optional fields are left out, because the service could reject them before it checks the field
                    // under test.
                    if matches!(
                        other.as_str(),
                        "dataset_id" | "version" | "version_number" | "name" | "url" | "entities"
                    ) {
                        let _ = write!(text, "{}:{},", json!(other), usual(other));
                    }
                }
                let _ = write!(text, "{}:{value}}}", json!(field));
                let answer = fixture.call(method.clone(), &uri, text).await;
                assert!(answer.status < 500, "{method} {path} with {what} as {field}: {}", answer.summary());
                tried += 1;
            }
        }
        // Bodies that are not JSON objects with fields.
        if !body.is_empty() {
            for text in ["[".repeat(100_000), "{\"a\":".repeat(100_000), nested_entity(129, false), " ".repeat(1 << 20)]
            {
                let answer = fixture.call(method.clone(), &uri, text).await;
                assert!((400..500).contains(&answer.status), "{method} {path}: {}", answer.summary());
            }
        }
    }
    assert!(tried > 700, "{tried}");
    fixture.assert_healthy().await;
    fixture.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_arguments_with_large_values_never_crash() {
    let fixture = LimitFixture::new().await;
    let listed = fixture.message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    let tools = listed["result"]["tools"].as_array().expect("tools");
    assert!(!tools.is_empty());
    for tool in tools {
        let name = tool["name"].as_str().expect("a name");
        for argument in tool["inputSchema"]["properties"].as_object().expect("arguments").keys() {
            for (what, value) in large_values() {
                let required = ["dataset_id", "v1", "v2", "version"];
                let others = required.iter().filter(|other| {
                    **other != argument
                        && tool["inputSchema"]["required"].as_array().is_some_and(|all| all.contains(&json!(other)))
                });
                let others: Vec<String> = others.map(|other| format!("\"{other}\":1,")).collect();
                let arguments = format!("{{{}{}:{value}}}", others.concat(), json!(argument));
                let answer = fixture.message(tool_call_message(name, &arguments)).await;
                // The protocol layer rejects messages that are malformed or too long. The tool itself reports all other
                // errors.
                assert!(matches!(answer.status, 200 | 400 | 413), "{name}.{argument}, {what}: {}", answer.summary());
                let text = answer.text();
                assert!(
                    !text.contains("internal") && !text.contains("panic"),
                    "{name}.{argument}: {}",
                    answer.summary()
                );
            }
        }
        fixture.assert_healthy().await;
    }
    // Messages that are not tool calls.
    for message in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("[{}]", vec![tool_call_message("list_datasets", "{}"); 100].join(",")),
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/list"}}"#, "9".repeat(1_000)),
        format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"tools/list"}}"#, "i".repeat(100_000)),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "m".repeat(100_000)),
        tool_call_message(&"t".repeat(100_000), "{}"),
        nested_entity(128, true),
    ] {
        let answer = fixture.message(message).await;
        assert!(answer.status < 500, "{}", answer.summary());
    }
    fixture.assert_healthy().await;
    fixture.stop();
}
