//! What servers use for requests: processor time, and bytes of the store.

use std::time::{Duration, Instant};

use strata_testing::metrics;

use crate::cluster::harness::{Cluster, Door, NODES};

/// What the servers have used so far.
#[derive(Clone, Default)]
pub struct Used {
    /// When the servers had told what follows: that is no part of a row.
    begun_s: f64,
    /// When they had not told it yet.
    ended_s: f64,
    /// Between two of these.
    pub cpu_s: f64,
    pub store_bytes: f64,
    pub store_requests: f64,
    /// Of each server.
    pub scanned_rows: Vec<f64>,
}

/// What each request of a row took.
#[derive(Clone, Copy, Default)]
pub struct Each {
    pub cpu_ms: f64,
    /// Seconds of processor time for each GB of JSON scanned; 0 where nothing was.
    pub cpu_s_per_gb: f64,
    /// KB sent to the client.
    pub sent_kb: f64,
}

/// What requests took at one server, at two and so on, each several times.
#[derive(Default)]
pub struct Turns {
    by_nodes: [Vec<Each>; NODES],
}

impl Turns {
    pub fn add(&mut self, nodes: usize, each: Each) {
        self.by_nodes[nodes - 1].push(each);
    }

    /// Of processor time, at each number of servers.
    pub fn medians(&self) -> Vec<Each> {
        let median = |turns: &Vec<Each>| {
            let mut turns = turns.clone();
            turns.sort_by(|one, other| one.cpu_ms.total_cmp(&other.cpu_ms));
            turns[turns.len() / 2]
        };
        self.by_nodes.iter().map(median).collect()
    }

    pub fn print(&self, what: &str) {
        let medians = self.medians();
        for (number, each) in medians.iter().enumerate() {
            let more = (each.cpu_ms / medians[0].cpu_ms - 1.0) * 100.0;
            println!("| {what} | {} | {:.3} | {more:.0} % |", number + 1, each.cpu_ms);
        }
    }
}

impl Used {
    /// By the first servers.
    pub async fn by(cluster: &Cluster, nodes: usize) -> Used {
        let mut used = Used::default();
        let cpu_s = || (0..nodes).map(|node| cpu_s(cluster.nodes[node].process())).sum();
        used.ended_s = cpu_s();
        for node in 0..nodes {
            let rendering = cluster.door_of(node).get("/metrics").await.expect("an answer").text();
            let value = |series: &str| metrics::value(&rendering, series).unwrap_or_default();
            used.store_bytes += value("strata_store_bytes_total");
            used.store_requests += value("strata_store_requests_total");
            used.scanned_rows.push(value("strata_scanned_rows_total"));
        }
        used.begun_s = cpu_s();
        used
    }

    pub fn since(self, before: &Used) -> Used {
        let rows = self.scanned_rows.iter().zip(&before.scanned_rows);
        Used {
            cpu_s: self.ended_s - before.begun_s,
            store_bytes: self.store_bytes - before.store_bytes,
            store_requests: self.store_requests - before.store_requests,
            scanned_rows: rows.map(|(after, before)| after - before).collect(),
            ..self
        }
    }

    fn scanned_gb(&self, entity_bytes: f64) -> f64 {
        self.scanned_rows.iter().sum::<f64>() * entity_bytes / 1e9
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
pub async fn idle(cluster: &Cluster, nodes: usize) {
    let (before, begun) = (Used::by(cluster, nodes).await, Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let used = Used::by(cluster, nodes).await.since(&before);
    println!("| nothing, for a second | {nodes} | {:.3} | | | | | |", used.cpu_s * 1e3 / begun.elapsed().as_secs_f64());
}

/// Asks each of the doors for its share of these paths, one door after the other: servers that take turns on one
/// processor find its caches cold each time, and those with a machine of their own do not. What the servers used, KB
/// that they sent, and seconds.
async fn asked(cluster: &Cluster, nodes: usize, doors: &[Door], paths: &[String]) -> (Used, f64, f64) {
    let (before, begun) = (Used::by(cluster, nodes).await, Instant::now());
    let mut sent = 0;
    for (number, path) in paths.iter().enumerate() {
        let door = &doors[number * doors.len() / paths.len()];
        let reply = if path.starts_with("/dataset/") { door.view(path).await } else { door.get(path).await };
        let reply = reply.expect("an answer");
        assert!(reply.is_ok(), "{path}: {}", reply.text());
        sent += reply.body.len();
    }
    let elapsed = begun.elapsed().as_secs_f64();
    (Used::by(cluster, nodes).await.since(&before), sent as f64 / 1e3, elapsed)
}

fn each(used: &Used, sent_kb: f64, requests: usize, entity_bytes: Option<f64>) -> Each {
    let gb = entity_bytes.map_or(0.0, |bytes| used.scanned_gb(bytes));
    Each {
        cpu_ms: used.cpu_s * 1e3 / requests as f64,
        cpu_s_per_gb: if gb > 0.0 { used.cpu_s / gb } else { 0.0 },
        sent_kb: sent_kb / requests as f64,
    }
}

fn shown(seconds: f64) -> String {
    if seconds > 0.0 { format!("{seconds:.2}") } else { String::new() }
}

/// One row: these paths, a share at each of the first servers. Where they scan, `entity_bytes` are those of an entity.
pub async fn row(cluster: &Cluster, nodes: usize, what: &str, paths: &[String], entity_bytes: Option<f64>) -> Each {
    let doors: Vec<Door> = (0..nodes).map(|node| cluster.door_of(node).keeping()).collect();
    let (used, sent_kb, elapsed) = asked(cluster, nodes, &doors, paths).await;
    let each = each(&used, sent_kb, paths.len(), entity_bytes);
    println!(
        "| {what} | {nodes} | {:.3} | {} | {:.1} | {:.0} | {:.1} | {elapsed:.2} |",
        each.cpu_ms,
        shown(each.cpu_s_per_gb),
        used.store_bytes / paths.len() as f64 / 1e3,
        used.store_requests,
        each.sent_kb,
    );
    each
}

/// One row of queries that the first server answers, and of which the others take parts.
pub async fn shared_row(cluster: &Cluster, nodes: usize, what: &str, paths: &[String], entity_bytes: f64) -> Each {
    let doors = [cluster.door_of(0).keeping()];
    let (used, sent_kb, elapsed) = asked(cluster, nodes, &doors, paths).await;
    let each = each(&used, sent_kb, paths.len(), Some(entity_bytes));
    let rows: Vec<String> = used.scanned_rows.iter().map(|rows| format!("{:.0}", rows / paths.len() as f64)).collect();
    println!(
        "| {what} | {nodes} | {:.2} | {} | {} | {:.1} | {elapsed:.2} |",
        each.cpu_ms,
        shown(each.cpu_s_per_gb),
        rows.join(", "),
        used.store_bytes / paths.len() as f64 / 1e3,
    );
    each
}
