//! The balancer sends equal URLs to one node, so that they meet the same caches. A node that is busy or offline loses
//! only its share.

use serde_json::json;
use strata_testing::metrics;
use tokio::task::JoinSet;

use super::harness::{NODES, TestCluster, until};

/// Equal requests at once, of which a paused node gets at most half.
const AT_ONCE: usize = 8;

/// Successful reads that each running node has counted.
async fn counted(cluster: &TestCluster, offline: Option<usize>) -> [f64; NODES] {
    let mut reads = [0.0; NODES];
    for node in (0..NODES).filter(|node| Some(*node) != offline) {
        let rendering = cluster.client_of(node).get("/metrics").await.expect("a response").text();
        let series = "strata_http_requests_total{route=\"/api/{*path}\",status=\"200\",format=\"jsonl\"}";
        reads[node] = metrics::value(&rendering, series).unwrap_or_default();
    }
    reads
}

/// Reads the first `number` entities through the balancer and returns the node that responded.
async fn node_of(cluster: &TestCluster, offline: Option<usize>, dataset: u64, number: usize) -> usize {
    let before = counted(cluster, offline).await;
    let reply = cluster.client.get(&path(dataset, number)).await.expect("a response");
    assert!(reply.is_ok(), "{} {}", reply.status, reply.text());
    assert_eq!(reply.text().lines().count(), number);
    let mut found = None;
    until("a node counts the request", async || {
        let after = counted(cluster, offline).await;
        found = (0..NODES).find(|node| after[*node] > before[*node]);
        found.is_some()
    })
    .await;
    found.expect("a node")
}

fn path(dataset: u64, number: usize) -> String {
    format!("/api/{dataset}/balanced/v1/?format=jsonl&limit={number}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_requests_share_a_node() {
    let mut cluster = TestCluster::start(&[]).await;
    let (dataset, _) = cluster.dataset("Balanced", json!({})).await;
    cluster.push(dataset, &(0..100).map(|n| json!({"n": n})).collect()).await;

    let mut home_nodes = Vec::new();
    for number in 1..=30 {
        home_nodes.push(node_of(&cluster, None, dataset, number).await);
    }
    for node in 0..NODES {
        let share = home_nodes.iter().filter(|home| **home == node).count();
        assert!((4..=16).contains(&share), "{share} of 30: {home_nodes:?}");
    }
    for _ in 0..2 {
        for (index, home) in home_nodes.iter().enumerate() {
            assert_eq!(node_of(&cluster, None, dataset, index + 1).await, *home);
        }
    }

    // A busy node keeps half of its requests at most. The others respond to the rest.
    let busy = home_nodes[0];
    cluster.nodes[busy].pause();
    let mut requests = JoinSet::new();
    for _ in 0..AT_ONCE {
        let client = cluster.client.clone();
        let path = path(dataset, 1);
        requests.spawn(async move { client.get(&path).await.is_some_and(|reply| reply.is_ok()) });
    }
    for _ in 0..AT_ONCE / 2 {
        assert!(requests.join_next().await.expect("a request").expect("a response"));
    }
    cluster.nodes[busy].resume();
    while let Some(answered) = requests.join_next().await {
        assert!(answered.expect("a response"));
    }
    cluster.until_ready().await;
    let back = || async { node_of(&cluster, None, dataset, 1).await == busy };
    until("the balancer uses the node again", back).await;

    // The requests of an offline node move, and no others.
    let offline = home_nodes[0];
    cluster.nodes[offline].kill();
    for (index, home) in home_nodes.iter().enumerate() {
        let node = node_of(&cluster, Some(offline), dataset, index + 1).await;
        assert_ne!(node, offline);
        assert!(*home == offline || node == *home, "request {index} moved from {home} to {node}");
    }
    tokio::task::block_in_place(|| cluster.start_node(offline, &[]));
    cluster.until_ready().await;
    until("the balancer uses the node again", async || node_of(&cluster, None, dataset, 1).await == offline).await;
    for (index, home) in home_nodes.iter().enumerate() {
        assert_eq!(node_of(&cluster, None, dataset, index + 1).await, *home);
    }
}
