//! Distributed queries of delta versions and of their edited alternates. After any chain of refreshes and edits, the
//! responses of three nodes equal the responses of the reference implementation.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as PropertyConfig, TestCaseError, TestRunner};
use serde_json::json;
use strata_catalog::Catalog;
use strata_reference::pipeline::{self, Body};
use strata_reference::{Value, hostile};
use strata_testing::catalog::open;
use strata_testing::reads::{ReadRequestPlan, alike, cases, no_failure, plan, query};
use strata_types::ids::DatasetId;
use strata_types::read_request::ReadRequest;
use strata_types::version::{DatasetVersion, VersionNumber};

use super::distributed::DistributedCluster;
use super::harness::NODES;

/// Two row groups of long entities. The list is so large that an edit does not write it in full.
const ENTITIES: usize = 40_000;

/// The reference is naive: it compares each entity with all distinct ones, and builds each response in memory.
const MAX_DEDUPLICATED: usize = 2_000;
const MAX_RETURNED: u64 = 1_000;

fn entity(number: usize, round: usize) -> Value {
    let mixed = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let value = match mixed % 5 {
        0 => "null".to_owned(),
        1 => format!("\"{}\"", mixed % 100),
        2 => format!("{}.5", mixed % 50),
        _ => (mixed % 1_000).to_string(),
    };
    let padding = format!("{mixed:x}").repeat(70);
    let text = format!(
        "{{\"n\":{number},\"round\":{round},\"a\":{value},\"b\":{},\"s\":\"word {}\",\"long\":\"{padding}\"}}",
        mixed % 17,
        mixed % 997
    );
    Value::parse_entity(&text).expect("failed to parse entity")
}

#[derive(Clone, Debug)]
enum Edit {
    Set(Value),
    Remove,
    Insert(Value),
}

