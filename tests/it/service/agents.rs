//! Edits by agents over HTTP: pulling entities and pushing alternates.

use axum::body::Body;
use axum::http::Request;
use futures::future::join_all;
use serde_json::{Value, json};
use strata_testing::databases::on_both_databases;
use strata_testing::entities::{EXACT, entities};
use strata_testing::openapi::Document;
use strata_testing::owned::{Owned, add_user, call, parsed};
use strata_types::user::UserPlan;

on_both_databases! {
    Owned:
    pull_returns_stored_entities_and_etag
    push_with_stale_etag_changes_nothing
    concurrent_pushes_with_same_etag_save_one
    frozen_dataset_allows_pull_and_push
}

async fn pull_returns_stored_entities_and_etag(owned: Owned) {
    let id = owned.dataset("Things", json!({"private": true}), &[EXACT, r#"[{"a":2}]"#]).await;
    let answer = owned.pull(json!({"dataset_id": id, "version": 1})).await;
    let etag = parsed(&answer)["etag"].as_str().expect("missing ETag").to_owned();
    assert_eq!(answer.header("etag"), Some(&*etag));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-alternate"), Some("false"));
    let head = |version: u64, alt: bool, etag: &str| {
        format!(r#"{{"ok":true,"dataset_id":{id},"version":{version},"alt":{alt},"etag":{},"entities":"#, json!(etag))
    };
    answer.is(&format!("{}{EXACT}}}", head(1, false, &etag)));
    Document::fetch(&owned.service).await.describes_call("POST", "/agent/pull_for_edit", &answer);

    // Without a version number, the active version is pulled.
    let second = owned.etag(id, 2).await;
    assert_ne!(second, etag, "versions have different ETags");
    let active = owned.pull(json!({"dataset_id": id, "version": null, "alt": false})).await;
    active.is(&format!("{}[{{\"a\":2}}]}}", head(2, false, &second)));

    owned.pull(json!({"dataset_id": id, "version": 1, "alt": true})).await.is_error(404);
    parsed(&owned.save(id, 1, "[]").await);
    let saved = owned.etag(id, 1).await;
    assert_ne!(saved, etag, "a save changes the ETag");
    let alternate = owned.pull(json!({"dataset_id": id, "version": 1, "alt": true})).await;
    alternate.is(&format!("{}[]}}", head(1, true, &saved)));
    assert_eq!(alternate.header("x-alternate"), Some("true"));
    let alternate_pull = owned.pull(json!({"dataset_id": id, "version": 1})).await;
    assert_eq!(alternate_pull.header("x-alternate"), Some("true"), "positions refer to the alternate");
    parsed(&owned.save(id, 1, "[]").await);
    assert_ne!(owned.etag(id, 1).await, saved, "a save of the same entities changes the ETag");
    parsed(&owned.delete(id, 1).await);
    assert_eq!(owned.etag(id, 1).await, etag, "without an alternate, the ETag is the first one again");
    assert_eq!(owned.etag(id, 2).await, second);
}

async fn push_with_stale_etag_changes_nothing(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let alt = format!("/api/{id}/things/v1/alt/");
    let first = owned.etag(id, 1).await;
    let answer = owned.push_alt(id, 1, &first, EXACT).await;
    let pushed = parsed(&answer);
    Document::fetch(&owned.service).await.describes_call("POST", "/agent/push_alt_version", &answer);
    assert_eq!(pushed["version"], owned.versions(id).await[0]);
    let count = serde_json::from_str::<Vec<Value>>(EXACT).expect("missing entities").len();
    assert_ne!(count, 1, "the alternate differs from the version");
    assert_eq!((&pushed["version"]["entity_count"], &pushed["alt_entity_count"]), (&json!(1), &json!(count)));
    assert!(pushed["version"]["alt_file_path"].is_string(), "{pushed}");
    let second = pushed["etag"].as_str().expect("missing ETag").to_owned();
    assert_eq!(owned.etag(id, 1).await, second, "the response has the current ETag");
    owned.service.get(&format!("{alt}?pretty=false")).await.is(EXACT);
    assert_eq!(owned.lines(&format!("/api/{id}/things/v1/")).await, "{\"a\":1}\n");

    let files = owned.service.version_files();
    let stale = async |etag: &str| {
        let answer = owned.push_alt(id, 1, etag, r#"[{"stale":true}]"#).await;
        answer.is_error(409);
        assert!(answer.text().contains("Pull again"), "{}", answer.text());
        Document::fetch(&owned.service).await.describes_call("POST", "/agent/push_alt_version", &answer);
    };
    // After a push, after a save, after a delete, and an ETag that never existed.
    stale(&first).await;
    owned.service.get(&format!("{alt}?pretty=false")).await.is(EXACT);
    assert_eq!(owned.service.version_files(), files);
    parsed(&owned.save(id, 1, r#"[{"a":3}]"#).await);
    stale(&second).await;
    assert_eq!(owned.lines(&alt).await, "{\"a\":3}\n");
    let third = owned.etag(id, 1).await;
    parsed(&owned.delete(id, 1).await);
    stale(&third).await;
    stale("\"0123\"").await;
    stale("").await;
    owned.service.get(&alt).await.is_error(404);
    // ETags of other versions are rejected.
    owned.push(id, "[]").await;
    stale(&owned.etag(id, 2).await).await;

    // The members can have any order, and the quotes of the ETag are optional.
    let bare = first.trim_matches('"');
    let body = format!(r#"{{"entities":[{{"a":4}}],"etag":"{bare}","version":1,"dataset_id":{id}}}"#);
    parsed(&owned.call("POST", "/agent/push_alt_version", &body).await);
    assert_eq!(owned.lines(&alt).await, "{\"a\":4}\n");
}

async fn concurrent_pushes_with_same_etag_save_one(owned: Owned) {
    const EDITORS: usize = 8;
    let id = owned.dataset("Things", json!({}), &["[]"]).await;
    let mut etag = owned.etag(id, 1).await;
    for round in 0..3 {
        let entities: Vec<String> = (0..EDITORS).map(|editor| format!(r#"[{{"r":{round},"e":{editor}}}]"#)).collect();
        let answers = join_all(entities.iter().map(|entities| owned.push_alt(id, 1, &etag, entities))).await;
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 409).count(), EDITORS - 1, "{statuses:?}");
        let winner = statuses.iter().position(|status| *status == 200).expect("failed to find one");
        let read = owned.service.get(&format!("/api/{id}/things/v1/alt/?pretty=false")).await;
        read.is(&entities[winner]);
        etag = parsed(&answers[winner])["etag"].as_str().expect("missing ETag").to_owned();
        assert_eq!(owned.etag(id, 1).await, etag);
    }
}

async fn frozen_dataset_allows_pull_and_push(owned: Owned) {
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    parsed(&owned.call("POST", "/dataset/rollback", &freeze).await);
    let pulled = parsed(&owned.pull(json!({"dataset_id": id})).await);
    assert_eq!(pulled["entities"], json!([{"a": 1}]));
    let pushed = owned.push_alt(id, 1, pulled["etag"].as_str().expect("missing ETag"), r#"[{"a":2}]"#).await;
    assert_eq!(parsed(&pushed)["version"]["version_number"], json!(1));
    let pulled = parsed(&owned.pull(json!({"dataset_id": id, "alt": true})).await);
    assert_eq!(pulled["entities"], json!([{"a": 2}]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_version_is_pulled_and_pushed_completely() {
    let owned = Owned::sqlite().await;
    let list = entities(6 << 20);
    let id = owned.dataset("Things", json!({}), &[&list]).await;
    let pulled = owned.pull(json!({"dataset_id": id})).await;
    assert!(pulled.whole && pulled.chunks > 8, "{} chunks", pulled.chunks);
    let etag = pulled.header("etag").expect("missing ETag").to_owned();
    let head = format!(r#"{{"ok":true,"dataset_id":{id},"version":1,"alt":false,"etag":{},"entities":"#, json!(etag));
    pulled.is(&format!("{head}{list}}}"));
    assert_eq!(owned.push_alt(id, 1, &etag, &list).await.status, 200);
    let alternate = owned.pull(json!({"dataset_id": id, "alt": true})).await;
    assert!(alternate.text().ends_with(&format!(r#""entities":{list}}}"#)));
    assert_eq!(owned.service.services.current_load().streams_running, 0, "all streams have ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_of_damaged_file_returns_500() {
    let owned = Owned::sqlite().await;
    for (name, list) in [("Small", "[{\"a\":1}]".to_owned()), ("Large", entities(3 << 20))] {
        let before = owned.service.version_files();
        let id = owned.dataset(name, json!({}), &[&list]).await;
        let file = owned
            .service
            .version_files()
            .into_iter()
            .find(|file| !before.contains(file))
            .expect("missing version file");
        std::fs::write(&file, b"not Parquet").expect("failed to write");
        let answer = owned.pull(json!({"dataset_id": id})).await;
        answer.is_error(500);
        assert!(answer.text().contains("Failed to read the dataset"), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_pull_or_push_returns_reason() {
    let owned = Owned::configured(|config| config.sources.max_bytes = 10_000, None).await;
    let id = owned.dataset("Things", json!({}), &[r#"[{"a":1}]"#]).await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    for (body, status, reason) in [
        (json!({}), 400, "dataset_id: missing"),
        (json!({"dataset_id": "1"}), 400, "dataset_id"),
        (
            json!({"dataset_id": id, "version": "V1"}),
            400,
            "version: \"V1\" is not valid; valid: active, latest, or a version number",
        ),
        (json!({"dataset_id": id, "version": 0}), 400, "version"),
        (json!({"dataset_id": id, "version": 1.5}), 400, "version"),
        (json!({"dataset_id": id, "alt": "yes"}), 400, "alt"),
        (json!({"dataset_id": id, "version": 9}), 404, "no version 9"),
        (json!({"dataset_id": id, "version": u64::MAX}), 404, "no version"),
        (json!({"dataset_id": id, "version": 1, "alt": true}), 404, "no alternate"),
        (json!({"dataset_id": empty}), 404, "no active version"),
        (json!({"dataset_id": 999_999}), 404, "no dataset"),
    ] {
        let answer = owned.pull(body.clone()).await;
        answer.is_error(status);
        assert!(answer.text().contains(reason), "{body}: {}", answer.text());
    }

    let etag = json!(owned.etag(id, 1).await);
    let long =
        format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag},"entities":[{{"a":"{}"}}]}}"#, "x".repeat(10_000));
    for (body, status, reason) in [
        (format!(r#"{{"dataset_id":{id},"version":1,"entities":[]}}"#), 400, "etag: missing"),
        (format!(r#"{{"dataset_id":{id},"version":1,"etag":null,"entities":[]}}"#), 400, "etag: missing"),
        (format!(r#"{{"dataset_id":{id},"version":1,"etag":7,"entities":[]}}"#), 400, "etag must be a string"),
        (format!(r#"{{"dataset_id":{id},"version":1,"etag":[{etag}],"entities":[]}}"#), 400, "etag must be a string"),
        (format!(r#"{{"dataset_id":{id},"etag":{etag},"entities":[]}}"#), 400, "version"),
        (format!(r#"{{"version":1,"etag":{etag},"entities":[]}}"#), 400, "dataset_id"),
        (format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag}}}"#), 400, "entities"),
        (format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag},"entities":[1]}}"#), 422, "item 1"),
        (format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag},"entities":[{{"a":"#), 422, "item 1"),
        (format!(r#"{{"dataset_id":{id},"version":2,"etag":{etag},"entities":[]}}"#), 404, "version"),
        (long, 413, "10000"),
        (String::new(), 400, ""),
    ] {
        let answer = owned.call("POST", "/agent/push_alt_version", &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        answer.is_error(status);
        assert!(answer.text().contains(reason), "{body}: {}", answer.text());
    }

    let (_, eve) = add_user(&owned.service, "eve@strata.test", UserPlan::Scale).await;
    let push = format!(r#"{{"dataset_id":{id},"version":1,"etag":{etag},"entities":[]}}"#);
    for (path, body) in
        [("/agent/pull_for_edit", json!({"dataset_id": id}).to_string()), ("/agent/push_alt_version", push)]
    {
        call(&owned.service, &eve, "POST", path, &body).await.is_error(404);
        call(&owned.service, "strata_wrong", "POST", path, &body).await.is_error(401);
        owned.call("GET", path, "").await.is_error(405);
        let plain = Request::post(path).header("content-type", "text/plain");
        let plain = plain.header("authorization", format!("Bearer {eve}")).body(Body::from(body));
        owned.service.call(plain.expect("failed to build request")).await.is_error(415);
    }
    // None of these requests saved anything.
    owned.service.get(&format!("/api/{id}/things/v1/alt/")).await.is_error(404);
    assert_eq!(owned.service.version_files().len(), 1);
}
