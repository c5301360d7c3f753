//! The history of a dataset: refresh attempts and webhook deliveries.

use serde_json::{Value, json};
use strata_testing::databases::on_both_databases;
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, with_status};

use super::{Owners, ok, refused};

on_both_databases! {
    Owners:
    attempts_are_listed_newest_first
    warnings_are_returned_and_stored
    deliveries_are_listed_after_webhook_deletion
}

#[track_caller]
fn keys(record: &Value) -> Vec<&str> {
    record.as_object().expect("expected an object").keys().map(String::as_str).collect()
}

async fn warnings_are_returned_and_stored(owners: Owners) {
    let created = ok(&owners.post("/dataset/create", json!({"name": "Pushed", "source": "push"})).await);
    let id = created["dataset"]["dataset_id"].as_u64().expect("missing ID");
    let key = owners.scale.clone();
    let push = async |format: &str, text: &str| {
        let headers = [("authorization", key.as_str()), ("content-type", "application/octet-stream")];
        let uri = format!("/dataset/refresh?dataset_id={id}&format={format}");
        ok(&owners.raw("POST", &uri, &headers, text.into()).await)
    };
    let one_column = |found: &str, wanted: &str| {
        json!([format!(
            "The table has only one column, and its name contains {found}. In this format, only {wanted} separate \
             cells."
        )])
    };
    let twice = |name: &str| {
        json!([format!(
            "Several columns of the table are named {name}. Entities contain only the values of the last one."
        )])
    };
    let long = "ä".repeat(61);
    let beginning = format!("\"{}\"…", "ä".repeat(60));
    // Regression: pandas writes its index like this. It became a field without a name, without a warning.
    let nameless = "Column 1 of the table has no name, so filters and sorts cannot refer to it. Name it in the \
                    header line, or omit it (in pandas, use to_csv with index=False).";
    let nameless_twice = twice("\"\"")[0].clone();
    let several = "Columns 2, 4 of the table have no name, so filters and sorts cannot refer to them. Name them in \
                   the header line, or omit them (in pandas, use to_csv with index=False).";
    let many = several.replace("2, 4", "1, 2, 3, 4, 5, …");
    let lone_list = "The source contains only one entity, whose only field is the array `entities`. To import the \
                     items of this array as entities, set `records_path` to the path of the array, or push the object \
                     as application/json.";
    let quote = |line: u64, cell: u64, delimiters: &str| {
        json!([format!(
            "On line {line}, cell {cell} contains a quote but does not begin with one. strata treats such a quote as \
             text, so {delimiters} after it still separate cells. To quote a cell, begin it with a quote, without a \
             space before the quote."
        )])
    };
    let no_entities = json!(["The source contains no entities, so the version is empty."]);
    let cases = [
        ("csv", "name;age\nAda;36\n", one_column("semicolons", "commas")),
        ("tsv", "name,age\nAda,36\n", one_column("commas", "tabs")),
        ("csv", "a,b,a,b\n1,2,3,4\n", twice("\"a\"")),
        ("csv", &format!("x,{long},{long}\n1,2,3\n"), twice(&beginning)),
        ("jsonl", "", no_entities.clone()),
        ("json", "[]", no_entities.clone()),
        ("csv", "a,b\n", no_entities),
        // Without warnings, the member is missing.
        ("csv", "name,age;years\nAda,36\n", Value::Null),
        ("csv", "name\nAda;36\n", Value::Null),
        ("jsonl", "{\"name;age\":1}\n", Value::Null),
        ("csv", ",name,v\n0,Ada,1\n", json!([nameless])),
        ("tsv", "a\t\tb\t\"\"\n1\t2\t3\t4\n", json!([nameless_twice, several])),
        ("csv", ",,,,,\n1,2,3,4,5,6\n", json!([nameless_twice, many])),
        // Regression: a space before a quote moved cells without a warning. The warning contains the first such line.
        ("csv", "a,b,c\n\"1\n1\",2,3\n1, \"x, y\"\n6\" pipe,,\n", quote(4, 2, "commas")),
        ("tsv", "a\t \"b\"\n1\t2\n", quote(1, 2, "tabs")),
        ("csv", "a,\"b\"\"c\"\n\"x\"\"\",\"\"\n", Value::Null),
        // Regression: an object around the list, with another type than JSON, became one entity without a warning.
        ("jsonl", "\n{\"entities\":[{\"a\":1}]}\r\n\n", json!([lone_list])),
        ("jsonl", "{\"entities\":[{\"a\":1}]}\n{\"entities\":[]}\n", Value::Null),
        ("jsonl", "{\"entities\":[{\"a\":1}],\"b\":1}\n", Value::Null),
        ("jsonl", "{\"entities\":{\"a\":[1]}}\n", Value::Null),
        ("json", "[{\"entities\":[]}]", Value::Null),
    ];
    for (version, (format, text, warnings)) in cases.iter().enumerate() {
        let answer = push(format, text).await;
        assert_eq!(answer["version"]["version_number"], json!(version + 1));
        assert_eq!(answer["warnings"], *warnings, "{format} {text:?}");
    }
    let attempts = ok(&owners.get(&format!("/dataset/attempts?dataset_id={id}")).await)["attempts"].clone();
    let attempts = attempts.as_array().expect("expected attempts");
    for (attempt, (format, text, warnings)) in attempts.iter().rev().zip(&cases) {
        assert_eq!(attempt["warnings"], *warnings, "{format} {text:?}");
        assert_eq!((&attempt["ok"], &attempt["error"]), (&json!(true), &Value::Null));
    }
    // Regression: postal codes became numbers except those that begin with 0, without a warning.
    let mixed = push("csv&infer_types=true", "zip,n,t\n34432,1,a\n01003,,b\n01004,2,c\n").await;
    let words = "In the column \"zip\", 1 cell is a number and 2 are strings. Ranges and sorts treat numbers and \
                 strings as different types.";
    assert_eq!(mixed["warnings"], json!([words]));
    // At most five columns are listed, with the beginning of their names.
    let long = "ä".repeat(61);
    let mixed = push("csv&infer_types=true", &format!("{long},b,c,d,e,f,g\n1,1,1,1,1,1,1\nx,x,x,x,x,x,x\n")).await;
    let warnings = mixed["warnings"].as_array().expect("expected warnings");
    let beginning = format!("In the column \"{}\"…, 1 cell is a number and 1 is a string. ", "ä".repeat(60));
    assert!(warnings[0].as_str().is_some_and(|words| words.starts_with(&beginning)), "{}", warnings[0]);
    let more = json!("2 more columns contain both numbers and strings.");
    assert_eq!((warnings.len(), &warnings[5]), (6, &more));
    // A source with more than one block also has this warning.
    let long = "12345,1,a\n".repeat(200_000);
    let mixed = push("csv&infer_types=true", &format!("zip,n,t\n{long}01003,2,b\n")).await;
    let words = "In the column \"zip\", 200000 cells are numbers and 1 is a string. Ranges and sorts treat numbers and \
                 strings as different types.";
    assert_eq!(mixed["warnings"], json!([words]));
    // An empty version that shares the file of the previous version also has the warning.
    push("json", "[]").await;
    assert_eq!(push("jsonl", "").await["warnings"][0], cases[4].2[0]);
}

