//! The scope `read` of tokens: every operation and every tool is classified as reading or writing.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use strata_testing::agents::tool_names;
use strata_testing::databases::on_both_databases;
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, with_status};
use strata_testing::openapi::MANAGED;

use super::{Owners, ok, refused};

on_both_databases! {
    Owners:
    read_token_allows_only_reading_operations
    read_token_allows_only_reading_tools
    read_token_sees_no_keys
    read_token_sees_no_credentials_in_urls
}

/// The operations that the scope `read` allows. Each new operation must be added to one of these lists.
const READS: &[&str] = &[
    "GET /session/me",
    "GET /session/list",
    "GET /token/list",
    "GET /dataset/list",
    "GET /dataset/view",
    "GET /dataset/profile",
    "GET /dataset/attempts",
    "GET /dataset/usage",
    "GET /dataset/explain",
    "GET /dataset/diff",
    "GET /webhook/view",
    "GET /webhook/deliveries",
    "POST /agent/pull_for_edit",
    "POST /dataset/check",
];

/// The operations that require the scope `write`.
const WRITES: &[&str] = &[
    "POST /session/logout",
    "DELETE /session/end",
    "POST /account/password",
    "POST /token/create",
    "DELETE /token/delete",
    "POST /dataset/create",
    "POST /dataset/update",
    "DELETE /dataset/delete",
    "POST /dataset/rotate_key",
    "POST /dataset/rotate_ping",
    "POST /dataset/refresh",
    "POST /dataset/rollback",
    "POST /dataset/unpin",
    "POST /dataset/unfreeze",
    "POST /dataset/clone",
    "POST /dataset/alternate/save",
    "POST /dataset/alternate/edit",
    "DELETE /dataset/alternate/delete",
    "POST /agent/push_alt_version",
    "POST /webhook/register",
    "DELETE /webhook/delete",
];

/// The operations that ignore credentials.
const ANONYMOUS_OPERATIONS: &[&str] =
    &["POST /session/login", "GET /ping/{token}", "POST /ping/{token}", "GET /datasets"];

/// The tools that the scope `read` allows, and the others.
const READING_TOOLS: &[&str] =
    &["list_datasets", "list_public_datasets", "profile", "read", "explain", "diff", "changes", "pull_for_edit"];
const WRITING_TOOLS: &[&str] = &["push_alt_version", "edit_alt_version"];

const REFUSAL: &str = "This API token has only the read scope";

async fn reader(owners: &Owners) -> String {
    let created = ok(&owners.post("/token/create", json!({"name": "reader", "scope": "read"})).await);
    format!("Bearer {}", created["token"].as_str().expect("missing token"))
}

