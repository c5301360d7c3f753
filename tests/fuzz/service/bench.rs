//! Version files in memory, written by the writer of the service.

use std::sync::atomic::{AtomicUsize, Ordering};

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_format::keywords::indexer::KeywordSegmentLimits;
use strata_format::profile::ShreddingLimits;
use strata_format::spool::SpoolWriter;
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions, WrittenVersionFile, write_version};
use strata_store::spool_quota::SpoolReservation;
use strata_store::store::{self, S3Options, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A store in memory, with a runtime for its operations.
pub struct FileBench {
    pub runtime: Runtime,
    pub store: Store,
    directory: TempDir,
    next: AtomicUsize,
}

impl FileBench {
    pub fn new() -> FileBench {
        FileBench {
            runtime: runtime(),
            store: store::open_store("memory://", &S3Options::default()).expect("a store"),
            directory: tempfile::tempdir().expect("a temporary directory"),
            next: AtomicUsize::new(0),
        }
    }

    /// Writes canonical entities to a new version file and returns its path.
    pub fn write(&self, entities: &[String], options: &WriteOptions) -> (ObjectPath, WrittenVersionFile) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = ObjectPath::from(format!("versions/{number}.parquet"));
        let mut spool = SpoolWriter::create(self.directory.path(), SpoolReservation::unbounded()).expect("a spool");
        let lines: String = entities.iter().map(|entity| format!("{entity}\n")).collect();
        if !entities.is_empty() {
            spool.add_lines(lines.as_bytes()).expect("spooled");
        }
        let spooled = spool.finish().expect("spooled");
        let written = write_version(&self.store, &path, spooled, options, self.runtime.handle(), &|_| {});
        (path, written.expect("written"))
    }

    pub fn remove(&self, path: &ObjectPath) {
        self.runtime.block_on(self.store.object_store().delete(path)).expect("removed");
    }
}

/// Returns a runtime with one worker thread, in addition to the calling thread.
pub fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime")
}

/// Returns write options for a byte. The byte determines the number of rows in a row group and in a segment of the
/// keyword index, the indexed columns, and whether there is a footer index.
pub fn layout(choice: u8) -> WriteOptions {
    let all = ShreddingLimits {
        max_columns: 40,
        max_entities_per_scalar: 1_000_000,
        max_mean_text_bytes: 1_000_000,
        max_text_fraction: 1e9,
    };
    let none = ShreddingLimits { max_columns: 0, ..ShreddingLimits::default() };
    WriteOptions {
        worker_threads: 1,
        max_row_group_rows: [1, 3, 7, MAX_ROW_GROUP_ROWS][usize::from(choice % 4)],
        shredding_limits: [ShreddingLimits::default(), all, none][usize::from(choice / 4 % 3)],
        keyword_limits: KeywordSegmentLimits {
            max_rows: [1, 5, usize::MAX][usize::from(choice / 12 % 3)],
            max_text_percent: 1_000_000_000,
            min_text_bytes: 0,
            ..KeywordSegmentLimits::default()
        },
        min_footer_index_chunks: [usize::MAX, 0][usize::from(choice / 36 % 2)],
        ..WriteOptions::default()
    }
}
