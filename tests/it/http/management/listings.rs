//! `/datasets`: the public datasets that their owners list.

use serde_json::{Value, json};
use strata_testing::Answer;
use strata_testing::databases::on_both_databases;

use super::{Owners, ok, refused};

on_both_databases! {
    Owners:
    list_contains_only_public_listed_datasets
    search_ignores_case_in_names_and_descriptions
    list_counts_as_public_read
    list_is_paged_by_id
    infer_types_converts_csv_cells
    clone_copies_settings_but_is_not_listed
}

impl Owners {
    async fn listed(&self, query: &str) -> Answer {
        self.raw("GET", &format!("/datasets{query}"), &[], Vec::new()).await
    }

    async fn names(&self, query: &str) -> Vec<String> {
        let list = ok(&self.listed(query).await);
        let datasets = list["datasets"].as_array().expect("expected datasets").iter();
        datasets.map(|dataset| dataset["name"].as_str().expect("missing name").to_owned()).collect()
    }

    async fn update(&self, change: Value) -> Value {
        ok(&self.post("/dataset/update", change).await)["dataset"].clone()
    }
}

async fn list_contains_only_public_listed_datasets(owners: Owners) {
    let id = owners.dataset("World Countries", false, 2).await;
    assert_eq!(ok(&owners.listed("").await), json!({"ok": true, "datasets": []}), "unless its owner says so");
    owners.update(json!({"dataset_id": id, "listed": true, "description": "All of them", "licence": "CC0-1.0"})).await;
    let list = ok(&owners.listed("").await);
    let viewed = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"].clone();
    let newest = &viewed["versions"][0];
    let record = json!({
        "dataset_id": id, "name": "World Countries", "name_slug": "world-countries", "description": "All of them",
        "licence": "CC0-1.0", "version": 2, "entity_count": 1, "file_size_bytes": newest["file_size_bytes"],
        "refreshed_at": newest["created_at"],
    });
    assert_eq!(list.to_string(), json!({"ok": true, "datasets": [record]}).to_string(), "in this order");

    // The numbers of the active version, and the time of the newest one.
    let text = b"[{\"a\":1},{\"a\":2}]";
    owners.service.try_import("World Countries", false, text).await.expect("failed to import");
    ok(&owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1})).await);
    let listed = ok(&owners.listed("").await)["datasets"][0].clone();
    let viewed = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"].clone();
    assert_eq!((&listed["version"], &listed["entity_count"]), (&json!(1), &json!(1)));
    assert_eq!(listed["refreshed_at"], viewed["versions"][0]["created_at"]);
    assert_eq!(listed["file_size_bytes"], viewed["versions"][2]["file_size_bytes"]);

    // Each state removes the dataset from the list at once.
    ok(&owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1, "freeze": true})).await);
    assert!(owners.names("").await.is_empty(), "frozen");
    ok(&owners.post("/dataset/unfreeze", json!({"dataset_id": id})).await);
    assert_eq!(owners.names("").await, ["World Countries"]);
    owners.update(json!({"dataset_id": id, "private": true})).await;
    assert!(owners.names("").await.is_empty(), "private");
    owners.update(json!({"dataset_id": id, "private": false})).await;
    assert_eq!(owners.names("").await.len(), 1);
    owners.update(json!({"dataset_id": id, "listed": false})).await;
    assert!(owners.names("").await.is_empty(), "not listed");
    let empty = ok(&owners.post("/dataset/create", json!({"name": "Empty", "listed": true})).await);
    assert_eq!(empty["dataset"]["listed"], json!(true));
    assert!(owners.names("").await.is_empty(), "without a version");
    // Null clears a field, and the record shows it.
    let cleared = owners.update(json!({"dataset_id": id, "listed": true, "description": null, "licence": null})).await;
    assert_eq!((&cleared["description"], &cleared["licence"]), (&Value::Null, &Value::Null));
    assert_eq!(ok(&owners.listed("").await)["datasets"][0]["description"], Value::Null);
    // Credentials have no effect, not even invalid ones.
    let wrong = [("authorization", "Bearer strata_wrong")];
    ok(&owners.raw("GET", "/datasets", &wrong, Vec::new()).await);
    let answer = owners.raw("POST", "/datasets", &[], Vec::new()).await;
    refused(&answer, 405, "method");
}

