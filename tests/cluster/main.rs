//! Queries that other nodes help with: engines in one process, each with a cache and a port of its own, over one store.
//! They find what one engine finds, whoever fails.

mod affinity;
mod certificates;
mod cut;
mod diffs;
mod groups;
mod identity;
mod ties;
mod tls;
mod token;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestRunner};
use strata_cluster::distributed::{Coordinator, DistributionOptions, OwnNode, Peer};
use strata_cluster::tls::NodeTls;
use strata_cluster::token::NodeSecret;
use strata_config::Cluster;
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::writer::WriteOptions;
use strata_query::distribute::{DistributedPlan, DistributedUse, Distribution};
use strata_query::explain::Explained;
use strata_query::fetch::selection::Positions;
use strata_query::{Engine, Outcome, QueryError, Tenant};
use strata_reference::Value;
use strata_store::store::{self, S3Options, Store};
use strata_testing::engines::Lab;
use strata_testing::reads::{cases, entities, no_failure, plan};
use strata_testing::versions::{all_shredded, nothing_shredded, segments, shapes, some_segments, some_shapes};
use strata_types::path::Path;
use strata_types::request::{PathValue, ReadRequest, Sort};
use strata_types::secret::Secret;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const SECRET: &str = "open sesame, please";

/// Some nodes of one service.
struct Nodes {
    lab: Lab,
    /// The engine of each.
    engines: Vec<Engine>,
    /// What each has distributed.
    watched: Vec<Arc<Watched>>,
    /// What all know of each other.
    known: Arc<Mutex<Vec<Peer>>>,
    /// Ends the server of each.
    stops: Vec<CancellationToken>,
}

impl Nodes {
    fn new(count: usize) -> Nodes {
        let lab = Lab::new();
        let none = (Vec::new(), Vec::new(), Vec::new());
        let mut nodes = Nodes { lab, engines: none.0, watched: none.1, known: Arc::default(), stops: none.2 };
        for _ in 0..count {
            let store = nodes.lab.store.clone();
            nodes.add(SECRET, store);
        }
        nodes
    }

    /// Adds a node with a secret and a store, which serves from now on.
    fn add(&mut self, secret: &str, store: Store) -> usize {
        self.add_at("127.0.0.1", (None, PartCache::new(0)), secret, store)
    }

    /// The same, with a cache.
    fn add_with(&mut self, secret: &str, store: Store, cache: PartCache) -> usize {
        self.add_at("127.0.0.1", (None, cache), secret, store)
    }

    /// The same at another address, with the certificates of a configuration.
    fn add_at(&mut self, host: &str, (tls, cache): (Option<Cluster>, PartCache), secret: &str, store: Store) -> usize {
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
            tasks: 4,
            own: OwnNode { name: name.clone(), helps: true },
            peers: Arc::new(move || known.lock().expect("unpoisoned").clone()),
        };
        let stop = CancellationToken::new();
        let serving = stop.clone();
        let (coordinator, address) = self.lab.bench.runtime.block_on(async {
            let coordinator = Arc::new(Coordinator::new(options, &engine, store, cache));
            let listener = TcpListener::bind((host, 0)).await.expect("a port");
            let scheme = if tls.is_some() { "https://" } else { "" };
            let address = format!("{scheme}{}", listener.local_addr().expect("an address"));
            let served = coordinator.clone();
            tokio::spawn(async move { served.serve(listener, serving).await.expect("served") });
            (coordinator, address)
        });
        let watched = Arc::new(Watched { coordinator, seen: Mutex::default() });
        engine.distribute_by(watched.clone());
        self.watched.push(watched);
        self.engines.push(engine);
        self.stops.push(stop);
        self.known.lock().expect("unpoisoned").push(Peer { name, address });
        number
    }

    /// What everybody hears of a node.
    fn tell(&self, name: &str, address: &str) {
        let peer = Peer { name: name.to_owned(), address: address.to_owned() };
        self.known.lock().expect("unpoisoned").push(peer);
    }

    /// A version in row groups of a few entities, of which nothing is kept.
    fn version(&self, entities: &[Value], options: &WriteOptions) -> VersionReader {
        let (path, written) = self.lab.write(entities, options);
        self.lab.open(&path, &written, &PartCache::new(0))
    }

    /// What a node finds, and how it was distributed.
    fn found(&self, node: usize, reader: &VersionReader, request: &ReadRequest) -> (Found, Option<DistributedUse>) {
        let (found, explained) = self.explained(node, reader, request);
        (found, explained.distributed)
    }

    /// What a node finds, and all that it did.
    fn explained(&self, node: usize, reader: &VersionReader, request: &ReadRequest) -> (Found, Explained) {
        let explain = self.engines[node].explain(reader.clone(), Arc::new(request.clone()));
        let (outcome, explained) = self.lab.bench.runtime.block_on(explain).expect("found");
        (Found::of(outcome), explained)
    }

    /// What one engine finds alone.
    fn alone(&self, reader: &VersionReader, request: &ReadRequest) -> Result<Found, QueryError> {
        let select = self.lab.engines[1].select(reader.clone(), Arc::new(request.clone()));
        self.lab.bench.runtime.block_on(select).map(Found::of)
    }
}

