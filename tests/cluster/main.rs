//! Distributed queries of several engines in one process, each with its own cache and port, over one store. The results
//! equal local results, even if nodes fail.

mod affinity;
mod certificates;
mod diffs;
mod groups;
mod identity;
mod ties;
mod tls;
mod token;
mod truncated_streams;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_cluster::distributed::{DistributionOptions, LocalNode, PeerNode, QueryCoordinator};
use strata_cluster::tls::NodeTls;
use strata_cluster::token::NodeSecret;
use strata_config::ClusterConfig;
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::distribution::{DistributedPlan, DistributionReport, QueryDistributor};
use strata_query::explain::QueryExplanation;
use strata_query::fetch::selection::SelectedPositions;
use strata_query::{HashedPrincipal, QueryEngine, QueryError, QueryOutcome};
use strata_reference::Value;
use strata_store::store::{self, S3Options, Store};
use strata_testing::engines::EngineLab;
use strata_testing::reads::{cases, entities, no_failure, plan};
use strata_testing::versions::{all_shredded, nothing_shredded, segments, some_segments};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, ReadRequest, SortField};
use strata_types::secret::Secret;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const SECRET: &str = "open sesame, please";

struct TestNodes {
    lab: EngineLab,
    engines: Vec<QueryEngine>,
    /// Records the distributed queries of each node.
    watched: Vec<Arc<RecordingDistributor>>,
    /// The nodes that each node knows.
    known: Arc<Mutex<Vec<PeerNode>>>,
    /// Stops the server of each node.
    stops: Vec<CancellationToken>,
}

impl TestNodes {
    fn new(count: usize) -> TestNodes {
        let lab = EngineLab::new();
        let mut nodes =
            TestNodes { lab, engines: Vec::new(), watched: Vec::new(), known: Arc::default(), stops: Vec::new() };
        for _ in 0..count {
            let store = nodes.lab.store.clone();
            nodes.add(SECRET, store);
        }
        nodes
    }

    /// Adds a node, and starts its server.
    fn add(&mut self, secret: &str, store: Store) -> usize {
        self.add_at("127.0.0.1", (None, PartCache::new(0)), secret, store)
    }

    fn add_with(&mut self, secret: &str, store: Store, cache: PartCache) -> usize {
        self.add_at("127.0.0.1", (None, cache), secret, store)
    }

    /// Like [`TestNodes::add_with`], at another address and with the certificates of a configuration.
    fn add_at(
        &mut self,
        host: &str,
        (tls, cache): (Option<ClusterConfig>, PartCache),
        secret: &str,
        store: Store,
    ) -> usize {
        let number = self.engines.len();
        let name = format!("n{number}");
        let engine = self.lab.engine(2, 1 << 30, Duration::from_secs(60));
        let known = self.known.clone();
        let options = DistributionOptions {
            secret: NodeSecret::new(Secret::from_stored(secret.to_owned())),
            tls: self
                .lab
                .bench
                .runtime
                .block_on(async { NodeTls::open(&tls.clone().unwrap_or_default()).expect("files") }),
            distribute_bytes: 1,
            max_tasks: 4,
            local_node: LocalNode { name: name.clone(), runs_tasks: true },
            peers: Arc::new(move || known.lock().expect("unpoisoned").clone()),
        };
        let stop = CancellationToken::new();
        let serving = stop.clone();
        let (coordinator, address) = self.lab.bench.runtime.block_on(async {
            let coordinator = Arc::new(QueryCoordinator::new(options, &engine, store, cache));
            let listener = TcpListener::bind((host, 0)).await.expect("a port");
            let scheme = if tls.is_some() { "https://" } else { "" };
            let address = format!("{scheme}{}", listener.local_addr().expect("an address"));
            let served = coordinator.clone();
            tokio::spawn(async move { served.serve(listener, serving).await.expect("served") });
            (coordinator, address)
        });
        let watched = Arc::new(RecordingDistributor { coordinator, seen: Mutex::default() });
        engine.set_distributor(watched.clone());
        self.watched.push(watched);
        self.engines.push(engine);
        self.stops.push(stop);
        self.known.lock().expect("unpoisoned").push(PeerNode { name, address });
        number
    }

    /// Makes another node known to all nodes.
    fn add_peer(&self, name: &str, address: &str) {
        let peer = PeerNode { name: name.to_owned(), address: address.to_owned() };
        self.known.lock().expect("unpoisoned").push(peer);
    }

    /// Writes and opens a version without a cache.
    fn version(&self, entities: &[Value], options: &WriteOptions) -> VersionReader {
        let (path, written) = self.lab.write(entities, options);
        self.lab.open(&path, &written, &PartCache::new(0))
    }