async fn search_ignores_case_in_names_and_descriptions(owners: Owners) {
    for (name, description) in [
        ("ÄPFEL", json!("Σίσυφος rolls")),
        ("Pears %_", json!(null)),
        ("Plums", json!("Ä\npfe, 100 %")),
        ("ΟΔΟΣ", json!("")),
    ] {
        let id = owners.dataset(name, false, 1).await;
        owners.update(json!({"dataset_id": id, "listed": true, "description": description})).await;
    }
    for (query, found) in [
        ("", &["ÄPFEL", "Pears %_", "Plums", "ΟΔΟΣ"][..]),
        ("äpf", &["ÄPFEL"]),
        ("%C3%84PF", &["ÄPFEL"]),
        ("ΣΊΣΥΦΟΣ", &["ÄPFEL"]),
        ("σίσυφοσ", &["ÄPFEL"]),
        ("οδος", &["ΟΔΟΣ"]),
        ("%25", &["Pears %_", "Plums"]),
        ("_", &["Pears %_"]),
        ("rs %25_", &["Pears %_"]),
        // The two fields are searched separately.
        ("plums%0A", &[]),
        ("plums%0Aä", &[]),
        ("'", &[]),
        ("LL", &["ÄPFEL"]),
    ] {
        let escaped: String = query.replace(' ', "+");
        let uri: String = escaped.chars().map(encoded).collect();
        assert_eq!(owners.names(&format!("?q={uri}")).await, found, "{query}");
    }
    refused(&owners.get("/datasets?q=a%00").await, 400, "q: it must not contain the character U+0000");
    for query in ["q=%ff", "limit=1&q=a%C3", "%ff=1"] {
        refused(&owners.get(&format!("/datasets?{query}")).await, 400, "in the query string is not UTF-8; valid: ");
    }
    let expected = "\"dataset_id=1%ff\" in the query string is not UTF-8";
    refused(&owners.get("/dataset/view?dataset_id=1%ff").await, 400, expected);
    // A renamed dataset is found by its new name.
    let id = owners.dataset("Figs", false, 1).await;
    owners.update(json!({"dataset_id": id, "listed": true, "name": "Dates", "description": "Sweet"})).await;
    assert_eq!((owners.names("?q=figs").await.len(), owners.names("?q=DATES").await.len()), (0, 1));
    owners.update(json!({"dataset_id": id, "description": "Dry"})).await;
    assert_eq!((owners.names("?q=sweet").await.len(), owners.names("?q=dry").await.len()), (0, 1));
}

/// Percent-encodes a character that is not ASCII.
fn encoded(character: char) -> String {
    match character {
        '\u{0}'..='\u{7f}' => character.to_string(),
        other => {
            let mut bytes = [0; 4];
            other.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
        }
    }
}

