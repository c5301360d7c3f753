//! The responses of three nodes behind a load balancer equal the responses of a single process and of the reference
//! implementation, byte for byte.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as PropertyConfig, TestCaseError, TestRunner};
use serde_json::json;
use strata_reference::Value;
use strata_reference::pipeline::{self, Body};
use strata_testing::Answer;
use strata_testing::owned::Owned;
use strata_testing::reads::{cases, entities, no_failure, plan, query};
use strata_types::read_request::{ReadRequest, ResponseFormat};

use super::harness::{ClusterResponse, NODES, TestCluster};

/// A cluster and a single process, which have equal datasets.
struct ServicePair {
    cluster: std::sync::Arc<TestCluster>,
    single: Owned,
    dataset: u64,
    slug: String,
}

/// The headers that must be equal.
const HEADERS: [&str; 7] = [
    "content-type",
    "content-disposition",
    "x-dataset-id",
    "x-dataset-version",
    "x-dataset-alt",
    "x-total-count",
    "x-total-matches",
];

impl ServicePair {
    async fn start(name: &str) -> ServicePair {
        let cluster = TestCluster::shared().await;
        let single = Owned::sqlite().await;
        let (dataset, created) = cluster.dataset(name, json!({})).await;
        // Other tests may have created datasets in the cluster.
        for before in 1..dataset {
            single.dataset(&format!("Before {before}"), json!({}), &[]).await;
        }
        assert_eq!(single.dataset(name, json!({}), &[]).await, dataset);
        let slug = created["name_slug"].as_str().expect("a slug").to_owned();
        ServicePair { cluster, single, dataset, slug }
    }

    /// Creates a version in both services, and returns its number.
    async fn push(&self, entities: &str) -> u64 {
        self.single.push(self.dataset, entities).await;
        self.cluster.push_text(self.dataset, entities).await
    }

    fn path(&self, version: u64, query: &str) -> String {
        format!("/api/{}/{}/v{version}/?{query}", self.dataset, self.slug)
    }

    /// Returns the response of both services, which must be equal.
    async fn get(&self, path: &str) -> Result<Answer, TestCaseError> {
        let expected = self.single.service.get(path).await;
        check_same(path, self.cluster.client.get(path).await, &expected)?;
        Ok(expected)
    }

    /// Like [`ServicePair::get`], for each node. All nodes must return the same `ETag`.
    async fn get_everywhere(&self, path: &str) -> Answer {
        let expected = self.get(path).await.unwrap_or_else(|error| panic!("{error}"));
        let mut etags = BTreeSet::new();
        for node in 0..NODES {
            let reply = self.cluster.client_of(node).get(path).await;
            etags.insert(reply.as_ref().and_then(|reply| reply.header("etag").map(str::to_owned)));
            check_same(path, reply, &expected).unwrap_or_else(|error| panic!("server {}: {error}", node + 1));
        }
        let etag_count = etags.iter().flatten().count();
        assert_eq!((etags.len(), etag_count == 1), (1, expected.header("etag").is_some()), "{path}: {etags:?}");
        expected
    }
}