/// Sees what a node distributes.
#[derive(Debug)]
struct Watched {
    coordinator: Arc<Coordinator>,
    /// The last line of each plan, which tells what is read; and why it was to be run again, if it was.
    seen: Mutex<Vec<(String, Option<String>)>>,
}

impl Watched {
    /// What was seen since the last time.
    fn take(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.seen.lock().expect("unpoisoned"))
    }

    fn see(&self, plan: &DistributedPlan, fallback: Option<String>) {
        let text = displayable(&*plan.plan).indent(false).to_string();
        let last = text.lines().last().unwrap_or_default().trim().to_owned();
        self.seen.lock().expect("unpoisoned").push((last, fallback));
    }
}

#[async_trait]
impl Distribution for Watched {
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        tenant: Option<Tenant>,
    ) -> Option<DistributedPlan> {
        self.coordinator.distribute(plan, context, tenant).await
    }

    fn succeeded(&self, plan: &DistributedPlan) {
        self.see(plan, None);
        self.coordinator.succeeded(plan);
    }

    fn failed(&self, plan: &DistributedPlan, failure: &str) -> String {
        let fallback = self.coordinator.failed(plan, failure);
        self.see(plan, Some(fallback.clone()));
        fallback
    }
}

/// What a query found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Count(u64),
    Positions(Vec<u64>),
}

impl Found {
    fn of(outcome: Outcome) -> Found {
        match outcome {
            Outcome::Count(count) => Found::Count(count),
            Outcome::Selection(selection) => Found::Positions(match selection.positions() {
                Positions::Range(range) => range.clone().collect(),
                Positions::List(list) => list.clone(),
            }),
        }
    }
}

fn path(key: &str) -> Path {
    Path::from_keys([key]).expect("a path")
}

fn number(value: usize) -> Value {
    Value::Number(value.to_string())
}

/// Entities in row groups of ten, with a text that documents alone can sort by and filter.
fn forty() -> Vec<Value> {
    let entity = |at: usize| {
        let mixed = at * 7 % 40;
        Value::Object(vec![
            ("n".to_owned(), number(at)),
            ("k".to_owned(), number(at % 3)),
            ("v".to_owned(), number(mixed)),
        ])
    };
    (0..40).map(entity).collect()
}

fn tens() -> WriteOptions {
    WriteOptions { row_group_rows: 10, shredding: nothing_shredded(), ..WriteOptions::default() }
}

fn filter(path: &str, value: &str) -> ReadRequest {
    let filters = vec![PathValue { path: self::path(path), value: value.to_owned() }];
    ReadRequest { filters, ..ReadRequest::default() }
}

fn sort(field: &str, descending: bool) -> Option<Sort> {
    Some(Sort { field: field.to_owned(), descending })
}

