//! Writes backups, which are directories that `strata serve --data` can serve.
//!
//! 1. The new or empty directory gets the file [`INCOMPLETE_MARKER_FILE`]; services refuse to open such a directory.
//! 2. A file hold stops all removals, and a consistent copy of the catalog is written under a temporary name.
//! 3. Every recorded file is linked or copied, read in full and compared with its record. The catalog copy is checked.
//! 4. The catalog gets its final name, and the marker is removed. Each step is synced to disk before the next one.
//!
//! Files are immutable, so a hard link is enough on the same file system.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::buffered::BufWriter;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogCheckDepth, CatalogError, FileRecordResult};
use strata_config::{CATALOG_FILE_NAME, STORE_FOLDER_NAME, VERSIONS_FOLDER};
use strata_store::store::{self, S3Options, Store};
use strata_store::{StorageError, fsync};
use strata_types::ids::VersionFileId;
use strata_types::version::VersionFile;
use tokio::io::AsyncWriteExt;

use crate::maintenance::integrity_check::{CheckDepth, CheckFinding, FileDamage, describe_references, inspect_file};
use crate::maintenance::{MaintenanceService, stream_recorded_files};

pub(crate) const INCOMPLETE_MARKER_FILE: &str = "INCOMPLETE-BACKUP";

const INCOMPLETE_MARKER_TEXT: &str =
    "This backup is in progress or was interrupted. It is incomplete and cannot be used.\n";

const PARTIAL_CATALOG_FILE: &str = "catalog.partial";
const UPLOAD_PART_BYTES: usize = 8 << 20;
const MAX_CONCURRENT_PARTS: usize = 3;

/// Maximum number of versions that an error message about a damaged file contains.
const MAX_NAMED_VERSIONS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupCopyMode {
    /// Creates hard links if the store is a directory on the same file system, otherwise copies files.
    LinkIfPossible,
    AlwaysCopy,
}

/// The reaction of a backup or a restore to a damaged or missing version file.
pub enum OnDamage<'a> {
    Fail,
    /// Reports the damaged file and continues. Damaged files are copied, too.
    Continue(&'a mut (dyn FnMut(&CheckFinding) + Send)),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// The number of verified files, without the `damaged` files.
    pub files: u64,
    pub bytes: u64,
    pub linked: u64,
    pub damaged: u64,
}

