//! An opened version: one file, or an edited file and its base. Its row groups are the extents of both
//! ([`crate::overlay`]).

use std::sync::Arc;

use futures::future::BoxFuture;
use object_store::path::Path as ObjectPath;
use strata_store::error::BASE;
use strata_store::store::Store;
use strata_store::{Result, StorageError};
use strata_types::version::VersionFile;

use super::file::FileReader;
use super::object_file::ObjectFile;
use crate::aux_index::{AuxIndex, AuxKey, AuxLookup, CachedAux};
use crate::cache::PartCache;
use crate::extent_list::{ExtentList, RowGroup};
use crate::layout::Layout;
use crate::overlay::{Edit, Extent};
use crate::parts::{Part, PartKey};
use crate::profile::{PathIndex, ProfileSummary, StoredProfile};
use crate::reader_metrics::ReaderMetrics;

/// An auxiliary index takes at most this fraction of the cache: 1 / `AUX_SHARE`.
const AUX_SHARE: u64 = 4;

/// A version file, ready to be read. Cheap to make and to clone.
#[derive(Clone)]
pub struct VersionReader {
    /// The files that the extents of the list refer to by index. The last one is the file itself.
    pub(super) files: Arc<[FileReader]>,
    pub(super) list: Arc<ExtentList>,
}

impl std::fmt::Debug for VersionReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("VersionReader").field("path", &self.own().file.path).finish_non_exhaustive()
    }
}

impl VersionReader {
    /// Opens the file at `path`, `size_bytes` long. Costs one or two requests, as many for the base of an edited file,
    /// and none when footers are cached.
    pub async fn open(store: &Store, path: &ObjectPath, size_bytes: u64, cache: &PartCache) -> Result<VersionReader> {
        let own = FileReader::open(store, path, size_bytes, cache).await?;
        match &own.footer.layout.edit {
            None => Ok(VersionReader { list: own.footer.list.clone(), files: [own].into() }),
            Some(edit) => Box::pin(VersionReader::open_edited(&own, edit, store, cache)).await,
        }
    }

    async fn open_edited(own: &FileReader, edit: &Edit, store: &Store, cache: &PartCache) -> Result<VersionReader> {
        let path = ObjectPath::from(edit.base.path.as_str());
        let load = || async {
            let base = FileReader::open(store, &path, edit.base.size_bytes, cache).await;
            let base = base.map_err(|error| match error.is_damage() {
                true => own.file.blame(BASE, StorageError::Layout(error.to_string())),
                false => error,
            })?;
            let list =
                own.footer.edited_list(edit, &base.footer).map_err(|error| own.file.blame("its extents", error))?;
            Ok(Part::Extents { list: Arc::new(list), base: base.footer })
        };
        let loaded = cache.get_or_load(PartKey::Extents { file: own.footer.id }, load).await?;
        let Part::Extents { list, base: footer } = loaded else { return Err(StorageError::wrong_part()) };
        let file = ObjectFile { size_bytes: footer.size_bytes, ahead: None, path, ..own.file.clone() };
        Ok(VersionReader { files: [FileReader { file, footer }, own.clone()].into(), list })
    }

    /// The file itself, without the base of an edited one.
    pub(crate) fn own(&self) -> &FileReader {
        &self.files[self.files.len() - 1]
    }

    /// The file of most entities: the base of an edited one.
    pub(super) fn base(&self) -> &FileReader {
        &self.files[usize::from(Extent::BASE)]
    }

    pub(super) fn cache(&self) -> &PartCache {
        &self.own().file.cache
    }

    /// Opens a file that the catalog records, and compares what its footer says with the record.
    ///
    /// # Errors
    /// As [`VersionReader::open`]; [`StorageError::Damaged`] when it is another file than the recorded one.
    pub async fn open_recorded(store: &Store, file: &VersionFile, cache: &PartCache) -> Result<VersionReader> {
        VersionReader::open_expected(store, &file.into(), "the metadata database", cache).await
    }

    fn with_files(&self, change: impl Fn(&mut ObjectFile)) -> VersionReader {
        let mut files = self.files.to_vec();
        files.iter_mut().for_each(|reader| change(&mut reader.file));
        VersionReader { files: files.into(), list: self.list.clone() }
    }

    /// The same reader; what it asks the cache and the store for is counted there, too.
    pub fn observed(&self, metrics: Arc<ReaderMetrics>) -> VersionReader {
        self.with_files(|file| file.cache.reader_metrics = Some(metrics.clone()))
    }

