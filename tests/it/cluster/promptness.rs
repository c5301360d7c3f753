//! What one server changes, all servers show soon: a freeze, a rollback and a new key.
//!
//! The tests print how long it took and assert none of it: machines differ. `benches/cluster` measures it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::{Cluster, Door, NODES, until};

/// Changes by one server after the other, until all servers show what is expected; the longest time that one took.
async fn seen_everywhere(
    cluster: &Cluster,
    what: &str,
    change: impl AsyncFn(&Door),
    expected: impl AsyncFn(&Door) -> bool,
    back: impl AsyncFn(&Door),
    before: impl AsyncFn(&Door) -> bool,
) {
    let mut slowest = Duration::ZERO;
    for node in 0..NODES {
        let doors: Vec<Door> = (0..NODES).map(|node| cluster.door_of(node)).collect();
        for door in &doors {
            until(&format!("before {what}"), async || before(door).await).await;
        }
        change(&doors[node]).await;
        let begun = Instant::now();
        assert!(expected(&doors[node]).await, "{what} shows at once where it was done");
        for door in &doors {
            until(what, async || expected(door).await).await;
        }
        slowest = slowest.max(begun.elapsed());
        until(what, async || expected(&cluster.door).await).await;
        back(&doors[(node + 1) % NODES]).await;
    }
    println!("{what} was seen by all servers within {} ms", slowest.as_millis());
}

async fn call(door: &Door, path: &str, body: Value) -> Value {
    door.post(path, &body).await.expect("an answer").json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_and_a_rollback_are_seen_everywhere() {
    let cluster = Cluster::shared().await;
    let (id, _) = cluster.dataset("Changing", json!({})).await;
    cluster.push(id, &json!([{"v": 1}])).await;
    cluster.push(id, &json!([{"v": 2}])).await;
    let path = format!("/api/{id}/changing/active/?format=jsonl");
    let answers = async |door: &Door, status: u16, text: &str| {
        let reply = door.get(&path).await.expect("an answer");
        reply.status == status && (status != 200 || reply.text() == text)
    };
    let unfreeze = async |door: &Door| {
        call(door, "/dataset/unfreeze", json!({"dataset_id": id})).await;
        call(door, "/dataset/unpin", json!({"dataset_id": id})).await;
    };
    let latest = async |door: &Door| answers(door, 200, "{\"v\":2}\n").await;
    let roll_back = async |door: &Door| {
        drop(call(door, "/dataset/rollback", json!({"dataset_id": id, "version_number": 1})).await);
    };
    let first = async |door: &Door| answers(door, 200, "{\"v\":1}\n").await;
    let unpin = async |door: &Door| drop(call(door, "/dataset/unpin", json!({"dataset_id": id})).await);
    seen_everywhere(&cluster, "a rollback", roll_back, first, unpin, latest).await;
    let freeze = async |door: &Door| {
        let body = json!({"dataset_id": id, "version_number": 1, "freeze": true});
        drop(call(door, "/dataset/rollback", body).await);
    };
    let gone = async |door: &Door| answers(door, 410, "").await;
    seen_everywhere(&cluster, "a freeze", freeze, gone, unfreeze, latest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_is_the_only_one_everywhere() {
    let cluster = Cluster::shared().await;
    let (id, told) = cluster.dataset("Locked", json!({"private": true})).await;
    cluster.push(id, &json!([{"v": 1}])).await;
    let path = format!("/api/{id}/locked/active/");
    let mut key = told["private_key"].as_str().expect("a key").to_owned();
    let status = async |door: &Door, key: &str| {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        door.get_with(&path, &headers).await.expect("an answer").status
    };
    let mut slowest = Duration::ZERO;
    for number in 0..NODES {
        let rotated = call(&cluster.door_of(number), "/dataset/rotate_key", json!({"dataset_id": id})).await;
        let begun = Instant::now();
        let new = rotated["dataset"]["private_key"].as_str().expect("a key").to_owned();
        for node in 0..NODES {
            // Clients with a key may ask only so often.
            let door = cluster.door_of(node).from(cluster.address(110 + number * NODES + node));
            until("the former key opens nothing", async || status(&door, &key).await == 403).await;
            until("the new key opens", async || status(&door, &new).await == 200).await;
        }
        slowest = slowest.max(begun.elapsed());
        let balanced = cluster.door.from(cluster.address(120 + number));
        assert_eq!(status(&balanced, &key).await, 403, "nor through the balancer");
        key = new;
    }
    println!("a new key was seen by all servers within {} ms", slowest.as_millis());
}
