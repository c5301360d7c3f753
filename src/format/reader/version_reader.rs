//! Reader of a version: one file, or a delta file and its bases ([`crate::overlay`]).

use std::sync::Arc;

use futures::future::{BoxFuture, try_join_all};
use object_store::path::Path as ObjectPath;
use strata_store::error::BASE_PART_NAME;
use strata_store::store::Store;
use strata_store::{Result, StorageError};
use strata_types::version::VersionFile;

use super::file_reader::FileReader;
use super::object_file::ObjectFile;
use crate::aux_index::{AuxIndex, AuxKey, AuxLookup, CachedAuxIndex};
use crate::cache::PartCache;
use crate::cached_part::{CachedPart, PartKey};
use crate::extent_list::{ExtentList, RowGroupSpan};
use crate::footer::FileFooter;
use crate::layout::FileLayout;
use crate::overlay::{Extent, Overlay};
use crate::profile::{ProfilePaths, ProfileSummary, StoredProfile};
use crate::reader_metrics::ReaderMetrics;

const AUX_INDEX_CAPACITY_DIVISOR: u64 = 4;

/// Access to all parts of an open version. Rows are addressed by row group, or by their position in the version. Clones
/// share the footers and the cache.
#[derive(Clone)]
pub struct VersionReader {
    /// The files of the version, to which extents refer by index. The first one is the version file itself.
    pub(super) files: Arc<[FileReader]>,
    pub(super) extent_list: Arc<ExtentList>,
}

impl std::fmt::Debug for VersionReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.version_file().object_file.path;
        formatter.debug_struct("VersionReader").field("path", path).finish_non_exhaustive()
    }
}

impl VersionReader {
    /// Opens a version. Costs one or two requests for the file, and in parallel for each base of a delta file, and none
    /// if the footers are cached.
    pub async fn open(store: &Store, path: &ObjectPath, size_bytes: u64, cache: &PartCache) -> Result<VersionReader> {
        let version_file = FileReader::open(store, path, size_bytes, cache).await?;
        if let Some(overlay) = &version_file.footer.layout.overlay {
            return Box::pin(VersionReader::open_delta(&version_file, overlay)).await;
        }
        Ok(VersionReader { extent_list: version_file.footer.extent_list.clone(), files: [version_file].into() })
    }

    /// Returns the overlay of a delta file without opening its bases; `None` if the file is complete. Costs one or two
    /// requests.
    pub async fn read_overlay(
        store: &Store,
        path: &ObjectPath,
        size_bytes: u64,
        cache: &PartCache,
    ) -> Result<Option<Overlay>> {
        let version_file = FileReader::open(store, path, size_bytes, cache).await?;
        Ok(version_file.footer.layout.overlay.clone())
    }

    async fn open_delta(version_file: &FileReader, overlay: &Overlay) -> Result<VersionReader> {
        let ObjectFile { store, cache, .. } = &version_file.object_file;
        let load = || async {
            let bases = overlay.bases.iter().map(async |base| {
                let path = ObjectPath::from(base.path.as_str());
                let opened = FileReader::open(store, &path, base.size_bytes, cache).await;
                opened.map(|base| (path, base.footer)).map_err(|error| match error.is_file_damage() {
                    true => {
                        let cause = StorageError::InvalidFile(error.to_string());
                        version_file.object_file.report_damage(BASE_PART_NAME, cause)
                    }
                    false => error,
                })
            });
            let bases: Arc<[_]> = try_join_all(bases).await?.into();
            let footers: Vec<_> = bases.iter().map(|(_, footer)| footer.clone()).collect();
            let list = version_file.footer.resolve_extents(overlay, &footers);
            let list = list.map_err(|error| version_file.object_file.report_damage("its extents", error))?;
            Ok(CachedPart::Extents { list: Arc::new(list), bases })
        };
        let loaded = cache.get_or_load(PartKey::Extents { file: version_file.footer.id }, load).await?;
        let CachedPart::Extents { list, bases } = loaded else { return Err(StorageError::wrong_part_kind()) };
        let base_reader = |(path, footer): &(ObjectPath, Arc<FileFooter>)| {
            let object_file = ObjectFile {
                store: store.clone(),
                path: path.clone(),
                size_bytes: footer.size_bytes,
                cache: cache.clone(),
                readahead: None,
            };
            FileReader { object_file, footer: footer.clone() }
        };
        let files = std::iter::once(version_file.clone()).chain(bases.iter().map(base_reader)).collect();
        Ok(VersionReader { files, extent_list: list })
    }

    pub(crate) fn version_file(&self) -> &FileReader {
        &self.files[usize::from(Extent::OWN)]
    }

    pub(super) fn cache(&self) -> &PartCache {
        &self.version_file().object_file.cache
    }

    /// Opens a file. [`StorageError::Damaged`] if its footer does not match the record in the metadata database.
    pub async fn open_recorded(store: &Store, file: &VersionFile, cache: &PartCache) -> Result<VersionReader> {
        VersionReader::open_and_check_description(store, &file.into(), "the metadata database", cache).await
    }

