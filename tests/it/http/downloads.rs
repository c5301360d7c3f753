//! A download of a Parquet export in ranges counts only once, and cannot return more than one download.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use strata_testing::{Answer, TestService};

use super::read_limits::{GET, TestRequest, limited, rate, send};

const EXPORT: &str = "/api/1/open/v1/?format=parquet";

/// Imports a public and a private dataset. Returns the `Authorization` of the private one.
async fn two_datasets(service: &TestService) -> String {
    service.import("Open", "[{\"a\":1}]").await;
    let imported = service.try_import("Hidden", true, b"[{\"a\":2}]").await.expect("failed to import");
    format!("Bearer {}", imported.private_key.expect("missing key").expose())
}

async fn range(service: &TestService, uri: &str, range: &str) -> Answer {
    service.get_with(uri, &[("range", range)]).await
}

/// Returns the status and the number of remaining requests.
fn left(answer: &Answer) -> (u16, u64) {
    (answer.status, rate(answer).expect("missing rate").1)
}

/// Entities whose export exceeds 1 MiB, because their strings do not compress well.
pub(super) fn large() -> String {
    let mut state = 1_u64;
    let mut entities = String::new();
    for number in 0..3_000 {
        let _ = write!(entities, "{{\"number\":{number},\"text\":\"");
        for _ in 0..64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = write!(entities, "{:016x}", state ^ (state >> 29));
        }
        entities.push_str("\"}\n");
    }
    entities
}

#[tokio::test]
async fn further_ranges_of_counted_export_are_free() {
    let (service, clock) = limited(3, 5).await;
    two_datasets(&service).await;
    clock.0.store(7, Ordering::Relaxed);
    let first = range(&service, EXPORT, "bytes=-8").await;
    assert_eq!((first.status, rate(&first)), (206, Some((3, 2, 1_700_000_067))));
    // Ranges past the end and a matching `If-Range` are also free.
    let etag = first.header("etag").expect("missing etag").to_owned();
    for _ in 0..5 {
        assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 2));
        assert_eq!(left(&range(&service, EXPORT, "bytes=99999999-").await), (416, 2));
        let headers = [("range", "bytes=0-3"), ("if-range", &*etag)];
        assert_eq!(left(&service.get_with(EXPORT, &headers).await), (206, 2));
    }
    // The same export by another URL.
    let other = "/api/1/open/active?pretty=false&format=parquet&unknown=1";
    let answer = range(&service, other, "bytes=0-3").await;
    assert_eq!((answer.status, rate(&answer)), (206, Some((3, 2, 1_700_000_067))));
    assert_eq!(answer.header("etag"), Some(&*etag));

    // Without remaining requests, the client can finish this download, but start nothing else.
    for expected in [1, 0] {
        assert_eq!(left(&service.get("/api/1/open/v1").await), (200, expected));
    }
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 0));
    for uri in [EXPORT, "/api/1/open/v1", "/api/1/open/v1/?format=parquet&typed=true", "/api/9/open/v1?format=parquet"]
    {
        let answer = match uri == EXPORT {
            true => service.get(uri).await,
            false => range(&service, uri, "bytes=0-3").await,
        };
        answer.is_error(429);
        assert_eq!((rate(&answer), answer.header("retry-after")), (Some((3, 0, 1_700_000_067)), Some("60")), "{uri}");
    }

    // A free request opens no window, and shows the window that would begin now.
    clock.0.store(80, Ordering::Relaxed);
    for second in [80, 90] {
        clock.0.store(second, Ordering::Relaxed);
        let answer = range(&service, EXPORT, "bytes=0-3").await;
        assert_eq!((answer.status, rate(&answer)), (206, Some((3, 3, 1_700_000_060 + second))));
    }
    clock.0.store(100, Ordering::Relaxed);
    let answer = service.get("/api/1/open/v1").await;
    assert_eq!((answer.status, rate(&answer)), (200, Some((3, 2, 1_700_000_160))));

    // A download lasts for 15 minutes.
    clock.0.store(7 + 899, Ordering::Relaxed);
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 3));
    clock.0.store(7 + 900, Ordering::Relaxed);
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 2));
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 2));
}

#[tokio::test]
async fn whole_download_can_be_resumed() {
    let (service, _) = limited(2, 5).await;
    two_datasets(&service).await;
    let whole = service.get(EXPORT).await;
    assert_eq!(left(&whole), (200, 1));
    let rest = range(&service, EXPORT, "bytes=100-").await;
    assert_eq!(left(&rest), (206, 1));
    assert!(rest.body == whole.body[100..]);
}

