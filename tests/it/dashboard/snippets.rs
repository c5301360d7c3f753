//! Snippets for other tools: each one runs unchanged.

use std::path::Path;
use std::process::{Command, Stdio};

use axum::body::Body;
use axum::http::Request;
use scraper::Html;
use serde_json::{Value, json};
use strata_testing::Answer;
use strata_testing::html::{select, words};
use strata_testing::machine::{get, request};
use strata_testing::owned::{Owned, log_in, parsed};
use strata_testing::scripts::{tool, tools_file};

const ENTITIES: &str = r#"[{"n":1,"word":"alpha \"x\" 'y' $(z) \\ `w`"},{"n":2,"word":"beta"},{"n":3,"word":"gamma"}]"#;

/// A query that matches only the first entity, with characters that are special in shells and programs.
const QUERY: &str = "filter=word:alpha%20%22x%22%20%27y%27%20%24%28z%29%20%5C%20%60w%60&filter_lt=n:3&limit=2";

/// Runs a command with `input`. The command must succeed; returns its output.
#[track_caller]
fn run_command(mut command: Command, input: &str) -> String {
    command.env("NO_PROXY", "*").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let mut child = command.spawn().expect("it runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{input}\n{printed}{errors}");
    printed.into_owned()
}

/// Writes a snippet to a file and runs it with a command.
fn run_program(mut command: Command, directory: &Path, name: &str, text: &str) -> String {
    std::fs::write(directory.join(name), text).expect("written");
    command.arg(name).current_dir(directory);
    run_command(command, "")
}

/// Runs all snippets of a page. Returns their names and the MCP tool call.
fn run_snippets(html: &str, directory: &Path, key: &str) -> (Vec<String>, Value) {
    let html = Html::parse_document(html);
    let names: Vec<String> = select(&html, ".snippet summary").into_iter().map(words).collect();
    let texts = select(&html, ".snippet code").into_iter().map(|code| code.text().collect::<String>());
    let texts: Vec<String> = texts.map(|text| text.replace("PRIVATE_KEY", key)).collect();
    let mut ran = Vec::new();
    let mut call = Value::Null;
    for (name, text) in names.iter().zip(&texts) {
        let python = || tool("python");
        let output = match name.as_str() {
            "URL" => {
                let authorization = (!key.is_empty()).then(|| format!("Bearer {key}"));
                get(text, authorization.as_deref()).1
            }
            "curl" => {
                let mut bash = Command::new("bash");
                bash.args(["-euo", "pipefail", "-s"]).current_dir(directory);
                run_command(bash, text)
            }
            "Python, requests" | "Python, pandas" | "Polars" => run_program(python(), directory, "snippet.py", text),
            "DuckDB" => {
                let mut duckdb = python();
                duckdb.arg(tools_file("snippet.py"));
                run_command(duckdb, text)
            }
            "JavaScript" => run_program(Command::new("node"), directory, "snippet.mjs", text),
            "MCP tool call" => {
                call = serde_json::from_str(text).expect("JSON");
                continue;
            }
            other => panic!("unknown snippet {other}"),
        };
        assert!(output.contains("alpha") && !output.contains("beta") && !output.contains("gamma"), "{name}: {output}");
        ran.push(name.clone());
    }
    (ran, call)
}

/// Calls an MCP tool with the token of the user.
async fn tool_call(owned: &Owned, name: &str, arguments: &Value) -> Answer {
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let request = Request::post("/mcp").header("content-type", "application/json").header("host", "127.0.0.1:8080");
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request.header("authorization", format!("Bearer {}", owned.token()));
    owned.service.call(request.body(Body::from(call.to_string())).expect("a request")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_snippet_runs_unchanged() {
    let owned = Owned::sqlite().await;
    let public = owned.dataset("Words", json!({}), &[ENTITIES]).await;
    let private = owned.dataset("Secret Words", json!({"private": true}), &[ENTITIES]).await;
    let view = owned.call("GET", &format!("/dataset/view?dataset_id={private}"), "").await;
    let key = parsed(&view)["dataset"]["private_key"].as_str().expect("a key").to_owned();

    let listening = owned.service.listen().await;
    let address = listening.address;

    let cookie = log_in(&owned.service, &owned.user.email).await;
    let pages = [(public, "words", String::new()), (private, "secret-words", key)];
    let ran = tokio::task::spawn_blocking(move || {
        let base = format!("http://{address}");
        let cookie = format!("Cookie: {cookie}\r\n");
        pages.map(|(id, slug, key)| {
            let (head, page) = request("GET", &format!("{base}/ui/{id}/{slug}/active/?{QUERY}"), &cookie, "");
            assert!(head.starts_with("http/1.1 200"), "{head}\n{page}");
            let directory = tempfile::tempdir().expect("a directory");
            run_snippets(&page, directory.path(), &key)
        })
    });
    for (ran, call) in ran.await.expect("no panic") {
        assert_eq!(ran, ["URL", "curl", "Python, requests", "Python, pandas", "DuckDB", "Polars", "JavaScript"]);
        let name = call["name"].as_str().expect("a name");
        let answer = tool_call(&owned, name, &call["arguments"]).await;
        assert!(answer.text().contains("alpha") && !answer.text().contains("beta"), "{}", answer.text());
    }
    listening.stop().await;
}
