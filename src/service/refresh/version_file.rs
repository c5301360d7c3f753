//! Writes version files, so that no failure leaves a file that neither a version nor a sweep can find.
//!
//! 1. A new path is reserved, by the lease of a refresh or separately, so that no sweep removes the file.
//! 2. A thread with a refresh permit writes the file while the reservation is renewed.
//! 3. The catalog records the file, which ends the reservation. If not, dropping the [`ReservedVersionFile`] or
//!    [`WrittenFile`] abandons the file: it ends the reservation and removes the file.
//!
//! If the process is killed, the reservation expires, and a sweep removes the file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogError, RefreshLease};
use strata_format::cache::PartCache;
use strata_format::delta::{self, DeltaPlan};
use strata_format::editing::DeltaFileLimits;
use strata_format::reader::VersionReader;
use strata_format::spool::FinishedSpool;
use strata_format::writer::{self, DeltaFileSpec, WriteOptions, WrittenVersionFile};
use strata_runtime::failpoint;
use strata_runtime::priority::{ThreadWork, processor_count};
use strata_store::StorageError;
use strata_store::store::Store;
use strata_types::dataset::Dataset;
use strata_types::index_settings::IndexSettings;
use strata_types::version::{NewVersionFile, VersionFile};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::maintenance::scrub::{BytePacer, verify_file_in_task};
use crate::maintenance::store_identity::StoreIdentityCheck;
use crate::refresh::decoding::RefreshCounters;
use crate::refresh::error::{RefreshError, Result};
use crate::refresh::ingest::RefreshPermit;
use crate::refresh::tasks::run_on_thread;
use crate::version_path::new_version_path;

const RESERVATION_LEASE: Duration = Duration::from_secs(300);
const RESERVATION_RENEW_INTERVAL: Duration = Duration::from_secs(75);

/// Cache of a version while all of its entities are read in order: some pages of each of its files.
const SEQUENTIAL_CACHE_BYTES: u64 = 64 << 20;

/// Limits of the delta files of refreshes. Their entities are spooled to disk, so that their bytes need no limit.
pub(super) const REFRESH_LIMITS: DeltaFileLimits = DeltaFileLimits {
    min_list_bytes: 1 << 20,
    max_gap_rows: 0,
    max_extents: 1 << 19,
    min_rows_per_extent: 4,
    max_delta_bytes: u64::MAX,
    max_delta_percent: 20,
};

pub(crate) struct VersionFiles {
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    pub(crate) cache: PartCache,
    pub(crate) store_identity: Arc<StoreIdentityCheck>,
}