    /// Runs a query on a node. Returns its result and how it was distributed.
    fn run_on(
        &self,
        node: usize,
        reader: &VersionReader,
        request: &ReadRequest,
    ) -> (QueryResult, Option<DistributionReport>) {
        let (found, explained) = self.explain_on(node, reader, request);
        (found, explained.distributed)
    }

    /// Runs and explains a query on a node.
    fn explain_on(
        &self,
        node: usize,
        reader: &VersionReader,
        request: &ReadRequest,
    ) -> (QueryResult, QueryExplanation) {
        let explain = self.engines[node].explain(reader.clone(), Arc::new(request.clone()));
        let (outcome, explained) = self.lab.bench.runtime.block_on(explain).expect("found");
        (QueryResult::from_outcome(outcome), explained)
    }

    /// Runs a query on an engine without other nodes.
    fn run_locally(&self, reader: &VersionReader, request: &ReadRequest) -> Result<QueryResult, QueryError> {
        let select = self.lab.engines[1].select(reader.clone(), Arc::new(request.clone()));
        self.lab.bench.runtime.block_on(select).map(QueryResult::from_outcome)
    }
}

/// Records the distributed queries of a node.
#[derive(Debug)]
struct RecordingDistributor {
    coordinator: Arc<QueryCoordinator>,
    /// The last line of each plan, which describes the scan, and the reason for a fallback, if any.
    seen: Mutex<Vec<(String, Option<String>)>>,
}

impl RecordingDistributor {
    /// Returns the queries since the last call.
    fn take(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.seen.lock().expect("unpoisoned"))
    }

    fn record(&self, plan: &DistributedPlan, fallback: Option<String>) {
        let text = displayable(&*plan.plan).indent(false).to_string();
        let last = text.lines().last().unwrap_or_default().trim().to_owned();
        self.seen.lock().expect("unpoisoned").push((last, fallback));
    }
}

#[async_trait]
impl QueryDistributor for RecordingDistributor {
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        tenant: Option<HashedPrincipal>,
    ) -> Option<DistributedPlan> {
        self.coordinator.distribute(plan, context, tenant).await
    }

    fn on_success(&self, plan: &DistributedPlan) {
        self.record(plan, None);
        self.coordinator.on_success(plan);
    }

    fn on_failure(&self, plan: &DistributedPlan, failure: &str) -> String {
        let fallback = self.coordinator.on_failure(plan, failure);
        self.record(plan, Some(fallback.clone()));
        fallback
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum QueryResult {
    Count(u64),
    Positions(Vec<u64>),
}

impl QueryResult {
    fn from_outcome(outcome: QueryOutcome) -> QueryResult {
        match outcome {
            QueryOutcome::Count(count) => QueryResult::Count(count),
            QueryOutcome::Selection(selection) => QueryResult::Positions(match selection.positions() {
                SelectedPositions::Range(range) => range.clone().collect(),
                SelectedPositions::List(list) => list.clone(),
            }),
        }
    }
}

fn path(key: &str) -> FieldPath {
    FieldPath::from_keys([key]).expect("a path")
}

fn number(value: usize) -> Value {
    Value::Number(value.to_string())
}

/// Entities without indexed columns if they are written with [`ten_rows_per_group`].
fn forty_entities() -> Vec<Value> {
    let entity = |index: usize| {
        let mixed = index * 7 % 40;
        Value::Object(vec![
            ("n".to_owned(), number(index)),
            ("k".to_owned(), number(index % 3)),
            ("v".to_owned(), number(mixed)),
        ])
    };
    (0..40).map(entity).collect()
}

fn ten_rows_per_group() -> WriteOptions {
    WriteOptions { max_row_group_rows: 10, shredding_limits: nothing_shredded(), ..WriteOptions::default() }
}

fn filter(path: &str, value: &str) -> ReadRequest {
    let filters = vec![PathValue { path: self::path(path), value: value.to_owned() }];
    ReadRequest { filters, ..ReadRequest::default() }
}

fn sort(field: &str, descending: bool) -> Option<SortField> {
    Some(SortField { field: field.to_owned(), descending })
}

#[test]
fn distributed_query_equals_local_query() {
    let nodes = TestNodes::new(3);
    let plans = vec((plan(), any::<bool>(), any::<bool>()), 6..10);
    let layout = (1..6_usize, any::<bool>(), any::<usize>());
    let distributed = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(40), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), layout, plans), |(entities, (rows, shredded, index), plans)| {
        let options = WriteOptions {
            max_row_group_rows: rows,
            shredding_limits: if shredded { all_shredded() } else { nothing_shredded() },
            keyword_limits: some_segments(index),
            ..WriteOptions::default()
        };
        let reader = nodes.version(&entities, &options);
        for (number, (plan, count, is_offset_large)) in plans.iter().enumerate() {
            let request = ReadRequest { count: *count, ..plan.resolve(&entities) };
            let offset = if *is_offset_large { request.offset } else { request.offset.min(2) };
            let request = ReadRequest { offset, ..request };
            let (found, used) = nodes.run_on(number % 3, &reader, &request);
            prop_assert_eq!(&found, &nodes.run_locally(&reader, &request).expect("found"), "{:?}", request);
            if let Some(used) = used {
                prop_assert_eq!(&used.fallback, &None, "{:?}", request);
                distributed.set(distributed.get() + 1);
            }
        }
        Ok(())
    });
    no_failure(result);
    assert!(distributed.get() > 20, "only {} queries were distributed", distributed.get());
}