async fn list_counts_as_public_read(owners: Owners) {
    let owners = owners.with(|config| config.limits.public_per_minute = 3).await;
    let id = owners.dataset("Countries", false, 1).await;
    for (query, word) in [
        ("?limit=0", "limit"),
        ("?limit=x", "limit"),
        ("?after=-1", "after"),
        ("?limit=1&limit=2", "more than once"),
        ("?query=x", "unknown field \"query\""),
        ("?Q=x", "unknown field \"Q\""),
        ("?lmit=1", "did you mean limit?"),
    ] {
        let answer = owners.listed(query).await;
        refused(&answer, 400, word);
        assert_eq!(answer.header("x-ratelimit-remaining"), None, "{query} does not count");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
    for left in ["2", "1"] {
        let answer = owners.listed("").await;
        ok(&answer);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert!(answer.header("access-control-expose-headers").is_some_and(|names| names.contains("X-RateLimit")));
    }
    assert_eq!(owners.service.get(&format!("/api/{id}/countries/v1")).await.header("x-ratelimit-remaining"), Some("0"));
    let answer = owners.listed("").await;
    refused(&answer, 429, "Too many requests");
    assert!(answer.header("retry-after").is_some());
}

async fn list_is_paged_by_id(owners: Owners) {
    let mut ids = Vec::new();
    for number in 0..5 {
        let id = owners.dataset(&format!("Set {number}"), false, 1).await;
        owners.update(json!({"dataset_id": id, "listed": number != 2})).await;
        ids.push(id);
    }
    assert_eq!(owners.names("?limit=2").await, ["Set 0", "Set 1"]);
    assert_eq!(owners.names(&format!("?limit=2&after={}", ids[1])).await, ["Set 3", "Set 4"]);
    assert_eq!(owners.names(&format!("?limit=2&after={}", ids[2])).await, ["Set 3", "Set 4"]);
    assert!(owners.names(&format!("?after={}", ids[4])).await.is_empty());
    assert!(owners.names("?after=18446744073709551616").await.is_empty());
    assert_eq!(owners.names("?limit=99999999999&q=set").await.len(), 4);
}

async fn infer_types_converts_csv_cells(owners: Owners) {
    let csv = ("content-type", "text/csv");
    let key = ("authorization", owners.scale.as_str());
    let table = b"a,b,c\n1.50,true,\n01,True, x\n".to_vec();
    let texts = r#"[{"a":"1.50","b":"true","c":""},{"a":"01","b":"True","c":" x"}]"#;
    let values = r#"[{"a":1.50,"b":true,"c":null},{"a":"01","b":"True","c":" x"}]"#;
    let id = ok(&owners.post("/dataset/create", json!({"name": "Table"})).await)["dataset"]["dataset_id"].clone();
    let push = async |query: &str, headers: &[(&str, &str)], body: Vec<u8>| {
        owners.raw("POST", &format!("/dataset/refresh{query}"), headers, body).await
    };
    let read = async || owners.service.get(&format!("/api/{id}/table/latest/?pretty=false")).await;
    let target = format!("?dataset_id={id}");
    ok(&push(&target, &[key, csv], table.clone()).await);
    read().await.is(texts);
    assert_eq!(owners.update(json!({"dataset_id": id, "infer_types": true})).await["infer_types"], json!(true));
    ok(&push(&target, &[key, csv], table.clone()).await);
    read().await.is(values);
    // A single push can override the setting.
    ok(&push(&format!("{target}&infer_types=false"), &[key, csv], table.clone()).await);
    read().await.is(texts);
    // Other formats have their own types.
    let json_type = ("content-type", "application/json");
    ok(&push(&target, &[key, json_type], br#"[{"a":"1","b":""}]"#.to_vec()).await);
    read().await.is(r#"[{"a":"1","b":""}]"#);
    owners.update(json!({"dataset_id": id, "infer_types": false})).await;
    ok(&push(&format!("{target}&infer_types=true"), &[key, csv], table.clone()).await);
    read().await.is(values);
    let versions = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"]["versions"].clone();
    for (query, content_type, body, word) in [
        ("&infer_types=true&format=json", "application/json", "[]", "is json"),
        ("&infer_types=true", "application/json", "[]", "is json"),
        ("&infer_types=true", "application/x-ndjson", "{}\n", "is jsonl"),
        ("&infer_types=true", "application/json", "{\"entities\":[]}", "a JSON object"),
        ("&infer_types=maybe", "text/csv", "a\n", "true, false"),
    ] {
        let answer = push(&format!("{target}{query}"), &[key, ("content-type", content_type)], body.into()).await;
        refused(&answer, 400, word);
        assert!(answer.text().contains("infer_types"), "{}", answer.text());
    }
    let after = ok(&owners.get(&format!("/dataset/view?dataset_id={id}")).await)["dataset"]["versions"].clone();
    assert_eq!(after, versions, "nothing is done");
}

async fn clone_copies_settings_but_is_not_listed(owners: Owners) {
    let id = owners.dataset("Original", false, 1).await;
    let about = json!({"dataset_id": id, "description": "D", "licence": "L", "listed": true, "infer_types": true});
    owners.update(about).await;
    let clone = ok(&owners.post("/dataset/clone", json!({"dataset_id": id, "name": "Copy"})).await)["dataset"].clone();
    assert_eq!(
        json!([clone["description"], clone["licence"], clone["listed"], clone["infer_types"]]),
        json!(["D", "L", false, true])
    );
    assert_eq!(owners.names("").await, ["Original"]);
}