#[tokio::test]
async fn other_requests_than_ranges_count() {
    let (service, _) = limited(100, 100).await;
    let key = two_datasets(&service).await;
    let first = range(&service, EXPORT, "bytes=0-3").await;
    let etag = first.header("etag").expect("missing etag").to_owned();
    let mut expected = 99;
    assert_eq!(left(&first), (206, expected));
    // Query and headers; status.
    type DownloadRow<'a> = (&'a str, &'a [(&'a str, &'a str)], u16);
    let rows: [DownloadRow<'_>; 11] = [
        ("format=parquet", &[], 200),
        ("format=parquet", &[("range", "bytes=0-1,3-4")], 200),
        ("format=parquet", &[("range", "bytes")], 200),
        ("format=parquet", &[("range", "bytes=0-3"), ("if-range", "\"another\"")], 200),
        ("format=parquet", &[("range", "bytes=0-3"), ("if-none-match", &etag)], 304),
        ("format=parquet&strict=true", &[("range", "bytes=0-3")], 206),
        ("format=parquet&count=true", &[("range", "bytes=0-3")], 200),
        ("format=parquet&typed=true", &[("range", "bytes=0-3")], 206),
        ("format=parquet&sample=1", &[("range", "bytes=0-3")], 200),
        ("format=csv", &[("range", "bytes=0-3")], 200),
        ("format=parquet&alt=true", &[("range", "bytes=0-3")], 404),
    ];
    for (query, headers, status) in rows {
        expected -= 1;
        let answer = service.get_with(&format!("/api/1/open/v1/?{query}"), headers).await;
        assert_eq!(left(&answer), (status, expected), "{query} {headers:?}");
    }

    // Another client has no counted download.
    let parts = [("range", "bytes=0-3")];
    let other = TestRequest { uri: EXPORT, peer: Some("203.0.113.9"), headers: &parts, ..GET };
    assert_eq!(left(&send(&service, other).await), (206, 99));
    assert_eq!(left(&send(&service, other).await), (206, 99));

    // A private dataset has its own bucket, and only requests with the key continue its download.
    let hidden = "/api/2/hidden/v1/?format=parquet";
    let get = async |authorization: Option<&str>| {
        let own = authorization.map(|value| ("authorization", value));
        let headers: Vec<_> = [("range", "bytes=0-3")].into_iter().chain(own).collect();
        left(&service.get_with(hidden, &headers).await)
    };
    assert_eq!(get(Some(&key)).await, (206, 99));
    assert_eq!(get(Some(&key)).await, (206, 99));
    assert_eq!(get(Some("Bearer x")).await, (403, 98));
    assert_eq!(get(None).await, (401, expected - 1));
    assert_eq!(get(Some(&key)).await, (206, 98));
}

#[tokio::test]
async fn new_version_is_another_download() {
    let (service, _) = limited(100, 100).await;
    service.import("Open", "[{\"a\":1}]").await;
    let active = "/api/1/open/active/?format=parquet";
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 99));
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 99));
    service.import("Open", "[{\"a\":2}]").await;
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 98));
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 98));
    // The old download also continues.
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 98));
}

#[tokio::test]
async fn many_small_ranges_count_again() {
    let (service, _) = limited(3, 5).await;
    two_datasets(&service).await;
    let mut sent = 0;
    while range(&service, EXPORT, "bytes=0-0").await.status == 206 {
        sent += 1;
    }
    // Three downloads count, each with 64 further ranges.
    assert_eq!(sent, 3 * (1 + 64));
}

#[tokio::test]
async fn repeated_whole_download_counts_every_second_time() {
    let (service, _) = limited(3, 5).await;
    service.import("Open", &large()).await;
    let first = range(&service, EXPORT, "bytes=0-").await;
    assert!(first.status == 206 && first.body.len() > 1 << 20, "{}", first.body.len());
    let mut remaining = vec![left(&first).1];
    loop {
        let answer = range(&service, EXPORT, "bytes=0-").await;
        if answer.status == 429 {
            break;
        }
        remaining.push(left(&answer).1);
    }
    assert_eq!(remaining, [2, 2, 1, 1, 0, 0]);
}

#[tokio::test]
async fn each_export_counts() {
    let (service, _) = limited(20, 5).await;
    two_datasets(&service).await;
    let url = |limit: u64| format!("/api/1/open/v1/?format=parquet&limit={limit}");
    for limit in 1..=20 {
        assert_eq!(left(&range(&service, &url(limit), "bytes=0-3").await), (206, 20 - limit));
    }
    assert_eq!(range(&service, &url(21), "bytes=0-3").await.status, 429);
    // A client has up to 16 downloads. They are free in any order; the least recently used one counts again.
    for limit in (5..=20).chain(5..=20) {
        assert_eq!(left(&range(&service, &url(limit), "bytes=0-3").await), (206, 0), "{limit}");
    }
    for limit in 1..=4 {
        assert_eq!(range(&service, &url(limit), "bytes=0-3").await.status, 429, "{limit}");
    }
}

#[tokio::test]
async fn missing_export_counts() {
    let (service, _) = limited(100, 5).await;
    two_datasets(&service).await;
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 99));
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 99));
    for file in service.export_files() {
        std::fs::remove_file(file).expect("failed to remove");
    }
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 98));
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 98));
}
