//! Version files in memory, as the writer of the service makes them.

use std::sync::atomic::{AtomicUsize, Ordering};

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::keywords::segment::SegmentLimits;
use strata_format::profile::ShreddingBounds;
use strata_format::shapes::builder::ShapeLimits;
use strata_format::spool::Spool;
use strata_format::writer::{ROW_GROUP_ROWS, WriteOptions, Written, write_version};
use strata_store::budget::SpoolCharge;
use strata_store::store::{self, S3Options, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A store, and the thread that waits for it.
pub struct Bench {
    pub runtime: Runtime,
    pub store: Store,
    directory: TempDir,
    next: AtomicUsize,
}

impl Bench {
    pub fn new() -> Bench {
        Bench {
            runtime: runtime(),
            store: store::open("memory://", &S3Options::default()).expect("a store"),
            directory: tempfile::tempdir().expect("a temporary directory"),
            next: AtomicUsize::new(0),
        }
    }

    /// Writes entities, canonical texts, under a name of their own.
    pub fn write(&self, entities: &[String], options: &WriteOptions) -> (ObjectPath, Written) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = ObjectPath::from(format!("versions/{number}.parquet"));
        let mut spool = Spool::create(self.directory.path(), SpoolCharge::unbounded()).expect("a spool");
        let lines: String = entities.iter().map(|entity| format!("{entity}\n")).collect();
        if !entities.is_empty() {
            spool.add_lines(lines.as_bytes()).expect("spooled");
        }
        let spooled = spool.finish().expect("spooled");
        let written = write_version(&self.store, &path, spooled, options, self.runtime.handle(), &|_| {});
        (path, written.expect("written"))
    }

    pub fn remove(&self, path: &ObjectPath) {
        self.runtime.block_on(self.store.objects().delete(path)).expect("removed");
    }
}

/// A runtime on the calling thread, and one more where work is handed over.
pub fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime")
}

/// A way to lay out a version: how many rows make a row group and a segment of the keyword index, which paths get a
/// shredded column, how many paths shapes may have, and whether there is an outline.
pub fn layout(choice: u8) -> WriteOptions {
    let all = ShreddingBounds { shredded_columns: 40, one_in: 1_000_000, mean_text_bytes: 1_000_000, text_share: 1e9 };
    let none = ShreddingBounds { shredded_columns: 0, ..ShreddingBounds::default() };
    WriteOptions {
        threads: 1,
        row_group_rows: [1, 3, 7, ROW_GROUP_ROWS][usize::from(choice % 4)],
        shredding: [ShreddingBounds::default(), all, none][usize::from(choice / 4 % 3)],
        keywords: SegmentLimits {
            rows: [1, 5, usize::MAX][usize::from(choice / 12 % 3)],
            share_percent: 1_000_000_000,
            text_bytes: 0,
            ..SegmentLimits::default()
        },
        shapes: ShapeLimits {
            document_bytes: 0,
            share_percent: u64::MAX,
            paths: [1 << 16, 6][usize::from(choice / 36 % 2)],
            ..ShapeLimits::default()
        },
        outline_chunks: [usize::MAX, 0][usize::from(choice / 72 % 2)],
        ..WriteOptions::default()
    }
}
