//! A benchmark of clusters with one, two and three nodes, which `benches/cluster/run` starts.
//!
//! The nodes share a machine, so the elapsed seconds are not meaningful. The processor time is, because it does not
//! depend on the node that does the work.

mod measure;
mod sharing;
mod sizing;

use std::fmt::Write;
use std::time::Instant;

use serde_json::json;

use self::measure::{CostSamples, RequestCost, ResourceUsage, idle, row};
use super::harness::{NODES, TestCluster};

/// Requests in a row of light and of heavy requests. The resolution of processor time is 10 ms.
const LIGHT_REQUESTS: usize = 6_000;
const HEAVY_REQUESTS: usize = 12;

/// Repetitions for each number of nodes.
const REPETITIONS: usize = 5;

/// Enough for the whole dataset.
const DISK_CACHE_BYTES: &str = "1073741824";

struct MeasuredDataset {
    dataset: u64,
    version: u64,
    /// Another version, in which one of 97 entities has changed.
    changed: u64,
    count: usize,
    /// Mean bytes of an entity.
    entity_bytes: f64,
}

impl MeasuredDataset {
    fn path(&self, query: &str) -> String {
        format!("/api/{}/measured/v{}/?{query}", self.dataset, self.version)
    }

    fn explain(&self, query: &str) -> String {
        format!("/dataset/explain?dataset_id={}&version={}&explain=text&{query}", self.dataset, self.version)
    }

    fn page(&self, number: usize) -> String {
        let offset = (number * 7_919) % self.count.saturating_sub(100).max(1);
        self.path(&format!("limit=100&offset={offset}"))
    }

    fn diff(&self) -> String {
        let MeasuredDataset { dataset, version, changed, .. } = self;
        format!("/dataset/diff?dataset_id={dataset}&v1={version}&v2={changed}&limit=10")
    }

    /// Searches for digits and a space, which most strings contain, so that the keyword index excludes no entity.
    fn scan(&self, number: usize) -> String {
        self.path(&format!("filter=text:{}%20&count=true", 10 + number))
    }

    /// Returns the bytes of the version file for each byte of JSON.
    async fn stored_share(&self, cluster: &TestCluster) -> f64 {
        let path = format!("/dataset/profile?dataset_id={}", self.dataset);
        let profile = cluster.client.view(&path).await.expect("a response").json();
        let stored = profile["profile"]["file_size_bytes"].as_f64().expect("a size");
        stored / (self.entity_bytes * self.count as f64)
    }
}

/// Returns a JSON array of entities with short fields, an array, a number, and a string that compresses like prose.
fn entities(from: usize, count: usize) -> String {
    const WORDS: [&str; 16] = [
        "river", "stone", "amber", "cloud", "north", "field", "paper", "glass", "ember", "ocean", "maple", "frost",
        "delta", "valley", "copper", "meadow",
    ];
    let mut text = String::from("[");
    for number in from..from + count {
        let mut state = number as u64 ^ 0x9e37_79b9;
        let comma = if number == from { "" } else { "," };
        let _ = write!(
            text,
            "{comma}{{\"id\":{number},\"kind\":\"k{}\",\"tags\":[\"t{}\"],\"text\":\"",
            number % 97,
            number % 4_999
        );
        for _ in 0..60 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = write!(text, "{}{} ", WORDS[(state >> 60) as usize], (state >> 40) % 1_000);
        }
        text.push_str("\"}");
    }
    text.push(']');
    text
}

