//! Shared exports: one node builds an export, and the other nodes fetch it.

use std::time::Duration;

use serde_json::json;
use strata_testing::metrics;

use super::downloads::large_entities;
use super::harness::{NODES, TestCluster, until};

/// Returns the metric of shared exports of a node.
async fn export_count(cluster: &TestCluster, node: usize, outcome: &str) -> u64 {
    let rendering = cluster.client_of(node).get("/metrics").await.expect("a response").text();
    let series = format!("strata_shared_exports_total{{outcome=\"{outcome}\"}}");
    metrics::value(&rendering, &series).unwrap_or_default() as u64
}

async fn total_export_count(cluster: &TestCluster, outcome: &str) -> u64 {
    let mut sum = 0;
    for node in 0..NODES {
        sum += export_count(cluster, node, outcome).await;
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_is_built_by_one_node_and_fetched_by_others() {
    let mut cluster = TestCluster::start(&[]).await;
    let (dataset, _) = cluster.dataset("Export", json!({})).await;
    cluster.push(dataset, &large_entities()).await;
    let path = |query: &str| format!("/api/{dataset}/export/v1/?format=parquet{query}");

    // The first node builds the export.
    let built = cluster.client_of(0).get(&path("")).await.expect("a response");
    assert!(built.is_ok(), "{}", built.text());
    until("the export is in the store", async || export_count(&cluster, 0, "stored").await == 1).await;
    for node in 1..NODES {
        let fetched = cluster.client_of(node).get(&path("")).await.expect("a response");
        assert!(fetched.is_ok() && fetched.body == built.body && fetched.header("etag") == built.header("etag"));
        assert_eq!(export_count(&cluster, node, "fetched").await, 1);
    }

    // Concurrent requests: nodes that build the same export create the same bytes.
    let typed = path("&typed=true");
    let clients: Vec<_> = (0..NODES).map(|node| cluster.client_of(node)).collect();
    let replies = futures::future::join_all(clients.iter().map(|client| client.get(&typed))).await;
    let replies: Vec<_> = replies.into_iter().map(|reply| reply.expect("a response")).collect();
    assert!(replies.iter().all(|reply| reply.is_ok() && reply.body == replies[0].body));
    until("the export is in the store", async || total_export_count(&cluster, "stored").await >= 2).await;

    // A restarted node with an empty cache continues the download.
    let bytes = built.body.len();
    cluster.nodes[0].kill();
    tokio::task::block_in_place(|| cluster.start_node(0, &[]));
    cluster.until_ready().await;
    let etag = built.header("etag").expect("an ETag");
    let rest = format!("bytes={}-", bytes / 3);
    let headers = [("range", &*rest), ("if-range", etag)];
    let rest = cluster.client_of(0).get_with(&path(""), &headers).await.expect("a response");
    assert_eq!((rest.status, rest.whole), (206, true));
    assert!(rest.body == built.body[bytes / 3..]);
    until("the export was fetched", async || export_count(&cluster, 0, "fetched").await == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_counted_by_another_node_are_free() {
    let cluster = TestCluster::shared().await;
    let (dataset, created) = cluster.dataset("Ranges", json!({"private": true})).await;
    cluster.push(dataset, &large_entities()).await;
    let path = format!("/api/{dataset}/ranges/v1/?format=parquet");
    let key = format!("Bearer {}", created["private_key"].as_str().expect("a key"));
    let client = cluster.address(102);
    let get = async |node: usize, range: &str| {
        let headers = [("authorization", &*key), ("range", range)];
        let reply = cluster.client_of(node).from(client).get_with(&path, &headers).await.expect("a response");
        assert_eq!((reply.status, reply.whole), (206, true), "{}", reply.text());
    };
    let free = async |node: usize| {
        let rendering = cluster.client_of(node).get("/metrics").await.expect("a response").text();
        let series = "strata_limiter_decisions_total{bucket=\"private\",decision=\"free\"}";
        metrics::value(&rendering, series).unwrap_or_default() as u64
    };
    let before = export_count(&cluster, 0, "stored").await;
    get(0, "bytes=0-99").await;
    until("the export is in the store", async || export_count(&cluster, 0, "stored").await > before).await;
    for node in 1..NODES {
        let before = free(node).await;
        get(node, "bytes=100-199").await;
        assert!(free(node).await > before, "the first range at server {}", node + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_of_killed_node_is_built_by_another() {
    let mut cluster = TestCluster::start(&[]).await;
    let (dataset, _) = cluster.dataset("Export", json!({})).await;
    cluster.push(dataset, &large_entities()).await;
    // The node is killed while it builds the export or writes it to the store.
    for (number, delay_ms) in [40, 150, 400].into_iter().enumerate() {
        let path = format!("/api/{dataset}/export/v1/?format=parquet&limit={}", 4_000 - number);
        let builder = cluster.client_of(0);
        let request = {
            let path = path.clone();
            tokio::spawn(async move { builder.get(&path).await })
        };
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        cluster.nodes[0].kill();
        let truncated = request.await.expect("request ends");
        let clients = [cluster.client_of(1), cluster.client_of(2)];
        let replies = futures::future::join_all(clients.iter().map(|client| client.get(&path))).await;
        let [first, second] = &*replies else { panic!("there are two replies") };
        let first = first.as_ref().expect("a response");
        let second = second.as_ref().expect("a response");
        assert!(first.is_ok() && second.is_ok() && first.body == second.body, "{delay_ms}");
        if let Some(truncated) = truncated {
            let is_complete = truncated.body == first.body;
            assert!(first.body.starts_with(&truncated.body) && truncated.whole == is_complete, "{delay_ms}");
        }
        tokio::task::block_in_place(|| cluster.start_node(0, &[]));
        cluster.until_ready().await;
        let again = cluster.client_of(0).get(&path).await.expect("a response");
        assert!(again.is_ok() && again.body == first.body, "{delay_ms}");
    }
}