/// An error of a backup. The directory remains marked as incomplete and can be deleted.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} is not empty; choose a new or empty directory", .0.display())]
    NotEmpty(PathBuf),
    #[error(
        "{} is inside {}, which is part of the backup; choose another directory, preferably on another disk",
        directory.display(),
        within.display()
    )]
    InsideSource { directory: PathBuf, within: PathBuf },
    #[error("{}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// A catalog failure, or the loss of the file hold.
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the backup's store")]
    Store(#[source] StorageError),
    /// Damage in the copy of the catalog, which means that the catalog is damaged.
    #[error("the metadata database is damaged: {reason}; to list all damage, run `strata check`")]
    Damaged { reason: String },
    #[error("cannot back up file record {file} in the metadata database")]
    UnreadableRecord { file: VersionFileId, source: CatalogError },
    #[error(transparent)]
    File(#[from] UnusableFileError),
}

#[derive(Debug, thiserror::Error)]
#[error("cannot copy the file {path} ({versions})")]
pub struct UnusableFileError {
    path: String,
    versions: String,
    source: Box<FileCopyError>,
}

impl MaintenanceService {
    /// Backs up a consistent state to a new or empty directory while services run. Calls `on_progress` after each file.
    pub async fn backup(
        &self,
        directory: &Path,
        files: BackupCopyMode,
        mut on_damage: OnDamage<'_>,
        on_progress: &mut (dyn FnMut(&BackupSummary) + Send),
    ) -> Result<BackupSummary, BackupError> {
        let marker = directory.join(INCOMPLETE_MARKER_FILE);
        for within in [Some(self.config.data.directory.clone()), self.config.store_directory()].into_iter().flatten() {
            if is_inside(directory, &within) {
                return Err(BackupError::InsideSource { directory: directory.to_owned(), within });
            }
        }
        create_marked_directory(directory, &marker).await?;
        let summary = self
            .with_file_hold(async |_| self.back_up_with_hold(directory, files, &mut on_damage, on_progress).await)
            .await?;
        let partial = directory.join(PARTIAL_CATALOG_FILE);
        let catalog = directory.join(CATALOG_FILE_NAME);
        let finish = async {
            tokio::fs::rename(&partial, &catalog).await?;
            sync_dir(directory).await?;
            tokio::fs::remove_file(&marker).await?;
            sync_dir(directory).await
        };
        finish.await.map_err(|source| BackupError::Directory { path: catalog.clone(), source })?;
        Ok(summary)
    }

    async fn back_up_with_hold(
        &self,
        directory: &Path,
        files: BackupCopyMode,
        on_damage: &mut OnDamage<'_>,
        on_progress: &mut (dyn FnMut(&BackupSummary) + Send),
    ) -> Result<BackupSummary, BackupError> {
        let catalog = directory.join(PARTIAL_CATALOG_FILE);
        self.catalog.copy_to_sqlite(&catalog).await?;
        let copy = Catalog::open(&format!("sqlite://{}", catalog.display())).await?;
        let result = match self.back_up_files(&copy, directory, files, on_damage, on_progress).await {
            // Damage in the original catalog is also in the copy, so checking the copy finds it.
            Ok(summary) => match find_first_catalog_damage(&copy).await {
                Ok(None) => Ok(summary),
                Ok(Some(reason)) => Err(BackupError::Damaged { reason }),
                Err(error) => Err(error.into()),
            },
            failed => failed,
        };
        // A closed SQLite database has no write-ahead log, so it can be renamed.
        copy.close().await;
        result
    }

    async fn back_up_files(
        &self,
        copy: &Catalog,
        directory: &Path,
        files: BackupCopyMode,
        on_damage: &mut OnDamage<'_>,
        on_progress: &mut (dyn FnMut(&BackupSummary) + Send),
    ) -> Result<BackupSummary, BackupError> {
        let root = directory.join(STORE_FOLDER_NAME);
        let versions = root.join(VERSIONS_FOLDER);
        let failed = |source| BackupError::Directory { path: versions.clone(), source };
        tokio::fs::create_dir_all(&versions).await.map_err(failed)?;
        let target = store::open_store(&root.to_string_lossy(), &S3Options::default()).map_err(BackupError::Store)?;
        let mut summary = BackupSummary::default();
        let mut records = pin!(stream_recorded_files(copy, None));
        while let Some(FileRecordResult { id, file }) = records.try_next().await? {
            let file = file.map_err(|source| BackupError::UnreadableRecord { file: id, source })?.file;
            match self.link_or_copy_file(&file, &target, files).await {
                Ok(linked) => {
                    summary.linked += u64::from(linked);
                    summary.files += 1;
                    summary.bytes += file.size_bytes;
                }
                Err(failure) => {
                    summary.damaged += handle_copy_failure(copy, &self.store, &file, failure, on_damage).await??;
                }
            }
            on_progress(&summary);
        }
        target.initialize_identity(&copy.ensure_installation().await?.identity).await.map_err(BackupError::Store)?;
        for directory in [versions.as_path(), root.as_path(), directory] {
            sync_dir(directory).await.map_err(failed)?;
        }
        Ok(summary)
    }

    /// Links or copies a version file into a backup and verifies it. Returns true if it is a link.
    async fn link_or_copy_file(
        &self,
        file: &VersionFile,
        target: &Store,
        files: BackupCopyMode,
    ) -> Result<bool, FileCopyError> {
        let path = ObjectPath::from(file.path.as_str());
        let linked = match (files, self.store.local_path(&path), target.local_path(&path)) {
            (BackupCopyMode::LinkIfPossible, Some(from), Some(to)) => tokio::fs::hard_link(from, to).await.is_ok(),
            _ => false,
        };
        if !linked {
            copy_file(&path, &self.store, target).await?;
        }
        inspect_file(target, file, CheckDepth::Everything).await?;
        Ok(linked)
    }
}

/// Copies a file from one store to another and syncs it.
pub(super) async fn copy_file(path: &ObjectPath, from: &Store, to: &Store) -> Result<(), FileCopyError> {
    from.ensure_regular_file(path).await?;
    let mut parts = from.object_store().get(path).await.map_err(StorageError::from)?.into_stream();
    let writer = BufWriter::with_capacity(to.object_store().clone(), path.clone(), UPLOAD_PART_BYTES);
    let mut writer = writer.with_max_concurrency(MAX_CONCURRENT_PARTS);
    let written = async {
        while let Some(part) = parts.try_next().await? {
            writer.put(part).await?;
        }
        Ok::<_, object_store::Error>(())
    };
    if let Err(error) = written.await {
        // If the upload cannot be aborted, the lifecycle rule of the S3 bucket removes the uploaded parts.
        let _ = writer.abort().await;
        return Err(StorageError::from(error).into());
    }
    writer.shutdown().await?;
    Ok(to.sync_object(path).await?)
}

#[derive(Debug, thiserror::Error)]
pub(super) enum FileCopyError {
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StorageError),
    #[error(transparent)]
    Damage(#[from] FileDamage),
}

/// Decides whether a backup or a restore continues after it failed to copy `file`. Returns the number of damaged files
/// (0 if the file is missing and no version in `copy` needs it), or an error with the versions that need the file.
pub(super) async fn handle_copy_failure(
    copy: &Catalog,
    from: &Store,
    file: &VersionFile,
    failure: FileCopyError,
    on_damage: &mut OnDamage<'_>,
) -> Result<Result<u64, UnusableFileError>, CatalogError> {
    let versions = copy.file_references(file.id, MAX_NAMED_VERSIONS).await?;
    // The copy can also fail because of the target, so the original file is inspected.
    let damage = match inspect_file(from, file, CheckDepth::Everything).await {
        Ok(()) => None,
        Err(damage) => damage.into_permanent_damage().ok(),
    };
    Ok(match (damage, on_damage) {
        (Some(damage), _) if damage.is_loss_of_unreferenced_file(Some(&versions)) => Ok(0),
        (Some(damage), OnDamage::Continue(report)) => {
            let reason = damage.to_string();
            report(&CheckFinding::Damaged { path: file.path.clone(), reason, versions: Some(versions) });
            Ok(1)
        }
        _ => {
            let versions = describe_references(Some(&versions));
            Err(UnusableFileError { path: file.path.clone(), versions, source: Box::new(failure) })
        }
    })
}

pub(super) async fn find_first_catalog_damage(copy: &Catalog) -> Result<Option<String>, CatalogError> {
    let mut first = None;
    copy.check_integrity(CatalogCheckDepth::Quick, &mut |reason| first = first.take().or(Some(reason))).await?;
    Ok(first)
}

/// Returns true if the path `inner`, which need not exist, is `outer` or inside it.
pub(super) fn is_inside(inner: &Path, outer: &Path) -> bool {
    let (Ok(inner), Ok(outer)) = (std::path::absolute(inner), outer.canonicalize()) else { return false };
    let existing = inner.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    existing.is_some_and(|existing| existing.starts_with(outer))
}

/// Creates the directory or accepts an empty one, and marks it as incomplete.
async fn create_marked_directory(directory: &Path, marker: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::Directory { path: directory.to_owned(), source };
    let path = directory.to_owned();
    let created = tokio::task::spawn_blocking(move || fsync::create_dir_synced(&path)).await;
    created.map_err(io::Error::other).flatten().map_err(failed)?;
    let mut entries = tokio::fs::read_dir(directory).await.map_err(failed)?;
    if entries.next_entry().await.map_err(failed)?.is_some() {
        return Err(BackupError::NotEmpty(directory.to_owned()));
    }
    let write = async {
        let mut file = tokio::fs::File::create_new(marker).await?;
        file.write_all(INCOMPLETE_MARKER_TEXT.as_bytes()).await?;
        file.sync_all().await?;
        sync_dir(directory).await
    };
    write.await.map_err(failed)
}

async fn sync_dir(directory: &Path) -> io::Result<()> {
    tokio::fs::File::open(directory).await?.sync_all().await
}
