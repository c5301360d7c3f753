//! A client meets one limit at all servers.

use std::collections::BTreeSet;

use serde_json::json;

use super::harness::{Cluster, NODES, PRIVATE_PER_MINUTE, Reply};

/// What is left, and when the window ends.
#[track_caller]
fn rate(reply: &Reply) -> (u64, u64, u64) {
    let header = |name| reply.header(name).expect(name).parse().expect("a number");
    (header("x-ratelimit-limit"), header("x-ratelimit-remaining"), header("x-ratelimit-reset"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_holds_for_all_servers() {
    let cluster = Cluster::shared().await;
    let (dataset, told) = cluster.dataset("Limited", json!({"private": true})).await;
    cluster.push(dataset, &json!([{"a": 1}])).await;
    let path = format!("/api/{dataset}/limited/latest/");
    let key = format!("Bearer {}", told["private_key"].as_str().expect("a key"));
    // Directly and through the balancer, it is the same client.
    let client = cluster.address(100);
    let doors: Vec<_> = (0..NODES).map(|node| cluster.door_of(node).from(client)).collect();
    let balanced = cluster.door.from(client);
    let get = async |number: usize| {
        let door = if number.is_multiple_of(2) { &balanced } else { &doors[number % NODES] };
        door.get_with(&path, &[("authorization", &*key)]).await.expect("an answer")
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
    assert_eq!(resets.len(), 1, "one window for all: {resets:?}");
    // Another client has a window of its own.
    let other = balanced.from(cluster.address(101)).get_with(&path, &[("authorization", &*key)]).await;
    assert_eq!(rate(&other.expect("an answer")).1, PRIVATE_PER_MINUTE - 1);
}