impl VersionFiles {
    /// Reads a whole version file and its bases, uncached, and returns true if they are undamaged. An error is a
    /// temporary failure.
    pub(crate) async fn is_intact(&self, file: &VersionFile) -> Result<bool> {
        let bases = self.catalog.bases_of_file(file.id).await?;
        for file in std::iter::once(file).chain(&bases) {
            if let Err(damage) = verify_file_in_task(&self.store, file, &mut BytePacer::new(0)).await? {
                tracing::warn!(path = file.path, error = %damage, "found damaged version file; not reusing it");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Plans a delta file of a spooled list. Returns `None` if the list shares too little with the previous version, or
    /// if its file cannot be read. Blocks the thread.
    fn plan_delta(
        &self,
        previous: &VersionFile,
        spooled: &mut FinishedSpool,
        options: &WriteOptions,
        runtime: &Handle,
    ) -> Option<DeltaPlan> {
        let mut plan = || {
            let previous = runtime.block_on(self.open_for_sequential_read(previous))?;
            delta::plan_delta(&previous, spooled, &REFRESH_LIMITS, options, runtime)
        };
        plan().unwrap_or_else(|error| {
            tracing::warn!(%error, path = previous.path, "failed to compare with the previous version; writing all");
            None
        })
    }

    pub(crate) async fn open(&self, file: &VersionFile) -> Result<VersionReader, StorageError> {
        VersionReader::open_recorded(&self.store, file, &self.cache).await
    }

    /// Opens a version with a separate cache, because reading all of it would evict other parts from the shared cache.
    pub(super) async fn open_for_sequential_read(&self, file: &VersionFile) -> Result<VersionReader, StorageError> {
        VersionReader::open_recorded(&self.store, file, &PartCache::new(SEQUENTIAL_CACHE_BYTES)).await
    }

    /// Returns the file of the newest version if it was written with the current index settings of the dataset.
    pub(crate) async fn find_reusable(&self, dataset: &Dataset) -> Result<Option<VersionFile>> {
        let Some(latest) = dataset.latest_version else { return Ok(None) };
        match self.catalog.version(dataset.id, latest).await {
            Ok(record) => Ok(self.if_reusable(record.version.file, dataset).await),
            Err(error @ CatalogError::DamagedRecord { .. }) => {
                tracing::warn!(%error, "failed to verify version file; writing a new one");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the file of the newest version with this content, under the same condition.
    pub(crate) async fn find_reusable_with_content(
        &self,
        dataset: &Dataset,
        content_hash: &str,
    ) -> Result<Option<VersionFile>> {
        match self.catalog.file_with_content(dataset.id, content_hash).await? {
            Some(file) => Ok(self.if_reusable(file, dataset).await),
            None => Ok(None),
        }
    }

    async fn if_reusable(&self, file: VersionFile, dataset: &Dataset) -> Option<VersionFile> {
        match VersionReader::open_recorded(&self.store, &file, &self.cache).await {
            Ok(reader) => (reader.layout().index == dataset.index).then_some(file),
            Err(error) => {
                tracing::warn!(%error, path = file.path, "failed to open version file; writing a new one");
                None
            }
        }
    }

    /// Reserves a path without a refresh lease, for an alternate (an edited copy of a version), a new dataset, or a
    /// compaction.
    pub(crate) async fn reserve_path(self: &Arc<Self>) -> Result<ReservedVersionFile> {
        let path = new_version_path();
        self.catalog.reserve_file(path.as_ref(), RESERVATION_LEASE).await?;
        Ok(ReservedVersionFile::new(self.clone(), path, ReservationOwner::Writer))
    }

    pub(crate) fn file_reserved_by_lease(self: &Arc<Self>, lease: &RefreshLease) -> ReservedVersionFile {
        ReservedVersionFile::new(self.clone(), ObjectPath::from(lease.path.as_str()), ReservationOwner::RefreshLease)
    }

    async fn renew_reservation_until_lost(&self, path: &str) -> RefreshError {
        let mut reserved_at = Instant::now();
        loop {
            tokio::time::sleep(RESERVATION_RENEW_INTERVAL).await;
            // The reservation has expired, so a sweep can have removed the file.
            if reserved_at.elapsed() >= RESERVATION_LEASE {
                return CatalogError::ReservationLost.into();
            }
            let renewed_at = Instant::now();
            match self.catalog.reserve_file(path, RESERVATION_LEASE).await {
                Ok(()) => reserved_at = renewed_at,
                Err(error) => tracing::warn!(%error, path, "failed to renew file reservation"),
            }
        }
    }

    /// Ends a reservation and removes its file, unless a commit with a lost response has recorded the file.
    async fn release_and_remove_file(&self, path: &ObjectPath) -> Result<()> {
        // The call waits for a transaction that records the file, because the transaction locks the reservation's row.
        self.catalog.release_file_reservation(path.as_ref()).await?;
        if !self.catalog.find_known_paths(&[path.as_ref()]).await?.is_empty() {
            return Ok(());
        }
        Ok(self.remove_file(path).await?)
    }

    async fn remove_file(&self, path: &ObjectPath) -> Result<(), StorageError> {
        match self.store.object_store().delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReservationOwner {
    /// The path has its own reservation, which the writer of the file renews.
    Writer,
    /// The lease of a refresh reserves the path. The refresh attempt ends the lease before it abandons the file.
    RefreshLease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionFileState {
    Reserved,
    Written,
    /// The catalog might contain a record of the file, so dropping the value does not remove the file.
    Recorded,
}

type WriteFn = Box<dyn FnOnce(&ReservedVersionFile) -> Result<WrittenVersionFile, StorageError> + Send>;

/// A reserved path of a version file. Dropping the value abandons the file.
pub(crate) struct ReservedVersionFile {
    files: Arc<VersionFiles>,
    path: ObjectPath,
    reserved_by: ReservationOwner,
    state: VersionFileState,
    runtime: Handle,
}

/// A version file that the catalog has not recorded yet. Dropping the value abandons the file.
pub(crate) struct WrittenFile {
    pub new: NewVersionFile,
    reserved: ReservedVersionFile,
}

impl ReservedVersionFile {
    fn new(files: Arc<VersionFiles>, path: ObjectPath, reserved_by: ReservationOwner) -> ReservedVersionFile {
        ReservedVersionFile { files, path, reserved_by, state: VersionFileState::Reserved, runtime: Handle::current() }
    }

    /// Writes the file of a spool: a delta file if the list shares enough entities with the previous version, which
    /// must have these index settings, or a complete file, whose profile and settings determine the indexed columns.
    pub(crate) async fn write_version(
        self,
        spooled: FinishedSpool,
        previous: Option<VersionFile>,
        index_settings: IndexSettings,
        permit: &RefreshPermit,
        progress: &Arc<RefreshCounters>,
    ) -> Result<WrittenFile> {
        let progress = progress.clone();
        let write = move |ReservedVersionFile { files, path, runtime, .. }: &ReservedVersionFile| {
            ThreadWork::default().record_and_lower_priority(spooled.profile.document_bytes);
            let report = |entities| {
                progress.entities_written.store(entities, Ordering::Relaxed);
                failpoint::trigger_failpoint("file.writing");
            };
            let mut spooled = spooled;
            let options = WriteOptions { worker_threads: processor_count(), index_settings, ..WriteOptions::default() };
            let planned = previous.and_then(|previous| files.plan_delta(&previous, &mut spooled, &options, runtime));
            match planned {
                Some(DeltaPlan { spooled: own, list, profile }) => {
                    failpoint::trigger_failpoint("file.writing");
                    let written = writer::write_delta(&files.store, path, own, list, &profile, &options, runtime)?;
                    progress.entities_written.store(written.entity_count, Ordering::Relaxed);
                    Ok(written)
                }
                None => writer::write_version(&files.store, path, spooled, &options, runtime, &report),
            }
        };
        self.write_with_reservation(Box::new(write), permit).await
    }

    /// Writes the delta file of a list from its spooled new entities and its encoded profile.
    pub(crate) async fn write_delta(
        self,
        spooled: FinishedSpool,
        list: DeltaFileSpec,
        profile: Vec<u8>,
        permit: &RefreshPermit,
    ) -> Result<WrittenFile> {
        let write = move |ReservedVersionFile { files, path, runtime, .. }: &ReservedVersionFile| {
            failpoint::trigger_failpoint("file.writing");
            writer::write_delta(&files.store, path, spooled, list, &profile, &WriteOptions::default(), runtime)
        };
        self.write_with_reservation(Box::new(write), permit).await
    }

    async fn write_with_reservation(self, write: WriteFn, permit: &RefreshPermit) -> Result<WrittenFile> {
        if self.reserved_by == ReservationOwner::RefreshLease {
            return self.write_on_thread(write, permit).await;
        }
        let files = self.files.clone();
        let path = self.path.clone();
        let written = async {
            let written = self.write_on_thread(write, permit).await?;
            // The file must be in the store that belongs to the catalog, because the store might have been replaced.
            match files.store_identity.verify().await {
                Ok(()) => Ok(written),
                Err(error) => {
                    written.abandon().await;
                    Err(error.into())
                }
            }
        };
        tokio::select! {
            written = written => written,
            error = files.renew_reservation_until_lost(path.as_ref()) => Err(error),
        }
    }

    async fn write_on_thread(mut self, write: WriteFn, permit: &RefreshPermit) -> Result<WrittenFile> {
        let files = self.files.clone();
        let permit = permit.clone();
        let work = move || {
            let _permit = permit;
            let new = write(&self).map(|written| {
                failpoint::trigger_failpoint("file.written");
                self.state = VersionFileState::Written;
                NewVersionFile {
                    path: self.path.to_string(),
                    size_bytes: written.size_bytes,
                    entity_count: written.entity_count,
                    content_hash: written.content_sha256,
                    bases: written.bases,
                }
            });
            (self, new)
        };
        match run_on_thread("write", work).await? {
            (reserved, Ok(new)) => Ok(WrittenFile { new, reserved }),
            (reserved, Err(error)) => {
                // The error is classified outside of the writing thread, whose low priority new threads would inherit.
                let error = files.store.detect_missing_store(error).await;
                reserved.abandon().await;
                Err(error.into())
            }
        }
    }

    /// Ends the reservation of the file and removes the file, or leaves the file to the sweep.
    pub(crate) async fn abandon(mut self) {
        let state = std::mem::replace(&mut self.state, VersionFileState::Recorded);
        abandon(&self.files, &self.path, self.reserved_by, state).await;
    }
}

async fn abandon(files: &VersionFiles, path: &ObjectPath, reserved_by: ReservationOwner, state: VersionFileState) {
    let abandoned = match (reserved_by, state) {
        (ReservationOwner::Writer, _) => files.release_and_remove_file(path).await,
        // The thread that writes a file removes an incomplete file itself.
        (ReservationOwner::RefreshLease, VersionFileState::Reserved) => Ok(()),
        (ReservationOwner::RefreshLease, _) => files.remove_file(path).await.map_err(RefreshError::from),
    };
    if let Err(error) = abandoned {
        tracing::warn!(?error, %path, "failed to remove unused version file; leaving it for the sweep");
    }
}

impl Drop for ReservedVersionFile {
    fn drop(&mut self) {
        if self.state != VersionFileState::Recorded {
            let files = self.files.clone();
            let path = self.path.clone();
            let reserved_by = self.reserved_by;
            let state = self.state;
            self.runtime.spawn(async move { abandon(&files, &path, reserved_by, state).await });
        }
    }
}

impl WrittenFile {
    /// Runs `record`, which records the file in the catalog. An error abandons the file unless it was recorded anyway.
    pub(crate) async fn record_in_catalog<T, E>(mut self, record: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.reserved.state = VersionFileState::Recorded;
        let result = record.await;
        if result.is_err() {
            self.reserved.abandon().await;
        }
        result
    }

    /// Leaves the file in the store, because the catalog might record it. If not, the sweep removes the file.
    pub(crate) fn leave_in_store(mut self) {
        self.reserved.state = VersionFileState::Recorded;
    }

    pub(crate) async fn abandon(self) {
        self.reserved.abandon().await;
    }
}
