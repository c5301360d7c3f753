//! Large queries that three servers share: each row group is scanned by the server that it belongs to. The threshold is
//! one byte and nothing is cached, so that all scans of several row groups are shared.

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
use strata_testing::node_tokens::{NodeCall, TOKEN_HEADER, node_token, now_s};
use strata_testing::owned::Owned;
use strata_testing::reads::{cases, no_failure, plan, query};
use strata_types::request::ReadRequest;
use tokio::net::TcpListener;
use tonic::body::Body;
use tower::ServiceExt;

use super::harness::{Cluster, NODES, until};

/// Entities of three row groups.
const ENTITIES: u64 = 70_000;

pub const SHARED: [(&str, &str); 4] = [
    ("STRATA_CLUSTER__DISTRIBUTE_BYTES", "1"),
    ("STRATA_CACHE__MEMORY_BYTES", "0"),
    ("STRATA_CACHE__RESPONSE_BYTES", "0"),
    ("STRATA_QUERY__TIMEOUT_S", "120"),
];

/// Entities whose values repeat, lie anywhere and are of several types.
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

fn many() -> String {
    format!("[{}]", (0..ENTITIES).map(entity).collect::<Vec<_>>().join(","))
}

/// A service with a version of many entities, whose servers know each other.
pub struct Shared {
    pub cluster: Cluster,
    path: String,
}

impl Shared {
    async fn start() -> Shared {
        Shared::of(Cluster::start(&SHARED).await).await
    }

    /// Of a service with [`SHARED`].
    pub async fn of(cluster: Cluster) -> Shared {
        let (dataset, _) = cluster.dataset("Many", json!({})).await;
        let version = cluster.push_text(dataset, &many()).await;
        let shared = Shared { path: format!("/api/{dataset}/many/v{version}/"), cluster };
        for node in 0..NODES {
            until("the servers share queries", async || {
                shared.cluster.door_of(node).get(&shared.path("count=true&filter=k:3")).await;
                shared.counted(node, "distributed_queries_total{outcome=\"answered\"}").await > 0.0
            })
            .await;
        }
        shared
    }

    pub fn path(&self, query: &str) -> String {
        format!("{}?{query}", self.path)
    }

    /// What a server has counted.
    pub async fn counted(&self, node: usize, series: &str) -> f64 {
        let rendering = self.cluster.door_of(node).get("/metrics").await.map(|reply| reply.text()).unwrap_or_default();
        metrics::value(&rendering, &format!("strata_{series}")).unwrap_or_default()
    }

