//! What queries cost that several servers share, beside the same at one server: scans, sorts, duplicates by an array,
//! differences of versions, and queries that read next to nothing, of which only the sharing is left.

use strata_testing::metrics;

use super::measure::{Each, Turns, shared_row};
use super::{HEAVY, Measured, TURNS};
use crate::cluster::harness::{Cluster, NODES, until};

/// Queries of a row that read next to nothing.
const SMALL: usize = 100;

/// Bytes of the thresholds that the last table is about.
const THRESHOLDS: [u64; 4] = [16 << 20, 64 << 20, 128 << 20, 1 << 30];

/// Prints it, for the first servers: the others are not there meanwhile. Nothing is cached, and a threshold of one byte
/// has every query of several row groups shared. One, two and three servers take turns, since a machine is not always
/// as fast. Gives what a sort costs at one server.
pub async fn print(cluster: &mut Cluster, measured: &Measured) -> Each {
    println!(
        "\n| shared queries | servers | CPU ms each | CPU s per GB scanned | entities scanned by each | KB from the store each | s in all |"
    );
    println!("|---|---|---|---|---|---|---|");
    let [mut small, mut sorts, mut duplicates, mut diffs] = [(); 4].map(|()| Turns::default());
    for turn in 0..TURNS {
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
            // Words that no entity has: the keyword index says so.
            let few: Vec<String> =
                (0..SMALL).map(|number| path(format!("filter=text:qzx{turn}q{nodes}q{number}&count=true"))).collect();
            small.add(nodes, shared_row(cluster, nodes, "of next to nothing", &few, measured.entity_bytes).await);
            let scan = |number| measured.scan(100 + number + HEAVY * (nodes + NODES * turn));
            let many: Vec<String> = (0..HEAVY).map(scan).collect();
            shared_row(cluster, nodes, "counts of texts", &many, measured.entity_bytes).await;
            let long: Vec<String> =
                (0..HEAVY).map(|number| path(format!("sort=text:desc&limit=20&offset={}", number * 20))).collect();
            sorts.add(nodes, shared_row(cluster, nodes, "sorts by text", &long, measured.entity_bytes).await);
            let keys =
                (0..HEAVY / 4).map(|number| path(format!("dedup=1&dedup_key=tags&limit=20&offset={}", number * 20)));
            let keys: Vec<String> = keys.collect();
            duplicates
                .add(nodes, shared_row(cluster, nodes, "duplicates by an array", &keys, measured.entity_bytes).await);
            diffs.add(nodes, shared_row(cluster, nodes, "a diff", &[measured.diff()], measured.entity_bytes).await);
            if turn + 1 == TURNS && nodes == NODES {
                parts(cluster, measured).await;
            }
        }
    }
    println!("Medians of {TURNS} turns, and how much more than at one server:\n");
    println!("| shared queries | servers | CPU ms each | more |");
    println!("|---|---|---|---|");
    small.print("of next to nothing");
    sorts.print("sorts by text");
    duplicates.print("duplicates by an array");
    diffs.print("a diff");
    let (small, sorts) = (small.medians(), sorts.medians());
    thresholds(&small, &sorts);
    tokio::task::block_in_place(|| {
        for node in 0..NODES {
            cluster.nodes[node].kill();
            cluster.start_node(node, &[]);
        }
    });
    cluster.until_ready().await;
    sorts[0]
}

/// Waits until the first server is there, and has shared a query with the others.
async fn until_shared(cluster: &Cluster, nodes: usize, measured: &Measured) {
    let door = cluster.door_of(0);
    until("the servers answer", async || {
        for node in 0..nodes {
            if !cluster.door_of(node).get("/readyz").await.is_some_and(|reply| reply.is_ok()) {
                return false;
            }
        }
        true
    })
    .await;
    until("they share queries", async || {
        if nodes == 1 {
            return true;
        }
        door.get(&measured.path("filter=text:qzx&count=true")).await;
        let explained = door.view(&measured.explain("filter=text:qzx&count=true")).await.expect("an answer").text();
        let rendering = door.get("/metrics").await.expect("an answer").text();
        let answered = metrics::value(&rendering, "strata_distributed_queries_total{outcome=\"answered\"}");
        answered.unwrap_or_default() > 0.0 && nodes_in(&explained).len() == nodes
    })
    .await;
}

/// What `explain` tells of a query's parts, a line for each server.
fn nodes_in(explained: &str) -> Vec<&str> {
    let lines = explained.lines().skip_while(|line| *line != "Nodes").skip(2);
    lines.take_while(|line| !line.is_empty()).collect()
}

/// Shows what each server gave of a scan and of a sort.
async fn parts(cluster: &Cluster, measured: &Measured) {
    for (what, query) in [("scan", "filter=text:99%20&count=true"), ("sort", "sort=text:desc&limit=20")] {
        let reply = cluster.door_of(0).view(&measured.explain(query)).await.expect("an answer");
        println!("\nThe parts of a {what}, as `explain` tells them:\n");
        nodes_in(&reply.text()).iter().for_each(|line| println!("    {}", line.trim()));
    }
    println!();
}

/// What a threshold would mean: a sort of so much JSON, alone and shared by all servers.
fn thresholds(small: &[Each], sorts: &[Each]) {
    let (alone_ms, shared_ms) = (small[0].cpu_ms, small[NODES - 1].cpu_ms);
    let overhead_ms = shared_ms - alone_ms;
    let sort_ms_per_gb = sorts[0].cpu_s_per_gb * 1e3;
    println!("\nSharing a query with {NODES} servers takes {overhead_ms:.2} ms of processor time.\n");
    println!("| threshold | CPU ms alone | CPU ms at each of {NODES} | sharing adds |");
    println!("|---|---|---|---|");
    for bytes in THRESHOLDS {
        let alone = bytes as f64 / 1e9 * sort_ms_per_gb;
        println!(
            "| {} MiB | {alone:.1} | {:.1} | {:.1} % |",
            bytes >> 20,
            (alone + overhead_ms) / NODES as f64,
            overhead_ms / alone * 100.0
        );
    }
}
