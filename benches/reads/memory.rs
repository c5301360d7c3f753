//! A mix of reads with a cache that holds all of the data that they use, or a part of it.
//!
//! 1. For each of four cache sizes, the benchmark starts a new server (the binary in a child process) on the same
//!    version.
//! 2. It reads everything once in pages and then sends the mix ([`mixed`]), to fill the cache.
//! 3. It measures the same mix on a few connections.
//!
//! The responses must be the same at every cache size, so the benchmark compares their checksums.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::binary::{ServerProcess, measured};
use crate::support::blocking_client::BlockingClient;
use crate::support::load::{Connections, LoadResults, target};
use crate::support::samples::{milliseconds, thousands};
use crate::support::source::Source;
use crate::support::table::aligned;
use crate::support::{import, mixed};

/// The cache sizes, as bytes of JSON for each byte of the cache.
const SHARES: [f64; 4] = [0.25, 0.5, 1.0, 2.0];

/// The number of simultaneous connections.
const CONNECTIONS: usize = 4;

/// The number of entities on the pages that fill the cache.
const FILLING_PAGE: u64 = 1_000;

const SEED: u64 = 0x5eed_0002;

/// Imports `entities` entities and sends `requests` requests at each cache size. Returns a table.
pub fn measure(directory: &Path, entities: u64, requests: usize) -> String {
    let source = Source::open(directory, entities).expect("failed to generate the source file");
    let data = directory.join(format!("data-{entities}"));
    eprintln!("importing {entities} entities");
    let path = import::in_child(&source.path, &data).path();
    let filling = (0..entities).step_by(FILLING_PAGE as usize);
    let filling = filling.map(|offset| target(&path, &format!("limit={FILLING_PAGE}&offset={offset}"))).collect();
    let queries = mixed::queries(SEED, requests, entities);
    let mix = queries.iter().map(|query| target(&path, query)).collect();
    let bench = CacheBenchmark { filling, mix };
    let rows: Vec<CacheSizeRow> = SHARES
        .iter()
        .map(|share| {
            let cache_bytes = (source.json_bytes as f64 / share) as u64;
            eprintln!("cache.memory_bytes = {cache_bytes}");
            bench.run(*share, cache_bytes, ServerProcess::serve(measured(&data, cache_bytes)))
        })
        .collect();
    std::fs::remove_dir_all(&data).expect("failed to remove the data");
    assert!(rows.iter().all(|row| row.checksum == rows[0].checksum), "the answers depend on the cache");

    format!(
        "\n{} entities, {} bytes of JSON; {} requests of a mix over {CONNECTIONS} connections; {} cores\n\n{}\n{}\n",
        thousands(entities),
        thousands(source.json_bytes),
        thousands(requests as u64),
        std::thread::available_parallelism().map_or(1, usize::from),
        aligned(HEADINGS, rows.iter().map(CacheSizeRow::cells)),
        describe_needed_memory(&rows, source.json_bytes),
    )
}

/// The data that all cache sizes share.
struct CacheBenchmark {
    filling: Vec<String>,
    mix: Vec<String>,
}

impl CacheBenchmark {
    fn run(&self, share: f64, cache_bytes: u64, server: ServerProcess) -> CacheSizeRow {
        let mut connections = Connections::open(&server, CONNECTIONS);
        let mut metrics = BlockingClient::connect(server.address);
        metrics.get("/readyz", &mut Vec::new());
        let before_bytes = server.resident_bytes();
        request_all(&mut connections, &self.filling);
        let (_, checksum) = request_all(&mut connections, &self.mix);
        let fetched_before = metric(&mut metrics, "strata_store_bytes_total");
        let (load, again) = request_all(&mut connections, &self.mix);
        assert_eq!(checksum, again, "an answer differs from the first one");
        CacheSizeRow {
            share,
            cache_bytes,
            cached_bytes: metric(&mut metrics, "strata_cache_bytes"),
            fetched_bytes: metric(&mut metrics, "strata_store_bytes_total") - fetched_before,
            load,
            before_bytes,
            peak_bytes: server.peak_bytes(),
            checksum,
        }
    }
}

/// Makes each request once. Returns the measurement and a checksum over all responses.
fn request_all(connections: &mut Connections, targets: &[String]) -> (LoadResults, u32) {
    let checksum = AtomicU32::new(0);
    let next = |connection, turn| Some(connection + turn * CONNECTIONS).filter(|number| *number < targets.len());
    let load = connections.ask(targets, next, |number, body| {
        let mut hash = crc32fast::Hasher::new();
        hash.update(&number.to_le_bytes());
        hash.update(body);
        // The sum does not depend on the order of the responses.
        checksum.fetch_add(hash.finalize(), Ordering::Relaxed);
    });
    (load, checksum.into_inner())
}

/// Returns the value of a metric without labels.
fn metric(client: &mut BlockingClient, name: &str) -> u64 {
    let mut body = Vec::new();
    client.get("/metrics", &mut body);
    let text = String::from_utf8(body).expect("metrics are text");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
    value.expect("the server has the metric") as u64
}

/// A row of the table.
struct CacheSizeRow {
    share: f64,
    cache_bytes: u64,
    /// The bytes in the cache at the end.
    cached_bytes: u64,
    /// The bytes that the store returned during the measurement.
    fetched_bytes: u64,
    load: LoadResults,
    /// The resident memory before the first request.
    before_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    checksum: u32,
}

const HEADINGS: [&str; 10] = [
    "JSON / cache",
    "cache MB",
    "in use MB",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "CPU µs",
    "peak RSS MB",
    "before MB",
    "bytes from the store / request",
];

impl CacheSizeRow {
    fn cells(&self) -> [String; 10] {
        let megabytes = |bytes: u64| (bytes / 1_000_000).to_string();
        let known = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), megabytes);
        [
            self.share.to_string(),
            megabytes(self.cache_bytes),
            megabytes(self.cached_bytes),
            format!("{:.0}", self.load.per_second()),
            milliseconds(self.load.samples.median()),
            milliseconds(self.load.samples.percentile(99)),
            self.load.cpu_microseconds().map_or("unknown".to_owned(), |cpu| format!("{cpu:.0}")),
            known(self.peak_bytes),
            known(self.before_bytes),
            thousands(self.fetched_bytes / self.load.samples.len() as u64),
        ]
    }
}

/// Describes the memory that the process needs to read nothing from the store.
fn describe_needed_memory(rows: &[CacheSizeRow], json_bytes: u64) -> String {
    let per_byte = |bytes: u64| format!("{:.2}", bytes as f64 / json_bytes as f64);
    // The smallest cache that was large enough.
    match rows.iter().rfind(|row| row.fetched_bytes == 0) {
        None => format!("all from memory: needs a cache of more than {} bytes for each byte of JSON", 1.0 / SHARES[0]),
        Some(row) => format!(
            "all from memory: {} bytes in the cache for each byte of JSON; peak RSS, less what was there before the \
             first request: {}",
            per_byte(row.cached_bytes),
            row.peak_bytes.zip(row.before_bytes).map_or("unknown".to_owned(), |(peak, before)| per_byte(peak - before)),
        ),
    }
}
