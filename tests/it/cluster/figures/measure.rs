//! Measures processor time and store requests of nodes.

use std::time::{Duration, Instant};

use strata_testing::metrics;

use crate::cluster::harness::{NODES, ServiceClient, TestCluster};

/// Resources that the nodes have used since they started.
#[derive(Clone, Default)]
pub struct ResourceUsage {
    /// Processor time before and after the requests for metrics, which are not a part of a row.
    cpu_after_metrics_s: f64,
    cpu_before_metrics_s: f64,
    /// Processor time between two measurements.
    pub cpu_s: f64,
    pub store_bytes: f64,
    pub store_requests: f64,
    /// For each node.
    pub scanned_rows: Vec<f64>,
}

/// Mean cost of the requests in a row.
#[derive(Clone, Copy, Default)]
pub struct RequestCost {
    pub cpu_ms: f64,
    /// Seconds of processor time for each GB of scanned JSON; 0 if nothing was scanned.
    pub cpu_s_per_gb: f64,
    /// KB sent to the client.
    pub sent_kb: f64,
}

/// Repeated measurements of the cost with one, two and three nodes.
#[derive(Default)]
pub struct CostSamples {
    by_nodes: [Vec<RequestCost>; NODES],
}

impl CostSamples {
    pub fn add(&mut self, nodes: usize, each: RequestCost) {
        self.by_nodes[nodes - 1].push(each);
    }

    /// Returns the medians by processor time for each number of nodes.
    pub fn medians(&self) -> Vec<RequestCost> {
        let median = |turns: &Vec<RequestCost>| {
            let mut turns = turns.clone();
            turns.sort_by(|left, right| left.cpu_ms.total_cmp(&right.cpu_ms));
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

impl ResourceUsage {
    /// Measures the first nodes.
    pub async fn measure(cluster: &TestCluster, nodes: usize) -> ResourceUsage {
        let mut used = ResourceUsage::default();
        let cpu_s = || (0..nodes).map(|node| cpu_s(cluster.nodes[node].process())).sum();
        used.cpu_before_metrics_s = cpu_s();
        for node in 0..nodes {
            let rendering = cluster.client_of(node).get("/metrics").await.expect("a response").text();
            let value = |series: &str| metrics::value(&rendering, series).unwrap_or_default();
            used.store_bytes += value("strata_store_bytes_total");
            used.store_requests += value("strata_store_requests_total");
            used.scanned_rows.push(value("strata_scanned_rows_total"));
        }
        used.cpu_after_metrics_s = cpu_s();
        used
    }

    pub fn since(self, before: &ResourceUsage) -> ResourceUsage {
        let rows = self.scanned_rows.iter().zip(&before.scanned_rows);
        ResourceUsage {
            cpu_s: self.cpu_before_metrics_s - before.cpu_after_metrics_s,
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

/// Returns the processor time of a process in user and kernel mode.
fn cpu_s(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    // The name in parentheses can contain any characters.
    let fields: Vec<&str> = text.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|field| fields[*field].parse::<u64>().expect("ticks")).sum();
    // The unit is 1/100 s on all architectures of Linux.
    ticks as f64 / 100.0
}

/// Measures the processor time of idle nodes for each second, which is a part of all rows.
pub async fn idle(cluster: &TestCluster, nodes: usize) {
    let before = ResourceUsage::measure(cluster, nodes).await;
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let used = ResourceUsage::measure(cluster, nodes).await.since(&before);
    println!("| nothing, for a second | {nodes} | {:.3} | | | | | |", used.cpu_s * 1e3 / start.elapsed().as_secs_f64());
}

/// Sends the paths to the clients, an equal share to each, one client after another. Alternating between nodes would
/// empty the processor's caches, unlike on separate machines. Returns the used resources, the sent KB, and the seconds.
async fn send_requests(
    cluster: &TestCluster,
    nodes: usize,
    clients: &[ServiceClient],
    paths: &[String],
) -> (ResourceUsage, f64, f64) {
    let before = ResourceUsage::measure(cluster, nodes).await;
    let start = Instant::now();
    let mut sent = 0;
    for (number, path) in paths.iter().enumerate() {
        let client = &clients[number * clients.len() / paths.len()];
        let reply = if path.starts_with("/dataset/") { client.view(path).await } else { client.get(path).await };
        let reply = reply.expect("a response");
        assert!(reply.is_ok(), "{path}: {}", reply.text());
        sent += reply.body.len();
    }
    let elapsed = start.elapsed().as_secs_f64();
    (ResourceUsage::measure(cluster, nodes).await.since(&before), sent as f64 / 1e3, elapsed)
}

fn request_cost(used: &ResourceUsage, sent_kb: f64, requests: usize, entity_bytes: Option<f64>) -> RequestCost {
    let gb = entity_bytes.map_or(0.0, |bytes| used.scanned_gb(bytes));
    RequestCost {
        cpu_ms: used.cpu_s * 1e3 / requests as f64,
        cpu_s_per_gb: if gb > 0.0 { used.cpu_s / gb } else { 0.0 },
        sent_kb: sent_kb / requests as f64,
    }
}

fn format_seconds(seconds: f64) -> String {
    if seconds > 0.0 { format!("{seconds:.2}") } else { String::new() }
}

/// Measures and prints a row: an equal share of the paths for each of the first nodes. `entity_bytes` is the mean size
/// of an entity if the requests scan entities.
pub async fn row(
    cluster: &TestCluster,
    nodes: usize,
    what: &str,
    paths: &[String],
    entity_bytes: Option<f64>,
) -> RequestCost {
    let clients: Vec<ServiceClient> = (0..nodes).map(|node| cluster.client_of(node).with_keep_alive()).collect();
    let (used, sent_kb, elapsed) = send_requests(cluster, nodes, &clients, paths).await;
    let each = request_cost(&used, sent_kb, paths.len(), entity_bytes);
    println!(
        "| {what} | {nodes} | {:.3} | {} | {:.1} | {:.0} | {:.1} | {elapsed:.2} |",
        each.cpu_ms,
        format_seconds(each.cpu_s_per_gb),
        used.store_bytes / paths.len() as f64 / 1e3,
        used.store_requests,
        each.sent_kb,
    );
    each
}

/// Measures and prints a row of queries to the first node, which distributes them.
pub async fn distributed_row(
    cluster: &TestCluster,
    nodes: usize,
    what: &str,
    paths: &[String],
    entity_bytes: f64,
) -> RequestCost {
    let clients = [cluster.client_of(0).with_keep_alive()];
    let (used, sent_kb, elapsed) = send_requests(cluster, nodes, &clients, paths).await;
    let each = request_cost(&used, sent_kb, paths.len(), Some(entity_bytes));
    let rows: Vec<String> = used.scanned_rows.iter().map(|rows| format!("{:.0}", rows / paths.len() as f64)).collect();
    println!(
        "| {what} | {nodes} | {:.2} | {} | {} | {:.1} | {elapsed:.2} |",
        each.cpu_ms,
        format_seconds(each.cpu_s_per_gb),
        rows.join(", "),
        used.store_bytes / paths.len() as f64 / 1e3,
    );
    each
}
