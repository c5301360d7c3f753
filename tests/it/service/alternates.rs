//! Alternates and clones over HTTP.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use strata_testing::databases::on_both_databases;
use strata_testing::owned::{Owned, add_user, call, parsed};
use strata_types::user::UserPlan;

on_both_databases! {
    Owned:
    alternate_is_saved_read_replaced_and_deleted
    frozen_dataset_allows_saving_alternates
    read_during_saves_sees_one_whole_alternate
    clone_copies_latest_version_and_diverges
    invalid_clone_request_is_rejected
}

async fn alternate_is_saved_read_replaced_and_deleted(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2},{"a":3}]"#]).await;
    let read = format!("/api/{id}/things/v1/");
    let alt = format!("/api/{id}/things/v1/alt/");
    owned.service.get(&alt).await.is_error(404);

    let saved = parsed(&owned.save(id, 1, r#"[{"a":1.0,"b":[]},{"c":null},{}]"#).await);
    let record = &saved["version"];
    assert_eq!(saved["alt_entity_count"], json!(3));
    assert_eq!(record["version_number"], json!(1));
    assert_eq!(
        (&record["entity_count"], &record["is_active"]),
        (&json!(1), &json!(false)),
        "the record is the version's"
    );
    assert!(record["alt_file_path"].as_str().is_some_and(|path| path.starts_with("versions/")), "{record}");
    assert_eq!(record.get("file_path"), None);
    assert_eq!(owned.versions(id).await[1], *record);
    let text = "{\"a\":1.0,\"b\":[]}\n{\"c\":null}\n{}\n";
    assert_eq!(owned.lines(&alt).await, text);
    let by_parameter = owned.service.get(&format!("{read}?alt=true&format=jsonl")).await;
    by_parameter.is(text);
    assert_eq!(by_parameter.header("x-dataset-alt"), Some("true"));
    assert_eq!(owned.lines(&read).await, "{\"a\":1}\n");
    owned.service.get(&format!("/api/{id}/things/v2/alt/")).await.is_error(404);

    assert_eq!(parsed(&owned.save(id, 1, "[]").await)["alt_entity_count"], json!(0));
    assert_eq!(owned.lines(&alt).await, "");
    let deleted = parsed(&owned.delete(id, 1).await);
    assert_eq!(deleted["version"]["alt_file_path"], Value::Null);
    assert_eq!(owned.versions(id).await[1]["alt_file_path"], Value::Null);
    owned.service.get(&alt).await.is_error(404);
    owned.delete(id, 1).await.is_error(404);
    assert_eq!(owned.lines(&read).await, "{\"a\":1}\n");
}

async fn frozen_dataset_allows_saving_alternates(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    parsed(&owned.save(id, 1, r#"[{"a":1}]"#).await);
    owned.service.get(&format!("/api/{id}/things/v1/alt/")).await.is_error(410);
    parsed(&owned.call("POST", "/dataset/unfreeze", &json!({"dataset_id": id}).to_string()).await);
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await, "{\"a\":1}\n");
}

async fn read_during_saves_sees_one_whole_alternate(owned: Owned) {
    const ENTITIES: usize = 500;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let list = |number: usize| {
        let entities: Vec<String> = (0..ENTITIES).map(|_| format!(r#"{{"save":{number}}}"#)).collect();
        format!("[{}]", entities.join(","))
    };
    parsed(&owned.save(id, 1, &list(0)).await);
    let saves = async {
        for number in 1..12 {
            parsed(&owned.save(id, 1, &list(number)).await);
            // A client that received the response of a save sees the saved alternate.
            let seen = owned.lines(&format!("/api/{id}/things/v1/alt/")).await;
            assert_eq!(seen.lines().next(), Some(&*format!(r#"{{"save":{number}}}"#)));
        }
    };
    let over = std::sync::atomic::AtomicBool::new(false);
    let reads = async {
        let mut last = 0;
        while !over.load(std::sync::atomic::Ordering::SeqCst) {
            let text = owned.lines(&format!("/api/{id}/things/v1/alt/")).await;
            let first = text.lines().next().expect("missing entities");
            assert_eq!(text.lines().count(), ENTITIES);
            assert!(text.lines().all(|line| line == first), "response mixes two saves");
            let number: usize = first[8..first.len() - 1].parse().expect("failed to parse number");
            assert!(number >= last, "{number} after {last}");
            last = number;
            // A read from the response cache never waits. Without this yield, each step of a save would wait for many
            // reads.
            tokio::task::yield_now().await;
        }
    };
    let saves = async {
        saves.await;
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    tokio::join!(saves, reads);
}

async fn clone_copies_latest_version_and_diverges(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#, r#"[{"a":2}]"#]).await;
    parsed(&owned.save(id, 2, r#"[{"alt":2}]"#).await);
    let (_, eve) = add_user(&owned.service, "eve@strata.test", UserPlan::Free).await;
    let body = json!({"dataset_id": id, "name": "Eve's Things"}).to_string();
    let cloned = parsed(&call(&owned.service, &eve, "POST", "/dataset/clone", &body).await);
    let clone = &cloned["dataset"];
    assert_eq!((&clone["source"], &clone["name_slug"]), (&json!("push"), &json!("eve-s-things")));
    assert_eq!((&clone["active_version"], &clone["latest_version"]), (&json!(1), &json!(1)));
    assert_eq!((&clone["private"], &clone["private_key"]), (&json!(false), &Value::Null));
    let clone = clone["dataset_id"].as_u64().expect("missing ID");
    assert_ne!(clone, id);

    let mine = format!("/api/{id}/things/v2/");
    let hers = format!("/api/{clone}/eve-s-things/v1/");
    assert_eq!(owned.lines(&hers).await, "{\"a\":2}\n");
    assert_eq!(owned.lines(&format!("{hers}alt/")).await, "{\"alt\":2}\n");
    owned.service.get(&format!("/api/{clone}/eve-s-things/v2/")).await.is_error(404);
    // No file was copied.
    assert_eq!(owned.service.version_files().len(), 3);

    // Deleting the source's alternate does not affect the clone, and a sweep removes no file that either of them needs.
    parsed(&owned.delete(id, 2).await);
    owned.service.services.maintenance.sweep(std::time::Duration::ZERO, &mut |_| {}).await.expect("failed to sweep");
    owned.service.get(&format!("{mine}alt/")).await.is_error(404);
    assert_eq!(owned.lines(&format!("{hers}alt/")).await, "{\"alt\":2}\n");
    let delete = json!({"dataset_id": clone, "version": 1}).to_string();
    // Now only the clone is left.
    owned.call("DELETE", "/dataset/alternate/delete", &delete).await.is_error(404);
    parsed(&call(&owned.service, &eve, "DELETE", "/dataset/alternate/delete", &delete).await);
    owned.push(id, r#"[{"a":3}]"#).await;
    owned.service.get(&format!("/api/{clone}/eve-s-things/v2/")).await.is_error(404);
    owned.service.services.maintenance.sweep(std::time::Duration::ZERO, &mut |_| {}).await.expect("failed to sweep");
    assert_eq!(owned.lines(&hers).await, "{\"a\":2}\n");
    assert_eq!(owned.service.version_files().len(), 3);
}

async fn invalid_clone_request_is_rejected(owned: Owned) {
    let public = owned.dataset("Public", json!({}), &[r#"[{"a":1}]"#]).await;
    let private = owned.dataset("Private", json!({"private": true}), &[r#"[{"a":2}]"#]).await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    let frozen = owned.dataset("Frozen", json!({}), &["[]"]).await;
    let freeze = json!({"dataset_id": frozen, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    owned.clone(empty, "x").await.is_error(409);
    owned.clone(frozen, "x").await.is_error(409);
    owned.clone(public, "Private").await.is_error(409);
    owned.clone(public, "--").await.is_error(400);
    owned.clone(999_999, "x").await.is_error(404);

    // A clone of the user's own private dataset is private and has a new key.
    let cloned = parsed(&owned.clone(private, "Private Too").await);
    let key = cloned["dataset"]["private_key"].as_str().expect("missing key").to_owned();
    let clone = cloned["dataset"]["dataset_id"].as_u64().expect("missing ID");
    let path = format!("/api/{clone}/private-too/active/?format=jsonl");
    owned.service.get(&path).await.is_error(401);
    owned.service.send("GET", &path, Some(&format!("Bearer {key}"))).await.is("{\"a\":2}\n");
    let view = parsed(&owned.call("GET", &format!("/dataset/view?dataset_id={private}"), "").await);
    assert_ne!(view["dataset"]["private_key"], json!(key));

    let (_, eve) = add_user(&owned.service, "eve@strata.test", UserPlan::Free).await;
    let hers = async |id: u64, name: &str| {
        let body = json!({"dataset_id": id, "name": name}).to_string();
        call(&owned.service, &eve, "POST", "/dataset/clone", &body).await
    };
    hers(private, "x").await.is_error(404);
    for name in ["one", "two", "three"] {
        parsed(&hers(public, name).await);
    }
    let refused = hers(public, "four").await;
    refused.is_error(403);
    assert!(refused.text().contains('3'), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_save_is_rejected_without_changes() {
    let owned = Owned::configured(|config| config.sources.max_bytes = 10_000, None).await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    parsed(&owned.save(id, 1, r#"[{"alt":1}]"#).await);
    let long = format!(r#"{{"dataset_id":{id},"version":1,"entities":[{{"a":"{}"}}]}}"#, "x".repeat(10_000));
    for (body, status, reason) in [
        (r#"{"version":1,"entities":[]}"#.to_owned(), 400, "dataset_id"),
        (format!(r#"{{"dataset_id":{id},"entities":[]}}"#), 400, "version"),
        (format!(r#"{{"dataset_id":{id},"version":0,"entities":[]}}"#), 400, "version"),
        (format!(r#"{{"dataset_id":{id},"version":"1","entities":[]}}"#), 400, "version"),
        (format!(r#"{{"dataset_id":{id},"version":-1,"entities":[]}}"#), 400, "version"),
        (r#"{"dataset_id":[],"version":1,"entities":[]}"#.to_owned(), 400, "dataset_id"),
        (format!(r#"{{"dataset_id":{id},"version":1}}"#), 400, "entities"),
        (format!(r#"{{"dataset_id":{id},"version":1,"entities":{{}}}}"#), 400, "entities"),
        (format!(r#"{{"dataset_id":{id},"version":1,"entities":[{{}},2]}}"#), 422, "item 2"),
        (format!(r#"{{"dataset_id":{id},"version":1,"entities":[{{}}"#), 400, "item 1"),
        ("[]".to_owned(), 400, "object"),
        (String::new(), 400, ""),
        (long, 413, "10000"),
        (format!(r#"{{"dataset_id":{id},"version":2,"entities":[]}}"#), 404, "version"),
        (r#"{"dataset_id":18446744073709551615,"version":1,"entities":[]}"#.to_owned(), 404, "dataset"),
    ] {
        let answer = owned.call("POST", "/dataset/alternate/save", &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        answer.is_error(status);
        assert!(answer.text().contains(reason), "{body}: {}", answer.text());
    }
    let body = format!(r#"{{"dataset_id":{id},"version":1,"entities":[]}}"#);
    let (_, eve) = add_user(&owned.service, "eve@strata.test", UserPlan::Scale).await;
    call(&owned.service, &eve, "POST", "/dataset/alternate/save", &body).await.is_error(404);
    call(&owned.service, "strata_wrong", "POST", "/dataset/alternate/save", &body).await.is_error(401);
    let request = Request::builder().method("POST").uri("/dataset/alternate/save").body(Body::from(body));
    owned.service.call(request.expect("failed to build request")).await.is_error(401);
    let plain = Request::builder().method("POST").uri("/dataset/alternate/save").header("content-type", "text/plain");
    let plain = plain.header("authorization", format!("Bearer {}", owned.token));
    owned.service.call(plain.body(Body::empty()).expect("failed to build request")).await.is_error(415);
    owned.call("GET", "/dataset/alternate/save", "").await.is_error(405);

    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await, "{\"alt\":1}\n");
    assert_eq!(owned.service.version_files().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn save_accepts_members_in_any_order() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let entity = r#"{"z":1e2,"a":100000000000000000000000000001,"é":"\u00e9","n":{"x":[1.50,null,{}]}}"#;
    for body in [
        format!(r#"{{"entities":[{entity}],"version":1,"dataset_id":{id}}}"#),
        format!(r#"{{"version":1,"entities":[{entity}],"dataset_id":{id}}}"#),
    ] {
        parsed(&owned.call("POST", "/dataset/alternate/save", &body).await);
        let text = entity.replace("\\u00e9", "é");
        assert_eq!(owned.lines(&format!("/api/{id}/things/v1/alt/")).await, format!("{text}\n"));
        parsed(&owned.delete(id, 1).await);
    }
}