/// Measures cached pages. Returns the cost of a page with one node.
async fn measure_cached_pages(cluster: &TestCluster, measured: &MeasuredDataset) -> RequestCost {
    let pages: Vec<String> = (0..LIGHT_REQUESTS / 3).map(|number| measured.page(number)).collect();
    println!("\n| pages that are cached | servers | CPU ms each | | | | | |");
    println!("|---|---|---|---|---|---|---|---|");
    for nodes in 1..=NODES {
        row(cluster, nodes, "for the caches", &pages, None).await;
    }
    let mut turns = CostSamples::default();
    for _ in 0..REPETITIONS {
        for nodes in 1..=NODES {
            turns.add(nodes, row(cluster, nodes, "pages", &pages, None).await);
        }
    }
    println!("\nMedians of {REPETITIONS} turns, and how much more than at one server:\n");
    println!("| requests | servers | CPU ms each | more |");
    println!("|---|---|---|---|");
    turns.print("pages, cached");
    turns.medians()[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark, which benches/cluster/run starts"]
async fn print_costs_with_one_two_and_three_nodes() {
    let count: usize = std::env::var("CLUSTER_ENTITIES").ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let more = [("STRATA_CACHE__RESPONSE_BYTES", "0"), ("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0")];
    let mut cluster = TestCluster::start(&more).await;
    let (dataset, _) = cluster.dataset("Measured", json!({})).await;
    let whole = entities(0, count);
    let entity_bytes = whole.len() as f64 / count as f64;
    let version = cluster.push_text(dataset, &whole).await;
    let changed = cluster.push_text(dataset, &whole.replace(r#""kind":"k7""#, r#""kind":"x7""#)).await;
    drop(whole);
    let measured = MeasuredDataset { dataset, version, changed, count, entity_bytes };
    println!("\n{count} entities of {entity_bytes:.0} bytes");
    println!(
        "| requests | servers | CPU ms each | CPU s per GB scanned | KB from the store each | store requests | KB sent each | s in all |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let sorted = |number: usize| measured.path(&format!("sort=text:desc&limit=20&offset={}", number * 20));
    let export = |number: usize| measured.path(&format!("format=parquet&limit={}", count - number));
    for nodes in 1..=NODES {
        // Restarts the nodes, so that their caches are empty.
        for node in 0..NODES {
            tokio::task::block_in_place(|| {
                cluster.nodes[node].kill();
                cluster.start_node(node, &[]);
            });
        }
        cluster.until_ready().await;
        let pages: Vec<String> = (0..LIGHT_REQUESTS).map(|number| measured.page(number)).collect();
        idle(&cluster, nodes).await;
        row(&cluster, nodes, "pages, the first", &pages, None).await;
        row(&cluster, nodes, "pages, again", &pages, None).await;
        let scans: Vec<String> =
            (0..HEAVY_REQUESTS).map(|number| measured.scan(number + HEAVY_REQUESTS * nodes)).collect();
        row(&cluster, nodes, "counts of texts", &scans, Some(entity_bytes)).await;
        let sorts: Vec<String> = (0..HEAVY_REQUESTS).map(sorted).collect();
        row(&cluster, nodes, "sorts by text", &sorts, Some(entity_bytes)).await;
        // The same export at each node: one node builds it, and the others fetch it.
        let exports: Vec<String> = (0..nodes).map(|_| export(nodes)).collect();
        row(&cluster, nodes, "one export at each server", &exports, Some(entity_bytes)).await;
    }
    let page = measure_cached_pages(&cluster, &measured).await;
    let sort = sharing::print(&mut cluster, &measured).await;
    println!("\n| a server starts again | s to 50 pages | KB from the store | store requests |");
    println!("|---|---|---|---|");
    for (what, disk_bytes) in [
        ("without a disk cache", "0"),
        ("with an empty disk cache", DISK_CACHE_BYTES),
        ("with a filled disk cache", DISK_CACHE_BYTES),
    ] {
        tokio::task::block_in_place(|| {
            cluster.nodes[0].terminate();
            cluster.start_node(0, &[("STRATA_CACHE__DISK_BYTES", disk_bytes)]);
        });
        cluster.until_ready().await;
        let client = cluster.client_of(0).with_keep_alive();
        let before = ResourceUsage::measure(&cluster, 1).await;
        let start = Instant::now();
        for number in 0..50 {
            assert!(client.get(&measured.page(number)).await.expect("a response").is_ok());
        }
        let elapsed = start.elapsed().as_secs_f64();
        let used = ResourceUsage::measure(&cluster, 1).await.since(&before);
        println!("| {what} | {elapsed:.2} | {:.0} | {:.0} |", used.store_bytes / 1e3, used.store_requests);
    }
    sizing::print(page, sort, measured.stored_share(&cluster).await);
}