    async fn answered(&self) -> f64 {
        let counted = (0..NODES).map(|node| self.counted(node, "distributed_queries_total{outcome=\"answered\"}"));
        join_all(counted).await.into_iter().sum()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn shared_queries_are_answered_byte_for_byte_as_by_one_process() {
    let runtime = runtime();
    let (shared, alone) = runtime.block_on(async {
        let alone = Owned::sqlite().await;
        assert_eq!(alone.dataset("Many", json!({}), &[]).await, 1);
        alone.push(1, &many()).await;
        (Shared::start().await, alone)
    });
    let same = async |query: &str, node: usize| {
        let path = shared.path(query);
        let expected = alone.service.get(&path).await;
        let found = shared.cluster.door_of(node).get(&path).await.expect("an answer");
        let is_same = (found.status, found.whole) == (expected.status, true) && found.body == expected.body;
        let counts =
            ["x-total-count", "x-total-matches"].map(|name| found.headers.get(name) == expected.headers.get(name));
        is_same && counts == [true, true]
    };
    runtime.block_on(async {
        let before = shared.answered().await;
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
        assert!(shared.answered().await - before >= 10.0, "the queries were shared");
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
async fn servers_that_are_killed_or_stopped_in_the_middle_of_shared_queries_spoil_no_answer() {
    let mut shared = Shared::start().await;
    let queries =
        ["filter_contains=t:77&format=jsonl", "count=true&filter_contains=t:5", "sort=t:desc&limit=40&format=jsonl"];
    let mut expected = Vec::new();
    for query in queries {
        expected.push(shared.cluster.door_of(0).get(&shared.path(query)).await.expect("an answer").body);
    }
    // Queries at one server, while another one ends in some way.
    let all_right = async |shared: &Shared, end: &mut dyn FnMut()| {
        let door = shared.cluster.door_of(0);
        let asked = queries.iter().cycle().take(12).map(|query| {
            let (door, path) = (door.clone(), shared.path(query));
            tokio::spawn(async move { door.get(&path).await })
        });
        let asked: Vec<_> = asked.collect();
        tokio::time::sleep(Duration::from_millis(40)).await;
        end();
        for (number, answer) in join_all(asked).await.into_iter().enumerate() {
            let answer = answer.expect("it ends").expect("an answer");
            assert!(answer.is_ok() && answer.body == expected[number % queries.len()], "{}", queries[number % 3]);
        }
    };
    let node = &shared.cluster.nodes[1];
    all_right(&shared, &mut || node.pause()).await;
    // It hangs still, and is done without.
    all_right(&shared, &mut || ()).await;
    shared.cluster.nodes[1].go_on();
    let repeated = shared.counted(0, "distributed_queries_total{outcome=\"repeated\"}").await;
    assert!(repeated > 0.0, "queries ran again");
    let process = shared.cluster.nodes[2].process();
    all_right(&shared, &mut || super::harness::signal(process, "KILL")).await;
    shared.cluster.nodes[2].kill();
    // It helps again when it is back.
    let tasks = "node_tasks_total{outcome=\"done\"}";
    shared.cluster.start_node(2, &[]);
    until("the server is given tasks again", async || {
        all_right(&shared, &mut || ()).await;
        shared.counted(2, tasks).await > 0.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_the_secret_is_refused() {
    let cluster = Cluster::shared().await;
    let url = format!("http://{}", cluster.tasks_of(0)).parse().expect("a URL");
    let channel = DefaultChannelResolver::default().get_channel(&url).await.expect("a connection");
    let told = create_worker_client(channel).get_worker_info(GetWorkerInfoRequest {}).await;
    let refusal = told.err().expect("refused").to_string();
    assert!(refusal.contains("not a node of this cluster"), "{refusal}");
    let rendering = cluster.door_of(0).get("/metrics").await.expect("metrics").text();
    assert!(
        metrics::value(&rendering, "strata_node_tasks_total{outcome=\"refused\"}").is_some_and(|count| count > 0.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_valid_for_one_node_path_and_user() {
    let cluster = Cluster::shared().await;
    let catalog = open(&cluster.catalog).await;
    let name_of = async |node: usize| {
        let address = Some(cluster.tasks_of(node));
        let nodes = catalog.nodes().await.expect("the nodes").into_iter().map(|node| node.registration);
        nodes.into_iter().find(|node| node.internal_address == address).expect("a registered node").id
    };
    let receiver = name_of(0).await;
    let sender = name_of(1).await;
    let target = "/worker.WorkerService/GetWorkerInfo";
    let call = NodeCall { sender: &sender, receiver: &receiver, target, user: "" };
    let token = |call: NodeCall<'_>, time_s: u64| node_token("64 random hexadecimal digits", call, time_s);
    let url = format!("http://{}", cluster.tasks_of(0)).parse().expect("a URL");
    let is_accepted = async |token: &str| {
        let channel = DefaultChannelResolver::default().get_channel(&url).await.expect("a connection");
        let value = HeaderValue::from_str(token).expect("a header");
        let channel = BoxCloneSyncChannel::new(channel.map_request(move |mut request: Request<Body>| {
            request.headers_mut().insert(TOKEN_HEADER, value.clone());
            request
        }));
        match create_worker_client(channel).get_worker_info(GetWorkerInfoRequest {}).await {
            Ok(_) => true,
            Err(refusal) if refusal.to_string().contains("not a node of this cluster") => false,
            Err(error) => panic!("{token}: {error}"),
        }
    };
    assert!(is_accepted(&token(call, now_s())).await);
    let wrong = [
        String::new(),
        "x".to_owned(),
        format!("{} {sender} {}", now_s(), "0".repeat(64)),
        token(NodeCall { receiver: &sender, ..call }, now_s()),
        token(NodeCall { target: "/worker.WorkerService/ExecuteTask", ..call }, now_s()),
        token(NodeCall { user: "7 user", ..call }, now_s()),
        // Expired, and from the future.
        token(call, now_s() - 100),
        token(call, now_s() + 100),
    ];
    for token in &wrong {
        assert!(!is_accepted(token).await, "{token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_version_is_not_asked() {
    let shared = Shared::start().await;
    // One that takes connections, and counts them.
    let listener = TcpListener::bind((shared.cluster.address(120), 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let accepting = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    // It gives signs of life.
    let catalog = open(&shared.cluster.catalog).await;
    let lives = |name: String, version: &'static str| {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            loop {
                register_node(&catalog, &name, version, address).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        })
    };
    let living = lives("other".to_owned(), "0.0.0");
    until("the server is known", async || shared.counted(0, "nodes{state=\"alive\"}").await >= 4.0).await;
    let path = shared.path("count=true&filter_contains=t:5");
    let expected = shared.cluster.door_of(0).get(&path).await.expect("an answer").body;
    for _ in 0..10 {
        assert_eq!(shared.cluster.door_of(0).get(&path).await.expect("an answer").body, expected);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    // The same server, of this version, is.
    living.abort();
    // Which of the few row groups belong to a server is a matter of its name: of so many, one has some.
    let living: Vec<_> = (0..24).map(|number| lives(format!("other {number}"), env!("CARGO_PKG_VERSION"))).collect();
    until("the server is asked", async || {
        // One that had to answer alone, because the others were slow, has all in its cache.
        for number in 0..3 {
            assert_eq!(shared.cluster.door_of(number).get(&path).await.expect("an answer").body, expected);
        }
        connections.load(Ordering::Relaxed) > 0
    })
    .await;
    living.iter().for_each(tokio::task::JoinHandle::abort);
    accepting.abort();
}
