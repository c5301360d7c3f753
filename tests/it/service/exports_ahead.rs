//! Parquet exports that are made before they are asked for.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use strata_testing::owned::Owned;
use strata_testing::{TestService, eventually};

/// Asks for an export so often.
async fn ask(service: &TestService, uri: &str, times: usize) {
    for _ in 0..times {
        let answer = service.get(uri).await;
        assert_eq!((answer.status, answer.whole), (200, true), "{uri}: {}", answer.text());
    }
}

/// The exports that are made.
fn whole(service: &TestService) -> BTreeSet<PathBuf> {
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "parquet");
    service.export_files().into_iter().filter(is_whole).collect()
}

/// Waits until so many exports are made, and returns them.
async fn exports(service: &TestService, count: usize) -> BTreeSet<PathBuf> {
    eventually("exports are made", async || whole(service).len() >= count).await;
    let files = whole(service);
    assert_eq!(files.len(), count, "{files:?}");
    files
}

const OPEN: &str = "/api/1/open/active/?format=parquet";

#[tokio::test]
async fn an_export_that_is_asked_for_often_is_made_when_another_version_is_published() {
    let owned = Owned::sqlite().await;
    let service = &owned.service;
    let background = service.services.start_background();
    let id = owned.dataset("Open", json!({"source": "push"}), &["[{\"a\":1}]"]).await;
    assert_eq!(id, 1);
    ask(service, OPEN, 3).await;
    exports(service, 1).await;
    owned.push(id, "[{\"a\":2}]").await;
    let made = exports(service, 2).await;
    // It is that which is served, whole and in parts.
    let answer = service.get(OPEN).await;
    assert_eq!((answer.status, answer.header("x-dataset-version")), (200, Some("v2")));
    assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
    let part = service.get_with(OPEN, &[("range", "bytes=-4")]).await;
    assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]));
    assert_eq!(exports(service, 2).await, made);

    // What is served before it could be made is made for who asked. A version that is active again is there still.
    owned.push(id, "[{\"a\":3}]").await;
    ask(service, OPEN, 1).await;
    exports(service, 3).await;
    owned.call("POST", "/dataset/rollback", &json!({"dataset_id": id, "version_number": 1}).to_string()).await;
    ask(service, OPEN, 1).await;
    exports(service, 3).await;
    // While it is pinned, a new version is not active.
    owned.push(id, "[{\"a\":4}]").await;
    owned.call("POST", "/dataset/unpin", &json!({"dataset_id": id}).to_string()).await;
    exports(service, 4).await;
    background.finish(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn an_alternate_is_made_again_when_it_is_saved() {
    let owned = Owned::sqlite().await;
    let service = &owned.service;
    let background = service.services.start_background();
    let id = owned.dataset("Open", json!({"source": "push"}), &["[{\"a\":1}]"]).await;
    assert_eq!(owned.save(id, 1, "[{\"b\":1}]").await.status, 200);
    ask(service, "/api/1/open/latest/alt/?format=parquet&typed=true", 3).await;
    exports(service, 1).await;
    assert_eq!(owned.save(id, 1, "[{\"b\":2}]").await.status, 200);
    exports(service, 2).await;
    background.finish(Duration::from_secs(60)).await;
}

/// The others have their turn before the last one, so when that is made they are not.
#[tokio::test]
async fn what_is_not_asked_for_often_or_cannot_be_read_is_not_made() {
    let owned = Owned::sqlite().await;
    let service = &owned.service;
    for name in ["Open", "Frozen"] {
        owned.dataset(name, json!({"source": "push"}), &["[{\"a\":1}]"]).await;
    }
    let query = format!("/api/1/open/active/?format=parquet&{}", "x".repeat(4_000));
    for (uri, times) in [
        ("/api/2/frozen/active/?format=parquet", 3),
        // Too few, of one version for ever, no export, another one each time, and one that nobody writes by hand.
        ("/api/1/open/active/?format=parquet&typed=true", 2),
        ("/api/1/open/v1/?format=parquet", 3),
        ("/api/1/open/active/?format=csv", 3),
        ("/api/1/open/active/?format=parquet&sample=1", 3),
        (&query, 3),
        ("/api/1/open/latest/?format=parquet&limit=1", 3),
    ] {
        ask(service, uri, times).await;
    }
    let freeze = json!({"dataset_id": 2, "version_number": 1, "freeze": true}).to_string();
    let before = exports(service, 4).await;
    assert_eq!(owned.call("POST", "/dataset/rollback", &freeze).await.status, 200);
    owned.push(1, "[{\"a\":2}]").await;
    let background = service.services.start_background();
    let made = exports(service, 5).await;
    assert!(made.is_superset(&before));
    ask(service, "/api/1/open/latest/?format=parquet&limit=1", 1).await;
    assert_eq!(exports(service, 5).await, made);
    background.finish(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn what_the_cache_has_no_room_for_is_not_made() {
    let owned = Owned::start(|config| config.cache.export_bytes = 200_000).await;
    let service = &owned.service;
    for (name, uri) in
        [("Grows", "/api/1/grows/active/?format=parquet"), ("Open", "/api/2/open/active/?format=parquet")]
    {
        owned.dataset(name, json!({"source": "push"}), &["[{\"a\":1}]"]).await;
        ask(service, uri, 3).await;
    }
    let before = exports(service, 2).await;
    let mut state = 1_u64;
    let large: Vec<String> = (0..20_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{{\"a\":\"{state:x}\"}}")
        })
        .collect();
    owned.push(1, &format!("[{}]", large.join(","))).await;
    owned.push(2, "[{\"a\":2}]").await;
    let background = service.services.start_background();
    let made = || -> Vec<PathBuf> { whole(service).difference(&before).cloned().collect() };
    eventually("the small one is made", async || !made().is_empty()).await;
    assert_eq!(made().len(), 1);
    assert!(std::fs::metadata(&made()[0]).expect("a file").len() < 10_000);
    // Room is the same for who asks.
    ask(service, "/api/1/grows/active/?format=parquet", 1).await;
    assert_eq!(made().len(), 1);
    background.finish(Duration::from_secs(60)).await;
}

/// Processes share nothing: each makes its own, if it does so at all, also of what another one has published.
#[tokio::test]
async fn a_process_without_background_work_makes_none() {
    let service = TestService::configured(|config| config.server.background = false).await;
    service.import("Open", "[{\"a\":1}]").await;
    let off = service.beside(|config| config.cache.exports_ahead = 0).await;
    let other = service.beside(|config| config.server.background = true).await;
    for process in [&service, &off, &other] {
        ask(process, OPEN, 3).await;
    }
    let backgrounds = [&service, &off, &other].map(|process| process.services.start_background());
    exports(&service, 3).await;
    service.import("Open", "[{\"a\":2}]").await;
    exports(&service, 4).await;
    // Only the last one has it.
    ask(&other, OPEN, 1).await;
    exports(&service, 4).await;
    ask(&service, OPEN, 1).await;
    exports(&service, 5).await;
    for background in backgrounds {
        background.finish(Duration::from_secs(60)).await;
    }
}