#[test]
fn any_request_finds_with_other_nodes_what_it_finds_alone() {
    let nodes = Nodes::new(3);
    let plans = vec((plan(), any::<bool>(), any::<bool>()), 6..10);
    let layout = (1..6_usize, any::<bool>(), any::<usize>(), any::<usize>());
    let distributed = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(40), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), layout, plans), |(entities, (rows, shredded, index, shaped), plans)| {
        let options = WriteOptions {
            row_group_rows: rows,
            shredding: if shredded { all_shredded() } else { nothing_shredded() },
            keywords: some_segments(index),
            shapes: some_shapes(shaped),
            ..WriteOptions::default()
        };
        let reader = nodes.version(&entities, &options);
        for (number, (plan, count, is_offset_large)) in plans.iter().enumerate() {
            let request = ReadRequest { count: *count, ..plan.resolve(&entities) };
            let offset = if *is_offset_large { request.offset } else { request.offset.min(2) };
            let request = ReadRequest { offset, ..request };
            let (found, used) = nodes.found(number % 3, &reader, &request);
            prop_assert_eq!(&found, &nodes.alone(&reader, &request).expect("found"), "{:?}", request);
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
fn each_kind_of_query_is_distributed_and_tells_what_each_node_did() {
    let nodes = Nodes::new(3);
    let entities = forty();
    let reader = nodes.version(&entities, &tens());
    let k = filter("k", "1");
    let requests = [
        (k.clone(), 13),
        (ReadRequest { count: true, ..k.clone() }, 3),
        (ReadRequest { count: true, limit: Some(4), offset: 2, ..k.clone() }, 13),
        (ReadRequest { limit: Some(3), offset: 1, ..k.clone() }, 12),
        (ReadRequest { sort: sort("v", true), limit: Some(2), ..k.clone() }, 6),
        (ReadRequest { sort: sort("v", false), limit: Some(5), offset: 3, ..ReadRequest::default() }, 24),
        (ReadRequest { sort: sort("v", false), ..k.clone() }, 13),
        // Many have the same key: then the order is that of their positions, whatever node they are on.
        (ReadRequest { sort: sort("k", true), limit: Some(9), offset: 2, ..ReadRequest::default() }, 33),
        (ReadRequest { sort: sort("k", false), ..ReadRequest::default() }, 40),
        (ReadRequest { sample: Some(5), seed: Some(7), ..k.clone() }, 13),
        (ReadRequest { dedup: true, drop: vec![path("n"), path("v")], ..ReadRequest::default() }, 12),
        (ReadRequest { dedup: true, ..k.clone() }, 13),
        (ReadRequest { dedup: true, count: true, drop: vec![path("n"), path("v")], ..ReadRequest::default() }, 12),
        (ReadRequest { dedup: true, sort: sort("v", true), drop: vec![path("n")], limit: Some(7), ..k.clone() }, 13),
        (ReadRequest { dedup: true, dedup_key: vec![path("k")], ..ReadRequest::default() }, 9),
        (ReadRequest { dedup: true, dedup_key: vec![path("k")], count: true, ..ReadRequest::default() }, 9),
        (ReadRequest { dedup: true, keep: vec![path("k")], offset: 1, ..ReadRequest::default() }, 9),
        (ReadRequest { dedup: true, dedup_key: vec![path("k")], sort: sort("v", true), ..k.clone() }, 3),
    ];
    for (request, most_rows) in requests {
        let (found, used) = nodes.found(0, &reader, &request);
        assert_eq!(found, nodes.alone(&reader, &request).expect("found"), "{request:?}");
        let used = used.unwrap_or_else(|| panic!("{request:?} was not distributed"));
        assert_eq!(used.fallback, None, "{request:?}");
        assert!(used.nodes.len() >= 2 && used.nodes.iter().filter(|node| node.is_own).count() <= 1, "{used:?}");
        assert_eq!(used.nodes.iter().map(|node| node.row_groups).sum::<u64>(), 4, "{used:?}");
        assert!(used.nodes.iter().all(|node| node.stored_bytes > 0), "{used:?}");
        let rows: u64 = used.nodes.iter().map(|node| node.rows).sum();
        assert!(rows > 0 && rows <= most_rows, "{request:?}: {used:?}");
    }
}

#[test]
fn what_is_cached_is_read_where_it_is() {
    let nodes = Nodes::new(2);
    let file = nodes.lab.write(&forty(), &tens());
    let reader = nodes.lab.open(&file.0, &file.1, &PartCache::new(1 << 30));
    for request in [filter("k", "1"), ReadRequest { dedup: true, dedup_key: vec![path("k")], ..filter("v", "7") }] {
        let alone = nodes.alone(&reader, &request).expect("found");
        // Which has read all of it into the cache of this reader.
        assert_eq!(nodes.found(0, &reader, &request), (alone, None));
    }
}

#[test]
fn shredded_columns_keyword_indexes_and_shapes_help_on_each_node() {
    let nodes = Nodes::new(3);
    let options = WriteOptions {
        row_group_rows: 10,
        shredding: all_shredded(),
        keywords: segments(20),
        shapes: shapes(),
        ..WriteOptions::default()
    };
    let reader = nodes.version(&forty(), &options);
    let keywords = ReadRequest { keywords: vec!["3".to_owned()], ..ReadRequest::default() };
    for request in
        [filter("v", "3"), keywords, ReadRequest { sort: sort("v", true), limit: Some(7), ..filter("k", "2") }]
    {
        let (found, used) = nodes.found(1, &reader, &request);
        assert_eq!(found, nodes.alone(&reader, &request).expect("found"), "{request:?}");
        assert_eq!(used.map(|used| used.fallback), Some(None), "{request:?}");
    }
}

#[test]
fn queries_of_tenants_keep_to_their_tenants() {
    let nodes = Nodes::new(2);
    let reader = nodes.version(&forty(), &tens());
    let request = Arc::new(filter("k", "1"));
    for tenant in [Tenant { key: u64::MAX, anonymous: true }, Tenant { key: 1, anonymous: false }] {
        let engine = nodes.engines[0].for_tenant(tenant);
        let explain = engine.explain(reader.clone(), request.clone());
        let (outcome, explained) = nodes.lab.bench.runtime.block_on(explain).expect("found");
        assert_eq!(Found::of(outcome), nodes.alone(&reader, &request).expect("found"));
        assert_eq!(explained.distributed.map(|used| used.fallback), Some(None));
    }
}

#[test]
fn a_node_that_is_gone_is_done_without_at_once_and_then_left_alone() {
    let nodes = Nodes::new(3);
    let reader = nodes.version(&forty(), &tens());
    let request = filter("k", "1");
    let alone = nodes.alone(&reader, &request).expect("found");
    nodes.stops[2].cancel();
    // Nobody listens there.
    let gone = nodes.lab.bench.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("an address").to_string()
    });
    nodes.known.lock().expect("unpoisoned")[2].address = gone;
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!(found, alone);
    assert_eq!(used.and_then(|used| used.fallback), Some("failed: n2".to_owned()));
    // The next one is distributed among those that are left.
    let (found, used) = nodes.found(0, &reader, &request);
    let used = used.expect("distributed");
    assert_eq!((found, used.fallback), (alone, None));
    assert!(used.nodes.iter().all(|node| node.node != "n2"), "{:?}", used.nodes);
}

