//! Prewarmed Parquet exports.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use strata_testing::owned::Owned;
use strata_testing::{TestService, eventually};

/// Requests an export `times` times.
async fn request_export(service: &TestService, uri: &str, times: usize) {
    for _ in 0..times {
        let answer = service.get(uri).await;
        assert_eq!((answer.status, answer.whole), (200, true), "{uri}: {}", answer.text());
    }
}

/// Returns the complete exports in the cache.
fn complete_exports(service: &TestService) -> BTreeSet<PathBuf> {
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "parquet");
    service.export_files().into_iter().filter(is_whole).collect()
}

/// Waits until `count` exports are complete, and returns them.
async fn wait_for_exports(service: &TestService, count: usize) -> BTreeSet<PathBuf> {
    eventually("exports are made", async || complete_exports(service).len() >= count).await;
    let files = complete_exports(service);
    assert_eq!(files.len(), count, "{files:?}");
    files
}

const OPEN: &str = "/api/1/open/active/?format=parquet";

#[tokio::test]
async fn popular_export_is_prewarmed_after_publication() {
    let owned = Owned::sqlite().await;
    let service = &owned.service;
    let background = service.services.start_background();
    let id = owned.dataset("Open", json!({"source": "push"}), &["[{\"a\":1}]"]).await;
    assert_eq!(id, 1);
    request_export(service, OPEN, 3).await;
    wait_for_exports(service, 1).await;
    owned.push(id, "[{\"a\":2}]").await;
    let made = wait_for_exports(service, 2).await;
    // The prewarmed export is served, as a whole and in ranges.
    let answer = service.get(OPEN).await;
    assert_eq!((answer.status, answer.header("x-dataset-version")), (200, Some("v2")));
    assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
    let part = service.get_with(OPEN, &[("range", "bytes=-4")]).await;
    assert_eq!((part.status, &part.body[..]), (206, &b"PAR1"[..]));
    assert_eq!(wait_for_exports(service, 2).await, made);

    // An export that is requested before the prewarm is built for the request. The export of a version that becomes
    // active again is still cached.
    owned.push(id, "[{\"a\":3}]").await;
    request_export(service, OPEN, 1).await;
    wait_for_exports(service, 3).await;
    owned.call("POST", "/dataset/rollback", &json!({"dataset_id": id, "version_number": 1}).to_string()).await;
    request_export(service, OPEN, 1).await;
    wait_for_exports(service, 3).await;
    // While a version is pinned, a new version is not active.
    owned.push(id, "[{\"a\":4}]").await;
    owned.call("POST", "/dataset/unpin", &json!({"dataset_id": id}).to_string()).await;
    wait_for_exports(service, 4).await;
    background.finish(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn saved_alternate_is_prewarmed_again() {
    let owned = Owned::sqlite().await;
    let service = &owned.service;
    let background = service.services.start_background();
    let id = owned.dataset("Open", json!({"source": "push"}), &["[{\"a\":1}]"]).await;
    assert_eq!(owned.save(id, 1, "[{\"b\":1}]").await.status, 200);
    request_export(service, "/api/1/open/latest/alt/?format=parquet&typed=true", 3).await;
    wait_for_exports(service, 1).await;
    assert_eq!(owned.save(id, 1, "[{\"b\":2}]").await.status, 200);
    wait_for_exports(service, 2).await;
    background.finish(Duration::from_secs(60)).await;
}

/// The other exports are decided before the last one, so when that one exists, they were not prewarmed.
#[tokio::test]
async fn unpopular_or_unreadable_export_is_not_prewarmed() {
    let owned = Owned::sqlite().await;
    let service = &owned.service;
    for name in ["Open", "Frozen"] {
        owned.dataset(name, json!({"source": "push"}), &["[{\"a\":1}]"]).await;
    }
    let query = format!("/api/1/open/active/?format=parquet&{}", "x".repeat(4_000));
    for (uri, times) in [
        ("/api/2/frozen/active/?format=parquet", 3),
        // Too few requests, a fixed version, no export, different queries, and a query that no person would write.
        ("/api/1/open/active/?format=parquet&typed=true", 2),
        ("/api/1/open/v1/?format=parquet", 3),
        ("/api/1/open/active/?format=csv", 3),
        ("/api/1/open/active/?format=parquet&sample=1", 3),
        (&query, 3),
        ("/api/1/open/latest/?format=parquet&limit=1", 3),
    ] {
        request_export(service, uri, times).await;
    }
    let freeze = json!({"dataset_id": 2, "version_number": 1, "freeze": true}).to_string();
    let before = wait_for_exports(service, 4).await;
    assert_eq!(owned.call("POST", "/dataset/rollback", &freeze).await.status, 200);
    owned.push(1, "[{\"a\":2}]").await;
    let background = service.services.start_background();
    let made = wait_for_exports(service, 5).await;
    assert!(made.is_superset(&before));
    request_export(service, "/api/1/open/latest/?format=parquet&limit=1", 1).await;
    assert_eq!(wait_for_exports(service, 5).await, made);
    background.finish(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn export_beyond_cache_quota_is_not_prewarmed() {
    let owned = Owned::start(|config| config.cache.export_bytes = 200_000).await;
    let service = &owned.service;
    for (name, uri) in
        [("Grows", "/api/1/grows/active/?format=parquet"), ("Open", "/api/2/open/active/?format=parquet")]
    {
        owned.dataset(name, json!({"source": "push"}), &["[{\"a\":1}]"]).await;
        request_export(service, uri, 3).await;
    }
    let before = wait_for_exports(service, 2).await;
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
    let made = || -> Vec<PathBuf> { complete_exports(service).difference(&before).cloned().collect() };
    eventually("the small one is made", async || !made().is_empty()).await;
    assert_eq!(made().len(), 1);
    assert!(std::fs::metadata(&made()[0]).expect("missing file").len() < 10_000);
    // A requested export has the same limit.
    request_export(service, "/api/1/grows/active/?format=parquet", 1).await;
    // Its writer can evict the small export before it reaches the quota.
    let sizes: Vec<u64> = made().iter().filter_map(|path| Some(std::fs::metadata(path).ok()?.len())).collect();
    assert!(sizes.iter().all(|size| *size < 10_000), "{sizes:?}");
    background.finish(Duration::from_secs(60)).await;
}

/// Processes do not share popularity: each prewarms its own exports, also for versions that other processes published.
#[tokio::test]
async fn process_without_background_tasks_does_not_prewarm() {
    let service = TestService::configured(|config| config.server.background = false).await;
    service.import("Open", "[{\"a\":1}]").await;
    let off = service.open_instance(|config| config.cache.exports_ahead = 0).await;
    let other = service.open_instance(|config| config.server.background = true).await;
    for process in [&service, &off, &other] {
        request_export(process, OPEN, 3).await;
    }
    let backgrounds = [&service, &off, &other].map(|process| process.services.start_background());
    wait_for_exports(&service, 3).await;
    service.import("Open", "[{\"a\":2}]").await;
    wait_for_exports(&service, 4).await;
    // Only the last service has the export.
    request_export(&other, OPEN, 1).await;
    wait_for_exports(&service, 4).await;
    request_export(&service, OPEN, 1).await;
    wait_for_exports(&service, 5).await;
    for background in backgrounds {
        background.finish(Duration::from_secs(60)).await;
    }
}
