//! A download in ranges from several nodes.

use serde_json::{Value, json};

use super::harness::{NODES, TestCluster};

/// Entities with strings that do not compress well, so that the export is large enough to be shared.
pub fn large_entities() -> Value {
    let mut state = 1_u64;
    let mut text = || {
        let mut text = String::new();
        for _ in 0..32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(&format!("{:016x}", state ^ (state >> 29)));
        }
        text
    };
    (0..4_000).map(|number| json!({"number": number, "text": text()})).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn download_continues_at_another_node() {
    let cluster = TestCluster::shared().await;
    let (dataset, _) = cluster.dataset("Export", json!({})).await;
    cluster.push(dataset, &large_entities()).await;
    for query in ["format=parquet", "format=parquet&typed=true"] {
        let path = format!("/api/{dataset}/export/v1/?{query}");
        let whole = cluster.client.get(&path).await.expect("a response");
        assert_eq!((whole.status, whole.whole), (200, true), "{}", whole.text());
        let etag = whole.header("etag").expect("an ETag").to_owned();
        let bytes = whole.body.len();
        assert!(bytes > 500_000, "{bytes}");

        let mut parts = Vec::new();
        let mut from = 0;
        for part in 0..2 * NODES {
            let to = if part + 1 == 2 * NODES { bytes } else { from + bytes / (2 * NODES) };
            let range = format!("bytes={from}-{}", to - 1);
            let headers = [("range", &*range), ("if-range", &*etag)];
            let reply = cluster.client_of(part % NODES).get_with(&path, &headers).await.expect("a response");
            assert_eq!((reply.status, reply.whole), (206, true), "{range} of {query} at {}", part % NODES + 1);
            assert_eq!(reply.header("etag"), Some(&*etag));
            assert_eq!(reply.header("content-range"), Some(&*format!("bytes {from}-{}/{bytes}", to - 1)));
            parts.extend_from_slice(&reply.body);
            from = to;
        }
        assert!(parts == whole.body, "{query}: the ranges differ from the whole");
        for node in 0..NODES {
            let reply = cluster.client_of(node).get_with(&path, &[("if-none-match", &etag)]).await.expect("a response");
            assert_eq!(reply.status, 304);
        }
    }
}