    /// The same reader for work that goes on when the read is over: nothing is counted for it, or fetched ahead.
    pub fn for_later(&self) -> VersionReader {
        self.with_files(|file| (file.cache.reader_metrics, file.ahead) = (None, None))
    }

    pub fn extents(&self) -> &[Extent] {
        &self.list.extents
    }

    pub fn base_row_groups(&self) -> usize {
        self.base().footer.list.row_groups.len()
    }

    pub fn layout(&self) -> &Layout {
        &self.own().footer.layout
    }

    /// Checks that what the footer says of the outline, the keyword index and the shapes can be followed. Reads do
    /// without it. Where the file was opened by its outline, it is compared with the Parquet footer, which is fetched,
    /// verified and decoded for that. Of an edited file it checks its own footer alone: its base is a file of its own.
    pub async fn verify_end(&self) -> Result<()> {
        self.own().verify_end().await
    }

    /// The profile of the version. Costs one request, and some milliseconds for thousands of paths; not cached.
    pub async fn profile(&self) -> Result<StoredProfile> {
        self.own().load_profile(StoredProfile::decode).await
    }

    pub async fn cached_paths(&self) -> Option<Arc<PathIndex>> {
        match self.cache().get(&PartKey::Paths { file: self.own().footer.id }).await? {
            Part::Paths(paths) => Some(paths),
            _ => None,
        }
    }

    /// The paths of the profile. Costs as much as [`VersionReader::profile`] the first time; cached then.
    pub async fn paths(&self) -> Result<Arc<PathIndex>> {
        let decode = |bytes: &[u8]| PathIndex::decode(bytes).map(|paths| Part::Paths(Arc::new(paths)));
        let load = || self.own().load_profile(decode);
        match self.cache().get_or_load(PartKey::Paths { file: self.own().footer.id }, load).await? {
            Part::Paths(paths) => Ok(paths),
            _ => Err(StorageError::wrong_part()),
        }
    }

    /// The beginning of the profile. Costs as much as [`VersionReader::profile`] the first time; cached then.
    pub async fn profile_summary(&self) -> Result<Arc<ProfileSummary>> {
        let decode =
            |bytes: &[u8]| ProfileSummary::decode(bytes).map(|summary| Part::ProfileSummary(Arc::new(summary)));
        let load = || self.own().load_profile(decode);
        match self.cache().get_or_load(PartKey::ProfileSummary { file: self.own().footer.id }, load).await? {
            Part::ProfileSummary(summary) => Ok(summary),
            _ => Err(StorageError::wrong_part()),
        }
    }

    /// Whether the cache may keep an index with this many bytes for each entity: it leaves most of the cache to other
    /// parts, and positions fit 32 bits.
    pub fn can_cache(&self, entity_bytes: u64) -> bool {
        let entities = self.entity_count();
        entities < u64::from(u32::MAX)
            && entities.saturating_mul(entity_bytes) <= self.cache().capacity_bytes() / AUX_SHARE
    }

    pub async fn aux_index<T: AuxIndex>(&self, key: AuxKey) -> AuxLookup<T> {
        match self.cache().get(&PartKey::Aux { file: self.own().footer.id, key }).await {
            Some(Part::Aux(cached)) => cached.lookup(),
            _ if self.can_cache(T::ENTITY_BYTES) => AuxLookup::Miss,
            _ => AuxLookup::Unsupported,
        }
    }

    /// The index, built by `build` if the cache does not contain it. Concurrent callers wait for one build. `None` from
    /// `build` says that the file has no such index.
    ///
    /// # Errors
    /// The error of `build`. The cache keeps nothing then.
    pub async fn build_aux_index<T: AuxIndex>(
        &self,
        key: AuxKey,
        build: BoxFuture<'_, Result<Option<T>>>,
    ) -> Result<AuxLookup<T>> {
        if !self.can_cache(T::ENTITY_BYTES) {
            return Ok(AuxLookup::Unsupported);
        }
        let key = PartKey::Aux { file: self.own().footer.id, key };
        let load = || async { Ok(Part::Aux(CachedAux::new(build.await?))) };
        let Part::Aux(cached) = self.cache().get_or_load(key, load).await? else {
            return Err(StorageError::wrong_part());
        };
        Ok(cached.lookup())
    }

    pub fn entity_count(&self) -> u64 {
        self.layout().entity_count
    }

    pub fn row_groups(&self) -> &[RowGroup] {
        &self.list.row_groups
    }

    /// The row group that holds a position, which must be below [`VersionReader::entity_count`].
    pub fn row_group_of(&self, position: u64) -> usize {
        self.row_groups().partition_point(|row_group| row_group.first <= position) - 1
    }
}