async fn read_token_allows_only_reading_operations(owners: Owners) {
    let mut operations = BTreeSet::new();
    for (path, item) in owners.document.0["paths"].as_object().expect("missing paths") {
        for (method, operation) in item.as_object().expect("expected operations") {
            if MANAGED.iter().any(|tag| operation["tags"][0] == **tag) {
                operations.insert(format!("{} {path}", method.to_ascii_uppercase()));
            }
        }
    }
    let classified: BTreeSet<String> =
        [READS, WRITES, ANONYMOUS_OPERATIONS].concat().into_iter().map(str::to_owned).collect();
    assert_eq!(classified, operations, "classify every operation as reading or writing");
    assert_eq!(classified.len(), READS.len() + WRITES.len() + ANONYMOUS_OPERATIONS.len());

    let id = owners.dataset("Scoped", false, 2).await;
    let key = reader(&owners).await;
    let key = ("authorization", key.as_str());
    for operation in READS {
        let (method, path) = operation.split_once(' ').expect("missing path");
        let versions = if *operation == "GET /dataset/diff" { "&v1=1&v2=2" } else { "" };
        let takes_none = owners.document.0["paths"][path]["get"]["parameters"].as_array().is_none_or(Vec::is_empty);
        let uri = match method {
            "GET" if takes_none || path == "/dataset/list" => path.to_owned(),
            "GET" => format!("{path}?dataset_id={id}{versions}"),
            _ => path.to_owned(),
        };
        let body = if method == "GET" { Vec::new() } else { json!({"dataset_id": id}).to_string().into_bytes() };
        let answer = owners.raw(method, &uri, &[key, ("content-type", "application/json")], body).await;
        assert_eq!(answer.status, 200, "{operation}: {}", answer.text());
    }
    for operation in WRITES {
        let (method, path) = operation.split_once(' ').expect("missing path");
        // The scope is checked before the body and its type.
        for headers in [&[key][..], &[key, ("content-type", "application/json")]] {
            for body in
                [String::new(), "{".to_owned(), json!({"dataset_id": id, "x": 1}).to_string(), "x".repeat(20_000)]
            {
                refused(&owners.raw(method, path, headers, body.into_bytes()).await, 403, REFUSAL);
            }
        }
        refused(&owners.raw(method, &format!("{path}?dataset_id=x&y=z"), &[key], Vec::new()).await, 403, REFUSAL);
    }
    // A method without an operation returns 405.
    assert_eq!(owners.raw("PUT", "/session/me", &[key], Vec::new()).await.status, 405);
    // The other operations ignore credentials.
    for operation in ANONYMOUS_OPERATIONS {
        let (method, path) = operation.split_once(' ').expect("missing path");
        let answer = owners.raw(method, path, &[key], Vec::new()).await;
        assert!(![401, 403].contains(&answer.status), "{operation}: {}", answer.text());
    }
    // The rejected requests have changed nothing.
    let view = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await);
    assert_eq!(view["dataset"]["versions"].as_array().expect("expected versions").len(), 2);
    assert_eq!(ok(&owners.get("/token/list").await)["tokens"].as_array().expect("expected tokens").len(), 2);
}

async fn read_token_allows_only_reading_tools(owners: Owners) {
    let classified: BTreeSet<&str> = [READING_TOOLS, WRITING_TOOLS].concat().into_iter().collect();
    let listed = tool_names(&owners.service, &owners.scale).await;
    assert_eq!(classified, listed.iter().map(String::as_str).collect(), "classify every tool as reading or writing");
    let id = owners.dataset("Scoped", true, 2).await;
    let key = reader(&owners).await;
    let call = async |key: &str, tool: &str, arguments: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
        let request = axum::http::Request::post("/mcp")
            .header("content-type", "application/json")
            .header("host", "127.0.0.1:8080")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", key);
        let body = axum::body::Body::from(message.to_string());
        let answer = owners.service.call(request.body(body).expect("invalid request")).await;
        let message: Value = serde_json::from_str(answer.text()).expect("invalid JSON");
        assert!(message["result"]["content"].is_array(), "{message}");
        (message["result"]["isError"] == json!(true), message["result"]["content"].to_string())
    };
    for tool in READING_TOOLS {
        let arguments = match *tool {
            "list_datasets" | "list_public_datasets" => json!({}),
            "diff" => json!({"dataset_id": id, "v1": 1, "v2": 2}),
            "changes" => json!({"dataset_id": id, "since": 1}),
            _ => json!({"dataset_id": id}),
        };
        let (failed, text) = call(&key, tool, arguments).await;
        assert!(!failed, "{tool}: {text}");
        assert!(!text.contains("sk_") && !text.contains("/ping/"), "{tool}: {text}");
    }
    for tool in WRITING_TOOLS {
        for arguments in [json!({}), json!({"x": 1}), json!({"dataset_id": id, "version": 1, "entities": []})] {
            let (failed, text) = call(&key, tool, arguments.clone()).await;
            assert!(failed && text.contains(REFUSAL), "{tool}: {text}");
            let (_, text) = call(&owners.scale, tool, arguments).await;
            assert!(!text.contains(REFUSAL), "{tool}: {text}");
        }
    }
}