#[test]
fn each_query_kind_is_distributed_and_reported() {
    let nodes = TestNodes::new(3);
    let entities = forty_entities();
    let reader = nodes.version(&entities, &ten_rows_per_group());
    let k = filter("k", "1");
    let requests = [
        (k.clone(), 13),
        (ReadRequest { count: true, ..k.clone() }, 3),
        (ReadRequest { count: true, limit: Some(4), offset: 2, ..k.clone() }, 13),
        (ReadRequest { limit: Some(3), offset: 1, ..k.clone() }, 12),
        (ReadRequest { sort: sort("v", true), limit: Some(2), ..k.clone() }, 6),
        (ReadRequest { sort: sort("v", false), limit: Some(5), offset: 3, ..ReadRequest::default() }, 24),
        (ReadRequest { sort: sort("v", false), ..k.clone() }, 13),
        // Many keys are equal, so the positions determine the order.
        (ReadRequest { sort: sort("k", true), limit: Some(9), offset: 2, ..ReadRequest::default() }, 33),
        (ReadRequest { sort: sort("k", false), ..ReadRequest::default() }, 40),
        (ReadRequest { sample: Some(5), seed: Some(7), ..k.clone() }, 13),
        (ReadRequest { dedup: true, drop_fields: vec![path("n"), path("v")], ..ReadRequest::default() }, 12),
        (ReadRequest { dedup: true, ..k.clone() }, 13),
        (
            ReadRequest { dedup: true, count: true, drop_fields: vec![path("n"), path("v")], ..ReadRequest::default() },
            12,
        ),
        (
            ReadRequest {
                dedup: true,
                sort: sort("v", true),
                drop_fields: vec![path("n")],
                limit: Some(7),
                ..k.clone()
            },
            13,
        ),
        (ReadRequest { dedup: true, dedup_key: vec![path("k")], ..ReadRequest::default() }, 9),
        (ReadRequest { dedup: true, dedup_key: vec![path("k")], count: true, ..ReadRequest::default() }, 9),
        (ReadRequest { dedup: true, keep_fields: vec![path("k")], offset: 1, ..ReadRequest::default() }, 9),
        (ReadRequest { dedup: true, dedup_key: vec![path("k")], sort: sort("v", true), ..k.clone() }, 3),
    ];
    for (request, max_rows) in requests {
        let (found, used) = nodes.run_on(0, &reader, &request);
        assert_eq!(found, nodes.run_locally(&reader, &request).expect("found"), "{request:?}");
        let used = used.unwrap_or_else(|| panic!("{request:?} was not distributed"));
        assert_eq!(used.fallback, None, "{request:?}");
        assert!(used.nodes.len() >= 2 && used.nodes.iter().filter(|node| node.is_own).count() <= 1, "{used:?}");
        assert_eq!(used.nodes.iter().map(|node| node.row_groups).sum::<u64>(), 4, "{used:?}");
        assert!(used.nodes.iter().all(|node| node.stored_bytes > 0), "{used:?}");
        let rows: u64 = used.nodes.iter().map(|node| node.rows).sum();
        assert!(rows > 0 && rows <= max_rows, "{request:?}: {used:?}");
    }
}

#[test]
fn cached_file_is_scanned_locally() {
    let nodes = TestNodes::new(2);
    let file = nodes.lab.write(&forty_entities(), &ten_rows_per_group());
    let reader = nodes.lab.open(&file.0, &file.1, &PartCache::new(1 << 30));
    for request in [filter("k", "1"), ReadRequest { dedup: true, dedup_key: vec![path("k")], ..filter("v", "7") }] {
        let local = nodes.run_locally(&reader, &request).expect("found");
        // The local query has read all data into the cache of this reader.
        assert_eq!(nodes.run_on(0, &reader, &request), (local, None));
    }
}

#[test]
fn nodes_use_columns_and_keyword_index() {
    let nodes = TestNodes::new(3);
    let options = WriteOptions {
        max_row_group_rows: 10,
        shredding_limits: all_shredded(),
        keyword_limits: segments(20),
        ..WriteOptions::default()
    };
    let reader = nodes.version(&forty_entities(), &options);
    let keywords = ReadRequest { keywords: vec!["3".to_owned()], ..ReadRequest::default() };
    for request in
        [filter("v", "3"), keywords, ReadRequest { sort: sort("v", true), limit: Some(7), ..filter("k", "2") }]
    {
        let (found, used) = nodes.run_on(1, &reader, &request);
        assert_eq!(found, nodes.run_locally(&reader, &request).expect("found"), "{request:?}");
        assert_eq!(used.map(|used| used.fallback), Some(None), "{request:?}");
    }
}

