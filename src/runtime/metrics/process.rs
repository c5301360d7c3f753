//! The process metrics of the official Prometheus client libraries, read from `/proc`.

use ::metrics::{counter, describe_counter, describe_gauge, gauge};
use procfs::ProcResult;
use procfs::prelude::*;
use procfs::process::{LimitValue, Process};

pub(super) fn update_process_metrics() {
    // If `/proc` is hidden, the process metrics are missing, but no others.
    let _ = try_update_process_metrics();
}

fn try_update_process_metrics() -> ProcResult<()> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let limits = process.limits()?;
    let ticks_per_second = procfs::ticks_per_second();
    let start_time = procfs::boot_time_secs()? + stat.starttime / ticks_per_second;
    describe_counter!("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.");
    counter!("process_cpu_seconds_total").absolute((stat.utime + stat.stime) / ticks_per_second);
    let limit = |value| match value {
        LimitValue::Value(limit) => limit,
        LimitValue::Unlimited => 0,
    };
    let gauges = [
        ("process_max_fds", "Maximum number of open file descriptors.", limit(limits.max_open_files.soft_limit)),
        ("process_open_fds", "Number of open file descriptors.", process.fd_count()? as u64),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", stat.rss_bytes().get()),
        ("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", start_time),
        ("process_threads", "Number of OS threads in the process.", stat.num_threads.unsigned_abs()),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", stat.vsize),
        (
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes; 0 if there is no limit.",
            limit(limits.max_address_space.soft_limit),
        ),
    ];
    for (name, description, value) in gauges {
        describe_gauge!(name, description);
        gauge!(name).set(value as f64);
    }
    Ok(())
}
