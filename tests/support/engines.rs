//! Query engines over version files.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::reader_metrics::ReaderMetrics;
use strata_format::writer::{WriteOptions, Written};
use strata_query::scan::report::ScanUse;
use strata_query::{Engine, EngineOptions, Outcome, TenantShares};
use strata_reference::Value;
use strata_store::store::{self, S3Options, Store};
use strata_types::request::ReadRequest;

use crate::versions::Bench;

/// A store in memory and engines of one and two threads, made once per test.
pub struct Lab {
    pub bench: Bench,
    pub store: Store,
    pub engines: [Engine; 2],
}

impl Lab {
    pub fn new() -> Lab {
        Lab::with_timeout(Duration::from_secs(60))
    }

    pub fn with_timeout(timeout: Duration) -> Lab {
        let bench = Bench::new();
        let engines = [1, 2].map(|threads| engine(&bench, threads, 1 << 30, timeout));
        Lab { store: store::open("memory://", &S3Options::default()).expect("a store"), engines, bench }
    }

    /// One more engine.
    pub fn engine(&self, threads: usize, memory_bytes: usize, timeout: Duration) -> Engine {
        engine(&self.bench, threads, memory_bytes, timeout)
    }

    /// One more engine, of which a tenant may have so many percent.
    pub fn engine_of_tenants(&self, memory_bytes: usize, one_percent: u64) -> Engine {
        let shares = TenantShares { one_percent, anonymous_percent: 100 };
        let options = options(&self.bench, 2, memory_bytes, Duration::from_secs(60));
        Engine::try_new(&EngineOptions { shares, ..options }).expect("an engine")
    }

    /// One more engine with little memory, of which a tenant may spill half of so much.
    pub fn engine_that_spills(&self, spill_bytes: u64) -> Engine {
        let shares = TenantShares { one_percent: 50, anonymous_percent: 100 };
        let options = options(&self.bench, 2, 16 << 20, Duration::from_secs(60));
        Engine::try_new(&EngineOptions { shares, spill_bytes, ..options }).expect("an engine")
    }

    pub fn write(&self, entities: &[Value], options: &WriteOptions) -> (ObjectPath, Written) {
        let texts: Vec<String> = entities.iter().map(Value::write).collect();
        self.bench.write(&self.store, &texts, options).expect("written")
    }

    pub fn reader(&self, entities: &[Value], options: &WriteOptions) -> VersionReader {
        let (path, written) = self.write(entities, options);
        self.open(&path, &written, &PartCache::new(1 << 30))
    }

    /// A version that was opened, and whose file is gone.
    pub fn gone(&self, entities: &[Value], options: &WriteOptions) -> VersionReader {
        let (path, written) = self.write(entities, options);
        let reader = self.open(&path, &written, &PartCache::new(0));
        self.bench.runtime.block_on(self.store.objects().delete(&path)).expect("deleted");
        reader
    }

    /// How many entities a request finds, what the scan did, and what it read.
    pub fn scan(&self, reader: &VersionReader, request: ReadRequest) -> (u64, ScanUse, Arc<ReaderMetrics>) {
        let metrics = Arc::new(ReaderMetrics::default());
        let explain = self.engines[1].explain(reader.observed(metrics.clone()), Arc::new(request));
        let (outcome, explained) = self.bench.runtime.block_on(explain).expect("explained");
        let found = match outcome {
            Outcome::Count(count) => count,
            Outcome::Selection(selection) => selection.len(),
        };
        (found, explained.scan.expect("a scan"), metrics)
    }

    /// A file of its store.
    pub fn open(&self, path: &ObjectPath, written: &Written, cache: &PartCache) -> VersionReader {
        let open = VersionReader::open(&self.store, path, written.size_bytes, cache);
        self.bench.runtime.block_on(open).expect("opened")
    }
}

/// A hundred entities, each of its number and a word that is `zebra` in one of them.
pub fn hundred(entity: impl Fn(usize, &str) -> Value) -> Vec<Value> {
    (0..100).map(|number| entity(number, if number == 57 { "zebra" } else { "horse" })).collect()
}

fn engine(bench: &Bench, threads: usize, memory_bytes: usize, timeout: Duration) -> Engine {
    Engine::try_new(&options(bench, threads, memory_bytes, timeout)).expect("an engine")
}

fn options(bench: &Bench, threads: usize, memory_bytes: usize, timeout: Duration) -> EngineOptions {
    EngineOptions {
        threads,
        memory_bytes,
        shares: TenantShares { one_percent: 100, anonymous_percent: 100 },
        timeout,
        diff_timeout: timeout,
        spill_directory: Some(bench.directory().to_owned()),
        spill_bytes: 1 << 30,
        disk_reserve: None,
    }
}
