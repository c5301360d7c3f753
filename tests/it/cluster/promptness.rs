//! The delay until all nodes show a change by one node: a freeze, a rollback and a rotated key. The tests print the
//! delay, but do not limit it, because machines differ.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::{NODES, ServiceClient, TestCluster, until};

/// Runs a change on each node in turn, waits until all nodes show it, and prints the longest delay.
async fn check_change(
    cluster: &TestCluster,
    name: &str,
    change: impl AsyncFn(&ServiceClient),
    expected: impl AsyncFn(&ServiceClient) -> bool,
    back: impl AsyncFn(&ServiceClient),
    before: impl AsyncFn(&ServiceClient) -> bool,
) {
    let mut slowest = Duration::ZERO;
    for node in 0..NODES {
        let clients: Vec<ServiceClient> = (0..NODES).map(|node| cluster.client_of(node)).collect();
        for client in &clients {
            until(&format!("before {name}"), async || before(client).await).await;
        }
        change(&clients[node]).await;
        let start = Instant::now();
        assert!(expected(&clients[node]).await, "{name} is visible at once on its own node");
        for client in &clients {
            until(name, async || expected(client).await).await;
        }
        slowest = slowest.max(start.elapsed());
        until(name, async || expected(&cluster.client).await).await;
        back(&clients[(node + 1) % NODES]).await;
    }
    println!("{name} was visible on all nodes within {} ms", slowest.as_millis());
}

async fn call(client: &ServiceClient, path: &str, body: Value) -> Value {
    client.post(path, &body).await.expect("a response").json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn freeze_and_rollback_reach_all_nodes() {
    let cluster = TestCluster::shared().await;
    let (id, _) = cluster.dataset("Changing", json!({})).await;
    cluster.push(id, &json!([{"v": 1}])).await;
    cluster.push(id, &json!([{"v": 2}])).await;
    let path = format!("/api/{id}/changing/active/?format=jsonl");
    let responds = async |client: &ServiceClient, status: u16, text: &str| {
        let reply = client.get(&path).await.expect("a response");
        reply.status == status && (status != 200 || reply.text() == text)
    };
    let unfreeze = async |client: &ServiceClient| {
        call(client, "/dataset/unfreeze", json!({"dataset_id": id})).await;
        call(client, "/dataset/unpin", json!({"dataset_id": id})).await;
    };
    let latest = async |client: &ServiceClient| responds(client, 200, "{\"v\":2}\n").await;
    let roll_back = async |client: &ServiceClient| {
        drop(call(client, "/dataset/rollback", json!({"dataset_id": id, "version_number": 1})).await);
    };
    let first = async |client: &ServiceClient| responds(client, 200, "{\"v\":1}\n").await;
    let unpin = async |client: &ServiceClient| drop(call(client, "/dataset/unpin", json!({"dataset_id": id})).await);
    check_change(&cluster, "a rollback", roll_back, first, unpin, latest).await;
    let freeze = async |client: &ServiceClient| {
        let body = json!({"dataset_id": id, "version_number": 1, "freeze": true});
        drop(call(client, "/dataset/rollback", body).await);
    };
    let frozen = async |client: &ServiceClient| responds(client, 410, "").await;
    check_change(&cluster, "a freeze", freeze, frozen, unfreeze, latest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_key_reaches_all_nodes() {
    let cluster = TestCluster::shared().await;
    let (id, created) = cluster.dataset("Locked", json!({"private": true})).await;
    cluster.push(id, &json!([{"v": 1}])).await;
    let path = format!("/api/{id}/locked/active/");
    let mut key = created["private_key"].as_str().expect("a key").to_owned();
    let status = async |client: &ServiceClient, key: &str| {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        client.get_with(&path, &headers).await.expect("a response").status
    };
    let mut slowest = Duration::ZERO;
    for number in 0..NODES {
        let rotated = call(&cluster.client_of(number), "/dataset/rotate_key", json!({"dataset_id": id})).await;
        let start = Instant::now();
        let new = rotated["dataset"]["private_key"].as_str().expect("a key").to_owned();
        for node in 0..NODES {
            // A new client address, because the rate limit for private datasets is low.
            let client = cluster.client_of(node).from(cluster.address(110 + number * NODES + node));
            until("the previous key is rejected", async || status(&client, &key).await == 403).await;
            until("the new key is accepted", async || status(&client, &new).await == 200).await;
        }
        slowest = slowest.max(start.elapsed());
        let balanced = cluster.client.from(cluster.address(120 + number));
        assert_eq!(status(&balanced, &key).await, 403, "the load balancer rejects the previous key");
        key = new;
    }
    println!("a rotated key was visible on all nodes within {} ms", slowest.as_millis());
}
