//! Entities to a version file: written to the store under a name never used before.
//!
//! Writing runs on a thread of its own, which keeps the permit that it works in until it ends. Dropping what waits for
//! it leaves it, and whatever it had made goes with it: a file that is written belongs to an [`UnpublishedFile`], which
//! removes it unless it is kept.
//!
//! Files that no refresh holds, those of alternates and of datasets that are not there yet, are made in three steps:
//! 1. Entities are received, and decoded into a spool, of which nobody knows.
//! 2. The file's path is reserved, so that no sweep takes the file for one that a crash left behind; then it is
//!    written. The reservation is renewed for as long as that takes.
//! 3. The catalog records the file, which ends the reservation; or the file is abandoned
//!    ([`VersionFiles::abandon_file`]).
//!
//! Whatever happens in between, a killed process too, the file ends up recorded, removed, or neither recorded nor
//! reserved, so that the next sweep finds it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::catalog::{Catalog, CatalogError};
use crate::config::VERSIONS_FOLDER;
use crate::crash;
use crate::model::dataset::Dataset;
use crate::model::index::IndexSettings;
use crate::model::version::{NewFile, VersionFile};
use crate::priority::{Work, processors};
use crate::service::maintenance::binding::StoreBinding;
use crate::service::maintenance::scrub::is_sound;
use crate::service::refresh::decoding::ImportProgress;
use crate::service::refresh::error::RefreshError;
use crate::service::refresh::ingest::RefreshPermit;
use crate::service::refresh::threads::on_thread;
use crate::storage::StorageError;
use crate::storage::cache::PartCache;
use crate::storage::reader::VersionReader;
use crate::storage::spool::Spooled;
use crate::storage::store::Store;
use crate::storage::writer::{self, WriteOptions};

/// How long a path stays reserved without a sign of life from its writer.
const RESERVED: Duration = Duration::from_secs(300);

/// How often a writer gives one.
const RENEWED: Duration = Duration::from_secs(75);

/// A version file that is written and that no record names yet. Removed when dropped.
pub(in crate::service) struct UnpublishedFile {
    /// What is to be recorded of it.
    pub new: NewFile,
    path: ObjectPath,
    store: Store,
    runtime: Handle,
    removed_when_dropped: bool,
}

impl UnpublishedFile {
    /// Leaves it where it is: a record names it now, or may do so.
    pub(in crate::service) fn keep(mut self) {
        self.removed_when_dropped = false;
    }

    /// Removes it.
    pub(in crate::service) async fn remove(mut self) {
        self.removed_when_dropped = false;
        remove(&self.store, &self.path).await;
    }
}

impl Drop for UnpublishedFile {
    fn drop(&mut self) {
        if self.removed_when_dropped {
            let (store, path) = (self.store.clone(), self.path.clone());
            self.runtime.spawn(async move { remove(&store, &path).await });
        }
    }
}

async fn remove(store: &Store, path: &ObjectPath) {
    match store.objects().delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
        // The sweep finds it.
        Err(error) => tracing::warn!(%error, %path, "a version file that was not published could not be removed"),
    }
}

/// A path in the store that no file had before.
pub(in crate::service) fn new_path() -> ObjectPath {
    ObjectPath::from(format!("{VERSIONS_FOLDER}/{}.parquet", hex::encode(rand::random::<[u8; 16]>())))
}

/// Makes version files.
pub(in crate::service) struct VersionFiles {
    catalog: Catalog,
    store: Store,
    cache: PartCache,
    binding: Arc<StoreBinding>,
}

impl VersionFiles {
    pub(in crate::service) fn new(
        catalog: Catalog,
        store: Store,
        cache: PartCache,
        binding: Arc<StoreBinding>,
    ) -> VersionFiles {
        VersionFiles { catalog, store, cache, binding }
    }

    /// Makes sure that the store is there, and the catalog's own.
    ///
    /// # Errors
    /// [`StorageError::Gone`], and what the store answers.
    pub(in crate::service) async fn verify_store(&self) -> Result<(), StorageError> {
        self.binding.verify().await
    }

    /// Whether every byte of a file that a read may use is what was written. Reads it whole, past the cache.
    ///
    /// # Errors
    /// When the store, or this process, cannot read at the moment, which says nothing of the file.
    pub(in crate::service) async fn is_sound(&self, file: &VersionFile) -> Result<bool, StorageError> {
        is_sound(&self.store, file).await
    }

