//! Version files of entities, in a store of the tests' own.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::editing::{self, EditLimits, Slots};
use strata_format::keywords::segment::SegmentLimits;
use strata_format::profile::{PathRecord, ShreddingBounds, StoredProfile};
use strata_format::reader::VersionReader;
use strata_format::shapes::builder::ShapeLimits;
use strata_format::spool::{Spool, Spooled};
use strata_format::writer::{ROW_GROUP_ROWS, WriteOptions, Written, write_edited, write_version};
use strata_store::StorageError;
use strata_store::budget::SpoolCharge;
use strata_store::store::{self, S3Options, Store};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Runs blocking and asynchronous work of one test.
pub struct Bench {
    pub runtime: Runtime,
    directory: TempDir,
    next: AtomicUsize,
    /// Edits whose profile followed from the one before.
    pub followed: AtomicUsize,
}

impl Bench {
    pub fn new() -> Bench {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Bench {
            runtime: runtime.expect("a runtime"),
            directory: tempfile::tempdir().expect("a temporary directory"),
            next: AtomicUsize::new(0),
            followed: AtomicUsize::new(0),
        }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn spool(&self, entities: &[String]) -> Spooled {
        let mut spool = Spool::create(self.directory.path(), SpoolCharge::unbounded()).expect("a spool");
        for block in entities.chunks(50) {
            let lines: String = block.iter().map(|entity| format!("{entity}\n")).collect();
            spool.add_lines(lines.as_bytes()).expect("spooled");
        }
        assert_eq!(spool.entities(), entities.len() as u64);
        spool.finish().expect("spooled")
    }

    /// Writes the list of a file after edits beside its base; `None` where it is to be written whole.
    pub fn edit(
        &self,
        store: &Store,
        (path, written): &(ObjectPath, Written),
        slots: &Slots,
        (options, limits): (&WriteOptions, &EditLimits),
    ) -> Result<Option<(ObjectPath, Written)>, StorageError> {
        let cache = PartCache::new(1 << 20);
        let planned = self.runtime.block_on(async {
            let list = VersionReader::open(store, path, written.size_bytes, &cache).await?;
            let base = editing::base_of(&list, path.as_ref(), written.size_bytes);
            let plan = editing::plan(&list, base, slots, &options.index, limits, options.row_group_rows).await?;
            let Some(mut plan) = plan else {
                return Ok::<_, StorageError>(None);
            };
            let (profile, columns) = match plan.profile.take() {
                Some(told) => {
                    self.followed.fetch_add(1, Ordering::Relaxed);
                    told
                }
                None => editing::profile::read_anew(&list, slots, &mut plan.list.layout).await?,
            };
            Ok(Some((plan, profile.encode(columns.as_ref())?)))
        })?;
        let Some((plan, told)) = planned else { return Ok(None) };
        let own: Vec<String> =
            plan.own.iter().map(|entity| String::from_utf8(entity.to_vec()).expect("UTF-8")).collect();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = ObjectPath::from(format!("versions/edited-{number}.parquet"));
        let spooled = self.spool(&own);
        let written = write_edited(store, &path, spooled, &plan.list, &told, options, self.runtime.handle())?;
        Ok(Some((path, written)))
    }

    /// Writes entities, canonical texts, under a name of their own.
    pub fn write(
        &self,
        store: &Store,
        entities: &[String],
        options: &WriteOptions,
    ) -> Result<(ObjectPath, Written), StorageError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = ObjectPath::from(format!("versions/{}-{number}.parquet", entities.len()));
        let told = AtomicUsize::new(0);
        let progress = |entities: u64| told.store(entities as usize, Ordering::Relaxed);
        let written = write_version(store, &path, self.spool(entities), options, self.runtime.handle(), &progress)?;
        assert_eq!(told.into_inner(), entities.len());
        Ok((path, written))
    }
}

