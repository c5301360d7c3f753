//! The operations of `/openapi.json` and the tools of `/mcp`: every field of each with the largest values of any kind,
//! whether they fit it or not. Nothing is a failure of the service.

use std::fmt::Write;

use reqwest::Method;
use serde_json::{Value, json};

use super::{World, calling, encoded, nested};

/// Texts of JSON values that are large in some way.
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
        ("nested objects", nested(100, false)),
        ("the largest number", u64::MAX.to_string()),
        ("a larger number", "9".repeat(10_000)),
        ("a number with an exponent", format!("1e{}", "9".repeat(100))),
        ("a negative number", i64::MIN.to_string()),
        ("an empty text", "\"\"".to_owned()),
        ("null", "null".to_owned()),
    ]
}

/// An operation: its method, path, and the names of its fields in the query and in the body.
struct Operation {
    method: Method,
    path: String,
    query: Vec<String>,
    body: Vec<String>,
}

/// The operations that the document describes.
async fn operations(world: &World) -> Vec<Operation> {
    let document = world.get("/openapi.json").await.json();
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
            all.push(Operation { method, path: path.clone(), query, body: body.unwrap_or_default() });
        }
    }
    all
}

/// A path with its places filled in.
fn filled(path: &str) -> String {
    let path = path.replace("{dataset_id}", "1").replace("{name_slug}", "world-countries");
    path.replace("{version}", "active").replace("{token}", "no-such-token")
}

/// A value that a field may have, so that the call goes on to what is tried.
fn usual(field: &str) -> Value {
    match field {
        // Not the one that tells whether all is well.
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
async fn every_field_of_every_operation_takes_or_refuses_large_values() {
    let world = World::new().await;
    let operations = operations(&world).await;
    assert!(operations.len() > 25, "{}", operations.len());
    let mut tried = 0;
    for Operation { method, path, query, body } in &operations {
        // Nothing is logged out or frozen: what follows needs it.
        let uri = filled(path);
        for field in query {
            for value in ["x".repeat(30_000), "9".repeat(30_000), "a.".repeat(15_000), "-1".to_owned(), String::new()] {
                let others: Vec<String> = ["dataset_id", "v1", "v2"]
                    .iter()
                    .filter(|other| query.iter().any(|name| name == *other) && *other != field)
                    .map(|other| format!("{other}=1&"))
                    .collect();
                let uri = format!("{uri}?{}{field}={}", others.concat(), encoded(&value));
                let answer = world.call(method.clone(), &uri, "").await;
                assert!(answer.status < 500, "{method} {uri:.200}: {}", answer.shown());
                tried += 1;
            }
        }
        for field in body {
            for (what, value) in large_values() {
                let mut text = String::from("{");
                for other in body.iter().filter(|other| *other != field) {
                    // What is optional could be what refuses first.
                    if matches!(
                        other.as_str(),
                        "dataset_id" | "version" | "version_number" | "name" | "url" | "entities"
                    ) {
                        let _ = write!(text, "{}:{},", json!(other), usual(other));
                    }
                }
                let _ = write!(text, "{}:{value}}}", json!(field));
                let answer = world.call(method.clone(), &uri, text).await;
                assert!(answer.status < 500, "{method} {path} with {what} as {field}: {}", answer.shown());
                tried += 1;
            }
        }
        // Bodies that are no objects of fields at all.
        if !body.is_empty() {
            for text in ["[".repeat(100_000), "{\"a\":".repeat(100_000), nested(129, false), " ".repeat(1 << 20)] {
                let answer = world.call(method.clone(), &uri, text).await;
                assert!((400..500).contains(&answer.status), "{method} {path}: {}", answer.shown());
            }
        }
    }
    assert!(tried > 700, "{tried}");
    world.is_well().await;
    world.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_argument_of_every_tool_takes_or_refuses_large_values() {
    let world = World::new().await;
    let listed = world.message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
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
                let answer = world.message(calling(name, &arguments)).await;
                // A message that cannot be, or is too long, is refused; everything else is the tool's to say.
                assert!(matches!(answer.status, 200 | 400 | 413), "{name}.{argument}, {what}: {}", answer.shown());
                let text = answer.text();
                assert!(!text.contains("internal") && !text.contains("panic"), "{name}.{argument}: {}", answer.shown());
            }
        }
        world.is_well().await;
    }
    // Messages that are no calls of tools.
    for message in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("[{}]", vec![calling("list_datasets", "{}"); 100].join(",")),
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/list"}}"#, "9".repeat(1_000)),
        format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"tools/list"}}"#, "i".repeat(100_000)),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "m".repeat(100_000)),
        calling(&"t".repeat(100_000), "{}"),
        nested(128, true),
    ] {
        let answer = world.message(message).await;
        assert!(answer.status < 500, "{}", answer.shown());
    }
    world.is_well().await;
    world.end();
}
