//! An opened version file: its footer, and its parts by row group and page, each fetched with one request, verified and
//! kept in the cache. What a reader will want is fetched ahead ([`VersionReader::reading_ahead`]).
//!
//! What is fetched is compared with its checksum before it is decoded, and nothing that failed is kept: a file that is
//! restored is read again without more ado. Every failure names the file, and is reported ([`PartCache::reporting`]).
//!
//! A version is one file, or an edited file with its base, whose row groups are the pieces of its list
//! ([`crate::storage::edit`]):
//!
//! | Module | Holds |
//! |---|---|
//! | `file` | one file; `columns`, `documents`, `keywords`, `shapes`, `planned` and `verification` are its parts |
//! | `list` | the list of an edited file |
//! | `base_place` | where the entities of its base are in it |
//! | `shared` | which rows two lists have in common |
//! | `pieces` | the parts of a version by its row groups |

mod ahead;
mod base_place;
mod columns;
mod derived;
mod description;
mod documents;
mod end;
mod file;
mod keywords;
mod list;
mod object_file;
mod pieces;
mod planned;
mod shapes;
mod shared;
mod verification;

pub use ahead::Wanted;
pub use base_place::BasePlace;
pub use description::FileDescription;
pub use shared::SharedRows;
pub use verification::{Pace, Unbounded};

use std::sync::Arc;

use object_store::path::Path as ObjectPath;

pub(super) use self::file::FileReader;
use crate::model::version::VersionFile;
use crate::storage::cache::PartCache;
use crate::storage::edit::{Piece, Source};
use crate::storage::footer::RowGroup;
use crate::storage::layout::Layout;
use crate::storage::parts::{Part, PartKey};
use crate::storage::piece_list::PieceList;
use crate::storage::profile::{PathIndex, ProfileSummary, StoredProfile};
use crate::storage::reader_metrics::ReaderMetrics;
use crate::storage::store::Store;
use crate::storage::{Result, StorageError};

/// Most bytes of documents that one request fetches ahead.
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// A version file, ready to be read. Cheap to make and to clone.
#[derive(Clone)]
pub struct VersionReader {
    own: FileReader,
    edited: Option<Edited>,
}

/// The list of an edited file, and the other file that it lies in.
#[derive(Clone)]
struct Edited {
    base: FileReader,
    list: Arc<PieceList>,
}

impl std::fmt::Debug for VersionReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("VersionReader").field("path", &self.own.file.path).finish_non_exhaustive()
    }
}

impl VersionReader {
    /// Opens the file at `path`, `size_bytes` long. Costs one or two requests, as many for the base of an edited file,
    /// and none when footers are cached.
    pub async fn open(store: &Store, path: &ObjectPath, size_bytes: u64, cache: &PartCache) -> Result<VersionReader> {
        let own = FileReader::open(store, path, size_bytes, cache).await?;
        let edited = match &own.layout().edit {
            None => None,
            Some(edit) => {
                let (base, list) = Box::pin(list::open(&own, edit, store, cache)).await?;
                Some(Edited { base, list })
            }
        };
        Ok(VersionReader { own, edited })
    }

    /// Opens a file that the catalog records, and compares what its footer says with the record.
    ///
    /// # Errors
    /// As [`VersionReader::open`]; [`StorageError::Damaged`] when it is another file than the recorded one.
    pub async fn open_recorded(store: &Store, file: &VersionFile, cache: &PartCache) -> Result<VersionReader> {
        VersionReader::open_expected(store, &file.into(), "the catalog", cache).await
    }

    fn with_files(&self, change: impl Fn(&FileReader) -> FileReader) -> VersionReader {
        let edited = self.edited.as_ref();
        let edited = edited.map(|Edited { base, list }| Edited { base: change(base), list: list.clone() });
        VersionReader { own: change(&self.own), edited }
    }

    /// The same reader; what it asks the cache and the store for is counted there, too.
    pub fn observed(&self, metrics: Arc<ReaderMetrics>) -> VersionReader {
        self.with_files(|file| file.observed(metrics.clone()))
    }

    /// The same reader for work that goes on when the read is over: nothing is counted for it, or fetched ahead.
    pub fn for_later(&self) -> VersionReader {
        self.with_files(FileReader::for_later)
    }

