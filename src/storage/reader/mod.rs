//! An opened version file: its footer, and its parts by row group and page, each fetched with one request, verified and
//! kept in the cache. What a reader will want is fetched ahead ([`VersionReader::reading_ahead`]).
//!
//! What is fetched is compared with its checksum before it is decoded, and nothing that failed is kept: a file that is
//! restored is read again without more ado. Every failure names the file, and is reported ([`PartCache::reporting`]).

mod ahead;
mod columns;
mod derived;
mod documents;
mod end;
mod keywords;
mod object_file;
mod planned;
mod shapes;
mod verification;

pub use ahead::Wanted;
pub use verification::{Pace, Unbounded};

use std::sync::Arc;

use object_store::path::Path as ObjectPath;

use self::object_file::ObjectFile;
use crate::blocking::blocking;
use crate::model::version::VersionFile;
use crate::storage::StorageError;
use crate::storage::cache::PartCache;
use crate::storage::footer::{Footer, RowGroup};
use crate::storage::layout::Layout;
use crate::storage::parts::{Part, PartKey};
use crate::storage::profile::{PathIndex, ProfileLocation, StoredProfile};
use crate::storage::reader_metrics::ReaderMetrics;
use crate::storage::store::Store;

/// Most bytes of documents that one request fetches ahead.
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// A version file, ready to be read. Cheap to make and to clone.
#[derive(Clone)]
pub struct VersionReader {
    file: ObjectFile,
    footer: Arc<Footer>,
}

impl std::fmt::Debug for VersionReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("VersionReader").field("path", &self.file.path).finish_non_exhaustive()
    }
}

impl VersionReader {
    /// Opens the file at `path`, `size_bytes` long. Costs one or two requests, none when its footer is cached.
    ///
    /// # Errors
    /// When the file is not there, is damaged, or has another format version.
    pub async fn open(
        store: &Store,
        path: &ObjectPath,
        size_bytes: u64,
        cache: &PartCache,
    ) -> Result<VersionReader, StorageError> {
        let file =
            ObjectFile { store: store.clone(), path: path.clone(), size_bytes, cache: cache.clone(), ahead: None };
        let load = || async {
            let footer = end::load_footer(&file, size_bytes).await.map_err(|error| file.blame("the footer", error))?;
            if let Some(cause) = &footer.misplaced {
                file.blame_accelerator("the footer", StorageError::Layout(cause.clone()));
            }
            Ok(Part::Footer(Arc::new(footer)))
        };
        let key = PartKey::Footer(path.as_ref().into());
        match cache.get_or_load(key, load).await? {
            Part::Footer(footer) => Ok(VersionReader { file, footer }),
            _ => Err(StorageError::Layout("the cache holds another part under its footer's key".to_owned())),
        }
    }

    /// Opens a file that the catalog records, and compares what its footer says with the record.
    ///
    /// # Errors
    /// As [`VersionReader::open`]; [`StorageError::Damaged`] when it is another file than the recorded one.
    pub async fn open_recorded(
        store: &Store,
        file: &VersionFile,
        cache: &PartCache,
    ) -> Result<VersionReader, StorageError> {
        let path = ObjectPath::from(file.path.as_str());
        let reader = VersionReader::open(store, &path, file.size_bytes, cache).await?;
        let layout = reader.layout();
        let other = |what: &str| Err(reader.file.blame("the footer", StorageError::Layout(what.to_owned())));
        if layout.entity_count != file.entity_count {
            return other(&format!(
                "it holds {} entities, and the catalog says {}",
                layout.entity_count, file.entity_count
            ));
        }
        if layout.content_sha256 != file.content_hash {
            return other("it tells another content than the catalog");
        }
        Ok(reader)
    }

    /// The same reader; what it asks the cache and the store for is counted there, too.
    pub fn observed(&self, metrics: Arc<ReaderMetrics>) -> VersionReader {
        let file = ObjectFile { cache: self.file.cache.observed(metrics), ..self.file.clone() };
        VersionReader { file, footer: self.footer.clone() }
    }

    /// The same reader for work that goes on when the read is over: nothing is counted for it, or fetched ahead.
    pub fn for_later(&self) -> VersionReader {
        let file = ObjectFile { cache: self.file.cache.unobserved(), ahead: None, ..self.file.clone() };
        VersionReader { file, footer: self.footer.clone() }
    }

