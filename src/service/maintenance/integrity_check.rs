//! Checks that the catalog's database is intact, and that every recorded file exists and is unchanged.
//!
//! A file hold prevents that a sweep removes a file between its listing and its check. Several files are checked in
//! parallel. Each finding contains the versions that need the file.

use std::pin::pin;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_catalog::{CatalogCheckDepth, CatalogError, FileRecordResult, FileReference};
use strata_config::VERSIONS_FOLDER;
use strata_format::cache::PartCache;
use strata_format::reader::{NoReadThrottle, VersionReader};
use strata_format::verify;
use strata_store::StorageError;
use strata_store::store::Store;
use strata_store::unavailable::ResourceUnavailable;
use strata_types::ids::{FileHoldId, VersionFileId};
use strata_types::version::VersionFile;

use crate::maintenance::{FILES_PER_QUERY, MaintenanceService, list_object_pages, stream_recorded_files};

const HOLD_LEASE: Duration = Duration::from_secs(180);
const HOLD_RENEW_INTERVAL: Duration = Duration::from_secs(45);

/// Maximum number of reported versions of a damaged file, because clones can share a file among any number of versions.
const MAX_REPORTED_VERSIONS: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    Footers,
    /// Verifies all bytes of a version file that a read can use.
    Everything,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckFinding {
    Damaged {
        path: String,
        reason: String,
        /// The versions that need the damaged file; `None` if the records of the versions are damaged.
        versions: Option<Vec<FileReference>>,
    },
    /// A store without the catalog's identity, in which no version can be created.
    UnidentifiedStore {
        reason: String,
    },
    DamagedCatalog {
        reason: String,
    },
    /// A version that refers to a file that has no record.
    DanglingReference(FileReference),
    /// A version file that is missing or lacks its base, and that no version needs. The next sweep removes it.
    Unneeded {
        path: String,
        reason: String,
    },
    /// A file in the store without a record, or an incomplete upload. A later sweep removes it.
    UnrecordedFile {
        path: String,
        size_bytes: u64,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    pub files: u64,
    pub bytes: u64,
    /// The number of findings, without unneeded and unrecorded files.
    pub damaged: u64,
    pub unrecorded: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error("cannot list the files in the store")]
    Store(#[from] StorageError),
    #[error("cannot read files at the moment")]
    Unavailable(#[source] StorageError),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileDamage {
    #[error("it is missing")]
    Missing,
    #[error("it has {found} bytes, but should have {recorded}")]
    SizeMismatch { found: u64, recorded: u64 },
    #[error("its documents have changed")]
    ContentMismatch,
    #[error("it cannot be read: {}", describe_without_path(.0))]
    Unreadable(#[from] StorageError),
}

fn describe_without_path(error: &StorageError) -> String {
    match error {
        StorageError::Damaged { part, cause, .. } => format!("{part}: {cause}"),
        StorageError::Unreadable { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

impl FileDamage {
    /// Returns true if a version file or its base is unavailable, but no version needs it. Changed bytes in a file are
    /// always reported, because they can indicate a failing disk.
    pub(crate) fn is_loss_of_unreferenced_file(&self, versions: Option<&[FileReference]>) -> bool {
        let is_lost = match self {
            FileDamage::Missing => true,
            FileDamage::Unreadable(error) => error.is_base_file_damaged(),
            FileDamage::SizeMismatch { .. } | FileDamage::ContentMismatch => false,
        };
        is_lost && versions.is_some_and(<[FileReference]>::is_empty)
    }

    /// Returns the damage of a file, or the error if it is a temporary failure of the store or of this process.
    pub(crate) fn into_permanent_damage(self) -> Result<FileDamage, StorageError> {
        use ResourceUnavailable::{
            DataDirectoryMissing, FileDescriptors, Memory, StoreCredentialsRejected, StoreMissing, StoreUnreachable,
            TempDirUnusable, Threads,
        };
        match self {
            FileDamage::Unreadable(error) => match ResourceUnavailable::from_error(&error) {
                Some(StoreUnreachable | StoreCredentialsRejected | FileDescriptors | Memory | Threads) => Err(error),
                Some(StoreMissing | DataDirectoryMissing | TempDirUnusable(_)) => Err(error),
                _ => Ok(FileDamage::Unreadable(error)),
            },
            damage => Ok(damage),
        }
    }
}

type FindingCallback<'a> = &'a mut (dyn FnMut(&CheckFinding) + Send);

impl MaintenanceService {
    /// Checks the catalog and every recorded file, and reports each finding to `report`.
    pub async fn check_integrity(
        &self,
        depth: CheckDepth,
        report: FindingCallback<'_>,
    ) -> Result<CheckSummary, CheckError> {
        let damaged = self.count_catalog_findings(depth, report).await?;
        let check_files = async |_| self.check_files(depth, report).await;
        let result = match self.with_file_hold(check_files).await {
            // A catalog that rejects writes cannot record a hold, but also allows no sweep to remove files.
            Err(CheckError::Catalog(error)) if error.unavailability().is_some() => {
                tracing::warn!(?error, "failed to place a hold on files; checking them without a hold");
                self.check_files(depth, report).await
            }
            result => result,
        };
        result.map(|summary| CheckSummary { damaged: summary.damaged + damaged, ..summary })
    }

    async fn count_catalog_findings(&self, depth: CheckDepth, report: FindingCallback<'_>) -> Result<u64, CheckError> {
        let mut count = 0;
        let mut report_reason = |reason| {
            count += 1;
            report(&CheckFinding::DamagedCatalog { reason });
        };
        let catalog_depth = match depth {
            CheckDepth::Footers => CatalogCheckDepth::Quick,
            CheckDepth::Everything => CatalogCheckDepth::Full,
        };
        self.catalog.check_integrity(catalog_depth, &mut report_reason).await?;
        Ok(count)
    }

    async fn check_files(&self, depth: CheckDepth, report: FindingCallback<'_>) -> Result<CheckSummary, CheckError> {
        let mut summary = CheckSummary::default();
        if let Err(error @ StorageError::StoreMissing(_)) = self.store_identity.verify().await {
            summary.damaged += 1;
            report(&CheckFinding::UnidentifiedStore { reason: error.to_string() });
        }
        let dangling = none_if_damaged(self.catalog.dangling_file_references(MAX_REPORTED_VERSIONS).await)?;
        for reference in dangling.unwrap_or_default() {
            summary.damaged += 1;
            report(&CheckFinding::DanglingReference(reference));
        }
        let max_concurrency = strata_runtime::priority::processor_count().max(2);
        let mut records = pin!(stream_recorded_files(&self.catalog, None));
        let mut inspections = FuturesUnordered::new();
        while let Some(FileRecordResult { id, file }) = records.try_next().await? {
            summary.files += 1;
            let file = match file {
                Ok(recorded) => recorded.file,
                Err(error) => {
                    summary.damaged += 1;
                    let versions = self.find_references(id).await?;
                    report(&CheckFinding::Damaged { path: describe_file_id(id), reason: error.to_string(), versions });
                    continue;
                }
            };
            summary.bytes += file.size_bytes;
            if inspections.len() >= max_concurrency
                && let Some((file, result)) = inspections.next().await
            {
                self.report_damage(&file, result, &mut summary, report).await?;
            }
            inspections.push(inspect_in_task(self.store.clone(), file, depth));
        }
        while let Some((file, result)) = inspections.next().await {
            self.report_damage(&file, result, &mut summary, report).await?;
        }
        let mut pages = pin!(list_object_pages(&self.store, VERSIONS_FOLDER, FILES_PER_QUERY as usize));
        while let Some(page) = pages.try_next().await? {
            let paths: Vec<&str> = page.iter().map(|object| object.location.as_ref()).collect();
            let known = self.catalog.find_known_paths(&paths).await?;
            for object in page.iter().filter(|object| !known.contains(object.location.as_ref())) {
                summary.unrecorded += 1;
                report(&CheckFinding::UnrecordedFile { path: object.location.to_string(), size_bytes: object.size });
            }
        }
        for file in self.store.list_staged_uploads(VERSIONS_FOLDER).await? {
            summary.unrecorded += 1;
            report(&CheckFinding::UnrecordedFile { path: file.path, size_bytes: file.size_bytes });
        }
        Ok(summary)
    }

    async fn report_damage(
        &self,
        file: &VersionFile,
        result: Result<(), FileDamage>,
        summary: &mut CheckSummary,
        report: FindingCallback<'_>,
    ) -> Result<(), CheckError> {
        let Err(damage) = result else { return Ok(()) };
        let damage = damage.into_permanent_damage().map_err(CheckError::Unavailable)?;
        let versions = self.find_references(file.id).await?;
        if damage.is_loss_of_unreferenced_file(versions.as_deref()) {
            report(&CheckFinding::Unneeded { path: file.path.clone(), reason: damage.to_string() });
            return Ok(());
        }
        summary.damaged += 1;
        report(&CheckFinding::Damaged { path: file.path.clone(), reason: damage.to_string(), versions });
        Ok(())
    }

    /// Returns the versions that need a file; `None` if the records of the versions are damaged.
    pub(crate) async fn find_references(&self, id: VersionFileId) -> Result<Option<Vec<FileReference>>, CatalogError> {
        none_if_damaged(self.catalog.file_references(id, MAX_REPORTED_VERSIONS).await)
    }

    /// Runs `work` with a hold in the catalog, during which no version file can be removed. If the hold is lost, for
    /// example because the process was suspended for minutes, the work is dropped and this function fails.
    pub(crate) async fn with_file_hold<T, E: From<CatalogError>>(
        &self,
        work: impl AsyncFnOnce(FileHoldId) -> Result<T, E>,
    ) -> Result<T, E> {
        let hold = self.catalog.acquire_file_hold(HOLD_LEASE).await?;
        let result = tokio::select! {
            result = work(hold) => result,
            lost = self.renew_hold_until_lost(hold) => Err(lost.into()),
        };
        if let Err(error) = self.catalog.release_hold(hold).await {
            tracing::warn!(%error, "failed to release the hold on files; it will expire");
        }
        result
    }

    async fn renew_hold_until_lost(&self, hold: FileHoldId) -> CatalogError {
        loop {
            tokio::time::sleep(HOLD_RENEW_INTERVAL).await;
            match self.catalog.renew_hold(hold, HOLD_LEASE).await {
                Ok(()) => {}
                Err(CatalogError::LeaseLost) => return CatalogError::LeaseLost,
                // The lease of the hold is long enough for another attempt to renew it.
                Err(error) => tracing::warn!(%error, "failed to renew the hold on files"),
            }
        }
    }
}

/// Converts an error that shows damage of the catalog to `None`, and logs it.
pub(crate) fn none_if_damaged<T>(result: Result<T, CatalogError>) -> Result<Option<T>, CatalogError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_corruption() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to read part of the metadata database");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn describe_file_id(file: VersionFileId) -> String {
    format!("(file record {file} in the metadata database)")
}

pub(crate) fn describe_references(versions: Option<&[FileReference]>) -> String {
    match versions {
        None => "unknown".to_owned(),
        Some([]) => "none; a sweep will remove the file".to_owned(),
        Some(versions) => versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Calls [`inspect_file`] in a separate task, so that several files are decoded in parallel.
async fn inspect_in_task(store: Store, file: VersionFile, depth: CheckDepth) -> (VersionFile, Result<(), FileDamage>) {
    let inspected = file.clone();
    let task = tokio::spawn(async move { inspect_file(&store, &inspected, depth).await });
    let result = task.await.unwrap_or(Err(FileDamage::Unreadable(StorageError::WorkerStopped)));
    (file, result)
}

pub(crate) async fn inspect_file(store: &Store, file: &VersionFile, depth: CheckDepth) -> Result<(), FileDamage> {
    inspect_file_size(store, file).await?;
    // The file is read without a cache, because the cache could contain bytes of an earlier read.
    let reader = VersionReader::open_recorded(store, file, &PartCache::new(0)).await?;
    reader.verify_footer_index().await?;
    if depth == CheckDepth::Everything
        && verify::verify_and_hash(&reader, &mut NoReadThrottle).await? != file.content_hash
    {
        return Err(FileDamage::ContentMismatch);
    }
    Ok(())
}

pub(crate) async fn inspect_file_size(store: &Store, file: &VersionFile) -> Result<(), FileDamage> {
    let path = ObjectPath::from(file.path.as_str());
    store.ensure_regular_file(&path).await?;
    let size_bytes = match store.object_store().head(&path).await {
        Ok(object) => object.size,
        Err(error) => {
            return Err(match store.detect_missing_store(error.into()).await {
                StorageError::ObjectStore(object_store::Error::NotFound { .. }) => FileDamage::Missing,
                error => FileDamage::Unreadable(error),
            });
        }
    };
    match size_bytes == file.size_bytes {
        true => Ok(()),
        false => Err(FileDamage::SizeMismatch { found: size_bytes, recorded: file.size_bytes }),
    }
}