    /// The file of the newest version, if the same entities would be written as they are in it: not where the dataset's
    /// index was another one, or an older build wrote it, without a profile or without checksums, or it cannot be read.
    pub(in crate::service) async fn reusable(&self, dataset: &Dataset) -> Result<Option<VersionFile>, RefreshError> {
        let Some(latest) = dataset.latest_version else { return Ok(None) };
        let file = match self.catalog.version(dataset.id, latest).await {
            Ok(record) => record.version.file,
            Err(error @ CatalogError::Unverified { .. }) => {
                tracing::warn!(%error, "a version's file cannot be shared, and is written anew");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        match VersionReader::open_recorded(&self.store, &file, &self.cache).await {
            Ok(reader) if reader.has_profile() && reader.has_checksums() && reader.layout().index == dataset.index => {
                Ok(Some(file))
            }
            Ok(_) => Ok(None),
            Err(error) => {
                tracing::warn!(%error, path = file.path, "a version file cannot be shared, and is written anew");
                Ok(None)
            }
        }
    }

    /// Writes a spool to `path`, which is reserved, holding the permit, with the shredded columns that its profile and
    /// the index choose.
    pub(in crate::service) async fn write_file(
        &self,
        spooled: Spooled,
        path: ObjectPath,
        index: IndexSettings,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<UnpublishedFile, RefreshError> {
        let (store, runtime, progress) = (self.store.clone(), Handle::current(), progress.clone());
        let threads = processors();
        let permit = permit.clone();
        let work = move || {
            let _permit = permit;
            Work::default().add(spooled.profile().document_bytes());
            let options = WriteOptions { threads, index, ..WriteOptions::default() };
            let report = |entities| {
                progress.entities_written.store(entities, Ordering::Relaxed);
                crash::point("file.writing");
            };
            let written = writer::write_version(&store, &path, spooled, &options, &runtime, &report)?;
            crash::point("file.written");
            let new = NewFile {
                path: path.to_string(),
                size_bytes: written.size_bytes,
                entity_count: written.entity_count,
                content_hash: written.content_sha256,
            };
            Ok::<_, StorageError>(UnpublishedFile { new, path, store, runtime, removed_when_dropped: true })
        };
        match on_thread("write", work).await? {
            Ok(file) => Ok(file),
            // Asked here: the thread that wrote gives way, and must begin no threads of the runtime.
            Err(error) => Err(self.store.meaning(error).await.into()),
        }
    }

    /// Writes entities to a new file of the store, holding the permit, reserved until it is recorded or abandoned.
    ///
    /// # Errors
    /// [`RefreshError`]; the file is abandoned then.
    pub(in crate::service) async fn write_reserved(
        &self,
        entities: Spooled,
        index: IndexSettings,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<UnpublishedFile, RefreshError> {
        let path = new_path();
        self.catalog.reserve_file(path.as_ref(), RESERVED).await?;
        let written = tokio::select! {
            written = self.write_there(entities, path.clone(), index, permit, progress) => written,
            error = self.keep_reserved(path.as_ref()) => Err(error),
        };
        if written.is_err() {
            self.abandon_file(path.as_ref()).await;
        }
        written
    }

    /// Writes a file, and makes sure that the store that has it now is the catalog's.
    async fn write_there(
        &self,
        entities: Spooled,
        path: ObjectPath,
        index: IndexSettings,
        permit: &RefreshPermit,
        progress: &Arc<ImportProgress>,
    ) -> Result<UnpublishedFile, RefreshError> {
        let file = self.write_file(entities, path, index, permit, progress).await?;
        match self.verify_store().await {
            Ok(()) => Ok(file),
            Err(error) => Err(error.into()),
        }
    }

    /// Renews a reservation for ever; the error is that it can have been lost.
    async fn keep_reserved(&self, path: &str) -> RefreshError {
        let mut reserved = Instant::now();
        loop {
            tokio::time::sleep(RENEWED).await;
            // Reserving again what expired would hide that a sweep may have removed the file meanwhile.
            if reserved.elapsed() >= RESERVED {
                return CatalogError::ReservationLost.into();
            }
            let asked = Instant::now();
            match self.catalog.reserve_file(path, RESERVED).await {
                Ok(()) => reserved = asked,
                Err(error) => tracing::warn!(%error, path, "a reservation could not be renewed"),
            }
        }
    }

    /// Gives up a file whose recording failed or was never tried: removes it, unless it is recorded after all, as a
    /// commit may succeed whose answer is lost. What cannot be removed now is left for the sweep.
    pub(in crate::service) async fn abandon_file(&self, path: &str) {
        if let Err(error) = self.try_abandon(path).await {
            tracing::warn!(cause = ?error, path, "an unused version file stays for the sweep");
        }
    }

    async fn try_abandon(&self, path: &str) -> Result<(), RefreshError> {
        // Waits for a transaction that records the file, if one is still under way: it holds the reservation's row.
        self.catalog.release_file(path).await?;
        if !self.catalog.files_named(&[path]).await?.is_empty() {
            return Ok(());
        }
        match self.store.objects().delete(&ObjectPath::from(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(StorageError::from(error).into()),
        }
    }
}
