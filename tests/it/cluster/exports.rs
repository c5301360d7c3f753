//! An export is built by one server, and fetched by the others.

use std::time::Duration;

use serde_json::json;
use strata_testing::metrics;

use super::downloads::large;
use super::harness::{Cluster, NODES, until};

/// What a server counts of its shared exports.
async fn counted(cluster: &Cluster, node: usize, outcome: &str) -> u64 {
    let rendering = cluster.door_of(node).get("/metrics").await.expect("an answer").text();
    let series = format!("strata_shared_exports_total{{outcome=\"{outcome}\"}}");
    metrics::value(&rendering, &series).unwrap_or_default() as u64
}

async fn all(cluster: &Cluster, outcome: &str) -> u64 {
    let mut sum = 0;
    for node in 0..NODES {
        sum += counted(cluster, node, outcome).await;
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_made_by_one_server_and_fetched_by_the_others() {
    let mut cluster = Cluster::start(&[]).await;
    let (dataset, _) = cluster.dataset("Export", json!({})).await;
    cluster.push(dataset, &large()).await;
    let path = |query: &str| format!("/api/{dataset}/export/v1/?format=parquet{query}");

    // One after the other: the first makes it.
    let made = cluster.door_of(0).get(&path("")).await.expect("an answer");
    assert!(made.is_ok(), "{}", made.text());
    until("it is in the store", async || counted(&cluster, 0, "stored").await == 1).await;
    for node in 1..NODES {
        let fetched = cluster.door_of(node).get(&path("")).await.expect("an answer");
        assert!(fetched.is_ok() && fetched.body == made.body && fetched.header("etag") == made.header("etag"));
        assert_eq!(counted(&cluster, node, "fetched").await, 1);
    }

    // All at once: what several servers build is the same.
    let typed = path("&typed=true");
    let doors: Vec<_> = (0..NODES).map(|node| cluster.door_of(node)).collect();
    let replies = futures::future::join_all(doors.iter().map(|door| door.get(&typed))).await;
    let replies: Vec<_> = replies.into_iter().map(|reply| reply.expect("an answer")).collect();
    assert!(replies.iter().all(|reply| reply.is_ok() && reply.body == replies[0].body));
    until("it is in the store", async || all(&cluster, "stored").await >= 2).await;

    // A download that a killed server began ends at one that starts with an empty cache.
    let bytes = made.body.len();
    cluster.nodes[0].kill();
    tokio::task::block_in_place(|| cluster.start_node(0, &[]));
    cluster.until_ready().await;
    let etag = made.header("etag").expect("an ETag");
    let rest = format!("bytes={}-", bytes / 3);
    let headers = [("range", &*rest), ("if-range", etag)];
    let rest = cluster.door_of(0).get_with(&path(""), &headers).await.expect("an answer");
    assert_eq!((rest.status, rest.whole), (206, true));
    assert!(rest.body == made.body[bytes / 3..]);
    until("it was fetched", async || counted(&cluster, 0, "fetched").await == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_a_download_that_another_server_counted_are_free() {
    let cluster = Cluster::shared().await;
    let (dataset, told) = cluster.dataset("Ranges", json!({"private": true})).await;
    cluster.push(dataset, &large()).await;
    let path = format!("/api/{dataset}/ranges/v1/?format=parquet");
    let key = format!("Bearer {}", told["private_key"].as_str().expect("a key"));
    let client = cluster.address(102);
    let get = async |node: usize, range: &str| {
        let headers = [("authorization", &*key), ("range", range)];
        let reply = cluster.door_of(node).from(client).get_with(&path, &headers).await.expect("an answer");
        assert_eq!((reply.status, reply.whole), (206, true), "{}", reply.text());
    };
    let free = async |node: usize| {
        let rendering = cluster.door_of(node).get("/metrics").await.expect("an answer").text();
        let series = "strata_limiter_decisions_total{bucket=\"private\",decision=\"free\"}";
        metrics::value(&rendering, series).unwrap_or_default() as u64
    };
    let before = counted(&cluster, 0, "stored").await;
    get(0, "bytes=0-99").await;
    until("it is in the store", async || counted(&cluster, 0, "stored").await > before).await;
    for node in 1..NODES {
        let before = free(node).await;
        get(node, "bytes=100-199").await;
        assert!(free(node).await > before, "the first range at server {}", node + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_a_killed_server_was_making_is_made_by_another() {
    let mut cluster = Cluster::start(&[]).await;
    let (dataset, _) = cluster.dataset("Export", json!({})).await;
    cluster.push(dataset, &large()).await;
    // However far it has come: it builds the export, or puts it into the store.
    for (number, delay_ms) in [40, 150, 400].into_iter().enumerate() {
        let path = format!("/api/{dataset}/export/v1/?format=parquet&limit={}", 4_000 - number);
        let maker = cluster.door_of(0);
        let asked = {
            let path = path.clone();
            tokio::spawn(async move { maker.get(&path).await })
        };
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        cluster.nodes[0].kill();
        let cut = asked.await.expect("it ends");
        let doors = [cluster.door_of(1), cluster.door_of(2)];
        let replies = futures::future::join_all(doors.iter().map(|door| door.get(&path))).await;
        let [first, second] = &*replies else { panic!("two were asked") };
        let (first, second) = (first.as_ref().expect("an answer"), second.as_ref().expect("an answer"));
        assert!(first.is_ok() && second.is_ok() && first.body == second.body, "{delay_ms}");
        if let Some(cut) = cut {
            assert!(first.body.starts_with(&cut.body) && cut.whole == (cut.body == first.body), "{delay_ms}");
        }
        tokio::task::block_in_place(|| cluster.start_node(0, &[]));
        cluster.until_ready().await;
        let again = cluster.door_of(0).get(&path).await.expect("an answer");
        assert!(again.is_ok() && again.body == first.body, "{delay_ms}");
    }
}
