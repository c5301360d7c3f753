//! How many servers a service needs: computed from what requests cost here.

use super::measure::Each;

/// A server that is bought: its processors and its memory in GB.
const PROCESSORS: f64 = 16.0;
const MEMORY_GB: f64 = 64.0;

/// Processors are planned to be busy for so much of the time, so that one server may be away and a peak come.
const BUSY: f64 = 0.5;

/// The share of memory that the cache may take, the default.
const CACHE_SHARE: f64 = 0.25;

/// The share of all versions that is read from day to day.
const WARM: f64 = 0.01;

/// Services: reads in a second, and GB of JSON in all versions.
const SERVICES: [(f64, f64); 4] = [(100.0, 100.0), (1_000.0, 1_000.0), (3_000.0, 10_000.0), (10_000.0, 100_000.0)];

/// Prints it. Of a thousand reads, one sorts a GB; the others are pages.
pub fn print(page: Each, sort: Each, stored_share: f64) {
    println!(
        "\n| reads a second | JSON in versions | in the store | processors busy | to clients | local disk | servers |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (reads, json_gb) in SERVICES {
        let sorts = reads / 1_000.0;
        let busy = (reads - sorts) * page.cpu_ms / 1e3 + sorts * sort.cpu_s_per_gb;
        let stored_gb = json_gb * stored_share;
        let warm_gb = stored_gb * WARM;
        let by_processors = busy / (PROCESSORS * BUSY);
        // What is warm lies on local disks; a tenth of it is read all the time, and lies in memory.
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
