//! Distributed queries of three nodes. The threshold is one byte and nothing is cached, so that all scans of several
//! row groups are distributed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{HeaderValue, Request};
use datafusion_distributed::GetWorkerInfoRequest;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, DefaultChannelResolver, create_worker_client};
use futures::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use serde_json::json;
use strata_reference::Value;
use strata_testing::catalog::{open, register_node};
use strata_testing::metrics;
use strata_testing::node_tokens::{NodeCall, TOKEN_HEADER, node_token, unix_now_s};
use strata_testing::owned::Owned;
use strata_testing::reads::{cases, no_failure, plan, query};
use strata_types::read_request::ReadRequest;
use tokio::net::TcpListener;
use tonic::body::Body;
use tower::ServiceExt;

use super::harness::{NODES, TestCluster, until};

/// Three row groups.
const ENTITIES: u64 = 70_000;

pub const DISTRIBUTED_ENVIRONMENT: [(&str, &str); 4] = [
    ("STRATA_CLUSTER__DISTRIBUTE_BYTES", "1"),
    ("STRATA_CACHE__MEMORY_BYTES", "0"),
    ("STRATA_CACHE__RESPONSE_BYTES", "0"),
    ("STRATA_QUERY__TIMEOUT_S", "120"),
];

/// Returns an entity whose values have several types and repeat in random order.
fn entity(number: u64) -> String {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let value = match mixed % 7 {
        0 => "null".to_owned(),
        1 => format!("\"{}\"", mixed % 100),
        2 => format!("{}.5", mixed % 50),
        3 => "[1,{\"b\":\"x\"}]".to_owned(),
        _ => (mixed % 1_000).to_string(),
    };
    format!("{{\"n\":{number},\"v\":{value},\"k\":{},\"t\":\"word {} and {}\"}}", mixed % 17, mixed % 997, mixed % 13)
}

fn many_entities() -> String {
    format!("[{}]", (0..ENTITIES).map(entity).collect::<Vec<_>>().join(","))
}

/// A cluster with a version of many entities, whose nodes know each other.
pub struct DistributedCluster {
    pub cluster: TestCluster,
    path: String,
}

impl DistributedCluster {
    pub async fn start() -> DistributedCluster {
        DistributedCluster::new(TestCluster::start(&DISTRIBUTED_ENVIRONMENT).await).await
    }

    /// `cluster` must have the [`DISTRIBUTED_ENVIRONMENT`].
    pub async fn new(cluster: TestCluster) -> DistributedCluster {
        let (dataset, _) = cluster.dataset("Many", json!({})).await;
        let version = cluster.push_text(dataset, &many_entities()).await;
        let shared = DistributedCluster { path: format!("/api/{dataset}/many/v{version}/"), cluster };
        for node in 0..NODES {
            until("the nodes distribute queries", async || {
                shared.cluster.client_of(node).get(&shared.path("count=true&filter=k:3")).await;
                shared.metric(node, "distributed_queries_total{outcome=\"answered\"}").await > 0.0
            })
            .await;
        }
        shared
    }

    pub fn path(&self, query: &str) -> String {
        format!("{}?{query}", self.path)
    }

    /// Returns a metric of a node.
    pub async fn metric(&self, node: usize, series: &str) -> f64 {
        let rendering =
            self.cluster.client_of(node).get("/metrics").await.map(|reply| reply.text()).unwrap_or_default();
        metrics::value(&rendering, &format!("strata_{series}")).unwrap_or_default()
    }

