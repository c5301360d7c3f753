//! Version files: reserved, written, and recorded or abandoned.
//!
//! 1. A new path is reserved with the lease of a refresh, or separately, so that no sweep removes the file.
//! 2. A thread writes the file. It has the permit until it ends, and the reservation is renewed until then.
//! 3. The catalog records the file, which ends the reservation; or the file is abandoned, at the latest when its
//!    [`ReservedFile`] or [`WrittenFile`] is dropped.
//!
//! After any failure, even a killed process, the file is recorded, removed, or neither recorded nor reserved, so that
//! the next sweep removes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogError, RefreshLease};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_format::spool::Spooled;
use strata_format::writer::{self, EditedList, WriteOptions, Written};
use strata_runtime::crash;
use strata_runtime::priority::{Work, processors};
use strata_store::StorageError;
use strata_store::store::Store;
use strata_types::dataset::Dataset;
use strata_types::index::IndexSettings;
use strata_types::version::{NewFile, VersionFile};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::maintenance::binding::StoreBinding;
use crate::maintenance::scrub::{BytesPerSecond, verify_apart};
use crate::refresh::decoding::ImportProgress;
use crate::refresh::error::RefreshError;
use crate::refresh::ingest::RefreshPermit;
use crate::refresh::tasks::on_thread;
use crate::version_path::new_path;

/// The lease of a reservation.
const LEASE: Duration = Duration::from_secs(300);

/// How often a writer renews its reservation.
const RENEW_INTERVAL: Duration = Duration::from_secs(75);

pub(crate) struct VersionFiles {
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    pub(crate) cache: PartCache,
    pub(crate) binding: Arc<StoreBinding>,
}

impl VersionFiles {
    /// Reads a file in full, without the cache, and returns whether it is unchanged. An error means that the store or
    /// this process cannot read at the moment.
    pub(crate) async fn is_sound(&self, file: &VersionFile) -> Result<bool, StorageError> {
        let damage = verify_apart(&self.store, file, &mut BytesPerSecond::new(0)).await?.err();
        if let Some(damage) = &damage {
            tracing::warn!(path = file.path, error = %damage, "found damaged version file; not reusing it");
        }
        Ok(damage.is_none())
    }

    pub(crate) async fn open(&self, file: &VersionFile) -> Result<VersionReader, StorageError> {
        VersionReader::open_recorded(&self.store, file, &self.cache).await
    }

