//! Version files in the store of a test.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::delta::{self, DeltaPlan};
use strata_format::editing::{self, DeltaFileLimits, EditScript, EditedFile};
use strata_format::keywords::indexer::KeywordSegmentLimits;
use strata_format::profile::{ProfilePathRecord, ShreddingLimits, StoredProfile};
use strata_format::reader::VersionReader;
use strata_format::spool::{FinishedSpool, SpoolWriter};
use strata_format::writer::{MAX_ROW_GROUP_ROWS, WriteOptions, WrittenVersionFile, write_delta, write_version};
use strata_store::StorageError;
use strata_store::spool_quota::SpoolReservation;
use strata_store::store::{self, S3Options, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Writes and edits version files, and runs the asynchronous work of one test.
pub struct FileWorkbench {
    pub runtime: Runtime,
    directory: TempDir,
    next: AtomicUsize,
    /// The number of edits whose profile was derived from the previous one.
    pub followed: AtomicUsize,
}

impl FileWorkbench {
    pub fn new() -> FileWorkbench {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        FileWorkbench {
            runtime: runtime.expect("failed to build runtime"),
            directory: tempfile::tempdir().expect("failed to create temporary directory"),
            next: AtomicUsize::new(0),
            followed: AtomicUsize::new(0),
        }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn spool(&self, entities: &[String]) -> FinishedSpool {
        let mut spool =
            SpoolWriter::create(self.directory.path(), SpoolReservation::unbounded()).expect("failed to create spool");
        for block in entities.chunks(50) {
            let lines: String = block.iter().map(|entity| format!("{entity}\n")).collect();
            spool.add_lines(lines.as_bytes()).expect("failed to spool");
        }
        assert_eq!(spool.entities(), entities.len() as u64);
        spool.finish().expect("failed to spool")
    }

    /// Writes the edited list of a file with references to its bases; `None` if the list must be written in full.
    pub fn edit(
        &self,
        store: &Store,
        (path, written): &(ObjectPath, WrittenVersionFile),
        slots: &EditScript,
        (options, limits): (&WriteOptions, &DeltaFileLimits),
    ) -> Result<Option<(ObjectPath, WrittenVersionFile)>, StorageError> {
        let cache = PartCache::new(1 << 20);
        let planned = self.runtime.block_on(async {
            let list = VersionReader::open(store, path, written.size_bytes, &cache).await?;
            let edited = if list.layout().overlay.is_some() { EditedFile::Replaced } else { EditedFile::Kept };
            let plan =
                editing::plan_edit(&list, edited, slots, &options.index_settings, limits, options.max_row_group_rows)
                    .await?;
            let Some(mut plan) = plan else {
                return Ok::<_, StorageError>(None);
            };
            let (profile, columns) = match plan.profile.take() {
                Some(told) => {
                    self.followed.fetch_add(1, Ordering::Relaxed);
                    told
                }
                None => editing::profile::rebuild_profile(&list, slots, &mut plan.list.layout).await?,
            };
            Ok(Some((plan, profile.encode(columns.as_ref())?)))
        })?;
        let Some((plan, told)) = planned else { return Ok(None) };
        let own: Vec<String> = plan
            .delta_documents
            .iter()
            .map(|entity| String::from_utf8(entity.to_vec()).expect("invalid UTF-8"))
            .collect();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = ObjectPath::from(format!("versions/edited-{number}.parquet"));
        let spooled = self.spool(&own);
        let written = write_delta(store, &path, spooled, plan.list, &told, options, self.runtime.handle())?;
        Ok(Some((path, written)))
    }

    /// Writes the delta file of a list that follows a version; `None` if the list must be written in full.
    pub fn refresh(
        &self,
        store: &Store,
        previous: &(ObjectPath, WrittenVersionFile),
        entities: &[String],
        choices: (&WriteOptions, &DeltaFileLimits),
    ) -> Result<Option<(ObjectPath, WrittenVersionFile)>, StorageError> {
        let file = self.refresh_or_write(store, previous, entities, choices)?;
        Ok(Some(file).filter(|(_, written)| !written.bases.is_empty()))
    }

    /// Writes the file of a list that follows a version, as a refresh does.
    pub fn refresh_or_write(
        &self,
        store: &Store,
        (path, written): &(ObjectPath, WrittenVersionFile),
        entities: &[String],
        (options, limits): (&WriteOptions, &DeltaFileLimits),
    ) -> Result<(ObjectPath, WrittenVersionFile), StorageError> {
        let cache = PartCache::new(1 << 20);
        let previous = self.runtime.block_on(VersionReader::open(store, path, written.size_bytes, &cache))?;
        let mut spooled = self.spool(entities);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = ObjectPath::from(format!("versions/delta-{number}.parquet"));
        let runtime = self.runtime.handle();
        let written = match delta::plan_delta(&previous, &mut spooled, limits, options, runtime)? {
            Some(DeltaPlan { spooled, list, profile }) => {
                write_delta(store, &path, spooled, list, &profile, options, runtime)?
            }
            None => write_version(store, &path, spooled, options, runtime, &|_| {})?,
        };
        assert_eq!(written.entity_count, entities.len() as u64);
        Ok((path, written))
    }

    /// Writes entities (canonical texts) to a new path.
    pub fn write(
        &self,
        store: &Store,
        entities: &[String],
        options: &WriteOptions,
    ) -> Result<(ObjectPath, WrittenVersionFile), StorageError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = ObjectPath::from(format!("versions/{}-{number}.parquet", entities.len()));
        let told = AtomicUsize::new(0);
        let progress = |entities: u64| told.store(entities as usize, Ordering::Relaxed);
        let written = write_version(store, &path, self.spool(entities), options, self.runtime.handle(), &progress)?;
        assert_eq!(told.into_inner(), entities.len());
        Ok((path, written))
    }
}

/// Returns limits with which every edited list refers to its base.
pub fn always_beside(max_gap_rows: u32) -> DeltaFileLimits {
    DeltaFileLimits {
        min_list_bytes: 0,
        max_gap_rows,
        max_extents: usize::MAX,
        min_rows_per_extent: 0,
        max_delta_bytes: u64::MAX,
        max_delta_percent: u64::MAX,
    }
}

/// Returns the entities of a list after edits.
pub fn edited(entities: &[String], slots: &EditScript) -> Vec<String> {
    let text = |document: &Bytes| String::from_utf8(document.to_vec()).expect("invalid UTF-8");
    let mut list = Vec::new();
    for position in 0..=entities.len() {
        let slot = slots.get(&(position as u64)).cloned().unwrap_or_default();
        list.extend(slot.inserts.iter().map(text));
        match slot.change {
            None => list.extend(entities.get(position).cloned()),
            Some(entity) => list.extend(entity.iter().map(text)),
        }
    }
    list
}

/// Returns limits that allow indexed columns for nearly all paths of test data.
pub fn all_shredded() -> ShreddingLimits {
    ShreddingLimits {
        max_columns: 40,
        max_entities_per_scalar: 1_000_000,
        max_mean_text_bytes: 1_000_000,
        max_text_fraction: 1e9,
    }
}

/// Returns limits that allow no indexed columns.
pub fn nothing_shredded() -> ShreddingLimits {
    ShreddingLimits { max_columns: 0, ..ShreddingLimits::default() }
}

/// Returns options for row groups of `rows` rows.
pub fn row_groups_of(rows: usize, shredding_limits: ShreddingLimits) -> WriteOptions {
    WriteOptions { worker_threads: 1, max_row_group_rows: rows, shredding_limits, ..WriteOptions::default() }
}

/// Returns options for small row groups with all indexed columns, or for large row groups without any. The keyword
/// index is chosen as in [`some_segments`].
pub fn options_like(kind: usize, segments: usize) -> WriteOptions {
    let rows = [3, MAX_ROW_GROUP_ROWS][kind];
    let shredding_limits = [all_shredded(), nothing_shredded()][kind];
    WriteOptions { keyword_limits: some_segments(segments), ..row_groups_of(rows, shredding_limits) }
}

/// Returns one of several segment sizes of the keyword index in rows, or no keyword index.
pub fn some_segments(choice: usize) -> KeywordSegmentLimits {
    match choice % 5 {
        0 => KeywordSegmentLimits::default(),
        choice => segments([1, 5, 20, usize::MAX][choice - 1]),
    }
}

/// Returns a keyword index whose segments end with the row group in which they reach `rows` rows.
pub fn segments(rows: usize) -> KeywordSegmentLimits {
    KeywordSegmentLimits {
        max_rows: rows,
        max_text_percent: 1_000_000_000,
        min_text_bytes: 0,
        ..KeywordSegmentLimits::default()
    }
}

/// An in-memory store with files.
pub struct Files {
    pub bench: FileWorkbench,
    pub store: Store,
}

impl Files {
    pub fn new() -> Files {
        Files {
            bench: FileWorkbench::new(),
            store: store::open_store("memory://", &S3Options::default()).expect("failed to open store"),
        }
    }

    pub fn write(&self, entities: &[String], options: &WriteOptions) -> (ObjectPath, WrittenVersionFile) {
        self.bench.write(&self.store, entities, options).expect("failed to write")
    }

    /// Opens a file without any cached parts.
    pub fn open(&self, (path, written): &(ObjectPath, WrittenVersionFile)) -> VersionReader {
        let cache = PartCache::new(1 << 20);
        let open = VersionReader::open(&self.store, path, written.size_bytes, &cache);
        self.bench.runtime.block_on(open).expect("failed to open")
    }

    pub fn profile(&self, entities: &[String], options: &WriteOptions) -> StoredProfile {
        let reader = self.open(&self.write(entities, options));
        self.bench.runtime.block_on(reader.profile()).expect("failed to read profile")
    }
}

#[track_caller]
pub fn path_record<'p>(profile: &'p StoredProfile, path: &str) -> &'p ProfilePathRecord {
    profile.paths.iter().find(|record| record.path == path).unwrap_or_else(|| panic!("missing path {path}"))
}
