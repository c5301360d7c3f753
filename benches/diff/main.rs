//! Latency and memory of diffs between two versions, compared with a baseline of the same run.
//!
//! ```text
//! cargo bench --bench diff                          every shape at 100,000 entities
//! cargo bench --bench diff -- 1000000               at a million; any numbers
//! cargo bench --bench diff -- all                   every shape at 100,000, realistic ones also at 1,000,000
//! cargo bench --bench diff -- --only "one source"   the shapes whose name contains the text
//! ```
//!
//! For each shape ([`shapes`]) and size, the benchmark writes both versions like the service. A child process with a
//! small cache and the memory of a server's queries compares them, writes every record, and reports time and peak
//! memory. The benchmark panics if the counts are wrong. The baseline is copying the documents of both versions on one
//! thread. `growth` is the ratio of the times of two sizes, divided by the ratio of the sizes: 1 is linear. The files
//! remain in the build directory during the measurement (3 GB for a million). No duration is asserted.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

mod shapes;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod support;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use futures::StreamExt;
use object_store::path::Path as ObjectPath;
use serde::{Deserialize, Serialize};
use strata_diff::{self as diff, DiffChange, DiffLimits, DiffPage, change_records};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::spool::SpoolWriter;
use strata_format::writer::{WriteOptions, write_version};
use strata_query::{QueryEngine, QueryEngineOptions};
use strata_store::spool_quota::SpoolReservation;
use strata_store::store::{self, S3Options, Store};
use tokio::runtime::Runtime;

use shapes::{Counts, Shape};
use support::copying::Memcpy;
use support::process::{cpu_seconds, run_self, status};
use support::sizes::sizes;

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The cache size of the comparing process, in bytes.
const CACHE_BYTES: u64 = 64 << 20;

/// The number of changes whose records are written together.
const UNIT_CHANGES: usize = 1_000;

/// The default memory limit of queries, in bytes.
const MEMORY_BYTES: usize = 1 << 30;