fn edits(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(Index, Edit)>> {
    let entity = || prop_oneof![3 => alike().boxed(), 1 => hostile::entity().boxed()];
    let edit = prop_oneof![
        3 => entity().prop_map(Edit::Set),
        2 => Just(Edit::Remove),
        2 => entity().prop_map(Edit::Insert),
    ];
    vec((any::<Index>(), edit), count)
}

/// Resolves edits to positions of a list with this many entities. If several edits have the same position, one counts.
fn resolve(edits: &[(Index, Edit)], length: usize) -> BTreeMap<usize, &Edit> {
    let position = |(place, edit): &(Index, Edit)| match edit {
        Edit::Insert(_) => Some(place.index(length + 1)),
        Edit::Set(_) | Edit::Remove => (length > 0).then(|| place.index(length)),
    };
    edits.iter().filter_map(|edit| Some((position(edit)?, &edit.1))).collect()
}

fn apply(edits: &BTreeMap<usize, &Edit>, list: &mut Vec<Value>) {
    for (position, edit) in edits.iter().rev() {
        match edit {
            Edit::Set(entity) => list[*position] = entity.clone(),
            Edit::Remove => drop(list.remove(*position)),
            Edit::Insert(entity) => list.insert(*position, entity.clone()),
        }
    }
}

/// Returns the `edits` of a request.
fn edits_json(edits: &BTreeMap<usize, &Edit>) -> String {
    let edit = |(position, edit): (&usize, &&Edit)| match edit {
        Edit::Set(entity) => format!(r#"{{"position":{position},"set":{}}}"#, entity.write()),
        Edit::Remove => format!(r#"{{"position":{position},"remove":true}}"#),
        Edit::Insert(entity) => format!(r#"{{"position":{position},"insert":[{}]}}"#, entity.write()),
    };
    format!("[{}]", edits.iter().map(edit).collect::<Vec<_>>().join(","))
}

/// What a refresh does to a list.
#[derive(Clone, Debug)]
enum Change {
    Edits(Vec<(Index, Edit)>),
    /// Replaces entities at regular distances. With a short distance, the version is compacted while it is read.
    Scatter(usize),
    Move(Index, Index, Index),
    /// Appends a copy of up to 3,000 entities.
    Repeat(Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => edits(1..9).prop_map(Change::Edits),
        3 => (8..60_usize).prop_map(Change::Scatter),
        2 => any::<(Index, Index, Index)>().prop_map(|(start, end, to)| Change::Move(start, end, to)),
        2 => (any::<Index>(), 1..3_000_usize).prop_map(|(start, length)| Change::Repeat(start, length)),
    ]
}

impl Change {
    fn apply(&self, list: &mut Vec<Value>, round: usize) {
        match self {
            Change::Edits(edits) => {
                let edits = resolve(edits, list.len());
                apply(&edits, list);
            }
            Change::Scatter(distance) => {
                for position in (round % distance..list.len()).step_by(*distance) {
                    list[position] = entity(position, round);
                }
            }
            Change::Move(start, end, to) => {
                let [start, end] = [start, end].map(|place| place.index(list.len() + 1));
                let moved: Vec<Value> = list.drain(start.min(end)..start.max(end)).collect();
                let to = to.index(list.len() + 1);
                list.splice(to..to, moved);
            }
            Change::Repeat(start, length) => {
                let start = start.index(list.len());
                list.extend_from_within(start..list.len().min(start + length));
            }
        }
    }
}

/// One refresh, an edit of the new version, and the requests of both lists.
#[derive(Clone, Debug)]
struct Round {
    change: Change,
    /// An empty version precedes this one.
    is_after_empty_version: bool,
    edits: Vec<(Index, Edit)>,
    requests: Vec<(ReadRequestPlan, bool, usize)>,
}

fn round() -> impl Strategy<Value = Round> {
    let requests = vec((plan(), any::<bool>(), 0..NODES), 3..6);
    (change(), prop::bool::weighted(0.1), edits(1..5), requests).prop_map(
        |(change, is_after_empty_version, edits, requests)| Round { change, is_after_empty_version, edits, requests },
    )
}

struct DeltaDataset {
    shared: DistributedCluster,
    catalog: Catalog,
    dataset: u64,
}

impl DeltaDataset {
    async fn push(&self, list: &[Value]) -> u64 {
        let documents: Vec<String> = list.iter().map(Value::write).collect();
        self.shared.cluster.push_text(self.dataset, &format!("[{}]", documents.join(","))).await
    }

    async fn edit(&self, version: u64, edits: &BTreeMap<usize, &Edit>) {
        let client = &self.shared.cluster.client;
        let dataset = self.dataset;
        let pull = json!({"dataset_id": dataset, "version": version, "limit": 0});
        let etag = client.post("/agent/pull_for_edit", &pull).await.expect("a response").json()["etag"].clone();
        let edits = edits_json(edits);
        let body = format!(r#"{{"dataset_id":{dataset},"version":{version},"etag":{etag},"edits":{edits}}}"#);
        client.post_text("/dataset/alternate/edit", body).await.expect("a response").json();
    }

    async fn version(&self, number: u64) -> DatasetVersion {
        let status = self.catalog.version(DatasetId::new(self.dataset), VersionNumber::new(number)).await;
        status.expect("missing version").version
    }

    /// Compares the response of a node with the response of the reference.
    async fn check(
        &self,
        list: &[Value],
        request: &ReadRequest,
        node: usize,
        version: u64,
        folder: &str,
    ) -> Result<(), TestCaseError> {
        let query = query(request);
        let path = format!("/api/{}/chain/v{version}/{folder}?{query}", self.dataset);
        let reply = self.shared.cluster.client_of(node).get(&path).await;
        let Some(reply) = reply else { return Err(TestCaseError::fail(format!("no response: {path}"))) };
        prop_assert!(reply.is_ok(), "{} {}: {}", reply.status, path, reply.text());
        let (total, expected) = pipeline::answer(list, request, self.dataset, version);
        prop_assert_eq!(reply.header("x-total-count"), Some(&*total.to_string()), "{}", path);
        prop_assert!(Body::decode(&reply.body, request) == expected, "another body: {}", path);
        Ok(())
    }
}

/// Makes a request cheap enough for the reference.
fn limited(request: ReadRequest, list: &[Value]) -> ReadRequest {
    let limit = Some(request.limit.map_or(MAX_RETURNED, |limit| limit.min(MAX_RETURNED)));
    let request = ReadRequest { limit, ..request };
    let all = ReadRequest { dedup: false, dedup_key: Vec::new(), ..request.clone() };
    if request.dedup && pipeline::selected(list, &all).len() > MAX_DEDUPLICATED { all } else { request }
}

#[test]
fn distributed_delta_versions_equal_reference() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let chain = runtime.block_on(async {
        let shared = DistributedCluster::start().await;
        let catalog = open(&shared.cluster.catalog).await;
        let (dataset, _) = shared.cluster.dataset("Chain", json!({})).await;
        DeltaDataset { shared, catalog, dataset }
    });
    let first: Vec<Value> = (0..ENTITIES).map(|number| entity(number, 0)).collect();
    let delta_versions = std::cell::Cell::new(0);
    let delta_alternates = std::cell::Cell::new(0);
    let before = runtime.block_on(chain.shared.distributed_queries());
    // A case takes a hundred times as long as one of the other property tests.
    let config = PropertyConfig { cases: cases(2).min(12), max_shrink_iters: 4, ..PropertyConfig::default() };
    let result = TestRunner::new(config).run(&vec(round(), 3..6), |rounds| {
        runtime.block_on(async {
            let mut list = first.clone();
            chain.push(&list).await;
            for (number, Round { change, is_after_empty_version, edits, requests }) in (1..).zip(&rounds) {
                if *is_after_empty_version {
                    let version = chain.push(&[]).await;
                    chain.check(&[], &ReadRequest::default(), 0, version, "").await?;
                }
                change.apply(&mut list, number);
                let version = chain.push(&list).await;
                // Before a compaction can replace the file.
                let file = chain.version(version).await.file;
                let bases = chain.catalog.bases_of_file(file.id).await.expect("failed to query catalog");
                delta_versions.set(delta_versions.get() + usize::from(!bases.is_empty()));
                let edits = resolve(edits, list.len());
                chain.edit(version, &edits).await;
                let alternate = chain.version(version).await.alternate.expect("missing alternate");
                let bases = chain.catalog.bases_of_file(alternate.id).await.expect("failed to query catalog");
                delta_alternates.set(delta_alternates.get() + usize::from(!bases.is_empty()));
                let mut edited = list.clone();
                apply(&edits, &mut edited);
                // Requests that are about the edited entities and some others.
                let some: Vec<Value> = (0..edited.len())
                    .filter(|position| position % 199 == 0 || edits.contains_key(position))
                    .map(|position| edited[position].clone())
                    .collect();
                for (plan, count, node) in requests {
                    let request = limited(plan.resolve(&some), &list);
                    let counted = ReadRequest { count: *count, ..request.clone() };
                    chain.check(&list, &counted, *node, version, "").await?;
                    chain.check(&edited, &limited(request, &edited), *node, version, "alt/").await?;
                }
            }
            Ok(())
        })
    });
    no_failure(result);
    let queries = runtime.block_on(chain.shared.distributed_queries()) - before;
    let [delta_versions, delta_alternates] = [delta_versions.get(), delta_alternates.get()];
    println!("{delta_versions} delta versions, {delta_alternates} delta alternates, {queries} distributed queries");
    assert!(delta_versions > 0 && delta_alternates > 0, "{delta_versions} {delta_alternates}");
    assert!(queries > 0.0, "the queries were not distributed");
}
