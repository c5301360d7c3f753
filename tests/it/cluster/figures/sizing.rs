//! Estimates the number of nodes that a service needs from the measured costs.

use super::measure::RequestCost;

/// Processors and memory of a typical server.
const PROCESSORS: f64 = 16.0;
const MEMORY_GB: f64 = 64.0;

/// Planned utilization of processors, which leaves a reserve for peaks and for an offline node.
const TARGET_UTILIZATION: f64 = 0.5;

/// The default share of memory for the cache.
const CACHE_SHARE: f64 = 0.25;

/// The share of all versions that clients read regularly.
const WARM_SHARE: f64 = 0.01;

/// Reads per second, and GB of JSON in all versions.
const SERVICES: [(f64, f64); 4] = [(100.0, 100.0), (1_000.0, 1_000.0), (3_000.0, 10_000.0), (10_000.0, 100_000.0)];

/// Prints the estimates. One of a thousand reads sorts a GB; the others are pages.
pub fn print(page: RequestCost, sort: RequestCost, stored_share: f64) {
    println!(
        "\n| reads a second | JSON in versions | in the store | processors busy | to clients | local disk | servers |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (reads, json_gb) in SERVICES {
        let sorts = reads / 1_000.0;
        let busy = (reads - sorts) * page.cpu_ms / 1e3 + sorts * sort.cpu_s_per_gb;
        let stored_gb = json_gb * stored_share;
        let warm_gb = stored_gb * WARM_SHARE;
        let by_processors = busy / (PROCESSORS * TARGET_UTILIZATION);
        // Warm data is on local disks, and a tenth of it, which is read constantly, is in memory.
        let by_memory = warm_gb / 10.0 / (MEMORY_GB * CACHE_SHARE);
        let servers = by_processors.max(by_memory).ceil().max(1.0) + 1.0;
        println!(
            "| {reads} | {json_gb} GB | {stored_gb:.0} GB | {busy:.1} | {:.2} Gbit/s | {:.0} GB each | {servers:.0} |",
            reads * page.sent_kb * 8.0 / 1e6,
            (warm_gb / (servers - 1.0)).max(1.0),
        );
    }
    println!(
        "\nA page takes {:.3} ms of processor time and {:.1} KB; such a sort takes {:.2} s for each GB; a GB of JSON takes {:.2} GB in the store.",
        page.cpu_ms, page.sent_kb, sort.cpu_s_per_gb, stored_share
    );
}
