//! `Repr-Digest` of files: Parquet files before and after they are cached, and alternates without a recorded digest.

use axum::body::Body;
use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};
use strata_testing::owned::{Owned, parsed};
use strata_testing::{Answer, TestService};

use super::downloads::large;

fn repr_digest(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)))
}

async fn head(service: &TestService, uri: &str) -> Answer {
    service.call(Request::head(uri).body(Body::empty()).expect("invalid request")).await
}

fn check_digest(answer: &Answer, uri: &str) {
    assert_eq!((answer.status, answer.whole), (200, true), "{uri}");
    assert_eq!(answer.header("repr-digest"), Some(&*repr_digest(&answer.body)), "{uri}");
}

async fn service_with_large_export() -> TestService {
    let service = TestService::configured(|config| config.limits.public_per_minute = 1_000).await;
    service.import("Open", &large()).await;
    service
}

#[tokio::test(flavor = "multi_thread")]
async fn parquet_file_has_digest() {
    let service = service_with_large_export().await;
    for query in ["", "?typed=true", "?filter=number:7", "?limit=3&sort=number:desc", "?limit=0"] {
        let uri = format!("/files/1/open/v1.parquet{query}");
        // The first response is sent while no export is cached, and the second one from the cache.
        let built = service.get(&uri).await;
        check_digest(&built, &uri);
        let cached = service.get_with(&uri, &[("accept-encoding", "gzip")]).await;
        check_digest(&cached, &uri);
        assert_eq!((cached.body.len(), cached.header("content-encoding")), (built.body.len(), None), "{uri}");
        assert_eq!(built.header("content-length"), Some(&*built.body.len().to_string()), "{uri}");
    }
    assert!(service.get("/files/1/open/v1.parquet").await.body.len() > 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_of_parquet_file_has_digest() {
    let service = service_with_large_export().await;
    for uri in ["/files/1/open/active.parquet", "/files/1/open/v1.parquet?filter=number:7&typed=true"] {
        // The export is built for this request.
        let head = head(&service, uri).await;
        let get = service.get(uri).await;
        check_digest(&get, uri);
        assert_eq!((head.status, head.body.len()), (200, 0), "{uri}");
        assert_eq!(head.header("repr-digest"), get.header("repr-digest"), "{uri}");
        assert_eq!(head.header("content-length"), Some(&*get.body.len().to_string()), "{uri}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_parquet_response_has_no_digest() {
    let service = service_with_large_export().await;
    let uri = "/files/1/open/v1.parquet";
    let etag = service.get(uri).await.header("etag").expect("missing ETag").to_owned();
    for (uri, header, value, status) in [
        (uri, "range", "bytes=0-9", 206),
        (uri, "range", "bytes=0-", 206),
        (uri, "range", "bytes=99999999-", 416),
        (uri, "if-none-match", &*etag, 304),
        ("/api/1/open/v1/?format=parquet", "accept", "*/*", 200),
        ("/files/1/open/v1.arrow", "accept", "*/*", 200),
        ("/files/1/open/v1.csv", "accept", "*/*", 200),
    ] {
        let answer = service.get_with(uri, &[(header, value)]).await;
        assert_eq!((answer.status, answer.header("repr-digest")), (status, None), "{uri} {header}: {value}");
    }
    let mismatch = [("range", "bytes=0-9"), ("if-range", "\"other\"")];
    check_digest(&service.get_with(uri, &mismatch).await, uri);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_without_cache_has_no_digest() {
    let service = TestService::configured(|config| config.cache.export_bytes = 10_000).await;
    service.import("Open", &large()).await;
    for _ in 0..2 {
        let answer = service.get("/files/1/open/v1.parquet").await;
        assert_eq!((answer.status, answer.whole, answer.header("repr-digest")), (200, true, None));
        assert!(answer.body.ends_with(b"PAR1") && answer.body.len() > 1 << 20);
    }
    let small = "/files/1/open/v1.parquet?keep_field=number&limit=3";
    check_digest(&service.get(small).await, small);
}

/// Regression test: the digest of an alternate in a delta file was the hash of its extents.
#[tokio::test(flavor = "multi_thread")]
async fn edited_alternate_has_no_digest() {
    let owned = Owned::sqlite().await;
    let entity = |number: usize| format!(r#"{{"id":{number},"text":"{}"}}"#, "word ".repeat(150_000));
    // Edits of lists of 16 MiB and more are stored as delta files.
    let entities: Vec<String> = (0..24).map(entity).collect();
    let id = owned.dataset("Things", json!({}), &[&format!("[{}]", entities.join(","))]).await;
    let etag = owned.etag(id, 1).await;
    parsed(&owned.edit(id, &etag, r#"[{"position":3,"set":{"id":-1}}]"#).await);
    let sizes = owned.service.version_files().into_iter().map(|file| file.metadata().expect("missing file").len());
    let sizes: Vec<u64> = sizes.collect();
    let uri = format!("/files/{id}/things/v1");
    check_digest(&owned.service.get(&format!("{uri}.jsonl")).await, &uri);
    let alternate = owned.service.get(&format!("{uri}-alt.jsonl")).await;
    assert_eq!((alternate.status, alternate.header("repr-digest")), (200, None), "{sizes:?}");
    assert!(alternate.text().contains("{\"id\":-1}\n"));
    check_digest(&owned.service.get(&format!("{uri}-alt.parquet")).await, &uri);
}