    /// Returns the number of successful distributed queries of all nodes.
    pub async fn distributed_queries(&self) -> f64 {
        let counts = (0..NODES).map(|node| self.metric(node, "distributed_queries_total{outcome=\"answered\"}"));
        join_all(counts).await.into_iter().sum()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn distributed_responses_equal_single_process() {
    let runtime = runtime();
    let (shared, single) = runtime.block_on(async {
        let single = Owned::sqlite().await;
        assert_eq!(single.dataset("Many", json!({}), &[]).await, 1);
        single.push(1, &many_entities()).await;
        (DistributedCluster::start().await, single)
    });
    let same = async |query: &str, node: usize| {
        let path = shared.path(query);
        let expected = single.service.get(&path).await;
        let found = shared.cluster.client_of(node).get(&path).await.expect("a response");
        let is_same = (found.status, found.whole) == (expected.status, true) && found.body == expected.body;
        let counts =
            ["x-total-count", "x-total-matches"].map(|name| found.headers.get(name) == expected.headers.get(name));
        is_same && counts == [true, true]
    };
    runtime.block_on(async {
        let before = shared.distributed_queries().await;
        let queries = [
            "count=true&filter=v:7",
            "count=true&keywords=word%2077",
            "count=true&filter=k:3&limit=100&offset=7",
            "keywords=96%20and%201,x&keywords_mode=and&format=jsonl",
            "sort=v:desc&limit=50&offset=20&format=jsonl&filter_contains=t:9",
            "sort=v:asc&limit=300&filter=k:5&pretty=false",
            "sort=t:asc&format=csv&keep_field=t,n&filter=k:3",
            "dedup=true&dedup_key=t,k&sort=k:desc&format=jsonl&limit=500",
            "filter_gt=v:400&filter_lte=v:420&format=jsonl&total=true&limit=7",
            "sample=100&seed=7&format=jsonl&filter=k:3",
            "denull=true&drop_field=t&filter=k:1&offset=3900&format=tsv",
            "flatten=true&filter=v.b:x&limit=100&format=xml",
            "format=parquet&typed=true&filter=k:1",
        ];
        for (number, query) in queries.into_iter().enumerate() {
            assert!(same(query, number % NODES).await, "{query}");
        }
        assert!(shared.distributed_queries().await - before >= 10.0, "the queries were distributed");
    });
    let some: Vec<Value> =
        (0..200).map(|number| Value::parse_entity(&entity(number * 349)).expect("an entity")).collect();
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(12), ..PropertyConfig::default() });
    let result = runner.run(&(plan(), any::<bool>(), 0..NODES), |(plan, count, node)| {
        let request = ReadRequest { count, ..plan.resolve(&some) };
        let query = query(&request);
        prop_assert!(runtime.block_on(same(&query, node)), "{}", query);
        Ok(())
    });
    no_failure(result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_node_does_not_affect_distributed_queries() {
    let mut shared = DistributedCluster::start().await;
    let queries =
        ["filter_contains=t:77&format=jsonl", "count=true&filter_contains=t:5", "sort=t:desc&limit=40&format=jsonl"];
    let mut expected = Vec::new();
    for query in queries {
        expected.push(shared.cluster.client_of(0).get(&shared.path(query)).await.expect("a response").body);
    }
    // Runs queries on one node while another node is stopped.
    let check_queries = async |shared: &DistributedCluster, end: &mut dyn FnMut()| {
        let client = shared.cluster.client_of(0);
        let requests = queries.iter().cycle().take(12).map(|query| {
            let client = client.clone();
            let path = shared.path(query);
            tokio::spawn(async move { client.get(&path).await })
        });
        let requests: Vec<_> = requests.collect();
        tokio::time::sleep(Duration::from_millis(40)).await;
        end();
        for (number, answer) in join_all(requests).await.into_iter().enumerate() {
            let answer = answer.expect("request ends").expect("a response");
            assert!(answer.is_ok() && answer.body == expected[number % queries.len()], "{}", queries[number % 3]);
        }
    };
    let node = &shared.cluster.nodes[1];
    check_queries(&shared, &mut || node.pause()).await;
    // The node still hangs, and is excluded.
    check_queries(&shared, &mut || ()).await;
    shared.cluster.nodes[1].resume();
    let repeated = shared.metric(0, "distributed_queries_total{outcome=\"repeated\"}").await;
    assert!(repeated > 0.0, "queries ran again");
    let process = shared.cluster.nodes[2].process();
    check_queries(&shared, &mut || super::harness::signal(process, "KILL")).await;
    shared.cluster.nodes[2].kill();
    // The node runs tasks again after its restart.
    let tasks = "node_tasks_total{outcome=\"done\"}";
    shared.cluster.start_node(2, &[]);
    until("the node gets tasks again", async || {
        check_queries(&shared, &mut || ()).await;
        shared.metric(2, tasks).await > 0.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_secret_is_rejected() {
    let cluster = TestCluster::shared().await;
    let url = format!("http://{}", cluster.task_address(0)).parse().expect("a URL");
    let channel = DefaultChannelResolver::default().get_channel(&url).await.expect("a connection");
    let result = create_worker_client(channel).get_worker_info(GetWorkerInfoRequest {}).await;
    let error = result.err().expect("request is rejected").to_string();
    assert!(error.contains("not a node of this cluster"), "{error}");
    let rendering = cluster.client_of(0).get("/metrics").await.expect("metrics").text();
    assert!(
        metrics::value(&rendering, "strata_node_tasks_total{outcome=\"refused\"}").is_some_and(|count| count > 0.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_is_valid_for_one_node_path_and_user() {
    let cluster = TestCluster::shared().await;
    let catalog = open(&cluster.catalog).await;
    let name_of = async |node: usize| {
        let address = Some(cluster.task_address(node));
        let nodes = catalog.nodes().await.expect("the nodes").into_iter().map(|node| node.registration);
        nodes.into_iter().find(|node| node.internal_address == address).expect("a registered node").id
    };
    let receiver = name_of(0).await;
    let sender = name_of(1).await;
    let target = "/worker.WorkerService/GetWorkerInfo";
    let call = NodeCall { sender: &sender, receiver: &receiver, target, user: "" };
    let token = |call: NodeCall<'_>, time_s: u64| node_token("64 random hexadecimal digits", call, time_s);
    let url = format!("http://{}", cluster.task_address(0)).parse().expect("a URL");
    let is_accepted = async |token: &str| {
        let channel = DefaultChannelResolver::default().get_channel(&url).await.expect("a connection");
        let value = HeaderValue::from_str(token).expect("a header");
        let channel = BoxCloneSyncChannel::new(channel.map_request(move |mut request: Request<Body>| {
            request.headers_mut().insert(TOKEN_HEADER, value.clone());
            request
        }));
        match create_worker_client(channel).get_worker_info(GetWorkerInfoRequest {}).await {
            Ok(_) => true,
            Err(error) if error.to_string().contains("not a node of this cluster") => false,
            Err(error) => panic!("{token}: {error}"),
        }
    };
    assert!(is_accepted(&token(call, unix_now_s())).await);
    let wrong = [
        String::new(),
        "x".to_owned(),
        format!("{} {sender} {}", unix_now_s(), "0".repeat(64)),
        token(NodeCall { receiver: &sender, ..call }, unix_now_s()),
        token(NodeCall { target: "/worker.WorkerService/ExecuteTask", ..call }, unix_now_s()),
        token(NodeCall { user: "7 user", ..call }, unix_now_s()),
        // An expired token, and a token from the future.
        token(call, unix_now_s() - 100),
        token(call, unix_now_s() + 100),
    ];
    for token in &wrong {
        assert!(!is_accepted(token).await, "{token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_another_version_gets_no_tasks() {
    let shared = DistributedCluster::start().await;
    // A listener that accepts and counts connections.
    let listener = TcpListener::bind((shared.cluster.address(120), 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    let accepting = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    // Registers nodes at this address.
    let catalog = open(&shared.cluster.catalog).await;
    let keep_registered = |name: String, version: &'static str| {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            loop {
                register_node(&catalog, &name, version, address).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        })
    };
    let registration = keep_registered("other".to_owned(), "0.0.0");
    until("the node is registered", async || shared.metric(0, "nodes{state=\"alive\"}").await >= 4.0).await;
    let path = shared.path("count=true&filter_contains=t:5");
    let expected = shared.cluster.client_of(0).get(&path).await.expect("a response").body;
    for _ in 0..10 {
        assert_eq!(shared.cluster.client_of(0).get(&path).await.expect("a response").body, expected);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    // A node of this version gets tasks.
    registration.abort();
    // There are few row groups, so not every node gets one; of 24 nodes, some do.
    let registrations: Vec<_> =
        (0..24).map(|number| keep_registered(format!("other {number}"), env!("CARGO_PKG_VERSION"))).collect();
    until("a node is contacted", async || {
        // A node that ran the query by itself has the data in its cache.
        for number in 0..3 {
            assert_eq!(shared.cluster.client_of(number).get(&path).await.expect("a response").body, expected);
        }
        connections.load(Ordering::Relaxed) > 0
    })
    .await;
    registrations.iter().for_each(tokio::task::JoinHandle::abort);
    accepting.abort();
}