async fn attempts_are_listed_newest_first(owners: Owners) {
    let created = ok(&owners.post("/dataset/create", json!({"name": "Pushed", "source": "push"})).await);
    let id = created["dataset"]["dataset_id"].as_u64().expect("missing ID");
    let attempts = async |more: &str| {
        let answer = ok(&owners.get(&format!("/dataset/attempts?dataset_id={id}{more}")).await);
        answer["attempts"].as_array().expect("expected attempts").clone()
    };
    assert_eq!(attempts("").await, [] as [Value; 0]);
    for entities in [json!([{"a": 1}]), json!([7]), json!([{"a": 2}])] {
        owners.post("/dataset/refresh", json!({"dataset_id": id, "entities": entities})).await;
    }
    // A 409 creates no attempt.
    refused(&owners.post("/dataset/refresh", json!({"dataset_id": id})).await, 409, "fetch");
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true});
    ok(&owners.post("/dataset/rollback", freeze).await);
    refused(&owners.post("/dataset/refresh", json!({"dataset_id": id, "entities": []})).await, 409, "frozen");

    let all = attempts("").await;
    assert_eq!(all.len(), 3, "{all:?}");
    let names = ["id", "started_at", "finished_at", "trigger", "ok", "version", "error"];
    assert!(all.iter().all(|attempt| keys(attempt) == names), "{all:?}");
    let listed: Vec<_> = all.iter().map(|attempt| (&attempt["ok"], &attempt["version"], &attempt["trigger"])).collect();
    let manual = json!("manual");
    let expected = [(json!(true), json!(2)), (json!(false), json!(null)), (json!(true), json!(1))];
    assert_eq!(listed, expected.iter().map(|(ok, version)| (ok, version, &manual)).collect::<Vec<_>>());
    assert!(all[1]["error"].as_str().is_some_and(|error| error.contains("item 1")), "{all:?}");
    // Without the ID, each entry equals the one in the dataset record.
    let view = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"]["last_attempts"].clone();
    let bare: Vec<Value> = all
        .iter()
        .map(|attempt| {
            let mut attempt = attempt.clone();
            attempt.as_object_mut().expect("expected an object").remove("id");
            attempt
        })
        .collect();
    assert_eq!(view, json!(bare));
    assert_eq!(attempts("&limit=1").await, all[..1]);
    assert_eq!(attempts(&format!("&after={}", all[0]["id"])).await, all[1..]);
    assert_eq!(attempts(&format!("&after={}&limit=1", all[0]["id"])).await, all[1..2]);
    assert_eq!(attempts(&format!("&after={}", all[2]["id"])).await, [] as [Value; 0]);
    assert_eq!(attempts("&after=99999999999999999999&limit=99999999999999999999").await, all);
    for (more, field) in [("&limit=0", "limit"), ("&after=x", "after"), ("&after=0", "after"), ("&limt=1", "limt")] {
        refused(&owners.get(&format!("/dataset/attempts?dataset_id={id}{more}")).await, 400, field);
    }
    let other = [("authorization", owners.other.as_str())];
    let uri = format!("/dataset/attempts?dataset_id={id}");
    refused(&owners.raw("GET", &uri, &other, Vec::new()).await, 404, "dataset");
}