    /// What the file's metadata says.
    pub fn layout(&self) -> &Layout {
        &self.footer.layout
    }

    /// Checks that what the footer says of the outline, the keyword index and the shapes can be followed. Reads do
    /// without it. Where the file was opened by its outline, it is compared with the Parquet footer, which is fetched,
    /// verified and decoded for that.
    ///
    /// # Errors
    /// When the store fails; [`StorageError::Damaged`].
    pub async fn verify_end(&self) -> Result<(), StorageError> {
        if let Some(cause) = &self.footer.misplaced {
            return Err(self.file.blame_accelerator("the footer", StorageError::Layout(cause.clone())));
        }
        if !self.footer.has_outline {
            return Ok(());
        }
        let same = async {
            let decoded = end::load_parquet_footer(&self.file, self.footer.size_bytes).await?;
            match decoded.outline.bytes() == self.footer.outline.bytes() {
                true => Ok(()),
                false => Err(StorageError::Layout("its outline is not that of its footer".to_owned())),
            }
        };
        same.await.map_err(|error| self.file.blame_accelerator("the footer", error))
    }

    /// Whether the file holds a profile: none does that was written before there were profiles.
    pub fn has_profile(&self) -> bool {
        self.footer.profile.is_some()
    }

    /// The profile of the version, if the file holds one. One request, and some milliseconds for thousands of paths;
    /// not kept in the cache.
    ///
    /// # Errors
    /// When the store fails or the profile is damaged.
    pub async fn profile(&self) -> Result<Option<StoredProfile>, StorageError> {
        match self.footer.profile.clone() {
            Some(location) => self.load_profile(location, StoredProfile::decode).await.map(Some),
            None => Ok(None),
        }
    }

    /// The paths of the profile, if they are in the cache.
    pub async fn cached_paths(&self) -> Option<Arc<PathIndex>> {
        match self.file.cache.get(&PartKey::Paths { file: self.footer.id }).await? {
            Part::Paths(paths) => Some(paths),
            _ => None,
        }
    }

    /// The paths of the profile, if the file holds one. Costs as much as [`VersionReader::profile`] the first time;
    /// kept in the cache then.
    ///
    /// # Errors
    /// When the store fails or the profile is damaged.
    pub async fn paths(&self) -> Result<Option<Arc<PathIndex>>, StorageError> {
        let Some(location) = self.footer.profile.clone() else { return Ok(None) };
        let load =
            async { self.load_profile(location, PathIndex::decode).await.map(|paths| Part::Paths(Arc::new(paths))) };
        match self.file.cache.get_or_load(PartKey::Paths { file: self.footer.id }, || load).await? {
            Part::Paths(paths) => Ok(Some(paths)),
            _ => Err(StorageError::Layout("the cache holds another part under the key of its paths".to_owned())),
        }
    }

    async fn load_profile<T: Send + 'static>(
        &self,
        location: ProfileLocation,
        decode: fn(&[u8]) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let load = async {
            let bytes = match self.footer.kept_profile() {
                Some(bytes) => bytes.clone(),
                None => self.file.fetch(location.offset..location.offset + location.length).await?,
            };
            let decode = move || match location.is_of(&bytes) {
                true => decode(&bytes),
                false => Err(StorageError::unverified()),
            };
            blocking(decode).await?
        };
        load.await.map_err(|error| self.file.blame_accelerator("the profile", error))
    }

    /// Entities in the file.
    pub fn entity_count(&self) -> u64 {
        self.footer.layout.entity_count
    }

    /// The row groups, in order.
    pub fn row_groups(&self) -> &[RowGroup] {
        &self.footer.row_groups
    }

    /// The row group that holds a position, which must be below [`VersionReader::entity_count`].
    pub fn row_group_of(&self, position: u64) -> usize {
        self.footer.row_groups.partition_point(|row_group| row_group.first <= position) - 1
    }

    /// Bytes of a row group as stored.
    pub fn stored_bytes(&self, row_group: usize) -> u64 {
        let outline = &self.footer.outline;
        (0..outline.columns()).map(|column| u64::from(outline.chunk(row_group, column).stored_bytes)).sum()
    }

    /// Whether the file holds checksums of its parts: none does that was written before there were checksums.
    pub fn has_checksums(&self) -> bool {
        self.footer.outline.is_checksummed()
    }
}
