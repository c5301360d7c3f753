//! Tests of a disk that has only its reserve left. Data that queries would spill stays in memory, or the query fails.
//! Operations that need no disk space work.

use std::path::PathBuf;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use strata_testing::{TestService, files};

/// More bytes than any disk has.
const MORE_THAN_ANY_DISK_BYTES: u64 = 1 << 50;

/// Longer than any request takes; a hang exceeds it.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns about 4 MB of entities that do not compress.
fn incompressible_entities() -> String {
    let line = |number: u64| {
        let text: String = (0..4).map(|part| hex::encode(Sha256::digest(format!("{number} {part}")))).collect();
        format!("{{\"n\":{number},\"text\":\"{text}\"}}\n")
    };
    (0..14_000).map(line).collect()
}

/// Starts two services with the same data: the first can use the whole disk, and the second must leave all of it free.
async fn services() -> [TestService; 2] {
    let plenty = TestService::configured(|config| {
        config.sources.disk_reserve_bytes = 0;
        config.query.memory_bytes = Some(400 << 20);
        // If no cache contains the documents of a sorted response, the query spills them.
        (config.cache.memory_bytes, config.cache.export_bytes) = (Some(1 << 20), 0);
    })
    .await;
    plenty.import("Noise", &incompressible_entities()).await;
    let short = plenty.open_instance(|config| config.sources.disk_reserve_bytes = MORE_THAN_ANY_DISK_BYTES).await;
    [plenty, short]
}

/// Returns the spill files that exist now.
fn spill_files(plenty: &TestService) -> Vec<PathBuf> {
    let all = files(&plenty.directory().join("tmp"));
    all.into_iter().filter(|path| path.file_name() != Some("lock".as_ref())).collect()
}

#[tokio::test]
async fn export_without_disk_space_uses_memory() {
    const EXPORT: &str = "/api/1/noise/v1/?format=parquet&offset=7";
    let mut bodies = Vec::new();
    let [plenty, short] = services().await;
    for (service, on_disk) in [(&plenty, true), (&short, false)] {
        let request = Request::get(EXPORT).body(Body::empty()).expect("failed to build the request");
        let asking = service.respond(request);
        let answer = tokio::time::timeout(HANG_TIMEOUT, asking).await.expect("failed to get a response");
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let first = body.frame().await.expect("a frame").expect("bytes").into_data().expect("data");
        assert_eq!(!spill_files(&plenty).is_empty(), on_disk, "{:?}", spill_files(&plenty));
        let rest =
            tokio::time::timeout(HANG_TIMEOUT, body.collect()).await.expect("an end").expect("failed to read the body");
        bodies.push([&first[..], &rest.to_bytes()[..]].concat());
        assert_eq!(spill_files(&plenty), Vec::<PathBuf>::new());
    }
    assert!(bodies[0].len() > 1 << 20 && bodies[0].starts_with(b"PAR1") && bodies[0].ends_with(b"PAR1"));
    assert!(bodies[0] == bodies[1]);
}

/// Regression test: bodies were truncated if the client had used up its share of the disk. Such bodies stay in memory,
/// too.
#[tokio::test]
async fn export_over_disk_share_uses_memory() {
    const EXPORT: &str = "/api/1/noise/v1/?format=parquet&offset=7";
    let [plenty, _] = services().await;
    let expected = plenty.get(EXPORT).await.body;
    // One client can use a little more than half of this space.
    let narrow = plenty.open_instance(|config| config.query.spill_bytes = 2 * expected.len() as u64).await;
    let ask = async || {
        let request = Request::get(EXPORT).body(Body::empty()).expect("failed to build the request");
        narrow.respond(request).await.into_body()
    };
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let mut body = ask().await;
        let first = body.frame().await.expect("a frame").expect("bytes").into_data().expect("data");
        bodies.push((first, body));
    }
    for (first, body) in bodies {
        let rest =
            tokio::time::timeout(HANG_TIMEOUT, body.collect()).await.expect("an end").expect("failed to read the body");
        assert!([&first[..], &rest.to_bytes()[..]].concat() == expected);
    }
}

#[tokio::test]
async fn sort_without_disk_space_fails_except_small_page() {
    const WHOLE: &str = "/api/1/noise/v1/?format=jsonl&sort=text";
    const PAGE: &str = "/api/1/noise/v1/?format=jsonl&sort=text&limit=100";
    let [plenty, short] = services().await;
    let whole = plenty.get(WHOLE).await;
    assert_eq!((whole.status, whole.text().lines().count()), (200, 14_000));
    let refused = short.get(WHOLE).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("a disk is full. Try again in 30 s."), "{}", refused.text());
    let pages = [short.get(PAGE).await, plenty.get(PAGE).await];
    assert!(pages.iter().all(|page| page.status == 200) && pages[0].text() == pages[1].text());
    assert_eq!(spill_files(&plenty), Vec::<PathBuf>::new());
}
