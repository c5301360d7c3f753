//! An opened version file: its footer, and its parts by row group and page, each fetched with one request, verified and
//! kept in the cache. What a reader will want is fetched ahead ([`VersionReader::reading_ahead`]).
//!
//! What is fetched is compared with its checksum before it is decoded, and nothing that failed is kept: a file that is
//! restored is read again without more ado. Every failure names the file, and is reported ([`PartCache::reporting`]).
//!
//! A version is one file, or an edited file with its base, whose row groups are the pieces of its list
//! ([`crate::edit`]):
//!
//! | Module | Holds |
//! |---|---|
//! | `file` | one file; `columns`, `documents`, `keywords`, `shapes`, `planned` and `verification` are its parts |
//! | `base_place` | where the entities of its base are in it |
//! | `shared` | which rows two lists have in common |
//! | `pieces` | the parts of a version by its row groups |

mod ahead;
mod base_place;
mod columns;
mod description;
mod documents;
mod end;
mod file;
mod keywords;
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
use strata_types::version::VersionFile;
pub use verification::{Pace, Unbounded};

use std::sync::Arc;

use futures::future::BoxFuture;
use object_store::path::Path as ObjectPath;

pub(super) use self::file::FileReader;
use strata_store::error::BASE;
use strata_store::store::Store;
use strata_store::{Result, StorageError};

use self::object_file::ObjectFile;
use crate::cache::PartCache;
use crate::derived::{Derivation, Derived};
use crate::edit::{Edit, Piece, Source};
use crate::footer::RowGroup;
use crate::layout::Layout;
use crate::parts::{Part, PartKey};
use crate::piece_list::PieceList;
use crate::profile::{PathIndex, ProfileSummary, StoredProfile};
use crate::reader_metrics::ReaderMetrics;

/// Most bytes of documents that one request fetches ahead.
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// What is derived takes at most one of so many bytes of the cache.
const DERIVED_SHARE: u64 = 4;

/// A version file, ready to be read. Cheap to make and to clone.
#[derive(Clone)]
pub struct VersionReader {
    /// The file itself, without the base of an edited one.
    pub(super) own: FileReader,
    edited: Option<Edited>,
}

/// The list of an edited file, and the other file that it lies in.
#[derive(Clone)]
struct Edited {
    base: FileReader,
    list: Arc<PieceList>,
}

impl Edited {
    /// Opens the base of an edited file, and compares both.
    async fn open(own: &FileReader, edit: &Edit, store: &Store, cache: &PartCache) -> Result<Edited> {
        let path = ObjectPath::from(edit.base.path.as_str());
        let load = || async {
            let base = FileReader::open(store, &path, edit.base.size_bytes, cache).await;
            let base = base.map_err(|error| match error.is_damage() {
                true => own.file.blame(BASE, StorageError::Layout(error.to_string())),
                false => error,
            })?;
            let list = PieceList::of(&own.footer, base.footer, edit);
            Ok(Part::Pieces(Arc::new(list.map_err(|error| own.file.blame("its extents", error))?)))
        };
        let loaded = cache.get_or_load(PartKey::Pieces { file: own.footer.id }, load).await?;
        let Part::Pieces(list) = loaded else { return Err(StorageError::wrong_part()) };
        let file = ObjectFile { path, size_bytes: list.base.size_bytes, ahead: None, ..own.file.clone() };
        Ok(Edited { base: FileReader { file, footer: list.base.clone() }, list })
    }
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
        let edited = match &own.footer.layout.edit {
            None => None,
            Some(edit) => Some(Box::pin(Edited::open(&own, edit, store, cache)).await?),
        };
        Ok(VersionReader { own, edited })
    }

    /// Opens a file that the catalog records, and compares what its footer says with the record.
    ///
    /// # Errors
    /// As [`VersionReader::open`]; [`StorageError::Damaged`] when it is another file than the recorded one.
    pub async fn open_recorded(store: &Store, file: &VersionFile, cache: &PartCache) -> Result<VersionReader> {
        VersionReader::open_expected(store, &file.into(), "the metadata database", cache).await
    }

    fn with_files(&self, change: impl Fn(&mut ObjectFile)) -> VersionReader {
        let mut changed = self.clone();
        change(&mut changed.own.file);
        changed.edited.iter_mut().for_each(|edited| change(&mut edited.base.file));
        changed
    }

    /// The same reader; what it asks the cache and the store for is counted there, too.
    pub fn observed(&self, metrics: Arc<ReaderMetrics>) -> VersionReader {
        self.with_files(|file| file.cache.reader_metrics = Some(metrics.clone()))
    }

    /// The same reader for work that goes on when the read is over: nothing is counted for it, or fetched ahead.
    pub fn for_later(&self) -> VersionReader {
        self.with_files(|file| (file.cache.reader_metrics, file.ahead) = (None, None))
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
        &self.own.footer.layout
    }

    /// Checks that what the footer says of the outline, the keyword index and the shapes can be followed. Reads do
    /// without it. Where the file was opened by its outline, it is compared with the Parquet footer, which is fetched,
    /// verified and decoded for that. Of an edited file it checks its own footer alone: its base is a file of its own.
    pub async fn verify_end(&self) -> Result<()> {
        self.own.verify_end().await
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

    /// Whether something with so many bytes for each entity may be kept: it leaves most of the cache to other parts,
    /// and positions fit 32 bits.
    pub fn keeps(&self, entity_bytes: u64) -> bool {
        let entities = self.entity_count();
        entities < u64::from(u32::MAX)
            && entities.saturating_mul(entity_bytes) <= self.own.file.cache.capacity_bytes() / DERIVED_SHARE
    }

    pub async fn derived(&self, what: &Derivation) -> Option<Derived> {
        let key = PartKey::Derived { file: self.own.footer.id, what: what.clone() };
        match self.own.file.cache.get(&key).await? {
            Part::Derived(derived) => Some(derived),
            _ => None,
        }
    }

    /// The same, computed where the cache does not hold it. Who asks for the same at the same time waits for one.
    ///
    /// # Errors
    /// What `derive` failed with; nothing is kept then.
    pub async fn derive(&self, what: Derivation, derive: BoxFuture<'_, Result<Derived>>) -> Result<Derived> {
        let key = PartKey::Derived { file: self.own.footer.id, what };
        let loaded = self.own.file.cache.get_or_load(key, || async { derive.await.map(Part::Derived) }).await?;
        let Part::Derived(derived) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(derived)
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
