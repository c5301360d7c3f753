//! A disk that has only its reserve left: what queries would write to it waits in memory or is refused, and what needs
//! no disk works.

use std::path::PathBuf;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use strata_testing::{TestService, files};

/// More than any disk has.
const EVERYTHING: u64 = 1 << 50;

/// Longer than anything here takes; a hang is found by it.
const HANG: Duration = Duration::from_secs(120);

/// Some 4 MB that do not compress.
fn noise() -> String {
    let line = |number: u64| {
        let text: String = (0..4).map(|part| hex::encode(Sha256::digest(format!("{number} {part}")))).collect();
        format!("{{\"n\":{number},\"text\":\"{text}\"}}\n")
    };
    (0..14_000).map(line).collect()
}

/// Two services with the same data: one that has the whole disk, and one that has to leave all of it free.
async fn services() -> [TestService; 2] {
    let plenty = TestService::configured(|config| {
        config.sources.disk_reserve_bytes = 0;
        config.query.memory_bytes = Some(400 << 20);
        // Documents of an order that no cache holds are put in order by way of the disk.
        (config.cache.memory_bytes, config.cache.export_bytes) = (Some(1 << 20), 0);
    })
    .await;
    plenty.import("Noise", &noise()).await;
    let short = plenty.beside(|config| config.sources.disk_reserve_bytes = EVERYTHING).await;
    [plenty, short]
}

/// What queries have written now.
fn spilled(plenty: &TestService) -> Vec<PathBuf> {
    let all = files(&plenty.directory().join("tmp"));
    all.into_iter().filter(|path| path.file_name() != Some("lock".as_ref())).collect()
}

#[tokio::test]
async fn parquet_that_the_disk_has_no_room_for_waits_in_memory() {
    const EXPORT: &str = "/api/1/noise/v1/?format=parquet&offset=7";
    let mut bodies = Vec::new();
    let [plenty, short] = services().await;
    for (service, on_disk) in [(&plenty, true), (&short, false)] {
        let request = Request::get(EXPORT).body(Body::empty()).expect("a request");
        let asking = service.respond(request);
        let answer = tokio::time::timeout(HANG, asking).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let first = body.frame().await.expect("a frame").expect("bytes").into_data().expect("data");
        assert_eq!(!spilled(&plenty).is_empty(), on_disk, "{:?}", spilled(&plenty));
        let rest = tokio::time::timeout(HANG, body.collect()).await.expect("an end").expect("a whole body");
        bodies.push([&first[..], &rest.to_bytes()[..]].concat());
        assert_eq!(spilled(&plenty), Vec::<PathBuf>::new());
    }
    assert!(bodies[0].len() > 1 << 20 && bodies[0].starts_with(b"PAR1") && bodies[0].ends_with(b"PAR1"));
    assert!(bodies[0] == bodies[1]);
}

/// Bodies were cut where their client had as much of the disk as it may have: they wait in memory, too.
#[tokio::test]
async fn parquet_of_a_client_that_has_its_share_of_the_disk_waits_in_memory() {
    const EXPORT: &str = "/api/1/noise/v1/?format=parquet&offset=7";
    let [plenty, _] = services().await;
    let expected = plenty.get(EXPORT).await.body;
    // Of which one client may have a bit more than half.
    let narrow = plenty.beside(|config| config.query.spill_bytes = 2 * expected.len() as u64).await;
    let ask = async || {
        let request = Request::get(EXPORT).body(Body::empty()).expect("a request");
        narrow.respond(request).await.into_body()
    };
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let mut body = ask().await;
        let first = body.frame().await.expect("a frame").expect("bytes").into_data().expect("data");
        bodies.push((first, body));
    }
    for (first, body) in bodies {
        let rest = tokio::time::timeout(HANG, body.collect()).await.expect("an end").expect("a whole body");
        assert!([&first[..], &rest.to_bytes()[..]].concat() == expected);
    }
}

#[tokio::test]
async fn an_order_that_needs_the_disk_is_refused_and_a_page_of_it_is_not() {
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
    assert_eq!(spilled(&plenty), Vec::<PathBuf>::new());
}
