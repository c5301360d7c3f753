//! The agent tools at `/mcp`, called as raw JSON-RPC and by the official client.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use strata_config::{HostNames, PublicUrl};
use strata_testing::agents::{LIST_TOOLS, listed_tools, tool_names};
use strata_testing::entities::{EXACT, entities};
use strata_testing::machine::{Machine, Server, get, one_json_line, request, succeeded};
use strata_testing::openapi::Document;
use strata_testing::owned::{Owned, log_in, parsed};
use strata_testing::pages::{between, check_table};
use strata_testing::scripts::{tool, tools_file};
use strata_testing::{Answer, FIXTURES};

/// Calls `/mcp` with a token and any body.
pub(super) async fn message(owned: &Owned, token: Option<&str>, body: &str) -> Answer {
    let request = Request::post("/mcp").header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream").header("host", "127.0.0.1:8080");
    let request = match token {
        Some(token) => request.header("authorization", format!("Bearer {token}")),
        None => request,
    };
    owned.service.call(request.body(Body::from(body.to_owned())).expect("invalid request")).await
}

/// Returns the message of a tool call with exactly these arguments.
pub(super) fn calling(tool: &str, arguments: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#)
}

/// Returns the texts of a successful result, and the record in the first text, if any.
#[track_caller]
pub(super) fn tool_output(answer: &Answer) -> (Vec<String>, Value) {
    let result = result(answer);
    assert_ne!(result["isError"], json!(true), "{result}");
    assert_eq!(result["structuredContent"], Value::Null, "nothing is sent twice");
    let texts = texts(&result);
    let record = serde_json::from_str(&texts[0]).unwrap_or(Value::Null);
    (texts, record)
}

/// Returns the text of a failed result.
#[track_caller]
pub(super) fn failure(answer: &Answer) -> String {
    let result = result(answer);
    assert_eq!(result["isError"], json!(true), "{result}");
    texts(&result).concat()
}

#[track_caller]
pub(super) fn result(answer: &Answer) -> Value {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let message: Value = serde_json::from_str(answer.text()).expect("invalid JSON");
    assert_eq!((&message["jsonrpc"], &message["id"]), (&json!("2.0"), &json!(7)), "{message}");
    message["result"].clone()
}

fn texts(result: &Value) -> Vec<String> {
    let contents = result["content"].as_array().expect("missing contents");
    contents.iter().map(|content| content["text"].as_str().expect("missing text").to_owned()).collect()
}

pub(super) async fn call_tool(owned: &Owned, tool: &str, arguments: Value) -> Answer {
    message(owned, Some(&owned.token), &calling(tool, &arguments.to_string())).await
}

