//! The results of agent tools: short regardless of the size of a version, with advice on the next step.

use serde_json::{Value, json};
use strata_testing::owned::Owned;

use super::mcp::{call_tool, calling, failure, message, result, tool_output};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_list_is_short() {
    let owned = Owned::sqlite().await;
    let answer = message(&owned, Some(&owned.token), r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#).await;
    let tools = result(&answer)["tools"].clone();
    let sizes: Vec<(String, usize)> = tools
        .as_array()
        .expect("missing tools")
        .iter()
        .map(|tool| (tool["name"].to_string(), tool.to_string().len()))
        .collect();
    // The newest protocol revision adds about 60 bytes.
    assert!(answer.body.len() < 12_700, "{} bytes: {sizes:?}", answer.body.len());
    for tool in tools.as_array().expect("missing tools") {
        assert!(tool.get("outputSchema").is_none(), "{tool}");
        assert!(tool["description"].as_str().is_some_and(|text| text.len() > 60), "{tool}");
        for (name, schema) in tool["inputSchema"]["properties"].as_object().expect("missing properties") {
            let described = schema["description"].as_str().is_some_and(|text| text.len() > 10);
            assert!(described, "{} {name}", tool["name"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_accepts_read_arguments() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Explained", json!({}), &[r#"[{"a":1},{"a":2}]"#]).await;
    let (texts, _) =
        tool_output(&call_tool(&owned, "explain", json!({"dataset_id": id, "filter": ["a:2"], "limit": 1})).await);
    assert!(texts.concat().contains("filter=a:2"), "{texts:?}");
    let text = failure(&call_tool(&owned, "explain", json!({"dataset_id": id, "filtr": ["a:2"]})).await);
    assert!(text.contains("\"filtr\"") && text.contains("did you mean filter?"), "{text}");
    let text = failure(&call_tool(&owned, "explain", json!({"dataset_id": id, "positions": true})).await);
    assert!(text.contains("unknown argument \"positions\""), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_compares_alternate() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Compared", json!({}), &[r#"[{"k":"a","n":1.0},{"k":"b"}]"#]).await;
    let arguments = json!({"dataset_id": id, "v1": 1, "v2": 1, "alt": true});
    let text = failure(&call_tool(&owned, "diff", arguments.clone()).await);
    assert!(text.contains("has no alternate"), "{text}");
    assert_eq!(owned.save(id, 1, r#"[{"k":"a","n":1e1},{"k":"c"}]"#).await.status, 200);
    let (texts, _) = tool_output(&call_tool(&owned, "diff", arguments).await);
    let answer = owned.call("GET", &format!("/dataset/diff?dataset_id={id}&v1=1&v2=1&alt=true"), "").await;
    assert_eq!((answer.status, texts.concat().as_str()), (200, answer.text()));
    let (_, without) =
        tool_output(&call_tool(&owned, "diff", json!({"dataset_id": id, "v1": 1, "v2": 1, "alt": false})).await);
    assert_eq!((&without["modified"], &without["records"]), (&json!(0), &json!([])));
    let (_, with) =
        tool_output(&call_tool(&owned, "diff", json!({"dataset_id": id, "v1": 1, "v2": 1, "alt": true})).await);
    assert_ne!(with["records"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_those_of_http() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Changed", json!({}), &[r#"[{"n":1.0},{"n":2}]"#, r#"[{"n":1e1},{"n":2}]"#]).await;
    let (texts, _) = tool_output(&call_tool(&owned, "changes", json!({"dataset_id": id, "since": 1})).await);
    assert!(texts[0].starts_with("{\"position\":0,\"set\":{\"n\":1e1}}\n"), "{texts:?}");
    let answer = owned.service.get(&format!("/changes/{id}/changed/v2/?since=v1")).await;
    assert_eq!((texts.len(), &*texts[0]), (1, answer.text()));
    let back = json!({"dataset_id": id, "version": 1, "since": 2});
    assert!(tool_output(&call_tool(&owned, "changes", back).await).0[0].contains("{\"n\":1.0}"));
    for (arguments, problem) in [
        (json!({"dataset_id": id}), "since"),
        (json!({"dataset_id": id, "since": "active"}), "since"),
        (json!({"dataset_id": id, "since": 3}), "no version 3"),
        (json!({"dataset_id": id, "version": 3, "since": 1}), "no version 3"),
    ] {
        let text = failure(&call_tool(&owned, "changes", arguments).await);
        assert!(text.contains(problem), "{text}");
    }
    // A public dataset of another user, and a private one, which looks like a missing one.
    let open = owned.service.import("Open", "{\"open\":1}\n").await.dataset_id.get();
    tool_output(&call_tool(&owned, "changes", json!({"dataset_id": open, "since": 1})).await);
    let closed = owned.service.try_import("Closed", true, b"{}\n").await.expect("failed to import").dataset_id.get();
    let missing = async |id: u64| failure(&call_tool(&owned, "changes", json!({"dataset_id": id, "since": 1})).await);
    assert_eq!(missing(closed).await, missing(999_999).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_changes_suggest_other_tools() {
    let owned = Owned::sqlite().await;
    let list: Vec<String> = (0..9_000).map(|id| format!("{{\"id\":{id},\"text\":\"some longer text\"}}")).collect();
    let id = owned.dataset("Changed", json!({}), &["[]", &format!("[{}]", list.join(","))]).await;
    let text = failure(&call_tool(&owned, "changes", json!({"dataset_id": id, "since": 1})).await);
    assert!(text.contains("The result would be longer than 262144 bytes. Read the entities"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profile_page_is_short_without_details() {
    let owned = Owned::sqlite().await;
    let member = |number: usize, row: usize| match number % 5 {
        0 => format!(r#""a_field_of_a_usual_length_{number}":"some longer text of row {row} in this field""#),
        1 => format!(r#""number_{number}":{}.25"#, row * number),
        2 => format!(r#""kind_{number}":"{}""#, ["new", "used", "broken"][row % 3]),
        3 => format!(r#""flag_{number}":{}"#, row.is_multiple_of(2)),
        _ => format!(r#""nested_{number}":{{"inner":[{row},null]}}"#),
    };
    let entities: Vec<String> = (0..200)
        .map(|row| format!("{{{}}}", (0..60).map(|number| member(number, row)).collect::<Vec<_>>().join(",")))
        .collect();
    let id = owned.dataset("Wide", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    let answer = call_tool(&owned, "profile", json!({"dataset_id": id})).await;
    let (texts, page) = tool_output(&answer);
    assert!(texts.concat().len() < 6 << 10 && answer.body.len() < 8 << 10, "{}", texts.concat().len());
    assert_eq!((&page["entities"], &page["path_count"], &page["next_offset"]), (&json!(200), &json!(72), &json!(50)));
    let lines: Vec<&str> = page["paths"]
        .as_array()
        .expect("missing paths")
        .iter()
        .map(|line| line.as_str().expect("invalid UTF-8"))
        .collect();
    assert_eq!(lines.len(), 50);
    assert!(lines[2].starts_with("kind_2: string, 3 distinct: ") && lines[2].contains("used"), "{}", lines[2]);
    assert!(lines[3].starts_with("flag_3: boolean, 2 distinct: ") && lines[3].contains("false"), "{}", lines[3]);
    assert_eq!(lines[4], "nested_4: object");
    assert_eq!(lines[5], "nested_4.inner: number|array|null, 200 distinct: 0..199");
    assert!(lines[1].starts_with("number_1: number, 200 distinct: 0.25..199.25"), "{}", lines[1]);
    let (_, page) = tool_output(&call_tool(&owned, "profile", json!({"dataset_id": id, "offset": 50})).await);
    assert_eq!((page["paths"].as_array().map(Vec::len), &page["next_offset"]), (Some(22), &json!(null)));
    let below = json!({"dataset_id": id, "below": "nested_4", "details": true});
    let (_, page) = tool_output(&call_tool(&owned, "profile", below).await);
    assert_eq!(page["profile"]["paths"][1]["types"]["null"], json!(200));
    assert_eq!(page["path_count"], json!(2));
    for (arguments, next) in [
        (json!({"below": "nested_4"}), "read, with these paths"),
        (json!({"below": "nestd_4"}), "there are no paths at or below \"nestd_4\": did you mean \"nested_4\"?"),
        (
            json!({"below": "nothing at all"}),
            "there are no paths at or below \"nothing at all\": call profile without `below`",
        ),
        (json!({"offset": 72}), "offset is past the last"),
    ] {
        let mut page_arguments = arguments.clone();
        page_arguments["dataset_id"] = json!(id);
        let (_, page) = tool_output(&call_tool(&owned, "profile", page_arguments).await);
        assert!(page["next"].as_str().is_some_and(|text| text.starts_with(next)), "{arguments}: {page}");
    }

    // Long paths: every page starts where the previous page ended.
    let long = |number: usize| format!(r#""{}{number}":{number}"#, "é".repeat(1_000));
    let entity: Vec<String> = (0..60).map(long).collect();
    let id = owned.dataset("Long", json!({}), &[&format!("[{{{}}}]", entity.join(","))]).await;
    let mut offset = json!(0);
    let mut seen = 0;
    while !offset.is_null() {
        let answer = call_tool(&owned, "profile", json!({"dataset_id": id, "offset": offset})).await;
        let (texts, page) = tool_output(&answer);
        assert!(texts.concat().len() < 6 << 10, "{}", texts.concat().len());
        seen += page["paths"].as_array().map_or(0, Vec::len);
        offset = page["next_offset"].clone();
    }
    assert_eq!(seen, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_edits_of_large_list_send_few_bytes() {
    const ENTITIES: usize = 200_000;
    let owned = Owned::sqlite().await;
    let mut list: Vec<String> =
        (0..ENTITIES).map(|number| format!(r#"{{"key":"k{number}","group":{},"x":1.0}}"#, number % 7)).collect();
    let id = owned.dataset("Many", json!({}), &[&format!("[{}]", list.join(","))]).await;
    let mut moved = 0;
    let mut call = async |tool: &str, arguments: String| {
        let body = calling(tool, &arguments);
        let answer = message(&owned, Some(&owned.token), &body).await;
        moved += body.len() + answer.body.len();
        tool_output(&answer)
    };
    let find = |key: &str, alt: bool| {
        json!({"dataset_id": id, "filter": format!("key:{key}"), "positions": true, "alt": alt}).to_string()
    };
    let mut edits = Vec::new();
    let mut etag = Value::Null;
    for number in [5, 77_777, 199_999] {
        let (texts, about) = call("read", find(&format!("k{number}"), false)).await;
        assert_eq!(about["positions"], json!([number]), "{texts:?}");
        assert_eq!(texts[1], format!("[{}]", list[number]));
        assert!(about["next"].as_str().is_some_and(|next| next.contains("edit_alt_version")), "{about}");
        etag = about["etag"].clone();
        list[number] = list[number].replace("1.0", "2.50");
        edits.push(format!(r#"{{"position":{number},"set":{}}}"#, list[number]));
    }
    let arguments = format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag},"edits":[{}]}}"#, edits.join(","));
    let (_, edited) = call("edit_alt_version", arguments.clone()).await;
    assert_eq!(edited["alt_entity_count"], json!(ENTITIES));
    // From now on, positions refer to the alternate.
    let (_, about) = call("read", find("k77777", false)).await;
    assert_eq!(about["etag"], Value::Null, "{about}");
    assert!(about["next"].as_str().is_some_and(|next| next.contains("alt=true")), "{about}");
    let (texts, about) = call("read", find("k77777", true)).await;
    assert_eq!((&about["etag"], &about["positions"]), (&edited["etag"], &json!([77_777])));
    assert_eq!(texts[1], format!("[{}]", list[77_777]));
    assert!(moved < 100_000, "{moved} bytes");
    let alternate = owned.service.get(&format!("/api/{id}/many/v1/alt/?format=jsonl")).await;
    assert!(alternate.text().lines().eq(list.iter().map(String::as_str)), "the lists differ");

    let text = failure(&message(&owned, Some(&owned.token), &calling("edit_alt_version", &arguments)).await);
    assert!(text.contains("Pull again"), "{text}");
    for (edits, words) in [
        (r#"[{"position":0,"set":{},"x":1}]"#, "edits[0]: unknown field \"x\""),
        (r#"[]"#, "edits: the list is empty"),
        (r#"[{"position":200000,"remove":true}]"#, "edits[0]: position 200000 does not exist"),
    ] {
        let arguments = format!(r#"{{"dataset_id":{id},"version":1,"etag":{},"edits":{edits}}}"#, edited["etag"]);
        let text = failure(&message(&owned, Some(&owned.token), &calling("edit_alt_version", &arguments)).await);
        assert!(text.contains(words), "{text}");
    }
    // With `sort` and `limit`, positions are in the order of the response.
    let sorted =
        json!({"dataset_id": id, "alt": true, "sort": "key:desc", "limit": 3, "positions": true, "format": "csv"});
    let (_, about) = tool_output(&call_tool(&owned, "read", sorted).await);
    assert_eq!(about["positions"], json!([99_999, 99_998, 99_997]));
    for other in [json!({"count": true}), json!({"sample": 3})] {
        let mut arguments = other.clone();
        arguments["dataset_id"] = json!(id);
        arguments["positions"] = json!(true);
        let text = failure(&call_tool(&owned, "read", arguments).await);
        assert!(
            text.contains("positions")
                && text.contains(other.as_object().expect("missing item").keys().next().expect("missing item")),
            "{text}"
        );
    }
    // An empty result has no positions, but an etag for inserts, and advice.
    let arguments = json!({"dataset_id": id, "filter": ["key:nothing"], "positions": true, "alt": true});
    let (_, about) = tool_output(&call_tool(&owned, "read", arguments).await);
    assert_eq!((&about["positions"], &about["etag"]), (&json!([]), &edited["etag"]), "{about}");
    for (arguments, next) in [
        (json!({"filter": ["key:nothing"], "positions": true, "alt": true}), Some("nothing matches: profile returns")),
        (json!({"filter": ["key:nothing"]}), Some("nothing matches: profile returns")),
        (json!({"filter": ["key:nothing"], "count": true}), Some("nothing matches: profile returns")),
        // The alternate might contain a match, and edit positions refer to it.
        (json!({"filter": ["key:nothing"], "positions": true}), Some("read with alt=true")),
        (json!({"offset": 200_000}), Some("offset is past the last")),
        (json!({"filter": ["key:k5"], "offset": 1, "positions": true, "alt": true}), Some("offset is past the last")),
        (json!({"limit": 0}), None),
        (json!({"sample": 0}), None),
        (json!({"filter": ["key:k5"]}), None),
    ] {
        let mut arguments = arguments;
        arguments["dataset_id"] = json!(id);
        let (_, about) = tool_output(&call_tool(&owned, "read", arguments.clone()).await);
        let found = about["next"].as_str();
        assert_eq!(found.is_some(), next.is_some(), "{arguments}: {about}");
        assert!(found.unwrap_or_default().contains(next.unwrap_or_default()), "{arguments}: {about}");
    }
    // Datasets of other users cannot be edited.
    let open = owned.service.import("Open", "{\"open\":1}\n").await.dataset_id.get();
    let (_, about) = tool_output(&call_tool(&owned, "read", json!({"dataset_id": open, "positions": true})).await);
    assert_eq!((&about["positions"], &about["etag"]), (&json!([0]), &Value::Null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_page_results_and_reject_typos() {
    let owned = Owned::sqlite().await;
    let id =
        owned.dataset("Things", json!({"listed": true, "description": "Äpfel"}), &[r#"[{"n":1.0},{"n":2}]"#]).await;
    let (texts, page) = tool_output(&call_tool(&owned, "pull_for_edit", json!({"dataset_id": id, "limit": 1})).await);
    assert_eq!((&page["next_offset"], &page["total_count"]), (&json!(1), &json!(2)));
    assert!(texts[0].ends_with(r#""entities":[{"n":1.0}]}"#) && texts[1].contains("edit_alt_version"), "{texts:?}");
    let (_, last) =
        tool_output(&call_tool(&owned, "pull_for_edit", json!({"dataset_id": id, "limit": 1, "offset": 1})).await);
    assert_eq!((&last["next_offset"], &last["etag"]), (&json!(null), &page["etag"]));

    // Regression: positions in the version itself were used for its alternate.
    let pull = async |arguments: Value| tool_output(&call_tool(&owned, "pull_for_edit", arguments).await).0;
    assert_eq!(pull(json!({"dataset_id": id})).await.len(), 1);
    owned.save(id, 1, r#"[{"n":0},{"n":1.0},{"n":2}]"#).await;
    for arguments in [json!({"dataset_id": id}), json!({"dataset_id": id, "limit": 1})] {
        let texts = pull(arguments).await;
        assert!(texts[0].contains(r#""etag":"#) && texts[1].contains("pull with alt=true before"), "{texts:?}");
    }
    assert_eq!(pull(json!({"dataset_id": id, "alt": true})).await.len(), 1);
    let page = pull(json!({"dataset_id": id, "alt": true, "limit": 1})).await;
    assert!(page[1].contains("offset plus its index in this page"), "{page:?}");

    let hidden = owned.dataset("Hidden", json!({}), &["[]"]).await;
    let (_, list) = tool_output(&call_tool(&owned, "list_public_datasets", json!({})).await);
    assert_eq!(list["datasets"].as_array().map(Vec::len), Some(1), "{list}, not {hidden}");
    assert_eq!((&list["datasets"][0]["description"], &list["next_after"]), (&json!("Äpfel"), &json!(null)));
    let second = owned.dataset("Second", json!({"listed": true}), &["[]"]).await;
    let (_, list) = tool_output(&call_tool(&owned, "list_public_datasets", json!({"limit": 1})).await);
    assert_eq!((&list["datasets"][0]["dataset_id"], &list["next_after"]), (&json!(id), &json!(id)));
    let (_, list) = tool_output(&call_tool(&owned, "list_public_datasets", json!({"limit": 1, "after": id})).await);
    assert_eq!((&list["datasets"][0]["dataset_id"], &list["next_after"]), (&json!(second), &json!(null)));
    let (_, list) = tool_output(&call_tool(&owned, "list_public_datasets", json!({"q": "ÄPF"})).await);
    assert_eq!(list["datasets"].as_array().map(Vec::len), Some(1), "{list}");
    let (_, mine) = tool_output(&call_tool(&owned, "list_datasets", json!({})).await);
    assert_eq!((&mine["datasets"][0]["listed"], &mine["datasets"][0]["description"]), (&json!(true), &json!("Äpfel")));

    // Long descriptions: each page is short and contains the start of the next page.
    let long = "\u{1}".repeat(4_000);
    let about = json!({"listed": true, "description": long, "licence": "\u{1}".repeat(1_000)});
    let mut all = vec![id, second];
    for number in 0..12 {
        all.push(owned.dataset(&format!("Long {number}"), about.clone(), &["[]"]).await);
    }
    for (tool, own) in [("list_public_datasets", None), ("list_datasets", Some(hidden))] {
        let mut listed = Vec::new();
        let mut after = json!(0);
        let mut pages = 0;
        while !after.is_null() {
            let arguments = if pages == 0 { json!({"limit": 200}) } else { json!({"limit": 200, "after": after}) };
            let (_, page) = tool_output(&call_tool(&owned, tool, arguments).await);
            listed.extend(
                page["datasets"]
                    .as_array()
                    .expect("expected datasets")
                    .iter()
                    .map(|dataset| dataset["dataset_id"].clone()),
            );
            (after, pages) = (page["next_after"].clone(), pages + 1);
        }
        let mut expected: Vec<_> = all.iter().copied().chain(own).collect();
        expected.sort_unstable();
        assert_eq!(json!(listed), json!(expected), "{tool}");
        assert!((2..5).contains(&pages), "{tool}: {pages}");
    }

    // Every argument of every tool, with an additional letter.
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    let tools = result(&message(&owned, Some(&owned.token), list).await)["tools"].clone();
    for tool in tools.as_array().expect("missing tools") {
        let name = tool["name"].as_str().expect("missing name");
        let properties = tool["inputSchema"]["properties"].as_object().expect("missing properties");
        for known in properties.keys() {
            let slip = format!("{known}x");
            let mut arguments = json!({(slip.clone()): 1});
            for (own, value) in [("dataset_id", id), ("version", 1)] {
                if properties.contains_key(own) {
                    arguments[own] = value.into();
                }
            }
            let text = failure(&call_tool(&owned, name, arguments).await);
            assert!(text.contains(&slip) && text.contains("valid: "), "{name} {slip}: {text}");
            assert!(known.len() < 3 || text.contains("did you mean "), "{name} {slip}: {text}");
        }
    }
}
