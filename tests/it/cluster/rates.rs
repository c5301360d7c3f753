//! The rate limit of a client counts requests to all nodes.

use std::collections::BTreeSet;

use serde_json::json;

use super::harness::{ClusterResponse, NODES, PRIVATE_PER_MINUTE, TestCluster};

/// Returns the limit, the remaining requests, and the end of the window.
#[track_caller]
fn rate(reply: &ClusterResponse) -> (u64, u64, u64) {
    let header = |name| reply.header(name).expect(name).parse().expect("a number");
    (header("x-ratelimit-limit"), header("x-ratelimit-remaining"), header("x-ratelimit-reset"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limit_is_shared_by_all_nodes() {
    let cluster = TestCluster::shared().await;
    let (dataset, created) = cluster.dataset("Limited", json!({"private": true})).await;
    cluster.push(dataset, &json!([{"a": 1}])).await;
    let path = format!("/api/{dataset}/limited/latest/");
    let key = format!("Bearer {}", created["private_key"].as_str().expect("a key"));
    // The same client address, directly and through the load balancer.
    let client = cluster.address(100);
    let clients: Vec<_> = (0..NODES).map(|node| cluster.client_of(node).from(client)).collect();
    let balanced = cluster.client.from(client);
    let get = async |number: usize| {
        let client = if number.is_multiple_of(2) { &balanced } else { &clients[number % NODES] };
        client.get_with(&path, &[("authorization", &*key)]).await.expect("a response")
    };
    let allowed = PRIVATE_PER_MINUTE as usize;
    let mut resets = BTreeSet::new();
    for number in 0..allowed {
        let reply = get(number).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let (limit, remaining, reset) = rate(&reply);
        assert_eq!((limit, remaining), (PRIVATE_PER_MINUTE, (allowed - 1 - number) as u64));
        resets.insert(reset);
    }
    for number in 0..4 * NODES {
        let reply = get(number).await;
        assert_eq!(reply.status, 429, "{}", reply.text());
        let wait: u64 = reply.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=60).contains(&wait), "{wait}");
        let (_, remaining, reset) = rate(&reply);
        assert_eq!(remaining, 0);
        resets.insert(reset);
    }
    assert_eq!(resets.len(), 1, "all nodes share one window: {resets:?}");
    // Another client has its own window.
    let other = balanced.from(cluster.address(101)).get_with(&path, &[("authorization", &*key)]).await;
    assert_eq!(rate(&other.expect("a response")).1, PRIVATE_PER_MINUTE - 1);
}