#[test]
fn official_client_reads_edits_and_gets_errors() {
    let machine = Machine::new();
    let add = ["user", "add", "ada@example.test", "--plan", "pro", "--token", "agent"];
    let added = succeeded(&machine.run_with_input(&add, "correct horse\n"));
    let token = added.lines().last().expect("missing token");
    let file = format!("{FIXTURES}/world-countries/countries.json");
    let import = ["import", &file, "--name", "World Countries", "--owner", "ada@example.test"];
    let id = one_json_line(&machine.run(&import))["dataset_id"].to_string();
    let mut pairs = Value::Null;
    for version in [r#"[{"k":"a","n":1.0,"x":"y"},{"k":"b"}]"#, r#"[{"k":"a","n":1e2,"x":"y"},{"k":"c"}]"#] {
        machine.write("pairs.json", version);
        let import = ["import", "pairs.json", "--name", "Pairs", "--owner", "ada@example.test", "--format", "json"];
        pairs = one_json_line(&machine.run(&import))["dataset_id"].clone();
    }
    // Numbers must keep their notation.
    let diff = concat!(
        r#"{"added":1,"subtracted":1,"modified":1,"total_v1":2,"total_v2":2,"records":["#,
        r#"{"id":"m0-0","change_type":"modified","source":"","v1":{"k":"a","n":1.0,"x":"y"},"#,
        r#""v2":{"k":"a","n":1e2,"x":"y"},"field_diffs":[{"field":"n","v1":1.0,"v2":1e2}]},"#,
        r#"{"id":"s1","change_type":"subtracted","source":"","v1":{"k":"b"},"v2":null,"field_diffs":[]},"#,
        r#"{"id":"a1","change_type":"added","source":"","v1":null,"v2":{"k":"c"},"field_diffs":[]}]}"#,
    );
    let server = Server::start(&machine, &[], &[("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")]);
    let document = get(&format!("{}/openapi.json", server.base_url), None).1;
    let document = Document(serde_json::from_str(&document).expect("invalid JSON"));
    let parameters: Vec<String> = document.read_parameters().into_iter().map(|parameter| parameter.name).collect();
    let headers = format!(
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Authorization: Bearer {token}\r\n"
    );
    let tools = listed_tools(&request("POST", &format!("{}/mcp", server.base_url), &headers, LIST_TOOLS).1);
    let expects = json!({"tools": tools, "parameters": parameters, "pairs": pairs, "diff": diff}).to_string();
    let mut script = tool("python");
    script.arg(tools_file("agents.py")).args([&server.base_url, token, &id, "world-countries", &expects]);
    let output = script.output().expect("failed to run program");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}{}", server.errors());
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");

    // The example in the documentation runs unchanged.
    let example = between("docs/guides/ai-agents.md", "<!-- agents:begin -->\n```python", "```\n<!-- agents:end -->");
    let example = example.replace("http://127.0.0.1:8080", &server.base_url).replace("strata_…", token);
    let pasted = tool("python").args(["-c", &example]).output().expect("failed to run program");
    let shown = String::from_utf8_lossy(&pasted.stdout);
    let errors = String::from_utf8_lossy(&pasted.stderr);
    assert!(pasted.status.success(), "{shown}{errors}");
    assert!(shown.contains("pull_for_edit") && shown.contains(r#""total_count":53"#), "{shown}");
    assert!(lines[0].starts_with("legacy: 2025-") && lines[1].starts_with("auto: 2026-"), "{printed}");
}

/// The number of transferred bytes does not depend on the size of the version. `TEST_ENTITIES` sets the size, and
/// `--nocapture` shows the number of bytes.
#[test]
fn official_client_edits_few_entities_cheaply() {
    let machine = Machine::new();
    let add = ["user", "add", "ada@example.test", "--plan", "pro", "--token", "agent"];
    let added = succeeded(&machine.run_with_input(&add, "correct horse\n"));
    let token = added.lines().last().expect("missing token");
    let entities = std::env::var("TEST_ENTITIES").ok().and_then(|entities| entities.parse().ok()).unwrap_or(10_000);
    let filler = "lorem ipsum dolor sit amet ".repeat(20);
    let entity = |number: usize| {
        let text = if [7, 4_321, entities - 1].contains(&number) { "a zebra" } else { "a horse" };
        json!({"i": number, "text": text, "filler": filler, "group": number % 17}).to_string()
    };
    machine.write("large.jsonl", &(0..entities).map(entity).collect::<Vec<_>>().join("\n"));
    let import = ["import", "large.jsonl", "--name", "Large", "--owner", "ada@example.test"];
    let id = one_json_line(&machine.run(&import))["dataset_id"].to_string();
    let server = Server::start(&machine, &[], &[]);
    let mut script = tool("python");
    let script = script.arg(tools_file("large_edit.py")).args([&server.base_url, token, &id, "zebra", "100000"]);
    let output = script.output().expect("failed to run program");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}{}", server.errors());
    println!("{entities} entities: {printed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_preserve_entity_bytes() {
    let owned = Owned::sqlite().await;
    // Some JSON parsers treat this key as a number.
    let list = format!(r#"[{{"$serde_json::private::Number":"12"}},{}"#, &EXACT[1..]);
    let id = owned.dataset("Things", json!({"private": true}), &[&list]).await;
    let pulled = owned.pull(json!({"dataset_id": id, "version": 1})).await;
    let (texts, _) = tool_output(&call_tool(&owned, "pull_for_edit", json!({"dataset_id": id})).await);
    assert_eq!(texts, [pulled.text()], "the same text as over HTTP");

    let etag = pulled.header("etag").expect("missing etag");
    let arguments = format!(r#"{{"entities":{list},"etag":{},"version":1,"dataset_id":{id}}}"#, json!(etag));
    let (_, record) = tool_output(&message(&owned, Some(&owned.token), &calling("push_alt_version", &arguments)).await);
    assert_eq!(record["etag"], json!(owned.etag(id, 1).await));
    assert_eq!(record["version"], owned.versions(id).await[0]);
    // One more entity, so that the count differs from the version's count.
    let etag = record["etag"].clone();
    let more =
        format!(r#"{{"entities":[{{}},{}],"etag":{etag},"version":1,"dataset_id":{id}}}"#, &list[1..list.len() - 1]);
    let (_, pushed) = tool_output(&message(&owned, Some(&owned.token), &calling("push_alt_version", &more)).await);
    let count = pushed["version"]["entity_count"].as_u64().expect("missing count");
    assert_eq!(pushed["alt_entity_count"], json!(count + 1));
    let arguments = format!(r#"{{"entities":{list},"etag":{},"version":1,"dataset_id":{id}}}"#, pushed["etag"]);
    tool_output(&message(&owned, Some(&owned.token), &calling("push_alt_version", &arguments)).await);
    let alternate = owned.pull(json!({"dataset_id": id, "alt": true})).await;
    assert!(alternate.text().ends_with(&format!(r#""entities":{list}}}"#)), "{}", alternate.text());
    let (texts, _) = tool_output(&call_tool(&owned, "read", json!({"dataset_id": id, "alt": true})).await);
    assert_eq!(texts[1], list);
}

/// An entity with this many levels, including itself.
fn nested(levels: usize) -> String {
    format!(r#"{{"a":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_rejects_entities_that_are_too_deep() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let push = async |entities: &str| {
        let etag = json!(owned.etag(id, 1).await);
        let arguments = format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag},"entities":{entities}}}"#);
        message(&owned, Some(&owned.token), &calling("push_alt_version", &arguments)).await
    };
    // The message around the entities uses 4 of the 128 levels.
    let deepest = format!("[{}]", nested(124));
    tool_output(&push(&deepest).await);
    let odd = r#"[{"a":-0,"b":1.10,"c":1E+2,"a\u0062":"\u00e9\/","d":1,"d":2,"e":123456789012345678901234567890}]"#;
    let as_stored = r#"[{"a":-0,"b":1.10,"c":1E+2,"ab":"é/","d":2,"e":123456789012345678901234567890}]"#;
    tool_output(&push(odd).await);
    let alternate = format!("/api/{id}/things/v1/alt/?pretty=false");
    owned.service.get(&alternate).await.is(as_stored);
    for (entities, reason) in [
        (format!("[{}]", nested(125)), "nested deeper than 128 levels"),
        (r#"[{"a":"\ud800"}]"#.to_owned(), "surrogate"),
        (r#"[{"a":01}]"#.to_owned(), "byte "),
    ] {
        let answer = push(&entities).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("JSON-RPC 2.0") && answer.text().contains(reason), "{}", answer.text());
    }
    owned.service.get(&alternate).await.is(as_stored);
    let bare = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"push_alt_version"}}"#;
    let text = failure(&message(&owned, Some(&owned.token), bare).await);
    assert!(text.contains("entities is missing"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_limit_excludes_pushed_entities() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let list = entities(1 << 20);
    let etag = json!(owned.etag(id, 1).await);
    let arguments = format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag},"entities":{list}}}"#);
    tool_output(&message(&owned, Some(&owned.token), &calling("push_alt_version", &arguments)).await);
    owned.service.get(&format!("/api/{id}/things/v1/alt/?pretty=false")).await.is(&list);
    let wide = format!(r#"{{"dataset_id":{id},"filter":[{}[]]}}"#, "[],".repeat(100_000));
    let answer = message(&owned, Some(&owned.token), &calling("read", &wide)).await;
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert!(
        answer.text().contains("longer than 131072 bytes, not counting the pushed entities and edits"),
        "{}",
        answer.text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_lists_unknown_paths_with_suggestions() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"name":"a","stock":{"berlin":1}}]"#]).await;
    let about = async |filter: Value| -> Value {
        let (texts, _) = tool_output(&call_tool(&owned, "read", json!({"dataset_id": id, "filter": filter})).await);
        serde_json::from_str(&texts[0]).expect("invalid JSON")
    };
    let slips = about(json!(["nmae:a", "stock.berln:1", "zzzzzz:1"])).await;
    assert_eq!(slips["unknown_fields"], json!(["nmae", "stock.berln", "zzzzzz"]));
    assert_eq!(slips["did_you_mean"], json!({"nmae": "name", "stock.berln": "stock.berlin"}));
    let none = about(json!(["zzzzzz:1"])).await;
    assert_eq!((&none["unknown_fields"], none.get("did_you_mean")), (&json!(["zzzzzz"]), None));
    assert_eq!(about(json!(["name:a"])).await.get("unknown_fields"), None);
    // There is no suggestion for a path that exists.
    let (texts, _) = tool_output(&call_tool(&owned, "read", json!({"dataset_id": id, "sort": "stock.berlin"})).await);
    let sorted: Value = serde_json::from_str(&texts[0]).expect("invalid JSON");
    assert_eq!(sorted["hints"], json!(["`sort` requires a top-level field, but \"stock.berlin\" is a nested path."]));
    assert_eq!(sorted.get("did_you_mean"), None);
}

/// Regression: a range filter of the wrong type found nothing without a hint, even with `strict=true`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_hints_at_range_filter_of_wrong_type() {
    let owned = Owned::sqlite().await;
    let things = r#"[{"code":"12","mag":[1.5,2],"mixed":1},{"code":"60","mag":null,"mixed":"a","odd":{"a":true}}]"#;
    let id = owned.dataset("Things", json!({}), &[things]).await;
    let about = async |arguments: Value| -> Value {
        let mut arguments = arguments;
        arguments["dataset_id"] = json!(id);
        let (texts, _) = tool_output(&call_tool(&owned, "read", arguments).await);
        serde_json::from_str(&texts[0]).expect("invalid JSON")
    };
    for (arguments, words) in [
        (json!({"filter_gt": ["code:5"]}), "`filter_gt=code:\"5\"` compares strings"),
        (json!({"filter_gt": ["code:5"], "strict": true, "count": true}), "`code` contains strings but no numbers"),
        (json!({"filter_lte": ["mag:1,5"]}), "Did you mean `filter_lte=mag:1.5`?"),
        (json!({"filter_lt": ["odd.a:x"]}), "`odd.a` contains no strings"),
    ] {
        let about = about(arguments.clone()).await;
        let hints = about["hints"].as_array().unwrap_or_else(|| panic!("{arguments}: {about}"));
        assert!(hints.len() == 1 && hints[0].as_str().is_some_and(|hint| hint.contains(words)), "{arguments}: {about}");
    }
    for arguments in [
        json!({"filter": ["odd.a:true", "odd:null"]}),
        json!({"filter_gt": ["code:\"5\""]}),
        json!({"filter_gt": ["mag:1"]}),
        json!({"filter_gt": ["mag:9"]}),
        json!({"filter_gt": ["mixed:9"]}),
        json!({"filter_gt": ["nowhere:9"]}),
    ] {
        assert_eq!(about(arguments.clone()).await.get("hints"), None, "{arguments}");
    }
}

/// Regression: a filter or sort on an object had no effect without a hint, and `explain` suggested an index for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_hints_at_objects_and_removed_fields() {
    let owned = Owned::sqlite().await;
    let things = r#"[{"name":{"common":"A","short":"a"},"n":1,"list":[{"x":1}]},{"name":{"common":"B"},"n":2}]"#;
    let id = owned.dataset("Things", json!({}), &[things]).await;
    let called = async |tool: &str, arguments: &Value| -> Vec<String> {
        let mut arguments = arguments.clone();
        arguments["dataset_id"] = json!(id);
        tool_output(&call_tool(&owned, tool, arguments).await).0
    };
    for (arguments, words) in [
        (json!({"filter": ["name:A"]}), "so `filter=name:A` finds nothing. Use a nested path, such as `name.short`."),
        (
            json!({"filter_contains": ["list:1"]}),
            "so `filter_contains=list:1` finds nothing. Use a nested path, such as `list.x`.",
        ),
        (
            json!({"filter_gt": ["name:A"]}),
            "so `filter_gt=name:A` finds nothing. Use a nested path, such as `name.short`.",
        ),
        (json!({"sort": "name"}), "so sorting by it changes nothing."),
    ] {
        let about: Value = serde_json::from_str(&called("read", &arguments).await[0]).expect("invalid JSON");
        let hints = about["hints"].as_array().unwrap_or_else(|| panic!("{arguments}: {about}"));
        assert!(
            hints.len() == 1 && hints[0].as_str().is_some_and(|hint| hint.ends_with(words)),
            "{arguments}: {about}"
        );
        let next = about["next"].as_str();
        assert_eq!(next, arguments.get("sort").is_none().then_some("nothing matches: see hints"), "{arguments}");
        let explained = called("explain", &arguments).await.concat();
        assert!(explained.contains(words) && !explained.contains("no indexed column"), "{arguments}: {explained}");
    }
    let arguments = json!({"filter": ["n:1"], "keep_field": ["name"]});
    let about: Value = serde_json::from_str(&called("read", &arguments).await[0]).expect("invalid JSON");
    assert_eq!(about["unknown_fields"], json!(["n"]));
    assert_eq!(about["hints"], json!(["keep_field removes \"n\" from every entity before filter looks for it."]));
    assert_eq!(about["next"], "nothing matches: see hints");
    // Edits based on incomplete entities would lose fields.
    for (arguments, is_whole) in
        [(json!({}), true), (json!({"keep_field": ["n"]}), false), (json!({"format": "csv"}), false)]
    {
        let mut arguments = arguments;
        arguments["positions"] = json!(true);
        let about: Value = serde_json::from_str(&called("read", &arguments).await[0]).expect("invalid JSON");
        let next = about["next"].as_str().expect("missing next step");
        assert!(
            next.starts_with("edit_alt_version") && next.contains("`set` requires complete entities") != is_whole,
            "{next}"
        );
    }
}

/// Regression: the command that the error suggested was rejected itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_suggested_by_error_are_accepted() {
    let owned = Owned::sqlite().await;
    let bearer = format!("Bearer {}", owned.token);
    let request = Request::post("/mcp").header("authorization", &bearer).header("host", "127.0.0.1:8080");
    let answer = owned.service.call(request.body(Body::from("{}")).expect("invalid request")).await;
    assert_eq!(answer.status, 415);
    let refusal: Value = serde_json::from_str(answer.text()).expect("invalid JSON");
    let text = refusal["error"]["message"].as_str().expect("missing text");
    let mut request = Request::post("/mcp").header("host", "127.0.0.1:8080");
    let mut quoted: Vec<String> =
        text.split('\'').skip(1).step_by(2).map(|text| text.replace("Bearer strata_…", &bearer)).collect();
    let body = quoted.pop().expect("missing body");
    for header in quoted {
        let (name, value) = header.split_once(": ").expect("invalid header");
        request = request.header(name, value);
    }
    let answer = owned.service.call(request.body(Body::from(body)).expect("invalid request")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("\"tools\""), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_requires_own_dataset() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({"private": true}), &[r#"[{"a":1},{"a":2}]"#]).await;
    let (texts, _) = tool_output(&call_tool(&owned, "explain", json!({"dataset_id": id, "filter": "a:2"})).await);
    assert!(texts[0].starts_with(&format!("Query on dataset {id} (things), version 1\n")), "{}", texts[0]);
    for words in ["a:2", "Physical plan", "1 entity", "limit"] {
        assert!(texts[0].contains(words), "{words}: {}", texts[0]);
    }
    let text = failure(&call_tool(&owned, "explain", json!({"dataset_id": id, "version": "v9"})).await);
    assert!(text.contains("no version 9"), "{text}");
    let text = failure(&call_tool(&owned, "explain", json!({"dataset_id": id, "limitt": 1})).await);
    assert!(text.contains("unknown argument"), "{text}");
    // Public datasets of other users can be read, but not explained.
    let open = owned.service.import("Open", "{\"open\":1}\n").await.dataset_id.get();
    let text = failure(&call_tool(&owned, "explain", json!({"dataset_id": open})).await);
    assert_eq!(text, failure(&call_tool(&owned, "pull_for_edit", json!({"dataset_id": open})).await));
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    tool_output(&call_tool(&owned, "explain", json!({"dataset_id": id})).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_tool_matches_read_endpoint() {
    let owned = Owned::sqlite().await;
    let entities: Vec<String> =
        (0..60).map(|n| format!(r#"{{"n":{n},"k":"a{}","t":[{}.0,null]}}"#, n % 3, n)).collect();
    let id = owned.dataset("Things", json!({}), &["[]", &format!("[{}]", entities.join(","))]).await;
    let check = async |arguments: Value, query: &str, about: Value| {
        let mut all = arguments.clone();
        all["dataset_id"] = json!(id);
        let (texts, _) = tool_output(&call_tool(&owned, "read", all).await);
        let path = format!("/api/{id}/things/active/?{query}");
        owned.service.get(&path).await.is(&texts[1]);
        let found: Value = serde_json::from_str(&texts[0]).expect("invalid JSON");
        let shown = json!([found["returned"], found["total_count"], found["next_offset"]]);
        assert_eq!(shown, about, "{arguments}");
        assert_eq!((&found["dataset_id"], &found["version"], &found["alt"]), (&json!(id), &json!(2), &json!(false)));
    };
    check(json!({}), "limit=20&pretty=false", json!([20, 60, 20])).await;
    check(json!({"offset": 40}), "limit=20&offset=40&pretty=false", json!([20, 60, null])).await;
    check(json!({"offset": 99}), "limit=20&offset=99&pretty=false", json!([0, 60, null])).await;
    check(json!({"limit": 0}), "limit=0&pretty=false", json!([0, 60, null])).await;
    check(json!({"limit": "7", "pretty": true}), "limit=7", json!([7, 60, 7])).await;
    check(
        json!({"filter": ["k:A1", "n:4.0"], "keep_field": "n, k", "version": "latest", "format": "csv"}),
        "filter=k:A1&filter=n:4.0&keep_field=n,k&format=csv",
        json!([1, 1, null]),
    )
    .await;
    check(
        json!({"dedup": true, "dedup_key": ["k"], "sort": "n:desc", "drop_field": ["t"], "format": "jsonl"}),
        "dedup=1&dedup_key=k&sort=n:desc&drop_field=t&format=jsonl",
        json!([3, 3, null]),
    )
    .await;
    for (page, shown) in [
        (json!({}), json!([20, 20, null])),
        (json!({"limit": 7}), json!([7, 20, null])),
        (json!({"offset": 15}), json!([5, 20, null])),
        (json!({"offset": 25, "limit": 3}), json!([0, 20, null])),
    ] {
        let mut arguments = page;
        let mut query = "count=1&filter=k:a0&pretty=false".to_owned();
        for (name, value) in arguments.as_object().expect("expected an object") {
            query.push_str(&format!("&{name}={value}"));
        }
        arguments["count"] = json!(true);
        arguments["filter"] = json!("k:a0");
        check(arguments, &query, shown).await;
    }
    check(json!({"limit": null, "filter": null, "format": "tsv"}), "limit=20&format=tsv", json!([20, 60, 20])).await;
    let (texts, _) = tool_output(&call_tool(&owned, "read", json!({"dataset_id": id, "sample": 30})).await);
    let sampled: Vec<Value> = serde_json::from_str(&texts[1]).expect("invalid JSON");
    let about: Value = serde_json::from_str(&texts[0]).expect("invalid JSON");
    assert_eq!((sampled.len(), &about["total_count"], &about["next_offset"]), (30, &json!(30), &Value::Null));
    assert_eq!(about.get("total_matches"), None);
    // A seeded sample can be paged, and its total is known.
    check(json!({"sample": 30, "seed": 7, "limit": 20}), "sample=30&seed=7&limit=20&pretty=0", json!([20, 30, 20]))
        .await;
    let arguments = json!({"dataset_id": id, "sample": 30, "seed": 7, "filter": "k:a0", "total": true, "limit": 3});
    let (texts, _) = tool_output(&call_tool(&owned, "read", arguments).await);
    let about: Value = serde_json::from_str(&texts[0]).expect("invalid JSON");
    assert_eq!([&about["total_count"], &about["total_matches"], &about["next_offset"]], [20, 20, 3]);
    let text = failure(&call_tool(&owned, "read", json!({"dataset_id": id, "seed": 7})).await);
    assert!(text.contains("parameter seed: 7 requires sample"), "{text}");
    // Numbers are shown as numbers, and strings as strings.
    for (argument, value, shown) in [
        ("limit", json!(-1), "parameter limit: -1 is not a whole number; valid: "),
        ("limit", json!("-1"), "parameter limit: \"-1\" is not a whole number; valid: "),
        ("offset", json!(0.5), "parameter offset: 0.5 is not a whole number; valid: "),
        ("sample", json!([1, "x"]), "parameter sample: [1,\"x\"] has the wrong type; valid: "),
        ("count", json!(7), "parameter count: 7 is not a boolean; valid: "),
        ("sort", json!({"a": 1}), "parameter sort: {\"a\":1} has the wrong type; valid: "),
        ("dataset_id", json!(-7), "dataset_id: -7 is not valid; valid: a positive integer"),
        ("dataset_id", json!("-7"), "dataset_id: \"-7\" is not valid; valid: a positive integer"),
    ] {
        let mut arguments = json!({"dataset_id": id});
        arguments[argument] = value;
        let text = failure(&call_tool(&owned, "read", arguments).await);
        assert!(text.contains(shown), "{text} does not say {shown}");
    }
    for (edit, shown) in [
        (
            json!({"position": -1, "remove": true}),
            "edits[0]: position: -1 is not valid; valid: a whole number, 0 or more",
        ),
        (json!({"position": 0, "set": null}), "edits[0]: set: null is not valid; valid: an object (the whole entity)"),
    ] {
        let etag = owned.etag(id, 1).await;
        let arguments = json!({"dataset_id": id, "version": 1, "etag": etag, "edits": [edit]});
        let text = failure(&call_tool(&owned, "edit_alt_version", arguments).await);
        assert!(text.contains(shown), "{text} does not say {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_reach_public_and_own_datasets() {
    let owned = Owned::sqlite().await;
    let mine = owned.dataset("Mine", json!({"private": true}), &[r#"[{"mine":1}]"#]).await;
    let open = owned.service.import("Open", "{\"open\":1}\n").await;
    let closed = owned.service.try_import("Closed", true, b"{\"closed\":1}\n").await.expect("failed to import");
    let open = open.dataset_id.get();
    let closed = closed.dataset_id.get();
    let read = async |id: u64| call_tool(&owned, "read", json!({"dataset_id": id})).await;
    assert_eq!(tool_output(&read(mine).await).0[1], r#"[{"mine":1}]"#);
    assert!(tool_output(&read(open).await).0[1].starts_with(r#"[{"open":1"#));
    // A private dataset of another user looks like a missing one.
    assert_eq!(failure(&read(closed).await), failure(&read(999_999).await));
    for id in [open, closed, 999_999] {
        let answer = call_tool(&owned, "pull_for_edit", json!({"dataset_id": id})).await;
        assert_eq!(failure(&answer), "You have no dataset with this dataset_id.");
    }
    let (_, page) = tool_output(&call_tool(&owned, "list_datasets", json!({})).await);
    assert_eq!(page["datasets"].as_array().map(Vec::len), Some(1), "{page}");
    assert!(!page.to_string().contains("ping_") && page["datasets"][0].get("private_key").is_none(), "{page}");

    let second = owned.dataset("Second", json!({}), &[]).await;
    let (_, page) = tool_output(&call_tool(&owned, "list_datasets", json!({"limit": 1})).await);
    assert_eq!((&page["datasets"][0]["dataset_id"], &page["next_after"]), (&json!(mine), &json!(mine)));
    let (_, page) = tool_output(&call_tool(&owned, "list_datasets", json!({"limit": 1, "after": mine})).await);
    assert_eq!((&page["datasets"][0]["dataset_id"], &page["next_after"]), (&json!(second), &Value::Null));
    assert_eq!(
        (&page["datasets"][0]["active_version"], &page["datasets"][0]["private"]),
        (&Value::Null, &json!(false))
    );

    let text = failure(&call_tool(&owned, "list_datasets", json!({"limit": 201})).await);
    assert!(text.contains("limit") && text.contains("1 to 200"), "{text}");

    // A frozen dataset cannot be read, but it can be edited.
    let freeze = json!({"dataset_id": mine, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    assert_eq!(failure(&read(mine).await), "This dataset is frozen and no longer served.");
    tool_output(&call_tool(&owned, "pull_for_edit", json!({"dataset_id": mine})).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_require_api_token() {
    let owned = Owned::sqlite().await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    assert_eq!(result(&message(&owned, Some(&owned.token), list).await)["tools"][3]["name"], json!("read"));
    for token in [None, Some("strata_wrong"), Some("")] {
        let answer = message(&owned, token, list).await;
        answer.is_error(401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert!(answer.text().contains("API token"), "{}", answer.text());
    }
    let cookie = log_in(&owned.service, &owned.user.email).await;
    let by_cookie = Request::post("/mcp").header("content-type", "application/json").header("cookie", cookie);
    let by_cookie = by_cookie.header("accept", "application/json, text/event-stream").body(Body::from(list));
    owned.service.call(by_cookie.expect("invalid request")).await.is_error(401);
    for method in ["GET", "DELETE", "PUT"] {
        let answer = owned.call(method, "/mcp", "").await;
        answer.is_error(405);
        assert_eq!(answer.header("allow"), Some("POST"));
    }
}

/// A web page whose host name resolves to the service could call it, if the page had a token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_host_or_origin_returns_403() {
    let owned = Owned::configured(
        |config| {
            let url = "https://data.example.org/strata".to_owned();
            config.server.public_url = Some(PublicUrl::try_from(url).expect("invalid URL"));
            config.server.allowed_hosts =
                HostNames::try_from(vec!["agents.internal".to_owned()]).expect("missing names");
        },
        None,
    )
    .await;
    let call = async |token: &str, headers: &[(&str, &str)]| {
        let mut request = Request::post("/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("bearer {token}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
        owned.service.call(request.body(Body::from(list)).expect("invalid request")).await
    };
    for headers in [
        &[("host", "127.0.0.1:1")][..],
        &[("host", "localhost:8080"), ("origin", "http://localhost:8080")],
        &[("host", "[::1]:8080"), ("origin", "http://[::1]:8080")],
        &[("host", "data.example.org"), ("origin", "https://data.example.org")],
        &[("host", "127.0.0.1:8080"), ("origin", "https://data.example.org")],
        &[("host", "agents.internal:8080")],
        &[("host", "127.0.0.1:8080"), ("origin", "https://agents.internal")],
    ] {
        result(&call(&owned.token, headers).await);
    }
    for headers in [
        &[("host", "evil.example:8080")][..],
        &[("host", "evil.example:8080"), ("origin", "http://evil.example:8080")],
        &[("host", "user@localhost")],
        &[("host", "")],
    ] {
        // The host is checked before the token.
        for token in [&*owned.token, "strata_wrong"] {
            let answer = call(token, headers).await;
            answer.is_error(403);
            assert!(answer.text().starts_with("The Host header is "), "{headers:?}: {}", answer.text());
            assert!(answer.text().contains("server.allowed_hosts"), "{}", answer.text());
        }
    }
    for origin in ["https://evil.example", "null", "http://localhost:9000", "http://data.example.org", ""] {
        let answer = call(&owned.token, &[("host", "localhost:8080"), ("origin", origin)]).await;
        answer.is_error(403);
        assert!(answer.text().contains("Origin"), "{origin}: {}", answer.text());
    }
}

/// Regression: `initialize` returned 200 with the error -32602.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initialize_of_revision_2026_07_28_returns_404() {
    let owned = Owned::sqlite().await;
    let call = async |version: Option<&str>, params: Value| {
        let mut request = Request::post("/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("host", "127.0.0.1:8080")
            .header("authorization", format!("Bearer {}", owned.token));
        if let Some(version) = version {
            request = request.header("mcp-protocol-version", version).header("mcp-method", "initialize");
        }
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params}).to_string();
        let answer = owned.service.call(request.body(Body::from(body)).expect("invalid request")).await;
        let message: Value = serde_json::from_str(answer.text()).expect("invalid JSON");
        (answer.status, message)
    };
    let handshake = |version: &str| {
        let client = json!({"name": "test", "version": "1"});
        json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client})
    };
    let meta = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    for (version, params) in [
        (Some("2026-07-28"), json!({})),
        (Some("2026-07-28"), handshake("2026-07-28")),
        (Some("2026-07-28"), meta.clone()),
        (None, meta),
    ] {
        let (status, message) = call(version, params).await;
        assert_eq!((status, &message["id"], &message["error"]["code"]), (404, &json!(7), &json!(-32_601)), "{message}");
    }
    // Clients of earlier revisions begin with `initialize`, even if they also support a later one.
    for (header, version) in [(None, "2025-06-18"), (Some("2025-06-18"), "2025-06-18"), (None, "2026-07-28")] {
        let (status, message) = call(header, handshake(version)).await;
        assert_eq!((status, &message["result"]["serverInfo"]["name"]), (200, &json!("strata")), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn method_of_undeclared_capability_is_unknown() {
    let owned = Owned::sqlite().await;
    let reference = json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}});
    for (method, params) in [
        ("prompts/list", json!({})),
        ("prompts/list", json!({"cursor": 7})),
        ("prompts/get", json!({"name": "x"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "file:///x"})),
        ("resources/subscribe", json!({"uri": "file:///x"})),
        ("completion/complete", reference),
        ("logging/setLevel", json!({"level": "info"})),
        ("tasks/get", json!({"taskId": "x"})),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
        let answer = message(&owned, Some(&owned.token), &body).await;
        let message: Value = serde_json::from_str(answer.text()).expect("invalid JSON");
        assert_eq!(message["error"]["code"], json!(-32_601), "{method}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_and_messages_are_limited_with_advice() {
    let owned = Owned::configured(|config| config.limits.body_bytes = 100_000, None).await;
    let id = owned.dataset("Large", json!({}), &[&entities(2 << 20)]).await;
    let text = failure(&call_tool(&owned, "pull_for_edit", json!({"dataset_id": id})).await);
    assert!(text.contains("1048576 bytes") && text.contains("POST /agent/pull_for_edit"), "{text}");
    let text = failure(&call_tool(&owned, "read", json!({"dataset_id": id, "limit": 100_000})).await);
    assert!(text.contains("262144 bytes") && text.contains("keep_field"), "{text}");
    tool_output(&call_tool(&owned, "read", json!({"dataset_id": id, "limit": 1_000})).await);
    let arguments = json!({"dataset_id": id, "limit": 10_000, "keep_field": ["number"]});
    assert_eq!(tool_output(&call_tool(&owned, "read", arguments).await).0.len(), 2);
    assert_eq!(owned.service.services.current_load().streams_running, 0, "an interrupted stream is still running");

    let push = json!({"dataset_id": id, "version": 1, "etag": "x", "entities": [{"a": "x".repeat(100_000)}]});
    let answer = call_tool(&owned, "push_alt_version", push).await;
    let refused_as = |code: i32, answer: &Answer, status: u16, words: &str| {
        assert_eq!((answer.status, answer.header("content-type")), (status, Some("application/json")));
        let message: Value = serde_json::from_str(answer.text()).expect("invalid JSON");
        assert_eq!((&message["id"], &message["error"]["code"]), (&Value::Null, &json!(code)), "{message}");
        assert!(message["error"]["message"].as_str().is_some_and(|text| text.contains(words)), "{message}");
    };
    let refused = |answer: &Answer, status: u16, words: &str| refused_as(-32_600, answer, status, words);
    refused(&answer, 413, "POST /agent/push_alt_version");
    // Regression: invalid JSON was reported as an invalid request.
    for body in ["", "{", "[{]", "nul", "\u{0}", "tools/list", r#"{"jsonrpc":"2.0","id":01}"#, "{}{}", "[1]]", "\"a"] {
        refused_as(-32_700, &message(&owned, Some(&owned.token), body).await, 400, "JSON-RPC 2.0");
    }
    for body in ["[]", "{}", "null", "7", r#"{"jsonrpc":"1.0","id":7,"method":"tools/list"}"#, r#"{"id":"\ud800"}"#] {
        refused(&message(&owned, Some(&owned.token), body).await, 400, "JSON-RPC 2.0");
    }
    let batch = format!("[{}]", calling("list_datasets", "{}"));
    refused(&message(&owned, Some(&owned.token), &batch).await, 400, "JSON-RPC 2.0");
    let deep = calling("read", &format!(r#"{{"filter":{}1{}}}"#, "[".repeat(200), "]".repeat(200)));
    refused(&message(&owned, Some(&owned.token), &deep).await, 400, "JSON-RPC 2.0");
    for (name, value, status) in [("content-type", "text/plain", 415), ("accept", "application/json", 406)] {
        let mut request = Request::post("/mcp")
            .header("authorization", format!("Bearer {}", owned.token))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("host", "127.0.0.1:8080")
            .body(Body::from(calling("list_datasets", "{}")))
            .expect("invalid request");
        request.headers_mut().insert(name, value.parse().expect("missing value"));
        refused(&owned.service.call(request).await, status, "application/json");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_return_result_for_any_arguments() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("x"),
        json!(":"),
        json!("a\u{0}b\u{202e}"),
        json!([]),
        json!(["", ":", "a:b"]),
        json!([[1]]),
        json!([null]),
        json!({"a": {"b": 1}}),
        json!("é".repeat(20_000)),
        json!(vec!["a.b"; 1_001]),
    ];
    let mut failures = 0;
    let tools = tool_names(&owned.service, &format!("Bearer {}", owned.token)).await;
    let read_parameters = Document::fetch(&owned.service).await.read_parameters();
    for tool in tools.iter().map(String::as_str) {
        let names = [
            "dataset_id",
            "version",
            "alt",
            "etag",
            "entities",
            "after",
            "limit",
            "v1",
            "v2",
            "change_type",
            "below",
            "offset",
            "none",
            "edits",
            "q",
            "details",
            "positions",
        ];
        let parameters = read_parameters.iter().map(|parameter| parameter.name.as_str());
        for name in names.into_iter().chain(parameters.filter(|_| ["read", "explain"].contains(&tool))) {
            for value in &values {
                let mut arguments = json!({"dataset_id": id});
                if tool == "push_alt_version" {
                    arguments = json!({"dataset_id": id, "version": 1, "etag": "x", "entities": []});
                } else if tool == "edit_alt_version" {
                    let edits = json!([{"position": 0, "remove": true}]);
                    arguments = json!({"dataset_id": id, "version": 1, "etag": "x", "edits": edits});
                } else if tool == "diff" {
                    arguments = json!({"dataset_id": id, "v1": 1, "v2": 1});
                }
                arguments[name] = value.clone();
                let answer = call_tool(&owned, tool, arguments).await;
                let result = result(&answer);
                let text = texts(&result).concat();
                assert!(!text.is_empty() && text.len() < 10_000, "{tool} {name} {value}: {text}");
                if result["isError"] == json!(true) {
                    failures += 1;
                    assert!(!text.contains('\n') && !text.contains("was logged"), "{tool} {name} {value}: {text}");
                }
            }
        }
    }
    assert!(failures > 300, "{failures}");
    owned.service.get(&format!("/api/{id}/things/v1/alt/")).await.is_error(404);
    for arguments in ["null", "7", "[]", "\"x\""] {
        let answer = message(&owned, Some(&owned.token), &calling("read", arguments)).await;
        assert!([200, 400].contains(&answer.status), "{arguments}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_tool_counts_toward_rate_limit_and_metrics() {
    let owned = Owned::configured(|config| config.limits.public_per_minute = 3, None).await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let counted = async |outcome: &str| {
        let text = owned.service.get("/metrics").await.text().to_owned();
        let series = format!("strata_tool_calls_total{{tool=\"read\",outcome=\"{outcome}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series).map(str::to_owned));
        line.map_or(0, |number| number.parse::<u64>().expect("invalid number"))
    };
    let before = (counted("done").await, counted("refused").await);
    for _ in 0..3 {
        tool_output(&call_tool(&owned, "read", json!({"dataset_id": id})).await);
    }
    let text = failure(&call_tool(&owned, "read", json!({"dataset_id": id})).await);
    assert!(text.starts_with("Too many requests. Try again in "), "{text}");
    owned.service.get(&format!("/api/{id}/things/v1/")).await.is_error(429);
    // Other tests in this process can also call the tool.
    assert!(counted("done").await >= before.0 + 3 && counted("refused").await > before.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_protocol_messages_have_helpful_errors() {
    let owned = Owned::sqlite().await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let wrong = message(&owned, Some("strata_wrong"), list).await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("The request has no valid API token."), "{}", wrong.text());
    let none = r#"{"jsonrpc":"2.0","id":7,"method":"tools/fly"}"#;
    let unknown = message(&owned, Some(&owned.token), none).await;
    assert!(unknown.text().contains("-32601") && unknown.text().contains("Unknown method"), "{}", unknown.text());
    assert!(unknown.text().contains("valid: initialize, ping, tools/list, tools/call"), "{}", unknown.text());
    for params in ["", r#","params":{}"#, r#","params":{"name":"read","arguments":[]}"#] {
        let call = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call"{params}}}"#);
        let wrong = message(&owned, Some(&owned.token), &call).await;
        assert!(wrong.text().contains("-32602") && wrong.text().contains("valid: an object with"), "{}", wrong.text());
    }
    // Params that are not an object make the message invalid.
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}"#;
    let wrong = message(&owned, Some(&owned.token), list).await;
    assert!(wrong.text().contains("-32600") && wrong.text().contains("Invalid body"), "{}", wrong.text());
    // Every series exists before the first call.
    let metrics = owned.service.get("/metrics").await.text().to_owned();
    let tools = tool_names(&owned.service, &format!("Bearer {}", owned.token)).await;
    for tool in tools.iter().map(String::as_str).chain(["none"]) {
        let series = format!("strata_tool_calls_total{{tool=\"{tool}\",outcome=\"left\"}} ");
        assert!(metrics.contains(&series), "{series}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_tool_call_contains_request_id() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    for file in owned.service.version_files() {
        std::fs::write(&file, b"not Parquet").expect("failed to write");
    }
    for tool in ["read", "pull_for_edit"] {
        let answer = call_tool(&owned, tool, json!({"dataset_id": id})).await;
        let id = answer.header("x-request-id").expect("missing ID");
        let text = failure(&answer);
        assert_eq!(text, format!("Failed to read the dataset from storage. The error was logged. Request ID: {id}."));
    }
}

/// A Markdown table of all tools as clients see them, with the first sentence of each description.
fn markdown_table(tools: &Value) -> String {
    let row = |tool: &Value| {
        let required = tool["inputSchema"]["required"].as_array().into_iter().flatten();
        let needed: Vec<String> = required.map(|name| format!("`{}`", name.as_str().expect("missing name"))).collect();
        let description = tool["description"].as_str().expect("missing description");
        let (summary, _) = description.split_once(". ").expect("a summary, then details");
        format!("| `{}` | {} | {summary} |\n", tool["name"].as_str().expect("missing name"), needed.join(", "))
    };
    let rows: String = tools.as_array().expect("missing tools").iter().map(row).collect();
    format!("| Tool | Needs | Does |\n|---|---|---|\n{rows}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documentation_has_table_of_tools() {
    let owned = Owned::sqlite().await;
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let tools = result(&message(&owned, Some(&owned.token), list).await)["tools"].clone();
    check_table("docs/guides/ai-agents.md", "tools", &markdown_table(&tools));
}