    /// The newest version's file, if strata would write the same entities in the same way.
    pub(crate) async fn reusable(&self, dataset: &Dataset) -> Result<Option<VersionFile>, RefreshError> {
        let Some(latest) = dataset.latest_version else { return Ok(None) };
        let file = match self.catalog.version(dataset.id, latest).await {
            Ok(record) => record.version.file,
            Err(error @ CatalogError::Unverified { .. }) => {
                tracing::warn!(%error, "failed to verify version file; writing a new one");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        match VersionReader::open_recorded(&self.store, &file, &self.cache).await {
            Ok(reader) if reader.layout().index == dataset.index => Ok(Some(file)),
            Ok(_) => Ok(None),
            Err(error) => {
                tracing::warn!(%error, path = file.path, "failed to open version file; writing a new one");
                Ok(None)
            }
        }
    }

    /// Reserves a path for a file without a refresh: of an alternate, or of a new dataset.
    pub(crate) async fn reserve(self: &Arc<Self>) -> Result<ReservedFile, RefreshError> {
        let path = new_path();
        self.catalog.reserve_file(path.as_ref(), LEASE).await?;
        Ok(ReservedFile::new(self.clone(), path, ReservedBy::Itself))
    }

    pub(crate) fn reserved_with(self: &Arc<Self>, lease: &RefreshLease) -> ReservedFile {
        ReservedFile::new(self.clone(), ObjectPath::from(lease.path.as_str()), ReservedBy::Lease)
    }

    async fn keep_reserved(&self, path: &str) -> RefreshError {
        let mut reserved = Instant::now();
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            // A sweep can have removed the file of an expired reservation.
            if reserved.elapsed() >= LEASE {
                return CatalogError::ReservationLost.into();
            }
            let asked = Instant::now();
            match self.catalog.reserve_file(path, LEASE).await {
                Ok(()) => reserved = asked,
                Err(error) => tracing::warn!(%error, path, "failed to renew file reservation"),
            }
        }
    }

    /// Ends a reservation and removes its file, unless a commit whose response was lost has recorded it.
    async fn release(&self, path: &ObjectPath) -> Result<(), RefreshError> {
        // Waits for a running transaction that records the file, which locks the reservation's row.
        self.catalog.release_file(path.as_ref()).await?;
        if !self.catalog.files_named(&[path.as_ref()]).await?.is_empty() {
            return Ok(());
        }
        Ok(self.remove(path).await?)
    }

    async fn remove(&self, path: &ObjectPath) -> Result<(), StorageError> {
        match self.store.objects().delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReservedBy {
    /// A separate reservation, which its writer renews.
    Itself,
    /// The lease of a refresh. Its holder ends the attempt before it abandons the file.
    Lease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Reserved,
    Written,
    /// A record can name the file.
    Left,
}

type WriteFile = Box<dyn FnOnce(&ReservedFile) -> Result<Written, StorageError> + Send>;

/// A path that is reserved for a version file. Dropping it abandons the file.
pub(crate) struct ReservedFile {
    files: Arc<VersionFiles>,
    path: ObjectPath,
    by: ReservedBy,
    stage: Stage,
    runtime: Handle,
}

/// A version file that no record names yet. Dropping it abandons the file.
pub(crate) struct WrittenFile {
    pub new: NewFile,
    reserved: ReservedFile,
}

impl ReservedFile {
    fn new(files: Arc<VersionFiles>, path: ObjectPath, by: ReservedBy) -> ReservedFile {
        ReservedFile { files, path, by, stage: Stage::Reserved, runtime: Handle::current() }
    }

    /// Writes a spool, with the indexed columns that its profile and the index choose. On an error the file is
    /// abandoned.
    pub(crate) async fn write(
        self,
        spooled: Spooled,
        index: IndexSettings,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<WrittenFile, RefreshError> {
        let progress = progress.clone();
        let write = move |ReservedFile { files, path, runtime, .. }: &ReservedFile| {
            Work::default().add(spooled.profile.document_bytes);
            let options = WriteOptions { threads: processors(), index, ..WriteOptions::default() };
            let report = |entities| {
                progress.entities_written.store(entities, Ordering::Relaxed);
                crash::point("file.writing");
            };
            writer::write_version(&files.store, path, spooled, &options, runtime, &report)
        };
        self.write_by(Box::new(write), permit).await
    }

    /// Writes the file of an edited list: its own entities, which are spooled, and the encoded profile of the list. On
    /// an error the file is abandoned.
    pub(crate) async fn write_edited(
        self,
        spooled: Spooled,
        list: EditedList,
        told: Vec<u8>,
        permit: &RefreshPermit,
    ) -> Result<WrittenFile, RefreshError> {
        let write = move |ReservedFile { files, path, runtime, .. }: &ReservedFile| {
            crash::point("file.writing");
            writer::write_edited(&files.store, path, spooled, &list, &told, &WriteOptions::default(), runtime)
        };
        self.write_by(Box::new(write), permit).await
    }

    async fn write_by(self, write: WriteFile, permit: &RefreshPermit) -> Result<WrittenFile, RefreshError> {
        if self.by == ReservedBy::Lease {
            return self.write_now(write, permit).await;
        }
        let files = self.files.clone();
        let path = self.path.clone();
        let written = async {
            let written = self.write_now(write, permit).await?;
            // The store with the file must belong to the catalog.
            match files.binding.verify().await {
                Ok(()) => Ok(written),
                Err(error) => {
                    written.abandon().await;
                    Err(error.into())
                }
            }
        };
        tokio::select! {
            written = written => written,
            error = files.keep_reserved(path.as_ref()) => Err(error),
        }
    }

    async fn write_now(mut self, write: WriteFile, permit: &RefreshPermit) -> Result<WrittenFile, RefreshError> {
        let files = self.files.clone();
        let permit = permit.clone();
        let work = move || {
            let _permit = permit;
            let new = write(&self).map(|written| {
                crash::point("file.written");
                self.stage = Stage::Written;
                NewFile {
                    path: self.path.to_string(),
                    size_bytes: written.size_bytes,
                    entity_count: written.entity_count,
                    content_hash: written.content_sha256,
                }
            });
            (self, new)
        };
        match on_thread("write", work).await? {
            (reserved, Ok(new)) => Ok(WrittenFile { new, reserved }),
            (reserved, Err(error)) => {
                // Not on the thread that wrote, whose low priority threads of the runtime would inherit.
                let error = files.store.meaning(error).await;
                reserved.abandon().await;
                Err(error.into())
            }
        }
    }

    /// Abandons the path, and removes the file or leaves it for the sweep.
    pub(crate) async fn abandon(mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Left);
        abandon(&self.files, &self.path, self.by, stage).await;
    }
}

async fn abandon(files: &VersionFiles, path: &ObjectPath, by: ReservedBy, stage: Stage) {
    let abandoned = match (by, stage) {
        (ReservedBy::Itself, _) => files.release(path).await,
        // The writer has removed a file that it did not finish.
        (ReservedBy::Lease, Stage::Reserved) => Ok(()),
        (ReservedBy::Lease, _) => files.remove(path).await.map_err(RefreshError::from),
    };
    if let Err(error) = abandoned {
        tracing::warn!(?error, %path, "failed to remove unused version file; leaving it for the sweep");
    }
}

impl Drop for ReservedFile {
    fn drop(&mut self) {
        if self.stage != Stage::Left {
            let files = self.files.clone();
            let path = self.path.clone();
            let by = self.by;
            let stage = self.stage;
            self.runtime.spawn(async move { abandon(&files, &path, by, stage).await });
        }
    }
}

impl WrittenFile {
    /// Records the file. On an error the file is abandoned, unless it is recorded after all. If the future is dropped,
    /// the sweep decides.
    pub(crate) async fn record<T, E>(mut self, record: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.reserved.stage = Stage::Left;
        let recorded = record.await;
        if recorded.is_err() {
            self.reserved.abandon().await;
        }
        recorded
    }

    /// Keeps the file, because a record can name it. Otherwise the sweep removes it.
    pub(crate) fn leave(mut self) {
        self.reserved.stage = Stage::Left;
    }

    pub(crate) async fn abandon(self) {
        self.reserved.abandon().await;
    }
}