#[test]
fn a_node_that_hangs_is_done_without() {
    let nodes = Nodes::new(2);
    let reader = nodes.version(&forty(), &tens());
    let request = ReadRequest { count: true, ..filter("k", "1") };
    let alone = nodes.alone(&reader, &request).expect("found");
    // It takes connections, as a stopped process does, and says nothing.
    let listener = nodes.lab.bench.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    nodes.tell("n9", &listener.local_addr().expect("an address").to_string());
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!(found, alone);
    assert_eq!(used.and_then(|used| used.fallback), Some("failed: n9".to_owned()));
    drop(listener);
}

#[test]
fn a_node_with_another_secret_is_refused_and_refuses() {
    let mut nodes = Nodes::new(2);
    let store = nodes.lab.store.clone();
    let other = nodes.add("another secret than theirs", store);
    let reader = nodes.version(&forty(), &tens());
    let request = filter("k", "1");
    let alone = nodes.alone(&reader, &request).expect("found");
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!((&found, used.and_then(|used| used.fallback)), (&alone, Some(format!("failed: n{other}"))));
    let (found, used) = nodes.found(other, &reader, &request);
    let fallback = used.and_then(|used| used.fallback).expect("refused");
    assert!(fallback.starts_with("failed: n") && !fallback.contains(&format!("n{other}")), "{fallback}");
    assert_eq!(found, alone);
}

#[test]
fn a_node_without_the_file_fails_and_the_answer_does_not() {
    let mut nodes = Nodes::new(1);
    let empty = nodes.add(SECRET, store::open("memory://", &S3Options::default()).expect("a store"));
    let reader = nodes.version(&forty(), &tens());
    let requests = [
        filter("k", "1"),
        ReadRequest { count: true, ..filter("k", "1") },
        ReadRequest { sort: sort("v", false), limit: Some(3), ..ReadRequest::default() },
    ];
    for request in requests {
        let (found, used) = nodes.found(0, &reader, &request);
        assert_eq!(found, nodes.alone(&reader, &request).expect("found"), "{request:?}");
        // The first time it is tried, and then left alone.
        if let Some(used) = used {
            assert_eq!(used.fallback, Some(format!("failed: n{empty}")), "{request:?}");
        }
    }
}

#[test]
fn a_query_that_is_dropped_leaves_the_nodes_able_to_help() {
    let nodes = Nodes::new(2);
    let reader = nodes.version(&forty(), &tens());
    let request = Arc::new(filter("k", "1"));
    nodes.lab.bench.runtime.block_on(async {
        // More than there are permits.
        for _ in 0..20 {
            let mut query = Box::pin(nodes.engines[0].select(reader.clone(), request.clone()));
            assert!(futures::poll!(&mut query).is_pending());
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(query);
        }
    });
    let (found, used) = nodes.found(0, &reader, &request);
    assert_eq!((found, used.map(|used| used.fallback)), (nodes.alone(&reader, &request).expect("found"), Some(None)));
}
