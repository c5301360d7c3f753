//! Nodes are killed, or replaced one by one as docs/guides/cluster.md describes while clients send requests. Only
//! requests that a killed node is processing can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use strata_testing::loopback_server::{LoopbackServer, Reply, ok};
use tokio::task::JoinSet;

use super::harness::{NODES, Node, ServiceClient, TestCluster, until};

/// Number of clients for each query and kind of connection.
const CLIENTS: usize = 2;

#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    responses: AtomicU64,
}

impl Load {
    /// Sends the same request until the load is over. Each response must equal the expected one.
    async fn read_repeatedly(self: Arc<Self>, client: ServiceClient, path: String, expected: bytes::Bytes) {
        while !self.is_over.load(Ordering::Relaxed) {
            let reply = client.get(&path).await.expect("no request is lost");
            assert_eq!((reply.status, reply.whole), (200, true), "{path}: {}", reply.text());
            assert!(reply.body == expected, "{path}: {}", reply.text());
            self.responses.fetch_add(1, Ordering::Relaxed);
            // The nodes share the machine with the clients, and need processor time to start.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Creates one version after another.
    async fn refresh_repeatedly(self: Arc<Self>, client: ServiceClient, dataset: u64) {
        for expected in 1.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let body = json!({"dataset_id": dataset, "entities": [{"n": expected}]});
            let reply = client.post("/dataset/refresh", &body).await.expect("no request is lost");
            assert_eq!(reply.json()["version"]["version_number"], json!(expected));
            self.responses.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Starts clients that read a new dataset through the load balancer.
async fn start_readers(cluster: &TestCluster, load: &Arc<Load>, queries: &[&str]) -> JoinSet<()> {
    let (dataset, _) = cluster.dataset("Read", json!({})).await;
    cluster.push(dataset, &(0..2_000).map(|n| json!({"n": n, "k": n % 7})).collect()).await;
    let mut clients = JoinSet::new();
    for query in queries {
        let path = format!("/api/{dataset}/read/active/{query}");
        let expected = cluster.client.get(&path).await.expect("a response");
        assert!(expected.is_ok());
        for _ in 0..CLIENTS {
            // Clients with persistent connections, and clients with a new connection for each request.
            for client in [cluster.client.clone(), cluster.client.with_keep_alive()] {
                clients.spawn(load.clone().read_repeatedly(client, path.clone(), expected.body.clone()));
            }
        }
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refresh_of_killed_node_is_taken_over() {
    let mut cluster = TestCluster::start(&[]).await;
    let load = Arc::new(Load::default());
    // Small responses, because the load balancer cannot retry a response that has begun.
    let mut clients = start_readers(&cluster, &load, &["?limit=3"]).await;
    let source_requests = Arc::new(AtomicU64::new(0));
    let counter = source_requests.clone();
    let source = LoopbackServer::start(move |_| match counter.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[{\"n\":1},".to_vec()),
        _ => ok("Content-Type: application/json\r\n", b"[{\"n\":1},{\"n\":2}]"),
    });
    let (dataset, _) = cluster.dataset("Fetched", json!({"source": source.url("/list.json")})).await;
    let body = json!({"dataset_id": dataset});
    let lost = {
        let client = cluster.client_of(0);
        let body = body.clone();
        tokio::spawn(async move { client.post("/dataset/refresh", &body).await.is_none() })
    };
    let other = cluster.client_of(1);
    // The first node then has the lease.
    until("the source is requested", async || source_requests.load(Ordering::SeqCst) == 1).await;
    let rejected = other.post("/dataset/refresh", &body).await.expect("a response");
    assert_eq!(rejected.status, 409, "{}", rejected.text());
    cluster.nodes[0].kill();
    assert!(lost.await.expect("request ends"), "the request to a killed node fails");
    let mut created = None;
    until("another node refreshes the dataset", async || {
        let reply = other.post("/dataset/refresh", &body).await.expect("a response");
        assert!([200, 409].contains(&reply.status), "{}", reply.text());
        created = reply.is_ok().then(|| reply.json());
        created.is_some()
    })
    .await;
    let version = &created.expect("version is created")["version"];
    assert_eq!((&version["version_number"], &version["entity_count"]), (&json!(1), &json!(2)));
    let read = cluster.client.get(&format!("/api/{dataset}/fetched/latest/?count=true")).await.expect("a response");
    assert_eq!(read.json()["count"], json!(2));
    tokio::task::block_in_place(|| cluster.start_node(0, &[]));
    cluster.until_ready().await;
    load.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no request is lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_of_killed_node_is_truncated() {
    let mut cluster = TestCluster::start(&[]).await;
    let (dataset, _) = cluster.dataset("Large", json!({})).await;
    // More bytes than all buffers between node and client.
    let text = "0123456789".repeat(1_600);
    cluster.push(dataset, &(0..2_000).map(|n| json!({"n": n, "t": text})).collect()).await;
    for format in ["jsonl", "json", "csv", "xml"] {
        let path = format!("/api/{dataset}/large/v1/?format={format}");
        let whole = cluster.client.get(&path).await.expect("a response");
        assert!(whole.is_ok() && whole.body.len() > 30_000_000, "{format}: {}", whole.body.len());
        // Any of the nodes can serve the request.
        let started = cluster.client.start(&path).await.expect("a response");
        cluster.nodes.iter_mut().for_each(Node::kill);
        let truncated = started.rest().await;
        assert_eq!((truncated.status, truncated.whole), (200, false), "{format}: {} bytes", truncated.body.len());
        assert!(whole.body.starts_with(&truncated.body) && truncated.body.len() < whole.body.len(), "{format}");
        for node in 0..NODES {
            tokio::task::block_in_place(|| cluster.start_node(node, &[]));
        }
        cluster.until_ready().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_while_nodes_are_replaced() {
    let mut cluster = TestCluster::start(&[]).await;
    let load = Arc::new(Load::default());
    let queries = ["?limit=20", "?filter=k:3&sort=n:desc&format=jsonl", "?format=parquet"];
    let mut clients = start_readers(&cluster, &load, &queries).await;
    for number in 0..CLIENTS {
        let (dataset, _) = cluster.dataset(&format!("Written {number}"), json!({})).await;
        clients.spawn(load.clone().refresh_repeatedly(cluster.client.with_keep_alive(), dataset));
    }
    for node in 0..NODES {
        let start = Instant::now();
        let before = load.responses.load(Ordering::Relaxed);
        // Clients continue while the call waits for the end of the process.
        let (code, log) = tokio::task::block_in_place(|| cluster.nodes[node].terminate());
        assert_eq!(code, Some(0), "{log}");
        tokio::task::block_in_place(|| cluster.start_node(node, &[]));
        let client = cluster.client_of(node);
        until("the node is ready", async || client.get("/readyz").await.is_some_and(|reply| reply.is_ok())).await;
        let responses = load.responses.load(Ordering::Relaxed) - before;
        println!("node {} replaced within {:?}, during {responses} responses", node + 1, start.elapsed());
        assert!(responses > 0);
        if let Some(ended) = clients.try_join_next() {
            panic!("a client has ended: {ended:?}");
        }
    }
    load.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no request is lost");
    }
}
