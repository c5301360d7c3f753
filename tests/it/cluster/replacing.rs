//! Servers are replaced one by one, as docs/guides/cluster.md says, or killed, while clients go on: no request is lost
//! but those that the killed one was answering.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use strata_testing::loopback_server::{LoopbackServer, Reply, ok};
use tokio::task::JoinSet;

use super::harness::{Cluster, Door, NODES, Node, until};

/// Clients of each kind.
const CLIENTS: usize = 2;

#[derive(Default)]
struct Load {
    over: AtomicBool,
    answers: AtomicU64,
}

impl Load {
    /// Asks for the same until the load is over. Every answer is the expected one.
    async fn reads(self: Arc<Self>, door: Door, path: String, expected: bytes::Bytes) {
        while !self.over.load(Ordering::Relaxed) {
            let reply = door.get(&path).await.expect("no request is lost");
            assert_eq!((reply.status, reply.whole), (200, true), "{path}: {}", reply.text());
            assert!(reply.body == expected, "{path}: {}", reply.text());
            self.answers.fetch_add(1, Ordering::Relaxed);
            // Servers of a test share a machine with it, and need time to start.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Makes versions, one after the other.
    async fn refreshes(self: Arc<Self>, door: Door, dataset: u64) {
        for expected in 1.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let body = json!({"dataset_id": dataset, "entities": [{"n": expected}]});
            let reply = door.post("/dataset/refresh", &body).await.expect("no request is lost");
            assert_eq!(reply.json()["version"]["version_number"], json!(expected));
            self.answers.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Clients of each kind that read a new dataset through the balancer.
async fn readers(cluster: &Cluster, load: &Arc<Load>, queries: &[&str]) -> JoinSet<()> {
    let (dataset, _) = cluster.dataset("Read", json!({})).await;
    cluster.push(dataset, &(0..2_000).map(|n| json!({"n": n, "k": n % 7})).collect()).await;
    let mut clients = JoinSet::new();
    for query in queries {
        let path = format!("/api/{dataset}/read/active/{query}");
        let expected = cluster.door.get(&path).await.expect("an answer");
        assert!(expected.is_ok());
        for _ in 0..CLIENTS {
            // Some keep their connections, and some have a new one for each request.
            for door in [cluster.door.clone(), cluster.door.keeping()] {
                clients.spawn(load.clone().reads(door, path.clone(), expected.body.clone()));
            }
        }
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_takes_the_refresh_of_a_killed_one() {
    let mut cluster = Cluster::start(&[]).await;
    let load = Arc::new(Load::default());
    // Answers of one piece: one that was begun cannot be asked again.
    let mut clients = readers(&cluster, &load, &["?limit=3"]).await;
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let source = LoopbackServer::start(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[{\"n\":1},".to_vec()),
        _ => ok("Content-Type: application/json\r\n", b"[{\"n\":1},{\"n\":2}]"),
    });
    let (dataset, _) = cluster.dataset("Fetched", json!({"source": source.url("/list.json")})).await;
    let body = json!({"dataset_id": dataset});
    let lost = {
        let (door, body) = (cluster.door_of(0), body.clone());
        tokio::spawn(async move { door.post("/dataset/refresh", &body).await.is_none() })
    };
    let other = cluster.door_of(1);
    // By then it holds the dataset.
    until("the source is asked", async || asked.load(Ordering::SeqCst) == 1).await;
    let refused = other.post("/dataset/refresh", &body).await.expect("an answer");
    assert_eq!(refused.status, 409, "{}", refused.text());
    cluster.nodes[0].kill();
    assert!(lost.await.expect("it ends"), "nobody answers for a killed server");
    let mut made = None;
    until("another server takes it", async || {
        let reply = other.post("/dataset/refresh", &body).await.expect("an answer");
        assert!([200, 409].contains(&reply.status), "{}", reply.text());
        made = reply.is_ok().then(|| reply.json());
        made.is_some()
    })
    .await;
    let version = &made.expect("it was waited for")["version"];
    assert_eq!((&version["version_number"], &version["entity_count"]), (&json!(1), &json!(2)));
    let read = cluster.door.get(&format!("/api/{dataset}/fetched/latest/?count=true")).await.expect("an answer");
    assert_eq!(read.json()["count"], json!(2));
    tokio::task::block_in_place(|| cluster.start_node(0, &[]));
    cluster.until_ready().await;
    load.over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no request is lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_a_killed_server_is_seen_to_be_cut() {
    let mut cluster = Cluster::start(&[]).await;
    let (dataset, _) = cluster.dataset("Large", json!({})).await;
    // More than the buffers on the way hold.
    let text = "0123456789".repeat(1_600);
    cluster.push(dataset, &(0..2_000).map(|n| json!({"n": n, "t": text})).collect()).await;
    for format in ["jsonl", "json", "csv", "xml"] {
        let path = format!("/api/{dataset}/large/v1/?format={format}");
        let whole = cluster.door.get(&path).await.expect("an answer");
        assert!(whole.is_ok() && whole.body.len() > 30_000_000, "{format}: {}", whole.body.len());
        // One of them serves it, whichever.
        let begun = cluster.door.begin(&path).await.expect("an answer");
        cluster.nodes.iter_mut().for_each(Node::kill);
        let cut = begun.rest().await;
        assert_eq!((cut.status, cut.whole), (200, false), "{format}: {} bytes", cut.body.len());
        assert!(whole.body.starts_with(&cut.body) && cut.body.len() < whole.body.len(), "{format}");
        for node in 0..NODES {
            tokio::task::block_in_place(|| cluster.start_node(node, &[]));
        }
        cluster.until_ready().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_while_servers_are_replaced() {
    let mut cluster = Cluster::start(&[]).await;
    let load = Arc::new(Load::default());
    let queries = ["?limit=20", "?filter=k:3&sort=n:desc&format=jsonl", "?format=parquet"];
    let mut clients = readers(&cluster, &load, &queries).await;
    for number in 0..CLIENTS {
        let (dataset, _) = cluster.dataset(&format!("Written {number}"), json!({})).await;
        clients.spawn(load.clone().refreshes(cluster.door.keeping(), dataset));
    }
    for node in 0..NODES {
        let begun = (Instant::now(), load.answers.load(Ordering::Relaxed));
        // It waits for the end of the process, and clients go on.
        let (code, log) = tokio::task::block_in_place(|| cluster.nodes[node].terminate());
        assert_eq!(code, Some(0), "{log}");
        tokio::task::block_in_place(|| cluster.start_node(node, &[]));
        let door = cluster.door_of(node);
        until("it is ready", async || door.get("/readyz").await.is_some_and(|reply| reply.is_ok())).await;
        let answers = load.answers.load(Ordering::Relaxed) - begun.1;
        println!("server {} replaced within {:?}, beside {answers} answers", node + 1, begun.0.elapsed());
        assert!(answers > 0);
        if let Some(ended) = clients.try_join_next() {
            panic!("a client has ended: {ended:?}");
        }
    }
    load.over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no request is lost");
    }
}