    fn map_files(&self, change: impl Fn(&mut ObjectFile)) -> VersionReader {
        let mut files = self.files.to_vec();
        files.iter_mut().for_each(|reader| change(&mut reader.object_file));
        VersionReader { files: files.into(), extent_list: self.extent_list.clone() }
    }

    pub fn with_metrics(&self, metrics: Arc<ReaderMetrics>) -> VersionReader {
        self.map_files(|file| file.cache.reader_metrics = Some(metrics.clone()))
    }

    pub fn without_metrics_and_readahead(&self) -> VersionReader {
        self.map_files(|file| {
            file.cache.reader_metrics = None;
            file.readahead = None;
        })
    }

    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.extent_list.extents()
    }

    pub fn layout(&self) -> &FileLayout {
        &self.version_file().footer.layout
    }

    /// Checks the footer index and the locations of the other indexes. If the file was opened with the footer index,
    /// the Parquet footer is fetched and compared. The bases of a delta file are not checked.
    pub async fn verify_footer_index(&self) -> Result<()> {
        self.version_file().verify_footer_index().await
    }

    /// Reads the whole profile. Costs one request, and some milliseconds for thousands of paths; not cached.
    pub async fn profile(&self) -> Result<StoredProfile> {
        self.version_file().load_profile(StoredProfile::decode).await
    }

    pub async fn cached_profile_paths(&self) -> Option<Arc<ProfilePaths>> {
        let key = PartKey::ProfilePaths { file: self.version_file().footer.id };
        let CachedPart::ProfilePaths(paths) = self.cache().get(&key).await? else { return None };
        Some(paths)
    }

    /// Returns the paths of the profile. Costs as much as [`VersionReader::profile`] the first time; then cached.
    pub async fn profile_paths(&self) -> Result<Arc<ProfilePaths>> {
        let decode = |bytes: &[u8]| ProfilePaths::decode(bytes).map(|paths| CachedPart::ProfilePaths(Arc::new(paths)));
        let load = || self.version_file().load_profile(decode);
        let key = PartKey::ProfilePaths { file: self.version_file().footer.id };
        let loaded = self.cache().get_or_load(key, load).await?;
        let CachedPart::ProfilePaths(paths) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(paths)
    }

    /// Returns the summary of the profile. Costs as much as [`VersionReader::profile`] the first time; then cached.
    pub async fn profile_summary(&self) -> Result<Arc<ProfileSummary>> {
        let decode =
            |bytes: &[u8]| ProfileSummary::decode(bytes).map(|summary| CachedPart::ProfileSummary(Arc::new(summary)));
        let load = || self.version_file().load_profile(decode);
        match self.cache().get_or_load(PartKey::ProfileSummary { file: self.version_file().footer.id }, load).await? {
            CachedPart::ProfileSummary(summary) => Ok(summary),
            _ => Err(StorageError::wrong_part_kind()),
        }
    }

    /// Returns whether an index of this size leaves most of the cache to other parts, and positions fit into 32 bits.
    pub fn can_cache_index(&self, bytes_per_entity: u64) -> bool {
        let entities = self.entity_count();
        entities < u64::from(u32::MAX)
            && entities.saturating_mul(bytes_per_entity) <= self.cache().capacity_bytes() / AUX_INDEX_CAPACITY_DIVISOR
    }

    pub async fn cached_aux_index<T: AuxIndex>(&self, key: AuxKey) -> AuxLookup<T> {
        match self.cache().get(&PartKey::AuxIndex { file: self.version_file().footer.id, key }).await {
            Some(CachedPart::AuxIndex(cached)) => cached.lookup(),
            _ if self.can_cache_index(T::MAX_BYTES_PER_ENTITY) => AuxLookup::Miss,
            _ => AuxLookup::Unsupported,
        }
    }

    /// Returns an auxiliary index, and builds it if it is not cached. Concurrent callers share one build. `build`
    /// returns `None` if the file cannot have the index. Errors are not cached.
    pub async fn build_aux_index<T: AuxIndex>(
        &self,
        key: AuxKey,
        build: BoxFuture<'_, Result<Option<T>>>,
    ) -> Result<AuxLookup<T>> {
        if !self.can_cache_index(T::MAX_BYTES_PER_ENTITY) {
            return Ok(AuxLookup::Unsupported);
        }
        let key = PartKey::AuxIndex { file: self.version_file().footer.id, key };
        let load = || async { Ok(CachedPart::AuxIndex(CachedAuxIndex::new(build.await?))) };
        let loaded = self.cache().get_or_load(key, load).await?;
        let CachedPart::AuxIndex(cached) = loaded else { return Err(StorageError::wrong_part_kind()) };
        Ok(cached.lookup())
    }

    pub fn entity_count(&self) -> u64 {
        self.layout().entity_count
    }

    pub fn row_groups(&self) -> &[RowGroupSpan] {
        &self.extent_list.row_groups
    }

    /// Returns the row group with this position, which must exist.
    pub fn row_group_at(&self, position: u64) -> usize {
        self.row_groups().partition_point(|row_group| row_group.first_position <= position) - 1
    }
}