#[test]
fn queries_of_a_principal_are_distributed() {
    let nodes = TestNodes::new(2);
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = Arc::new(filter("k", "1"));
    for tenant in
        [HashedPrincipal { key: u64::MAX, is_anonymous: true }, HashedPrincipal { key: 1, is_anonymous: false }]
    {
        let engine = nodes.engines[0].for_principal(tenant);
        let explain = engine.explain(reader.clone(), request.clone());
        let (outcome, explained) = nodes.lab.bench.runtime.block_on(explain).expect("found");
        assert_eq!(QueryResult::from_outcome(outcome), nodes.run_locally(&reader, &request).expect("found"));
        assert_eq!(explained.distributed.map(|used| used.fallback), Some(None));
    }
}

#[test]
fn offline_node_is_excluded_after_first_failure() {
    let nodes = TestNodes::new(3);
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = filter("k", "1");
    let local = nodes.run_locally(&reader, &request).expect("found");
    nodes.stops[2].cancel();
    // No process listens at this address.
    let offline = nodes.lab.bench.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("an address").to_string()
    });
    nodes.known.lock().expect("unpoisoned")[2].address = offline;
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!(found, local);
    assert_eq!(used.and_then(|used| used.fallback), Some("failed: n2".to_owned()));
    // The next query is distributed among the other nodes.
    let (found, used) = nodes.run_on(0, &reader, &request);
    let used = used.expect("distributed");
    assert_eq!((found, used.fallback), (local, None));
    assert!(used.nodes.iter().all(|node| node.node != "n2"), "{:?}", used.nodes);
}

#[test]
fn query_succeeds_if_a_node_hangs() {
    let nodes = TestNodes::new(2);
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = ReadRequest { count: true, ..filter("k", "1") };
    let local = nodes.run_locally(&reader, &request).expect("found");
    // The listener accepts connections, like a stopped process, but sends nothing.
    let listener = nodes.lab.bench.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    nodes.add_peer("n9", &listener.local_addr().expect("an address").to_string());
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!(found, local);
    assert_eq!(used.and_then(|used| used.fallback), Some("failed: n9".to_owned()));
    drop(listener);
}

#[test]
fn node_with_another_secret_is_rejected() {
    let mut nodes = TestNodes::new(2);
    let store = nodes.lab.store.clone();
    let other = nodes.add("a different secret", store);
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = filter("k", "1");
    let local = nodes.run_locally(&reader, &request).expect("found");
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!((&found, used.and_then(|used| used.fallback)), (&local, Some(format!("failed: n{other}"))));
    let (found, used) = nodes.run_on(other, &reader, &request);
    let fallback = used.and_then(|used| used.fallback).expect("refused");
    assert!(fallback.starts_with("failed: n") && !fallback.contains(&format!("n{other}")), "{fallback}");
    assert_eq!(found, local);
}

#[test]
fn query_succeeds_if_a_node_lacks_the_file() {
    let mut nodes = TestNodes::new(1);
    let empty = nodes.add(SECRET, store::open_store("memory://", &S3Options::default()).expect("a store"));
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let requests = [
        filter("k", "1"),
        ReadRequest { count: true, ..filter("k", "1") },
        ReadRequest { sort: sort("v", false), limit: Some(3), ..ReadRequest::default() },
    ];
    for request in requests {
        let (found, used) = nodes.run_on(0, &reader, &request);
        assert_eq!(found, nodes.run_locally(&reader, &request).expect("found"), "{request:?}");
        // The node fails the first query, and is then excluded.
        if let Some(used) = used {
            assert_eq!(used.fallback, Some(format!("failed: n{empty}")), "{request:?}");
        }
    }
}

#[test]
fn dropped_queries_release_task_permits() {
    let nodes = TestNodes::new(2);
    let reader = nodes.version(&forty_entities(), &ten_rows_per_group());
    let request = Arc::new(filter("k", "1"));
    nodes.lab.bench.runtime.block_on(async {
        // More queries than permits.
        for _ in 0..20 {
            let mut query = Box::pin(nodes.engines[0].select(reader.clone(), request.clone()));
            assert!(futures::poll!(&mut query).is_pending());
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(query);
        }
    });
    let (found, used) = nodes.run_on(0, &reader, &request);
    assert_eq!(
        (found, used.map(|used| used.fallback)),
        (nodes.run_locally(&reader, &request).expect("found"), Some(None))
    );
}
