//! A download of a Parquet export in ranges counts once, and nobody gets more out of that than one download.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use strata_testing::{Answer, TestService};

use super::read_limits::{GET, Sent, limited, rate, send};

const EXPORT: &str = "/api/1/open/v1/?format=parquet";

/// An open dataset of one entity, and a private one with its `Authorization`.
async fn two_datasets(service: &TestService) -> String {
    service.import("Open", "[{\"a\":1}]").await;
    let imported = service.try_import("Hidden", true, b"[{\"a\":2}]").await.expect("imported");
    format!("Bearer {}", imported.private_key.expect("a key").expose())
}

async fn range(service: &TestService, uri: &str, range: &str) -> Answer {
    service.get_with(uri, &[("range", range)]).await
}

/// Status, and how many requests are left.
fn left(answer: &Answer) -> (u16, u64) {
    (answer.status, rate(answer).expect("a rate").1)
}

/// Entities whose export is larger than 1 MiB: their texts do not compress well.
fn large() -> String {
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
async fn further_ranges_of_an_export_that_was_counted_are_free() {
    let (service, clock) = limited(3, 5).await;
    two_datasets(&service).await;
    clock.0.store(7, Ordering::Relaxed);
    let first = range(&service, EXPORT, "bytes=-8").await;
    assert_eq!((first.status, rate(&first)), (206, Some((3, 2, 1_700_000_067))));
    // Also what is beyond the end, and a repeated condition that holds.
    let etag = first.header("etag").expect("an ETag").to_owned();
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

    // Where nothing is left, who has begun may finish. Whoever asks for anything else may not.
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

    // A free one opens no window, and shows what one that began now would be.
    clock.0.store(80, Ordering::Relaxed);
    for second in [80, 90] {
        clock.0.store(second, Ordering::Relaxed);
        let answer = range(&service, EXPORT, "bytes=0-3").await;
        assert_eq!((answer.status, rate(&answer)), (206, Some((3, 3, 1_700_000_060 + second))));
    }
    clock.0.store(100, Ordering::Relaxed);
    let answer = service.get("/api/1/open/v1").await;
    assert_eq!((answer.status, rate(&answer)), (200, Some((3, 2, 1_700_000_160))));

    // A download lasts for a quarter of an hour.
    clock.0.store(7 + 899, Ordering::Relaxed);
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 3));
    clock.0.store(7 + 900, Ordering::Relaxed);
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 2));
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 2));
}

#[tokio::test]
async fn a_whole_download_may_be_resumed() {
    let (service, _) = limited(2, 5).await;
    two_datasets(&service).await;
    let whole = service.get(EXPORT).await;
    assert_eq!(left(&whole), (200, 1));
    let rest = range(&service, EXPORT, "bytes=100-").await;
    assert_eq!(left(&rest), (206, 1));
    assert!(rest.body == whole.body[100..]);
}

#[tokio::test]
async fn what_is_no_range_of_that_export_counts() {
    let (service, _) = limited(100, 100).await;
    let key = two_datasets(&service).await;
    let first = range(&service, EXPORT, "bytes=0-3").await;
    let etag = first.header("etag").expect("an ETag").to_owned();
    let mut expected = 99;
    assert_eq!(left(&first), (206, expected));
    // Query and headers; status.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], u16);
    let rows: [Row<'_>; 11] = [
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

    // Another client has begun nothing.
    let parts = [("range", "bytes=0-3")];
    let other = Sent { uri: EXPORT, peer: Some("203.0.113.9"), headers: &parts, ..GET };
    assert_eq!(left(&send(&service, other).await), (206, 99));
    assert_eq!(left(&send(&service, other).await), (206, 99));

    // A private dataset has its own bucket, and only the key goes on with what the key began.
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
async fn a_new_version_is_another_download() {
    let (service, _) = limited(100, 100).await;
    service.import("Open", "[{\"a\":1}]").await;
    let active = "/api/1/open/active/?format=parquet";
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 99));
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 99));
    service.import("Open", "[{\"a\":2}]").await;
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 98));
    assert_eq!(left(&range(&service, active, "bytes=0-3").await), (206, 98));
    // The old one goes on, too.
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 98));
}

#[tokio::test]
async fn byte_after_byte_counts_again_before_long() {
    let (service, _) = limited(3, 5).await;
    two_datasets(&service).await;
    let mut sent = 0;
    while range(&service, EXPORT, "bytes=0-0").await.status == 206 {
        sent += 1;
    }
    // Three that count, each with so many.
    assert_eq!(sent, 3 * (1 + 64));
}

#[tokio::test]
async fn all_of_it_again_and_again_counts_every_second_time() {
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
async fn each_of_many_exports_counts() {
    let (service, _) = limited(20, 5).await;
    two_datasets(&service).await;
    let url = |limit: u64| format!("/api/1/open/v1/?format=parquet&limit={limit}");
    for limit in 1..=20 {
        assert_eq!(left(&range(&service, &url(limit), "bytes=0-3").await), (206, 20 - limit));
    }
    assert_eq!(range(&service, &url(21), "bytes=0-3").await.status, 429);
    // A client has 16 downloads: in turn they are free, and what it used least recently counts.
    for limit in (5..=20).chain(5..=20) {
        assert_eq!(left(&range(&service, &url(limit), "bytes=0-3").await), (206, 0), "{limit}");
    }
    for limit in 1..=4 {
        assert_eq!(range(&service, &url(limit), "bytes=0-3").await.status, 429, "{limit}");
    }
}

#[tokio::test]
async fn an_export_that_has_to_be_made_counts() {
    let (service, _) = limited(100, 5).await;
    two_datasets(&service).await;
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 99));
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 99));
    for file in service.export_files() {
        std::fs::remove_file(file).expect("removed");
    }
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 98));
    assert_eq!(left(&range(&service, EXPORT, "bytes=0-3").await), (206, 98));
}
