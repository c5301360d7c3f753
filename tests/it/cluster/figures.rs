//! What work costs at one, two and three servers: `benches/cluster/run` prints it. Nothing here is asserted but
//! answers.
//!
//! The servers of a service share a machine here, so seconds say little. Their processor time does: each request costs
//! what it costs, whichever server does which part of it.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::json;

use super::harness::{Cluster, Door, NODES};
use crate::support::metrics;

/// Requests of a row of light ones, and of a row of heavy ones.
const LIGHT: usize = 1_000;
const HEAVY: usize = 12;

/// Room for all of it.
const GB: &str = "1073741824";

/// What the servers have used so far.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu_s: f64,
    store_bytes: f64,
    store_requests: f64,
    scanned_rows: f64,
}

impl Used {
    async fn by(cluster: &Cluster, nodes: usize) -> Used {
        let mut used = Used::default();
        for node in 0..nodes {
            let rendering = cluster.door_of(node).get("/metrics").await.expect("an answer").text();
            let value = |series: &str| metrics::value(&rendering, series).unwrap_or_default();
            used.cpu_s += cpu_s(cluster.nodes[node].process());
            used.store_bytes += value("strata_store_bytes_total");
            used.store_requests += value("strata_store_requests_total");
            used.scanned_rows += value("strata_scanned_rows_total");
        }
        used
    }

    fn since(self, before: Used) -> Used {
        Used {
            cpu_s: self.cpu_s - before.cpu_s,
            store_bytes: self.store_bytes - before.store_bytes,
            store_requests: self.store_requests - before.store_requests,
            scanned_rows: self.scanned_rows - before.scanned_rows,
        }
    }
}

/// Processor time of a process, in user mode and in the system.
fn cpu_s(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = text.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|field| fields[*field].parse::<u64>().expect("ticks")).sum();
    // The kernel tells it in hundredths to programs, on all of its architectures.
    ticks as f64 / 100.0
}

/// What servers use that nobody asks anything, for each second. It is a part of all rows.
async fn idle(cluster: &Cluster, nodes: usize) {
    let (before, begun) = (Used::by(cluster, nodes).await, Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let used = Used::by(cluster, nodes).await.since(before);
    println!("| nothing, for a second | {nodes} | {:.3} | | | | | |", used.cpu_s * 1e3 / begun.elapsed().as_secs_f64());
}

/// One row: these paths, in turn at each of the first servers. Where they scan, `entity_bytes` are those of an entity.
async fn row(cluster: &Cluster, nodes: usize, what: &str, paths: &[String], entity_bytes: Option<f64>) {
    let doors: Vec<Door> = (0..nodes).map(|node| cluster.door_of(node).keeping()).collect();
    let before = Used::by(cluster, nodes).await;
    let begun = Instant::now();
    let mut sent = 0;
    for (number, path) in paths.iter().enumerate() {
        let reply = doors[number % nodes].get(path).await.expect("an answer");
        assert!(reply.is_ok(), "{path}: {}", reply.text());
        sent += reply.body.len();
    }
    let elapsed = begun.elapsed().as_secs_f64();
    let used = Used::by(cluster, nodes).await.since(before);
    let requests = paths.len() as f64;
    let scanned_gb = entity_bytes.map(|bytes| used.scanned_rows * bytes / 1e9).filter(|gb| *gb > 0.0);
    let each_gb = scanned_gb.map_or_else(String::new, |gb| format!("{:.2}", used.cpu_s / gb));
    println!(
        "| {what} | {nodes} | {:.3} | {each_gb} | {:.1} | {:.0} | {:.1} | {:.2} |",
        used.cpu_s * 1e3 / requests,
        used.store_bytes / requests / 1e3,
        used.store_requests,
        sent as f64 / requests / 1e3,
        elapsed
    );
}

/// A list of entities in JSON, and its mean bytes: short fields, a text that compresses like prose, and a number.
fn entities(from: usize, count: usize) -> String {
    const WORDS: [&str; 16] = [
        "river", "stone", "amber", "cloud", "north", "field", "paper", "glass", "ember", "ocean", "maple", "frost",
        "delta", "valley", "copper", "meadow",
    ];
    let mut text = String::from("[");
    for number in from..from + count {
        let mut state = number as u64 ^ 0x9e37_79b9;
        let comma = if number == from { "" } else { "," };
        let _ = write!(text, "{comma}{{\"id\":{number},\"kind\":\"k{}\",\"text\":\"", number % 97);
        for _ in 0..60 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = write!(text, "{}{} ", WORDS[(state >> 60) as usize], (state >> 40) % 1_000);
        }
        text.push_str("\"}");
    }
    text.push(']');
    text
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
    drop(whole);
    println!("\n{count} entities of {entity_bytes:.0} bytes");
    println!(
        "| requests | servers | CPU ms each | CPU s per GB scanned | KB from the store each | store requests | KB sent each | s in all |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let path = |query: String| format!("/api/{dataset}/measured/v{version}/?{query}");
    let page =
        |number: usize| path(format!("limit=100&offset={}", (number * 7_919) % count.saturating_sub(100).max(1)));
    // A digit and a blank, which most texts hold: the keyword index leaves nothing out, so texts are scanned.
    let scan = |number: usize| path(format!("filter=text:{}%20&count=true", 10 + number));
    let sort = |number: usize| path(format!("sort=text:desc&limit=20&offset={}", number * 20));
    let export = |number: usize| path(format!("format=parquet&limit={}", count - number));
    for nodes in 1..=NODES {
        // A server that has read nothing, each time.
        for node in 0..NODES {
            tokio::task::block_in_place(|| {
                cluster.nodes[node].kill();
                cluster.start_node(node, &[]);
            });
        }
        cluster.until_ready().await;
        let pages: Vec<String> = (0..LIGHT).map(page).collect();
        idle(&cluster, nodes).await;
        row(&cluster, nodes, "pages, the first", &pages, None).await;
        row(&cluster, nodes, "pages, again", &pages, None).await;
        let scans: Vec<String> = (0..HEAVY).map(|number| scan(number + HEAVY * nodes)).collect();
        row(&cluster, nodes, "scans of texts", &scans, Some(entity_bytes)).await;
        let sorts: Vec<String> = (0..HEAVY).map(sort).collect();
        row(&cluster, nodes, "sorts by text", &sorts, Some(entity_bytes)).await;
        // The same at each server: one makes it, and the others fetch it.
        let exports: Vec<String> = (0..nodes).map(|_| export(nodes)).collect();
        row(&cluster, nodes, "one export at each server", &exports, Some(entity_bytes)).await;
        // Rows of distributed scans, by threshold, belong here.
    }
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
            assert!(door.get(&page(number)).await.expect("an answer").is_ok());
        }
        let elapsed = begun.elapsed().as_secs_f64();
        let used = Used::by(&cluster, 1).await.since(before);
        println!("| {what} | {elapsed:.2} | {:.0} | {:.0} |", used.store_bytes / 1e3, used.store_requests);
    }
}
