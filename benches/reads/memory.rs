//! A mix of reads with a cache that holds all of what they touch, or a part of it.
//!
//! 1. One version, and for each of four sizes of the cache a server just started: the binary, in a process of its own.
//! 2. Everything is read once in pages, then the mix ([`mixed`]), so that the cache holds what it will hold.
//! 3. The same mix is measured, over a few connections.
//!
//! The answers are the same at every size: their checksums are compared.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::binary::{Binary, measured};
use crate::support::blocking_client::Client;
use crate::support::load::{Connections, Load, target};
use crate::support::samples::{milliseconds, thousands};
use crate::support::source::Source;
use crate::support::table::aligned;
use crate::support::{import, mixed};

/// Bytes of JSON for each byte of the cache.
const SHARES: [f64; 4] = [0.25, 0.5, 1.0, 2.0];

/// Connections at the same time.
const CONNECTIONS: usize = 4;

/// Entities of a page that fills the cache.
const FILLING_PAGE: u64 = 1_000;

const SEED: u64 = 0x5eed_0002;

/// Imports so many entities and makes so many requests at each size of the cache; a table.
pub fn measure(directory: &Path, entities: u64, requests: usize) -> String {
    let source = Source::open(directory, entities).expect("the source file can be made");
    let data = directory.join(format!("data-{entities}"));
    eprintln!("importing {entities} entities");
    let path = import::in_child(&source.path, &data).path();
    let filling = (0..entities).step_by(FILLING_PAGE as usize);
    let filling = filling.map(|offset| target(&path, &format!("limit={FILLING_PAGE}&offset={offset}"))).collect();
    let queries = mixed::queries(SEED, requests, entities);
    let mix = queries.iter().map(|query| target(&path, query)).collect();
    let bench = Bench { filling, mix };
    let rows: Vec<Row> = SHARES
        .iter()
        .map(|share| {
            let cache_bytes = (source.json_bytes as f64 / share) as u64;
            eprintln!("cache.memory_bytes = {cache_bytes}");
            bench.run(*share, cache_bytes, Binary::serve(measured(&data, cache_bytes)))
        })
        .collect();
    std::fs::remove_dir_all(&data).expect("the data can be removed");
    assert!(rows.iter().all(|row| row.checksum == rows[0].checksum), "the answers depend on the cache");

    format!(
        "\n{} entities, {} bytes of JSON; {} requests of a mix over {CONNECTIONS} connections; {} cores\n\n{}\n{}\n",
        thousands(entities),
        thousands(source.json_bytes),
        thousands(requests as u64),
        std::thread::available_parallelism().map_or(1, usize::from),
        aligned(HEADINGS, rows.iter().map(Row::cells)),
        needed(&rows, source.json_bytes),
    )
}

/// What all sizes share.
struct Bench {
    filling: Vec<String>,
    mix: Vec<String>,
}

impl Bench {
    fn run(&self, share: f64, cache_bytes: u64, server: Binary) -> Row {
        let mut connections = Connections::open(&server, CONNECTIONS);
        let mut metrics = Client::connect(server.address);
        metrics.get("/readyz", &mut Vec::new());
        let before_bytes = server.resident_bytes();
        all(&mut connections, &self.filling);
        let (_, checksum) = all(&mut connections, &self.mix);
        let fetched_before = metric(&mut metrics, "strata_store_bytes_total");
        let (load, again) = all(&mut connections, &self.mix);
        assert_eq!(checksum, again, "an answer differs from the first one");
        Row {
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

/// Makes each request once; and a checksum over all answers.
fn all(connections: &mut Connections, targets: &[String]) -> (Load, u32) {
    let checksum = AtomicU32::new(0);
    let next = |connection, turn| Some(connection + turn * CONNECTIONS).filter(|number| *number < targets.len());
    let load = connections.ask(targets, next, |number, body| {
        let mut hash = crc32fast::Hasher::new();
        hash.update(&number.to_le_bytes());
        hash.update(body);
        // In whatever order they come.
        checksum.fetch_add(hash.finalize(), Ordering::Relaxed);
    });
    (load, checksum.into_inner())
}

/// The value of a metric without labels.
fn metric(client: &mut Client, name: &str) -> u64 {
    let mut body = Vec::new();
    client.get("/metrics", &mut body);
    let text = String::from_utf8(body).expect("metrics are text");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
    value.expect("the server has the metric") as u64
}

/// A line of the table.
struct Row {
    share: f64,
    cache_bytes: u64,
    /// What the cache held at the end.
    cached_bytes: u64,
    /// From the store, while the mix was measured.
    fetched_bytes: u64,
    load: Load,
    /// Resident memory before the first request.
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

impl Row {
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

/// What the process needs so that nothing comes from the store any more.
fn needed(rows: &[Row], json_bytes: u64) -> String {
    let per_byte = |bytes: u64| format!("{:.2}", bytes as f64 / json_bytes as f64);
    // Of the smallest cache that was enough.
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