    /// The file itself, without the base of an edited one.
    pub(super) fn own(&self) -> &FileReader {
        &self.own
    }

    /// What the list is made of: the row groups of the file, as a base, or the pieces of an edited one.
    pub fn pieces(&self) -> Vec<Piece> {
        let whole = |(row_group, of_file): (usize, &RowGroup)| Piece {
            source: Source::Base,
            row_group: row_group as u32,
            start: 0,
            rows: of_file.rows as u32,
        };
        match &self.edited {
            None => self.own.footer.row_groups.iter().enumerate().map(whole).collect(),
            Some(edited) => edited.list.pieces.clone(),
        }
    }

    pub fn base_row_groups(&self) -> usize {
        self.edited.as_ref().map_or(&self.own, |edited| &edited.base).footer.row_groups.len()
    }

    /// Where an entity of a base is in this list; `None` where this is no edited list with that base, or the base has
    /// no such position. Costs a look at each piece at most.
    pub fn place_of_base_row(&self, base_path: &str, position: u64) -> Option<BasePlace> {
        let (edited, edit) = (self.edited.as_ref()?, self.layout().edit.as_ref()?);
        let is_base = edit.base.path == base_path;
        is_base.then(|| BasePlace::of(&edited.list.pieces, &edited.base.footer.row_groups, position)).flatten()
    }

    pub fn layout(&self) -> &Layout {
        self.own.layout()
    }

    /// Checks that what the footer says of the outline, the keyword index and the shapes can be followed. Reads do
    /// without it. Where the file was opened by its outline, it is compared with the Parquet footer, which is fetched,
    /// verified and decoded for that. Of an edited file it checks its own footer alone: its base is a file of its own.
    pub async fn verify_end(&self) -> Result<()> {
        self.own.verify_end().await
    }

    /// Fetches every byte of the file that a read may use, and compares it with its checksum; `pace` is told of the
    /// bytes after each request, and may wait. Nothing is decoded, and the cache is not asked. The base of an edited
    /// file is not read: it is a file of its own.
    pub async fn verify_checksums(&self, pace: &mut dyn Pace) -> Result<()> {
        self.own.verify_checksums(pace).await
    }

    /// The profile of the version. Costs one request, and some milliseconds for thousands of paths; not cached.
    pub async fn profile(&self) -> Result<StoredProfile> {
        self.own.load_profile(StoredProfile::decode).await
    }

    pub async fn cached_paths(&self) -> Option<Arc<PathIndex>> {
        match self.own.file.cache.get(&PartKey::Paths { file: self.own.footer.id }).await? {
            Part::Paths(paths) => Some(paths),
            _ => None,
        }
    }

    /// The paths of the profile. Costs as much as [`VersionReader::profile`] the first time; cached then.
    pub async fn paths(&self) -> Result<Arc<PathIndex>> {
        let load = async { self.own.load_profile(PathIndex::decode).await.map(|paths| Part::Paths(Arc::new(paths))) };
        let key = PartKey::Paths { file: self.own.footer.id };
        let loaded = self.own.file.cache.get_or_load(key, || load).await?;
        let Part::Paths(paths) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(paths)
    }

    /// The beginning of the profile. Costs as much as [`VersionReader::profile`] the first time; cached then.
    pub async fn profile_summary(&self) -> Result<Arc<ProfileSummary>> {
        let load = async {
            let summary = self.own.load_profile(ProfileSummary::decode).await?;
            Ok(Part::ProfileSummary(Arc::new(summary)))
        };
        let key = PartKey::ProfileSummary { file: self.own.footer.id };
        let loaded = self.own.file.cache.get_or_load(key, || load).await?;
        let Part::ProfileSummary(summary) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(summary)
    }

    pub fn entity_count(&self) -> u64 {
        self.layout().entity_count
    }

    pub fn row_groups(&self) -> &[RowGroup] {
        match &self.edited {
            None => &self.own.footer.row_groups,
            Some(edited) => &edited.list.row_groups,
        }
    }

    /// The row group that holds a position, which must be below [`VersionReader::entity_count`].
    pub fn row_group_of(&self, position: u64) -> usize {
        self.row_groups().partition_point(|row_group| row_group.first <= position) - 1
    }
}
