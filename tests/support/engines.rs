//! Query engines for version files.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{WriteOptions, WrittenVersionFile};
use strata_query::scan::scan_report::ScanReport;
use strata_query::{PrincipalShares, QueryEngine, QueryEngineOptions, QueryOutcome};
use strata_reference::Value;
use strata_store::store::{self, S3Options, Store};
use strata_types::read_request::ReadRequest;

use crate::versions::FileWorkbench;

/// An in-memory store, and engines with one and two threads, created once per test.
pub struct EngineLab {
    pub bench: FileWorkbench,
    pub store: Store,
    pub engines: [QueryEngine; 2],
}

impl EngineLab {
    pub fn new() -> EngineLab {
        EngineLab::with_timeout(Duration::from_secs(60))
    }

    pub fn with_timeout(timeout: Duration) -> EngineLab {
        let bench = FileWorkbench::new();
        let engines = [1, 2].map(|threads| engine(&bench, threads, 1 << 30, timeout));
        EngineLab {
            store: store::open_store("memory://", &S3Options::default()).expect("failed to open store"),
            engines,
            bench,
        }
    }

    /// Creates another engine.
    pub fn engine(&self, threads: usize, memory_bytes: usize, timeout: Duration) -> QueryEngine {
        engine(&self.bench, threads, memory_bytes, timeout)
    }

    /// Creates another engine, of whose memory each principal can use `principal_percent` percent.
    pub fn engine_of_tenants(&self, memory_bytes: usize, principal_percent: u64) -> QueryEngine {
        let shares = PrincipalShares { principal_percent, anonymous_percent: 100 };
        let options = options(&self.bench, 2, memory_bytes, Duration::from_secs(60));
        QueryEngine::try_new(&QueryEngineOptions { shares, ..options }).expect("failed to create engine")
    }

    /// Creates another engine with little memory, on which each principal can spill half of `spill_bytes`.
    pub fn engine_that_spills(&self, spill_bytes: u64) -> QueryEngine {
        let shares = PrincipalShares { principal_percent: 50, anonymous_percent: 100 };
        let options = options(&self.bench, 2, 16 << 20, Duration::from_secs(60));
        QueryEngine::try_new(&QueryEngineOptions { shares, spill_bytes, ..options }).expect("failed to create engine")
    }

    pub fn write(&self, entities: &[Value], options: &WriteOptions) -> (ObjectPath, WrittenVersionFile) {
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        self.bench.write(&self.store, &texts, options).expect("failed to write")
    }

    pub fn reader(&self, entities: &[Value], options: &WriteOptions) -> VersionReader {
        let (path, written) = self.write(entities, options);
        self.open(&path, &written, &PartCache::new(1 << 30))
    }

    /// Returns a reader of a version whose file was deleted after it was opened.
    pub fn gone(&self, entities: &[Value], options: &WriteOptions) -> VersionReader {
        let (path, written) = self.write(entities, options);
        let reader = self.open(&path, &written, &PartCache::new(0));
        self.bench.runtime.block_on(self.store.object_store().delete(&path)).expect("failed to delete file");
        reader
    }

    /// Returns the number of entities of a read, the scan report, and the reader's metrics.
    pub fn scan(&self, reader: &VersionReader, request: ReadRequest) -> (u64, ScanReport, Arc<ReaderMetrics>) {
        let metrics = Arc::new(ReaderMetrics::default());
        let explain = self.engines[1].explain(reader.with_metrics(metrics.clone()), Arc::new(request));
        let (outcome, explained) = self.bench.runtime.block_on(explain).expect("failed to explain read");
        let found = match outcome {
            QueryOutcome::Count(count) => count,
            QueryOutcome::Selection(selection) => selection.len(),
        };
        (found, explained.scan.expect("missing scan"), metrics)
    }

    /// Opens a file of the store.
    pub fn open(&self, path: &ObjectPath, written: &WrittenVersionFile, cache: &PartCache) -> VersionReader {
        let open = VersionReader::open(&self.store, path, written.size_bytes, cache);
        self.bench.runtime.block_on(open).expect("failed to open")
    }
}

/// Returns a hundred entities, built from the number and a word that is `zebra` for one of them.
pub fn hundred(entity: impl Fn(usize, &str) -> Value) -> Vec<Value> {
    (0..100).map(|number| entity(number, if number == 57 { "zebra" } else { "horse" })).collect()
}

fn engine(bench: &FileWorkbench, threads: usize, memory_bytes: usize, timeout: Duration) -> QueryEngine {
    QueryEngine::try_new(&options(bench, threads, memory_bytes, timeout)).expect("failed to create engine")
}

fn options(bench: &FileWorkbench, threads: usize, memory_bytes: usize, timeout: Duration) -> QueryEngineOptions {
    QueryEngineOptions {
        threads,
        memory_bytes,
        shares: PrincipalShares { principal_percent: 100, anonymous_percent: 100 },
        timeout,
        diff_timeout: timeout,
        spill_directory: Some(bench.directory().to_owned()),
        spill_bytes: 1 << 30,
        disk_reserve: None,
    }
}