async fn deliveries_are_listed_after_webhook_deletion(owners: Owners) {
    let owners = owners.with(|config| {
        config.net.allow = vec!["127.0.0.0/8".to_owned()].try_into().expect("invalid network");
        config.webhook.timeout_s = 2;
    });
    let owners = owners.await;
    let receiver = LoopbackServer::start(|request: &Received| match request.target.as_str() {
        "/fine" => Reply::Bytes(with_status("204 No Content", "", b"")),
        "/broken" => Reply::Bytes(with_status("500 Internal Server Error", "", b"")),
        _ => Reply::Bytes(Vec::new()),
    });
    let created = ok(&owners.post("/dataset/create", json!({"name": "Pushed", "source": "push"})).await);
    let id = created["dataset"]["dataset_id"].as_u64().expect("missing ID");
    let deliveries = async |more: &str| {
        let answer = ok(&owners.get(&format!("/webhook/deliveries?dataset_id={id}{more}")).await);
        answer["deliveries"].as_array().expect("expected deliveries").clone()
    };
    let push = async || ok(&owners.post("/dataset/refresh", json!({"dataset_id": id, "entities": []})).await);
    push().await;
    for path in ["/fine", "/broken", "/mute"] {
        let hook = json!({"dataset_id": id, "url": receiver.url(path), "secret": "sesame"});
        ok(&owners.post("/webhook/register", hook).await);
        push().await;
        owners.service.services.deliveries.send_due().await.expect("failed to send");
    }
    let all = deliveries("").await;
    assert_eq!(all.len(), 3, "{all:?}");
    let names = ["id", "version", "url", "fired_at", "duration_ms", "status", "error"];
    assert!(all.iter().all(|delivery| keys(delivery) == names), "{all:?}");
    let listed: Vec<_> = all.iter().map(|delivery| (delivery["version"].clone(), delivery["status"].clone())).collect();
    let expected = [(json!(4), json!(null)), (json!(3), json!(500)), (json!(2), json!(204))];
    assert_eq!(listed, expected);
    assert_eq!(all[2]["url"], receiver.url("/fine"));
    assert!(all[0]["error"].is_string() && all[1]["error"].is_null() && all[2]["error"].is_null(), "{all:?}");
    assert!(all.iter().all(|delivery| delivery["duration_ms"].as_u64().is_some_and(|ms| ms < 60_000)), "{all:?}");
    assert!(!json!(all).to_string().contains("sesame"));
    let ids: Vec<u64> = all.iter().map(|delivery| delivery["id"].as_u64().expect("invalid number")).collect();
    assert!(ids.is_sorted_by(|one, next| one > next), "{ids:?}");
    assert_eq!(deliveries("&limit=2").await, all[..2]);
    assert_eq!(deliveries(&format!("&after={}", ids[1])).await, all[2..]);
    assert_eq!(deliveries(&format!("&after={}", ids[2])).await, [] as [Value; 0]);
    let other = [("authorization", owners.other.as_str())];
    let uri = format!("/webhook/deliveries?dataset_id={id}");
    refused(&owners.raw("GET", &uri, &other, Vec::new()).await, 404, "dataset");
    // Deliveries remain after the webhook is deleted.
    let gone = owners.call("DELETE", "/webhook/delete", json!({"dataset_id": id})).await;
    ok(&gone);
    assert_eq!(deliveries("").await, all);
    assert_eq!(ok(&owners.get(&format!("/webhook/view?dataset_id={id}")).await), json!({"has_webhook": false}));
    for (more, field) in [("&limit=0", "limit"), ("&after=x", "after"), ("&days=1", "days")] {
        refused(&owners.get(&format!("/webhook/deliveries?dataset_id={id}{more}")).await, 400, field);
    }
}
