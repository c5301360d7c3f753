//! What work costs at one, two and three servers: `benches/cluster/run` prints it. Nothing here is asserted but
//! answers.
//!
//! The servers of a service share a machine here, so seconds say little. Their processor time does: each request costs
//! what it costs, whichever server does which part of it.

mod measure;
mod sharing;
mod sizing;

use std::fmt::Write;
use std::time::Instant;

use serde_json::json;

use self::measure::{Each, Turns, Used, idle, row};
use super::harness::{Cluster, NODES};

/// Requests of a row of light ones, and of a row of heavy ones. Processor time is told in steps of 10 ms.
const LIGHT: usize = 6_000;
const HEAVY: usize = 12;

/// Turns of one, two and three servers in what is compared.
const TURNS: usize = 5;

/// Room for all of it.
const GB: &str = "1073741824";

/// The version that is asked.
struct Measured {
    dataset: u64,
    version: u64,
    /// Another version, in which one entity in 97 has another field.
    changed: u64,
    count: usize,
    /// Mean bytes of an entity.
    entity_bytes: f64,
}

impl Measured {
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
        let Measured { dataset, version, changed, .. } = self;
        format!("/dataset/diff?dataset_id={dataset}&v1={version}&v2={changed}&limit=10")
    }

    /// A digit and a blank, which most texts hold: the keyword index leaves nothing out, so texts are scanned.
    fn scan(&self, number: usize) -> String {
        self.path(&format!("filter=text:{}%20&count=true", 10 + number))
    }

    /// Bytes of the version's file for each byte of JSON.
    async fn stored_share(&self, cluster: &Cluster) -> f64 {
        let path = format!("/dataset/profile?dataset_id={}", self.dataset);
        let profile = cluster.door.view(&path).await.expect("an answer").json();
        let stored = profile["profile"]["file_size_bytes"].as_f64().expect("a size");
        stored / (self.entity_bytes * self.count as f64)
    }
}

/// A list of entities in JSON: short fields, an array, a number, and a text that compresses like prose.
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

/// Pages that each server has in its cache. Gives what one costs at one server.
async fn pages_in_turns(cluster: &Cluster, measured: &Measured) -> Each {
    let pages: Vec<String> = (0..LIGHT / 3).map(|number| measured.page(number)).collect();
    println!("\n| pages that are cached | servers | CPU ms each | | | | | |");
    println!("|---|---|---|---|---|---|---|---|");
    for nodes in 1..=NODES {
        row(cluster, nodes, "for the caches", &pages, None).await;
    }
    let mut turns = Turns::default();
    for _ in 0..TURNS {
        for nodes in 1..=NODES {
            turns.add(nodes, row(cluster, nodes, "pages", &pages, None).await);
        }
    }
    println!("\nMedians of {TURNS} turns, and how much more than at one server:\n");
    println!("| requests | servers | CPU ms each | more |");
    println!("|---|---|---|---|");
    turns.print("pages, cached");
    turns.medians()[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a benchmark, which benches/cluster/run starts"]
async fn what_work_costs_at_one_two_and_three_servers() {
    let count: usize = std::env::var("CLUSTER_ENTITIES").ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let more = [("STRATA_CACHE__RESPONSE_BYTES", "0"), ("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0")];
    let mut cluster = Cluster::start(&more).await;
    let (dataset, _) = cluster.dataset("Measured", json!({})).await;
    let whole = entities(0, count);
    let entity_bytes = whole.len() as f64 / count as f64;
    let version = cluster.push_text(dataset, &whole).await;
    let changed = cluster.push_text(dataset, &whole.replace(r#""kind":"k7""#, r#""kind":"x7""#)).await;
    drop(whole);
    let measured = Measured { dataset, version, changed, count, entity_bytes };
    println!("\n{count} entities of {entity_bytes:.0} bytes");
    println!(
        "| requests | servers | CPU ms each | CPU s per GB scanned | KB from the store each | store requests | KB sent each | s in all |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let sorted = |number: usize| measured.path(&format!("sort=text:desc&limit=20&offset={}", number * 20));
    let export = |number: usize| measured.path(&format!("format=parquet&limit={}", count - number));
    for nodes in 1..=NODES {
        // A server that has read nothing, each time.
        for node in 0..NODES {
            tokio::task::block_in_place(|| {
                cluster.nodes[node].kill();
                cluster.start_node(node, &[]);
            });
        }
        cluster.until_ready().await;
        let pages: Vec<String> = (0..LIGHT).map(|number| measured.page(number)).collect();
        idle(&cluster, nodes).await;
        row(&cluster, nodes, "pages, the first", &pages, None).await;
        row(&cluster, nodes, "pages, again", &pages, None).await;
        let scans: Vec<String> = (0..HEAVY).map(|number| measured.scan(number + HEAVY * nodes)).collect();
        row(&cluster, nodes, "counts of texts", &scans, Some(entity_bytes)).await;
        let sorts: Vec<String> = (0..HEAVY).map(sorted).collect();
        row(&cluster, nodes, "sorts by text", &sorts, Some(entity_bytes)).await;
        // The same at each server: one makes it, and the others fetch it.
        let exports: Vec<String> = (0..nodes).map(|_| export(nodes)).collect();
        row(&cluster, nodes, "one export at each server", &exports, Some(entity_bytes)).await;
    }
    let page = pages_in_turns(&cluster, &measured).await;
    let sort = sharing::print(&mut cluster, &measured).await;
    println!("\n| a server starts again | s to 50 pages | KB from the store | store requests |");
    println!("|---|---|---|---|");
    for (what, disk_bytes) in [("without a disk cache", "0"), ("that begins one", GB), ("with its disk cache", GB)] {
        tokio::task::block_in_place(|| {
            cluster.nodes[0].terminate();
            cluster.start_node(0, &[("STRATA_CACHE__DISK_BYTES", disk_bytes)]);
        });
        cluster.until_ready().await;
        let door = cluster.door_of(0).keeping();
        let before = Used::by(&cluster, 1).await;
        let begun = Instant::now();
        for number in 0..50 {
            assert!(door.get(&measured.page(number)).await.expect("an answer").is_ok());
        }
        let elapsed = begun.elapsed().as_secs_f64();
        let used = Used::by(&cluster, 1).await.since(&before);
        println!("| {what} | {elapsed:.2} | {:.0} | {:.0} |", used.store_bytes / 1e3, used.store_requests);
    }
    sizing::print(page, sort, measured.stored_share(&cluster).await);
}
