//! The cost of distributed queries compared with one node: scans, sorts, `dedup` by an array, diffs, and queries that
//! read almost nothing, whose cost is the overhead of distribution.

use strata_testing::metrics;

use super::measure::{CostSamples, RequestCost, distributed_row};
use super::{HEAVY_REQUESTS, MeasuredDataset, REPETITIONS};
use crate::cluster::harness::{NODES, TestCluster, until};

/// Queries in a row of queries that read almost nothing.
const SMALL_QUERIES: usize = 100;

/// Values of `cluster.distribute_bytes` in the last table.
const THRESHOLDS_BYTES: [u64; 4] = [16 << 20, 64 << 20, 128 << 20, 1 << 30];

/// Measures and prints the cost with one, two and three running nodes. Nothing is cached, and a threshold of one byte
/// distributes each query of several row groups. The numbers of nodes alternate, because the speed of a machine varies.
/// Returns the cost of a sort with one node.
pub async fn print(cluster: &mut TestCluster, measured: &MeasuredDataset) -> RequestCost {
    println!(
        "\n| shared queries | servers | CPU ms each | CPU s per GB scanned | entities scanned by each | KB from the store each | s in all |"
    );
    println!("|---|---|---|---|---|---|---|");
    let [mut small, mut sorts, mut duplicates, mut diffs] = [(); 4].map(|()| CostSamples::default());
    for turn in 0..REPETITIONS {
        for nodes in 1..=NODES {
            tokio::task::block_in_place(|| {
                let running = if nodes == 1 { NODES } else { nodes - 1 };
                (0..running).for_each(|node| cluster.nodes[node].kill());
                for node in 0..nodes {
                    let more = [("STRATA_CLUSTER__DISTRIBUTE_BYTES", "1"), ("STRATA_CACHE__MEMORY_BYTES", "0")];
                    cluster.start_node(node, &more);
                }
            });
            until_shared(cluster, nodes, measured).await;
            let path = |query: String| measured.path(&query);
            // Words that no entity contains, so that the keyword index excludes all entities.
            let few: Vec<String> = (0..SMALL_QUERIES)
                .map(|number| path(format!("filter=text:qzx{turn}q{nodes}q{number}&count=true")))
                .collect();
            small.add(nodes, distributed_row(cluster, nodes, "of next to nothing", &few, measured.entity_bytes).await);
            let scan = |number| measured.scan(100 + number + HEAVY_REQUESTS * (nodes + NODES * turn));
            let many: Vec<String> = (0..HEAVY_REQUESTS).map(scan).collect();
            distributed_row(cluster, nodes, "counts of texts", &many, measured.entity_bytes).await;
            let long: Vec<String> = (0..HEAVY_REQUESTS)
                .map(|number| path(format!("sort=text:desc&limit=20&offset={}", number * 20)))
                .collect();
            sorts.add(nodes, distributed_row(cluster, nodes, "sorts by text", &long, measured.entity_bytes).await);
            let keys = (0..HEAVY_REQUESTS / 4)
                .map(|number| path(format!("dedup=1&dedup_key=tags&limit=20&offset={}", number * 20)));
            let keys: Vec<String> = keys.collect();
            duplicates.add(
                nodes,
                distributed_row(cluster, nodes, "duplicates by an array", &keys, measured.entity_bytes).await,
            );
            diffs
                .add(nodes, distributed_row(cluster, nodes, "a diff", &[measured.diff()], measured.entity_bytes).await);
            if turn + 1 == REPETITIONS && nodes == NODES {
                print_tasks(cluster, measured).await;
            }
        }
    }
    println!("Medians of {REPETITIONS} turns, and how much more than at one server:\n");
    println!("| shared queries | servers | CPU ms each | more |");
    println!("|---|---|---|---|");
    small.print("of next to nothing");
    sorts.print("sorts by text");
    duplicates.print("duplicates by an array");
    diffs.print("a diff");
    let sorts = sorts.medians();
    print_thresholds(&small.medians(), &sorts);
    tokio::task::block_in_place(|| {
        for node in 0..NODES {
            cluster.nodes[node].kill();
            cluster.start_node(node, &[]);
        }
    });
    cluster.until_ready().await;
    sorts[0]
}

/// Waits until the nodes are ready and the first node has distributed a query.
async fn until_shared(cluster: &TestCluster, nodes: usize, measured: &MeasuredDataset) {
    let client = cluster.client_of(0);
    until("the nodes are ready", async || {
        for node in 0..nodes {
            if !cluster.client_of(node).get("/readyz").await.is_some_and(|reply| reply.is_ok()) {
                return false;
            }
        }
        true
    })
    .await;
    until("the nodes distribute queries", async || {
        if nodes == 1 {
            return true;
        }
        client.get(&measured.path("filter=text:qzx&count=true")).await;
        let explained = client.view(&measured.explain("filter=text:qzx&count=true")).await.expect("a response").text();
        let rendering = client.get("/metrics").await.expect("a response").text();
        let answered = metrics::value(&rendering, "strata_distributed_queries_total{outcome=\"answered\"}");
        answered.unwrap_or_default() > 0.0 && nodes_in(&explained).len() == nodes
    })
    .await;
}

/// Returns the lines for the nodes in the text of an explanation.
fn nodes_in(explained: &str) -> Vec<&str> {
    let lines = explained.lines().skip_while(|line| *line != "Nodes").skip(2);
    lines.take_while(|line| !line.is_empty()).collect()
}

/// Prints the tasks of the nodes for a scan and for a sort.
async fn print_tasks(cluster: &TestCluster, measured: &MeasuredDataset) {
    for (what, query) in [("scan", "filter=text:99%20&count=true"), ("sort", "sort=text:desc&limit=20")] {
        let reply = cluster.client_of(0).view(&measured.explain(query)).await.expect("a response");
        println!("\nThe parts of a {what}, as `explain` tells them:\n");
        nodes_in(&reply.text()).iter().for_each(|line| println!("    {}", line.trim()));
    }
    println!();
}

/// Prints the cost of a sort of as many bytes as each threshold, on one node and distributed.
fn print_thresholds(small: &[RequestCost], sorts: &[RequestCost]) {
    let overhead_ms = small[NODES - 1].cpu_ms - small[0].cpu_ms;
    let sort_ms_per_gb = sorts[0].cpu_s_per_gb * 1e3;
    println!("\nSharing a query with {NODES} servers takes {overhead_ms:.2} ms of processor time.\n");
    println!("| threshold | CPU ms on one node | CPU ms at each of {NODES} | sharing adds |");
    println!("|---|---|---|---|");
    for bytes in THRESHOLDS_BYTES {
        let local_ms = bytes as f64 / 1e9 * sort_ms_per_gb;
        println!(
            "| {} MiB | {local_ms:.1} | {:.1} | {:.1} % |",
            bytes >> 20,
            (local_ms + overhead_ms) / NODES as f64,
            overhead_ms / local_ms * 100.0
        );
    }
}