/// When a test's lists are written beside their base: always.
pub fn always_beside(gap_rows: u32) -> EditLimits {
    EditLimits { list_bytes: 0, gap_rows, extents: usize::MAX >> 1, own_bytes: u64::MAX, own_percent: u64::MAX }
}

/// The entities of a list after edits.
pub fn edited(entities: &[String], slots: &Slots) -> Vec<String> {
    let text = |document: &Bytes| String::from_utf8(document.to_vec()).expect("UTF-8");
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

/// Leaves wherever a path reaches a scalar, as far as a test has time for them.
pub fn all_shredded() -> ShreddingBounds {
    ShreddingBounds { shredded_columns: 40, one_in: 1_000_000, mean_text_bytes: 1_000_000, text_share: 1e9 }
}

/// No shredded column at all.
pub fn nothing_shredded() -> ShreddingBounds {
    ShreddingBounds { shredded_columns: 0, ..ShreddingBounds::default() }
}

/// Files with row groups of so many rows.
pub fn row_groups_of(rows: usize, shredding: ShreddingBounds) -> WriteOptions {
    WriteOptions { threads: 1, row_group_rows: rows, shredding, ..WriteOptions::default() }
}

/// One of two kinds of files: small row groups and all indexed columns, or large ones and none; with a keyword index
/// as in [`some_segments`].
pub fn options_like(kind: usize, segments: usize) -> WriteOptions {
    let rows = [3, ROW_GROUP_ROWS][kind];
    let shredding = [all_shredded(), nothing_shredded()][kind];
    WriteOptions { keywords: some_segments(segments), ..row_groups_of(rows, shredding) }
}

/// Keyword indexes of any version: one of several sizes of their segments, counted in rows, or none.
pub fn some_segments(choice: usize) -> SegmentLimits {
    match choice % 5 {
        0 => SegmentLimits::default(),
        choice => segments([1, 5, 20, usize::MAX][choice - 1]),
    }
}

/// A keyword index of any version, whose segments end with the row group that takes them to so many rows.
pub fn segments(rows: usize) -> SegmentLimits {
    SegmentLimits { rows, share_percent: 1_000_000_000, text_bytes: 0, ..SegmentLimits::default() }
}

/// Shapes of any version: within several bounds, which leave those of some row groups out, or none.
pub fn some_shapes(choice: usize) -> ShapeLimits {
    let all = shapes();
    match choice % 6 {
        0 => ShapeLimits::default(),
        1 => ShapeLimits { paths: 9, ..all },
        2 => ShapeLimits { raw_bytes: 120, key_bytes: 60, ..all },
        _ => all,
    }
}

/// Shapes of any version.
pub fn shapes() -> ShapeLimits {
    ShapeLimits { document_bytes: 0, share_percent: u64::MAX, ..ShapeLimits::default() }
}

/// A store in memory with files in it.
pub struct Files {
    pub bench: Bench,
    pub store: Store,
}

impl Files {
    pub fn new() -> Files {
        Files { bench: Bench::new(), store: store::open("memory://", &S3Options::default()).expect("a store") }
    }

    pub fn write(&self, entities: &[String], options: &WriteOptions) -> (ObjectPath, Written) {
        self.bench.write(&self.store, entities, options).expect("written")
    }

    /// The file, opened, with nothing kept from before.
    pub fn open(&self, (path, written): &(ObjectPath, Written)) -> VersionReader {
        let cache = PartCache::new(1 << 20);
        let open = VersionReader::open(&self.store, path, written.size_bytes, &cache);
        self.bench.runtime.block_on(open).expect("opened")
    }

    pub fn profile(&self, entities: &[String], options: &WriteOptions) -> StoredProfile {
        let reader = self.open(&self.write(entities, options));
        self.bench.runtime.block_on(reader.profile()).expect("undamaged")
    }
}

#[track_caller]
pub fn of<'p>(profile: &'p StoredProfile, path: &str) -> &'p PathRecord {
    profile.paths.iter().find(|record| record.path == path).unwrap_or_else(|| panic!("there is no {path}"))
}