/// Measures diffs, and prints a line for each shape and size
#[derive(Parser)]
struct DiffBenchArguments {
    /// Numbers of entities, or `all`
    #[arg(value_name = "ENTITIES", default_value = "100000")]
    sizes: Vec<String>,
    /// Only the shapes whose name holds this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The child process that compares the versions of a directory
    #[arg(long, hide = true)]
    compare: Option<PathBuf>,
    /// What cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// The paths of the versions in a directory.
#[derive(Serialize, Deserialize)]
struct Versions {
    sizes: [u64; 2],
    document_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct DiffMeasurement {
    counts: Counts,
    /// The time until the counts are known.
    seconds: f64,
    /// The processor time of all threads until the counts are known, if the system reports it.
    cpu_seconds: Option<f64>,
    /// The time to write all records after that.
    records_seconds: f64,
    records_bytes: u64,
    /// The peak resident memory, if the system reports it.
    peak_bytes: Option<u64>,
}

fn main() {
    let arguments = DiffBenchArguments::parse();
    if let Some(directory) = &arguments.compare {
        let report = compare(directory);
        println!("{}", serde_json::to_string(&report).expect("failed to parse the report"));
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-diff");
    println!(
        "{:<14} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>7} {:>10} {:>8} {:>7}",
        "shape",
        "entities",
        "modified",
        "added",
        "subtr.",
        "seconds",
        "cpu s",
        "memcpy",
        "ratio",
        "records s",
        "peak MB",
        "growth"
    );
    let mut memcpy = Memcpy::new();
    for shape in Shape::ALL {
        if !shape.name().contains(&arguments.only) {
            continue;
        }
        let mut before: Option<(u64, f64)> = None;
        for entities in sizes_of(&arguments.sizes, shape) {
            let (report, versions) = measure(&directory, shape, entities);
            let growth = before.map(|(size, seconds)| report.seconds / seconds * size as f64 / entities as f64);
            let copying = memcpy.duration(versions.document_bytes);
            println!(
                "{:<14} {:>9} {:>8} {:>8} {:>8} {:>9.3} {:>9} {:>8.3} {:>7.1} {:>10.3} {:>8} {:>7}",
                shape.name(),
                entities,
                report.counts.modified,
                report.counts.added,
                report.counts.subtracted,
                report.seconds,
                report.cpu_seconds.map_or_else(String::new, |seconds| format!("{seconds:.2}")),
                copying.as_secs_f64(),
                report.seconds / copying.as_secs_f64(),
                report.records_seconds,
                report.peak_bytes.map_or_else(String::new, |bytes| (bytes >> 20).to_string()),
                growth.map_or_else(String::new, |growth| format!("{growth:.2}")),
            );
            before = Some((entities, report.seconds));
        }
    }
}

fn sizes_of(texts: &[String], shape: Shape) -> Vec<u64> {
    let all: &[u64] = if shape.is_real() { &[100_000, 1_000_000] } else { &[100_000] };
    let mut sizes = sizes(texts, all);
    sizes.sort_unstable();
    sizes
}

/// Writes both versions and compares them in a child process.
fn measure(directory: &Path, shape: Shape, entities: u64) -> (DiffMeasurement, Versions) {
    if directory.exists() {
        std::fs::remove_dir_all(directory).expect("the last run's files can be removed");
    }
    std::fs::create_dir_all(directory).expect("failed to create a directory");
    eprintln!("writing two versions of {entities} entities, {}", shape.name());
    let expected = write(directory, shape, entities);
    let report: DiffMeasurement = run_self(&["--compare".as_ref(), directory.as_os_str()]);
    if let Some(expected) = expected {
        assert_eq!(report.counts, expected, "{}: another diff", shape.name());
    }
    let versions = versions(directory);
    std::fs::remove_dir_all(directory).expect("the files can be removed");
    (report, versions)
}

/// Writes both versions. Returns the expected counts if the shape determines them.
fn write(directory: &Path, shape: Shape, entities: u64) -> Option<Counts> {
    let runtime = runtime();
    let store = store(directory);
    let mut versions = Versions { sizes: [0, 0], document_bytes: 0 };
    let mut expected = None;
    for version in [0, 1] {
        let mut spool = SpoolWriter::create(&directory.join("spool"), SpoolReservation::unbounded())
            .expect("failed to create a spool");
        let mut lines = String::new();
        expected = shape.write(version, entities, |entity| {
            lines.push_str(entity);
            lines.push('\n');
            if lines.len() > 1 << 20 {
                spool.add_lines(lines.as_bytes()).expect("failed to spool");
                versions.document_bytes += lines.len() as u64;
                lines.clear();
            }
        });
        spool.add_lines(lines.as_bytes()).expect("failed to spool");
        versions.document_bytes += lines.len() as u64;
        let spooled = spool.finish().expect("failed to spool");
        let options = WriteOptions { worker_threads: threads(), ..WriteOptions::default() };
        let written = write_version(&store, &path(version), spooled, &options, runtime.handle(), &|_| {});
        versions.sizes[version] = written.expect("failed to write").size_bytes;
    }
    let text = serde_json::to_vec(&versions).expect("failed to parse JSON");
    std::fs::write(directory.join("versions.json"), text).expect("failed to write");
    expected
}

fn versions(directory: &Path) -> Versions {
    let text = std::fs::read(directory.join("versions.json")).expect("versions were written");
    serde_json::from_slice(&text).expect("failed to parse JSON")
}

fn path(version: usize) -> ObjectPath {
    ObjectPath::from(format!("versions/{version}.parquet"))
}

fn store(directory: &Path) -> Store {
    let store = directory.join("store");
    std::fs::create_dir_all(&store).expect("failed to create a directory");
    store::open_store(&format!("file://{}", store.display()), &S3Options::default()).expect("failed to open the store")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads")
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Compares the versions of a directory in the child process.
fn compare(directory: &Path) -> DiffMeasurement {
    let spill_directory = directory.join("spill");
    std::fs::create_dir_all(&spill_directory).expect("failed to create a directory");
    const TIMEOUT: Duration = Duration::from_secs(3_600);
    let options = QueryEngineOptions {
        threads: threads(),
        memory_bytes: MEMORY_BYTES,
        shares: strata_query::PrincipalShares { principal_percent: 100, anonymous_percent: 100 },
        timeout: TIMEOUT,
        diff_timeout: TIMEOUT,
        spill_directory: Some(spill_directory),
        spill_bytes: 1 << 40,
        disk_reserve: None,
    };
    let engine = QueryEngine::try_new(&options).expect("failed to create the engine");
    let store = store(directory);
    let cache = PartCache::new(CACHE_BYTES);
    let sizes = versions(directory).sizes;
    runtime().block_on(async {
        let open = async |version: usize| {
            VersionReader::open(&store, &path(version), sizes[version], &cache).await.expect("a version")
        };
        let readers = [open(0).await, open(1).await];
        let cpu_before = cpu_seconds();
        let started = Instant::now();
        let diff = diff::compare(&engine, readers[0].clone(), readers[1].clone(), DiffLimits::default())
            .await
            .expect("failed to compare the versions");
        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = cpu_before.zip(cpu_seconds()).map(|(before, after)| after - before);
        let counts =
            Counts { modified: diff.modified_count(), added: diff.added_count(), subtracted: diff.subtracted_count() };
        let started = Instant::now();
        let changes: Vec<DiffChange> = diff.changes(&DiffPage::default()).collect();
        let units: Vec<Vec<DiffChange>> = changes.chunks(UNIT_CHANGES).map(<[DiffChange]>::to_vec).collect();
        let mut records = futures::stream::iter(units)
            .map(|unit| {
                let readers = readers.clone();
                engine.spawn(async move {
                    let mut bytes = 0;
                    let each = |record: &[u8]| {
                        bytes += record.len() as u64;
                        ControlFlow::Continue(())
                    };
                    change_records::for_each_record(&readers, &unit, each).await.expect("failed to read the records");
                    bytes
                })
            })
            .buffered(threads());
        let mut records_bytes = 0;
        while let Some(bytes) = records.next().await {
            records_bytes += bytes.expect("a thread panicked");
        }
        let records_seconds = started.elapsed().as_secs_f64();
        DiffMeasurement { counts, seconds, cpu_seconds, records_seconds, records_bytes, peak_bytes: status("VmHWM:") }
    })
}