async fn read_token_sees_no_keys(owners: Owners) {
    let id = owners.dataset("Secret", true, 1).await;
    let key = reader(&owners).await;
    let list = |value: Value| value["datasets"][0].clone();
    let view = |value: Value| value["dataset"].clone();
    let view_uri = format!("/dataset/view?dataset_id={id}");
    for (uri, record) in [("/dataset/list", &list as &dyn Fn(Value) -> Value), (&view_uri, &view)] {
        let answer = owners.raw("GET", uri, &[("authorization", &key)], Vec::new()).await;
        assert!(!answer.text().contains("sk_") && !answer.text().contains("/ping/"), "{}", answer.text());
        let seen = record(ok(&answer));
        let mut owned = record(ok(&owners.get(uri).await));
        assert!(owned["private_key"].is_string() && owned["ping_url"].is_string());
        owned["private_key"] = json!(null);
        owned["ping_url"] = json!(null);
        assert_eq!(seen, owned, "all else is the same");
    }
}

/// URLs often contain keys: in the user information, and in the query string, which an owner can publish.
async fn read_token_sees_no_credentials_in_urls(owners: Owners) {
    let owners = owners.with(|config| {
        config.net.allow = vec!["127.0.0.0/8".to_owned()].try_into().expect("invalid network");
    });
    let owners = owners.await;
    let receiver = LoopbackServer::start(|_: &Received| Reply::Bytes(with_status("204 No Content", "", b"")));
    let plain = receiver.url("/hook");
    let url = format!("{}?key=s3cret", plain.replace("http://", "http://ada:s3cret@"));
    let create = async |name: &str, source: &str, publish_query: bool| {
        let body = json!({"name": name, "source": source, "publish_query": publish_query});
        ok(&owners.post("/dataset/create", body).await)["dataset"]["dataset_id"].as_u64().expect("missing ID")
    };
    let id = create("Pushed", "push", false).await;
    ok(&owners.post("/webhook/register", json!({"dataset_id": id, "url": url})).await);
    ok(&owners.post("/dataset/refresh", json!({"dataset_id": id, "entities": []})).await);
    owners.service.services.deliveries.send_due().await.expect("failed to send");
    let fetched = create("Fetched", &url, false).await;
    let published = create("Published", &url, true).await;

    let key = reader(&owners).await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"list_datasets","arguments":{}}}"#;
    let headers = [
        ("content-type", "application/json"),
        ("host", "127.0.0.1:8080"),
        ("accept", "application/json, text/event-stream"),
    ];
    let seen = async |method: &str, uri: &str, key: &str| {
        let body = if method == "POST" { list.as_bytes().to_vec() } else { Vec::new() };
        let request = axum::http::Request::builder().method(method).uri(uri).header("authorization", key);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let answer = owners.service.call(request.body(axum::body::Body::from(body)).expect("invalid request")).await;
        assert_eq!(answer.status, 200, "{uri}: {}", answer.text());
        answer.text().to_owned()
    };
    let with_query = format!("{plain}?key=s3cret");
    for (method, uri, shown) in [
        ("GET", format!("/webhook/view?dataset_id={id}"), &plain),
        ("GET", format!("/webhook/deliveries?dataset_id={id}"), &plain),
        ("GET", format!("/dataset/view?dataset_id={fetched}"), &plain),
        ("GET", format!("/dataset/view?dataset_id={published}"), &with_query),
        ("GET", "/dataset/list".to_owned(), &plain),
        ("POST", "/mcp".to_owned(), &plain),
    ] {
        let text = seen(method, &uri, &key).await;
        assert!(text.contains(shown) && !text.contains("ada"), "{uri}: {text}");
        // Only one dataset publishes its query string.
        let queries = usize::from(!uri.contains(&id.to_string()) && !uri.contains(&fetched.to_string()));
        assert_eq!(text.matches("s3cret").count(), queries, "{uri}: {text}");
        let text = seen(method, &uri, &owners.scale).await;
        assert!(text.contains(&url), "a writing token shows the whole URL: {uri}: {text}");
    }
}