/// Fails if the response of a node differs from the response of the single process.
fn check_same(path: &str, found: Option<ClusterResponse>, expected: &Answer) -> Result<(), TestCaseError> {
    let Some(ClusterResponse { status, whole, headers, body }) = found else {
        return Err(TestCaseError::fail(format!("{path} has no response")));
    };
    prop_assert_eq!((status, whole), (expected.status, expected.whole), "{}", path);
    for name in HEADERS {
        prop_assert_eq!(headers.get(name), expected.headers.get(name), "{} of {}", name, path);
    }
    prop_assert!(body == expected.body, "{} is {:?} rather than {:?}", path, body, expected.body);
    Ok(())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn cluster_response_equals_reference() {
    let runtime = runtime();
    let both = runtime.block_on(ServicePair::start("Any entities"));
    let plans = vec((plan(), prop::option::weighted(0.2, (0..8_u64, any::<u64>())), any::<bool>()), 10..16);
    let mut runner = TestRunner::new(PropertyConfig { cases: cases(12), ..PropertyConfig::default() });
    let result = runner.run(&(entities(), plans), |(entities, plans)| {
        runtime.block_on(async {
            let version = both.push(&Value::Array(entities.clone()).write()).await;
            for (plan, sample, count) in &plans {
                let seed = sample.map(|(_, seed)| seed);
                let sample = sample.map(|(sample, _)| sample);
                let request = ReadRequest { sample, seed, count: *count, ..plan.resolve(&entities) };
                let query = query(&request);
                let answer = both.get(&both.path(version, &query)).await?;
                let (total, expected) = pipeline::answer(&entities, &request, both.dataset, version);
                let about = || format!("?{query} over {}", Value::Array(entities.clone()).write());
                prop_assert_eq!(answer.status, 200, "{}", about());
                prop_assert_eq!(
                    answer.header("x-total-count").map(str::to_owned),
                    Some(total.to_string()),
                    "{}",
                    about()
                );
                prop_assert_eq!(Body::decode(&answer.body, &request), expected, "{}", about());
            }
            Ok(())
        })
    });
    no_failure(result);
}

/// Entities of two row groups, whose values have several types and repeat in random order.
fn many_entities() -> String {
    let entity = |number: u64| {
        let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let value = match mixed % 7 {
            0 => "null".to_owned(),
            1 => format!("\"{}\"", mixed % 100),
            2 => format!("{}.5", mixed % 50),
            3 => "[1,{\"b\":\"x\"}]".to_owned(),
            _ => (mixed % 1_000).to_string(),
        };
        format!(
            "{{\"n\":{number},\"v\":{value},\"k\":{},\"t\":\"word {} and {}\"}}",
            mixed % 17,
            mixed % 997,
            mixed % 13
        )
    };
    format!("[{}]", (0..40_000).map(entity).collect::<Vec<_>>().join(","))
}

#[test]
fn each_node_responds_like_a_single_process() {
    let runtime = runtime();
    runtime.block_on(async {
        let both = ServicePair::start("Many entities").await;
        let version = both.push(&many_entities()).await;
        let formats =
            ResponseFormat::ALL.map(|format| format!("filter=k:3&filter_contains=t:9&format={}", format.name()));
        let queries = [
            "count=true&filter=v:7",
            "count=true&keywords=word%2077",
            "keywords=96%20and%201,x&keywords_mode=and&format=jsonl",
            "sort=v:desc&limit=50&offset=20&format=jsonl",
            "sort=v:asc&limit=300&filter=k:5&pretty=false",
            "sort=t:asc&format=csv&keep_field=t,n",
            "dedup=true&dedup_key=v&format=jsonl",
            "dedup=true&dedup_key=t,k&sort=k:desc&format=jsonl&limit=500",
            "filter_gt=v:400&filter_lte=v:420&format=jsonl&total=true&limit=7",
            "sample=100&seed=7&format=jsonl",
            "denull=true&drop_field=t&offset=39000&format=tsv",
            "flatten=true&filter=v.b:x&limit=100&format=xml",
            "format=parquet&typed=true&filter=k:1",
            "format=parquet",
        ];
        for query in queries.into_iter().map(str::to_owned).chain(formats) {
            let answer = both.get_everywhere(&both.path(version, &query)).await;
            assert!(answer.status == 200 && !answer.body.is_empty(), "{query}: {}", answer.status);
        }
        let dataset = both.dataset;
        let slug = &both.slug;
        let rejected = [
            (404, format!("/api/{dataset}/{slug}/v{}/", version + 1)),
            (404, format!("/api/{dataset}/{slug}/v{version}/alt/")),
            (404, format!("/api/{dataset}/another/v{version}/")),
            (404, "/api/999999/none/v1/".to_owned()),
            (400, both.path(version, "limit=many")),
            (400, both.path(version, "format=pdf")),
            (400, both.path(version, "sort=k:up")),
        ];
        for (status, path) in rejected {
            assert_eq!(both.get_everywhere(&path).await.status, status, "{path}");
        }
    });
}
