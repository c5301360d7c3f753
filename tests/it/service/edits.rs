//! Edits of alternates by position, over HTTP.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use strata_testing::databases::on_both_databases;
use strata_testing::entities::EXACT;
use strata_testing::openapi::Document;
use strata_testing::owned::{Owned, add_user, call, parsed};
use strata_types::user::UserPlan;

on_both_databases! {
    Owned:
    edits_change_only_alternate
    invalid_edit_is_identified_and_changes_nothing
    random_edits_match_naive_list
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edit_rejects_entities_that_push_rejects() {
    let owned = Owned::start(|config| config.limits.entity_bytes = 1_024).await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"n":0}]"#]).await;
    let etag = owned.etag(id, 1).await;
    let entity = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - r#"{"a":""}"#.len()));
    for change in [r#""set":E"#, r#""insert":[{},E]"#] {
        let edits = |bytes| {
            let change = change.replace('E', &entity(bytes));
            format!(r#"[{{"position":0,"insert":[]}},{{"position":0,{change}}}]"#)
        };
        let answer = owned.edit(id, &etag, &edits(1_025)).await;
        answer.is_error(413);
        assert!(
            answer.text().contains("edits[1]: an entity is larger than limits.entity_bytes (1024)"),
            "{}",
            answer.text()
        );
        assert_eq!(owned.etag(id, 1).await, etag, "the alternate changed");
    }
    parsed(&owned.edit(id, &etag, &format!(r#"[{{"position":0,"set":{}}}]"#, entity(1_024))).await);
    assert_eq!(owned.alternate(id).await, format!("[{}]", entity(1_024)));
}

/// Returns an entity with `levels` nested levels, including itself.
fn nested(levels: usize) -> String {
    format!(r#"{{"a":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
}

async fn edits_change_only_alternate(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"n":0},{"n":1},{"n":2}]"#]).await;
    let first = owned.etag(id, 1).await;
    // Without an alternate, the edited list is the version's.
    let edits = r#"[{"position":1,"set":{"n":1.0,"n\u0061":1e2,"x":123456789012345678901234567890}},
                    {"insert":[{"i":1},{"i":2}],"position":1},{"position":3,"insert":[{"e":1}]},
                    {"position":1.0,"insert":[{"i":3}]},{"position":0,"remove":true},{"position":3,"insert":[]},
                    {"position":3e0,"insert":[{"e":2}]},{"position":2,"insert":[{"j":1}],"set":null}]"#;
    let answer = owned.edit(id, &first, edits).await;
    let edited = parsed(&answer);
    Document::fetch(&owned.service).await.describes_call("POST", "/dataset/alternate/edit", &answer);
    let entities = r#"{"i":1},{"i":2},{"i":3},{"n":1.0,"na":1e2,"x":123456789012345678901234567890},{"j":1},{"n":2},{"e":1},{"e":2}"#;
    assert_eq!(owned.alternate(id).await, format!("[{entities}]"));
    assert_eq!(edited["version"], owned.versions(id).await[0]);
    assert_eq!((&edited["version"]["entity_count"], &edited["alt_entity_count"]), (&json!(3), &json!(8)));
    let second = edited["etag"].as_str().expect("missing ETag").to_owned();
    assert_eq!(owned.etag(id, 1).await, second, "the response has the current ETag");
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/")).await, "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n");
    let keys: Vec<&str> = edited.as_object().expect("not an object").keys().map(String::as_str).collect();
    assert_eq!(keys, ["ok", "version", "alt_entity_count", "etag"], "same members as for a push");

    // Now the list is the alternate's. The members can have any order, and the quotes of the ETag are optional.
    let bare = second.trim_matches('"');
    let body = format!(
        r#"{{"edits":[{{"remove":true,"position":7}},{{"position":7,"insert":[{{"k":1}}]}}],"etag":"{bare}","version":1,"dataset_id":{id}}}"#
    );
    let third = parsed(&owned.call("POST", "/dataset/alternate/edit", &body).await);
    assert_eq!(owned.alternate(id).await, format!("[{}]", entities.replace("{\"e\":2}", "{\"k\":1}")));

    // A stale ETag is rejected before the positions are checked, and changes nothing.
    for (etag, edits) in [
        (&*first, r#"[{"position":0,"remove":true}]"#),
        (&*second, r#"[{"position":99,"remove":true}]"#),
        ("", r#"[{"position":0,"remove":true},{"position":0,"remove":true}]"#),
    ] {
        let stale = owned.edit(id, etag, edits).await;
        stale.is_error(409);
        assert!(stale.text().contains("Pull again"), "{}", stale.text());
        Document::fetch(&owned.service).await.describes_call("POST", "/dataset/alternate/edit", &stale);
    }
    assert_eq!(owned.etag(id, 1).await, third["etag"].as_str().expect("missing ETag"));

    // All entities can be removed, and an empty list accepts inserts.
    let all: Vec<String> = (0..8).map(|position| format!(r#"{{"position":{position},"remove":true}}"#)).collect();
    let none = parsed(&owned.edit(id, &owned.etag(id, 1).await, &format!("[{}]", all.join(","))).await);
    assert_eq!((owned.alternate(id).await.as_str(), &none["alt_entity_count"]), ("[]", &json!(0)));
    let etag = owned.etag(id, 1).await;
    let answer = owned.edit(id, &etag, r#"[{"position":0,"set":{}}]"#).await;
    answer.is_error(400);
    assert!(answer.text().contains("edits[0]") && answer.text().contains("0 entities"), "{}", answer.text());
    let exact = format!(r#"[{{"position":0,"insert":{EXACT}}}]"#);
    parsed(&owned.edit(id, &etag, &exact).await);
    assert_eq!(owned.alternate(id).await, EXACT);

    // Only one of two concurrent edits succeeds, also while the dataset is frozen.
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    let etag = owned.etag(id, 1).await;
    let edits = [r#"[{"position":0,"remove":true}]"#, r#"[{"position":1,"remove":true}]"#];
    let (one, other) = tokio::join!(owned.edit(id, &etag, edits[0]), owned.edit(id, &etag, edits[1]));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

async fn invalid_edit_is_identified_and_changes_nothing(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"n":0},{"n":1}]"#]).await;
    let etag = owned.etag(id, 1).await;
    for (edits, words) in [
        ("[]", &["edits: the list is empty", "\"position\""][..]),
        ("null", &["edits: null is not valid; valid: a list of {"]),
        ("{}", &["edits: an object is not valid"]),
        ("7", &["edits: 7 is not valid; valid: a list of {"]),
        ("[7]", &["edits[0]: 7 is not valid; valid: {"]),
        (r#"["7"]"#, &["edits[0]: \"7\" is not valid"]),
        (r#"[{"position":0,"set":{}},[]]"#, &["edits[1]: an array is not valid"]),
        ("[{}]", &["edits[0]: position is missing"]),
        (r#"[{"position":0}]"#, &["edits[0]: set, remove, or insert is missing; valid: {"]),
        (
            r#"[{"position":0,"set":null}]"#,
            &["set: null is not valid; valid: an object (the whole entity), or \"remove\":true to remove the entity"],
        ),
        (r#"[{"position":0,"remove":null}]"#, &["edits[0]: remove: null is not valid; valid: true"]),
        (r#"[{"position":0,"insert":null}]"#, &["edits[0]: insert: null is not valid; valid: a list of entities"]),
        (r#"[{"position":null,"remove":true}]"#, &["edits[0]: position is null; valid: a whole number, 0 or more"]),
        (r#"[{"postion":0,"remove":true}]"#, &["edits[0]: unknown field \"postion\"; did you mean position?"]),
        (r#"[{"position":0,"delete":true}]"#, &["edits[0]: unknown field \"delete\"", "set, remove, insert"]),
        (r#"[{"position":0,"remove":false}]"#, &["edits[0]: remove: false is not valid; valid: true"]),
        (r#"[{"position":0,"remove":"true"}]"#, &["edits[0]: remove: \"true\" is not valid"]),
        (r#"[{"position":0,"set":[1]}]"#, &["edits[0]: set: an array is not valid; valid: an object"]),
        (r#"[{"position":0,"insert":{}}]"#, &["edits[0]: insert: an object is not valid; valid: a list"]),
        (r#"[{"position":0,"insert":[{},7]}]"#, &["edits[0]: insert[1]: 7 is not valid; valid: an object"]),
        (r#"[{"position":0,"set":{},"remove":true}]"#, &["edits[0]: more than one of set, remove, or insert"]),
        (r#"[{"position":-1,"remove":true}]"#, &["edits[0]: position: -1 is not valid; valid: a whole number"]),
        (r#"[{"position":0.5,"remove":true}]"#, &["edits[0]: position: 0.5 is not valid"]),
        (r#"[{"position":"0","remove":true}]"#, &["edits[0]: position: \"0\" is not valid"]),
        (r#"[{"position":2,"remove":true}]"#, &["edits[0]: position 2 does not exist", "2 entities", "0 to 1"]),
        (r#"[{"position":0,"set":{}},{"position":2,"set":{}}]"#, &["edits[1]: position 2 does not exist"]),
        (r#"[{"position":3,"insert":[{}]}]"#, &["edits[0]: position 3 is past the end", "0 to 2"]),
        (r#"[{"position":99999999999999999999,"insert":[{}]}]"#, &["edits[0]: position 99999999999999999999 is past"]),
        (r#"[{"position":99999999999999999999,"remove":true}]"#, &["position 99999999999999999999 does not exist:"]),
        (r#"[{"position":18446744073709551616,"remove":true}]"#, &["position 18446744073709551616 does not exist:"]),
        (r#"[{"position":18446744073709551615,"remove":true}]"#, &["position 18446744073709551615 does not exist:"]),
        (r#"[{"position":18446744073709551614,"remove":true}]"#, &["position 18446744073709551614 does not exist:"]),
        (
            r#"[{"position":0,"insert":[]},{"position":1e99,"remove":true},{"position":2e99,"remove":true}]"#,
            &["edits[1]: position 1e99 does not exist:"],
        ),
        (
            r#"[{"position":0,"set":{}},{"position":1,"remove":true},{"position":0,"remove":true}]"#,
            &["edits[2]: position 0 is already set or removed by edits[0]"],
        ),
        (&format!(r#"[{{"position":0,"set":{}}}]"#, nested(129)), &["edits[0]: set:", "nested deeper than 128"]),
        (&format!(r#"[{{"position":0,"insert":[{}]}}]"#, nested(129)), &["edits[0]: insert[0]:", "nested deeper"]),
        (r#"[{"position":0,"set":{"a":"\ud800"}}]"#, &["surrogate"]),
        (r#"[{"position":0,"set":{"a":01}}]"#, &["invalid JSON number"]),
    ] {
        let answer = owned.edit(id, &etag, edits).await;
        answer.is_error(400);
        for word in words {
            assert!(answer.text().contains(word), "{edits}: {} does not say {word}", answer.text());
        }
    }
    let whole = |dataset: Value, version: Value, etag: Value| json!({"dataset_id": dataset, "version": version, "etag": etag, "edits": [{"position": 0, "remove": true}]});
    for (body, status, word) in [
        (whole(json!(null), json!(1), json!(etag)), 400, "dataset_id"),
        (whole(json!(id), json!("1"), json!(etag)), 400, "version"),
        (whole(json!(id), json!("latest"), json!(etag)), 400, "version"),
        (whole(json!(id), json!(1), json!(null)), 400, "etag: null is not valid"),
        (whole(json!(id), json!(1), json!(7)), 400, "etag"),
        (whole(json!(999_999), json!(1), json!(etag)), 404, "no dataset"),
        (whole(json!(id), json!(2), json!(etag)), 404, "no version 2"),
        (json!({"dataset_id": id, "version": 1, "etag": etag}), 400, "edits: missing"),
        (json!({"dataset_id": id, "version": 1, "etag": etag, "edit": []}), 400, "did you mean edits?"),
        (json!([]), 400, "not an object"),
    ] {
        let answer = owned.call("POST", "/dataset/alternate/edit", &body.to_string()).await;
        answer.is_error(status);
        assert!(answer.text().contains(word), "{body}: {}", answer.text());
    }
    let (_, eve) = add_user(&owned.service, "eve@strata.test", UserPlan::Scale).await;
    let body = whole(json!(id), json!(1), json!(etag)).to_string();
    call(&owned.service, &eve, "POST", "/dataset/alternate/edit", &body).await.is_error(404);
    call(&owned.service, "strata_wrong", "POST", "/dataset/alternate/edit", &body).await.is_error(401);
    let long = format!(r#"[{{"position":0,"set":{{"a":"{}"}}}}]"#, "x".repeat(3 << 20));
    owned.edit(id, &etag, &long).await.is_error(413);
    owned.service.get(&format!("/api/{id}/things/v1/alt/")).await.is_error(404);
    assert_eq!(owned.service.version_files().len(), 1, "unexpected version files");

    // The maximum nesting depth is allowed in both forms.
    let edits = format!(r#"[{{"position":0,"set":{deep}}},{{"position":0,"insert":[{deep}]}}]"#, deep = nested(128));
    parsed(&owned.edit(id, &etag, &edits).await);
    assert_eq!(owned.alternate(id).await, format!(r#"[{deep},{deep},{{"n":1}}]"#, deep = nested(128)));
}

/// Applies edits to a list step by step.
fn apply_naively(list: &[String], edits: &[Value]) -> Vec<String> {
    let mut edited = Vec::new();
    let of = |position: usize| edits.iter().filter(move |edit| edit["position"] == json!(position));
    for position in 0..=list.len() {
        for edit in of(position) {
            for entity in edit["insert"].as_array().into_iter().flatten() {
                edited.push(entity.to_string());
            }
        }
        let Some(entity) = list.get(position) else { break };
        match of(position).find(|edit| edit["insert"].is_null()) {
            None => edited.push(entity.clone()),
            Some(edit) if edit["remove"] == json!(true) => {}
            Some(edit) => edited.push(edit["set"].to_string()),
        }
    }
    edited
}

async fn random_edits_match_naive_list(owned: Owned) {
    let mut random = StdRng::seed_from_u64(14);
    let mut list: Vec<String> = (0..20).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    let id = owned.dataset("Things", json!({}), &[&format!("[{}]", list.join(","))]).await;
    let mut etag = owned.etag(id, 1).await;
    let mut serial = 0;
    for round in 0..40 {
        let mut changed = std::collections::BTreeSet::new();
        let mut edits = Vec::new();
        for _ in 0..random.random_range(1..12) {
            let position = random.random_range(0..=list.len());
            serial += 1;
            let entity = json!({"serial": serial});
            edits.push(match random.random_range(0..3) {
                0 if position < list.len() && changed.insert(position) => json!({"position": position, "set": entity}),
                1 if position < list.len() && changed.insert(position) => json!({"position": position, "remove": true}),
                _ => {
                    let entities: Vec<Value> =
                        (0..random.random_range(0..3)).map(|n| json!({"in": serial, "n": n})).collect();
                    json!({"position": position, "insert": entities})
                }
            });
        }
        list = apply_naively(&list, &edits);
        let edited = parsed(&owned.edit(id, &etag, &Value::from(edits.clone()).to_string()).await);
        assert_eq!(owned.alternate(id).await, format!("[{}]", list.join(",")), "round {round}: {edits:?}");
        assert_eq!(edited["alt_entity_count"], json!(list.len()));
        etag = edited["etag"].as_str().expect("missing ETag").to_owned();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_alternate_is_edited_in_one_pass() {
    const ENTITIES: usize = 100_000;
    let owned = Owned::sqlite().await;
    let mut list: Vec<String> =
        (0..ENTITIES).map(|number| format!(r#"{{"n":{number},"t":"{}"}}"#, "é".repeat(number % 40))).collect();
    let id = owned.dataset("Things", json!({}), &[&format!("[{}]", list.join(","))]).await;
    // At the boundaries of row groups and of the list.
    let edits: Vec<Value> = [0, 1, 32_767, 32_768, 65_535, 65_536, ENTITIES - 1]
        .into_iter()
        .flat_map(|position| {
            [
                json!({"position": position, "insert": [{"before": position}]}),
                json!({"position": position, "set": {"at": position}}),
            ]
        })
        .chain([json!({"position": 50_000, "remove": true}), json!({"position": ENTITIES, "insert": [{"last": 1}]})])
        .collect();
    let edited = parsed(&owned.edit(id, &owned.etag(id, 1).await, &Value::from(edits.clone()).to_string()).await);
    list = apply_naively(&list, &edits);
    assert_eq!(edited["alt_entity_count"], json!(list.len()));
    let lines = owned.lines(&format!("/api/{id}/things/v1/alt/")).await;
    assert!(lines.lines().eq(list.iter().map(String::as_str)), "the lists differ");
    assert_eq!(owned.service.services.ingest.spooled_bytes(), 0, "the spool is empty");

    // If the file cannot be read, no partial copy is saved.
    let etag = owned.etag(id, 1).await;
    let alternate = edited["version"]["alt_file_path"].as_str().expect("missing path").to_owned();
    let file = owned.service.directory().join("store").join(alternate);
    let mut bytes = std::fs::read(&file).expect("failed to read");
    bytes[1_000] ^= 0xff;
    std::fs::write(&file, bytes).expect("failed to write");
    let other_service = owned.service.open_instance(|_| {}).await;
    let body = json!({"dataset_id": id, "version": 1, "etag": etag, "edits": [{"position": 0, "remove": true}]});
    let answer = call(&other_service, &owned.token, "POST", "/dataset/alternate/edit", &body.to_string()).await;
    answer.is_error(500);
    assert_eq!(owned.etag(id, 1).await, etag, "the alternate changed");
    assert_eq!(owned.service.version_files().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_version_have_same_etag() {
    let owned = Owned::sqlite().await;
    let list: Vec<String> = (0..10).map(|number| format!(r#"{{"n":{number}.0}}"#)).collect();
    let id = owned.dataset("Things", json!({}), &[&format!("[{}]", list.join(","))]).await;
    let etag = owned.etag(id, 1).await;
    for (offset, limit, taken, next) in [
        (json!(0), json!(4), 0..4, json!(4)),
        (json!(4), json!(4), 4..8, json!(8)),
        (json!(8), json!(4), 8..10, json!(null)),
        (json!(6), json!(4), 6..10, json!(null)),
        (json!(10), json!(4), 10..10, json!(null)),
        (json!(99), json!(null), 10..10, json!(null)),
        (json!(7), json!(null), 7..10, json!(null)),
        (json!(null), json!(2), 0..2, json!(2)),
        (json!(3), json!(0), 3..3, json!(null)),
    ] {
        let answer = owned.pull(json!({"dataset_id": id, "offset": offset, "limit": limit})).await;
        Document::fetch(&owned.service).await.describes_call("POST", "/agent/pull_for_edit", &answer);
        let from = offset.as_u64().unwrap_or(0);
        let head = format!(
            r#"{{"ok":true,"dataset_id":{id},"version":1,"alt":false,"etag":{},"offset":{from},"total_count":10,"next_offset":{next},"entities":"#,
            json!(etag)
        );
        answer.is(&format!("{head}[{}]}}", list[taken].join(",")));
    }
    for (page, word) in [(json!({"offset": -1}), "offset"), (json!({"limit": "x"}), "limit")] {
        let mut body = page;
        body["dataset_id"] = json!(id);
        let answer = owned.pull(body).await;
        answer.is_error(400);
        assert!(answer.text().contains(word), "{}", answer.text());
    }
}
