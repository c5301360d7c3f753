//! Restores a backup, or the data directory of a stopped server, into an empty catalog and store of any kind, for
//! example from SQLite and a directory into PostgreSQL and S3.
//!
//! 1. The original's catalog is copied, and the copy is checked. The original is only read.
//! 2. The store gets the identity of the new catalog. A store of another catalog, such as the original's, is refused,
//!    so that two catalogs never sweep the same store.
//! 3. Every recorded file is copied, read back and compared with its record. Complete files are skipped, so you can
//!    repeat an interrupted restore.
//! 4. All records are written to the catalog in one transaction.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogError, CatalogOptions, FileRecordResult};
use strata_config::{CATALOG_FILE_NAME, Config, STORE_FOLDER_NAME};
use strata_store::store::{self, S3Options, Store};
use strata_store::{StorageError, fsync};
use strata_types::version::VersionFile;

use crate::maintenance::backup::{
    FileCopyError, INCOMPLETE_MARKER_FILE, OnDamage, UnusableFileError, copy_file, find_first_catalog_damage,
    handle_copy_failure, is_inside,
};
use crate::maintenance::integrity_check::{CheckDepth, inspect_file};
use crate::maintenance::store_identity::{StoreIdentityError, bind_store_to_catalog, open_store};
use crate::maintenance::stream_recorded_files;
use crate::maintenance::temp_dir::{ProcessTempDir, TEMPORARY_FOLDER, has_running_process};
use crate::version_path;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreSummary {
    /// The number of verified files, without the `damaged` files.
    pub files: u64,
    pub bytes: u64,
    /// The number of copied files. The store already contained the other verified files.
    pub copied: u64,
    pub damaged: u64,
}

/// An error of a restore. The catalog is still empty, and a later restore reuses the copied files.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{} is neither a backup nor a data directory: it has no {missing}", directory.display())]
    NotABackup { directory: PathBuf, missing: &'static str },
    #[error("{} {reason}", path.display())]
    Unreadable { path: PathBuf, reason: &'static str },
    #[error("{} contains an incomplete backup; create a new backup", .0.display())]
    Incomplete(PathBuf),
    #[error(
        "a process is using the data directory {}; stop the process, or restore a backup of the directory instead; \
         otherwise, two services would refresh the same datasets and send the same webhooks",
        .0.display()
    )]
    InUse(PathBuf),
    #[error("{}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the backup's metadata database")]
    BackupCatalog(#[source] CatalogError),
    #[error("the backup's metadata database is damaged: {reason}")]
    Damaged { reason: String },
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the store {0} is in memory; use a directory or an S3 URL")]
    VolatileStore(String),
    #[error(transparent)]
    StoreIdentity(#[from] StoreIdentityError),
    #[error("the store")]
    Store(#[source] StorageError),
    /// A file path in a backup's catalog that could overwrite other data, or that a sweep would remove.
    #[error("the backup's metadata database contains the file path {0}, which strata never creates")]
    InvalidFilePath(String),
    #[error(transparent)]
    File(#[from] UnusableFileError),
}

/// Restores a backup into an empty catalog and store. Calls `on_progress` after each file.
pub async fn restore(
    config: &Config,
    directory: &Path,
    mut on_damage: OnDamage<'_>,
    on_progress: &mut (dyn FnMut(&RestoreSummary) + Send),
) -> Result<RestoreSummary, RestoreError> {
    if directory.join(INCOMPLETE_MARKER_FILE).exists() {
        return Err(RestoreError::Incomplete(directory.to_owned()));
    }
    for missing in [CATALOG_FILE_NAME, STORE_FOLDER_NAME] {
        let path = directory.join(missing);
        if !path.try_exists().map_err(|source| RestoreError::Directory { path, source })? {
            return Err(RestoreError::NotABackup { directory: directory.to_owned(), missing });
        }
    }
    check_backup_directory(directory)?;
    if has_running_process(&directory.join(TEMPORARY_FOLDER)) {
        return Err(RestoreError::InUse(directory.to_owned()));
    }
    let data = &config.data.directory;
    for written in [Some(data.clone()), config.store_directory()].into_iter().flatten() {
        if is_inside(&written, directory) {
            let reason = "is inside the directory that you are restoring; choose another directory";
            return Err(RestoreError::Unreadable { path: written, reason });
        }
    }
    let failed = |source| RestoreError::Directory { path: data.clone(), source };
    fsync::create_dir_synced(data).map_err(failed)?;
    let temp_dir = ProcessTempDir::create(&data.join(TEMPORARY_FOLDER)).map_err(failed)?;
    let original = copy_catalog(directory, temp_dir.path()).await?;
    let catalog = Catalog::open_with_options(&config.catalog_url(), &CatalogOptions::from(&config.catalog)).await?;
    let result = Box::pin(restore_into(config, directory, &original, &catalog, &mut on_damage, on_progress)).await;
    original.close().await;
    drop(temp_dir);
    // Closing an SQLite database also removes its write-ahead log.
    catalog.close().await;
    result
}

/// Rejects a backup directory if its catalog is not a complete file, or if its path is not UTF-8.
fn check_backup_directory(directory: &Path) -> Result<(), RestoreError> {
    let unreadable = |path: PathBuf, reason| Err(RestoreError::Unreadable { path, reason });
    if directory.to_str().is_none() {
        return unreadable(directory.to_owned(), "is not valid UTF-8; rename the directory");
    }
    for suffix in ["", "-wal"] {
        let path = directory.join(format!("{CATALOG_FILE_NAME}{suffix}"));
        let Ok(metadata) = path.metadata() else { continue };
        if !metadata.is_file() {
            return unreadable(path, "is not a regular file");
        }
        if metadata.len() == 0 && suffix.is_empty() {
            return unreadable(path, "is empty, so it is not a metadata database");
        }
    }
    Ok(())
}

/// Returns a checked and migrated copy of the backup's catalog, in which no refresh is running.
async fn copy_catalog(directory: &Path, temp_dir: &Path) -> Result<Catalog, RestoreError> {
    // A killed server leaves the SQLite write-ahead log, which must be copied with the catalog.
    for suffix in ["", "-wal"] {
        let name = format!("{CATALOG_FILE_NAME}{suffix}");
        let from = directory.join(&name);
        match tokio::fs::copy(&from, temp_dir.join(&name)).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => {}
            Err(source) => return Err(RestoreError::Directory { path: from, source }),
        }
    }
    let url = |path: &Path| format!("sqlite://{}", path.display());
    let original = Catalog::open(&url(&temp_dir.join(CATALOG_FILE_NAME))).await.map_err(RestoreError::BackupCatalog)?;
    let copy = temp_dir.join("copy.sqlite");
    let copied = original.move_to_sqlite(&copy).await;
    original.close().await;
    copied.map_err(RestoreError::BackupCatalog)?;
    let copy = Catalog::open(&url(&copy)).await.map_err(RestoreError::BackupCatalog)?;
    match find_first_catalog_damage(&copy).await.map_err(RestoreError::BackupCatalog)? {
        None => Ok(copy),
        Some(reason) => Err(RestoreError::Damaged { reason }),
    }
}

async fn restore_into(
    config: &Config,
    directory: &Path,
    original: &Catalog,
    catalog: &Catalog,
    on_damage: &mut OnDamage<'_>,
    on_progress: &mut (dyn FnMut(&RestoreSummary) + Send),
) -> Result<RestoreSummary, RestoreError> {
    if !catalog.has_no_records().await? {
        return Err(CatalogError::NotEmpty.into());
    }
    let folder = directory.join(STORE_FOLDER_NAME);
    let from = store::open_store(&folder.to_string_lossy(), &S3Options::default()).map_err(RestoreError::Store)?;
    let to = open_store(config).map_err(RestoreError::Store)?;
    if to.is_in_memory() {
        return Err(RestoreError::VolatileStore(config.store_url()));
    }
    bind_store_to_catalog(config, catalog, &to).await.map_err(|error| error.map_missing_bucket(config))?;
    let mut summary = RestoreSummary::default();
    let mut records = pin!(stream_recorded_files(original, None).map_err(RestoreError::BackupCatalog));
    while let Some(FileRecordResult { file, .. }) = records.try_next().await? {
        let file = file.map_err(RestoreError::BackupCatalog)?.file;
        if !version_path::is_version_path(&file.path) {
            return Err(RestoreError::InvalidFilePath(file.path));
        }
        match copy_file_unless_intact(&file, &from, &to).await {
            Ok(copied) => {
                summary.files += 1;
                summary.bytes += file.size_bytes;
                summary.copied += u64::from(copied);
            }
            Err(failure) => {
                let handled = handle_copy_failure(original, &from, &file, failure, on_damage).await;
                summary.damaged += handled.map_err(RestoreError::BackupCatalog)??;
            }
        }
        on_progress(&summary);
    }
    catalog.restore_from(original).await?;
    Ok(summary)
}

/// Copies and verifies a file unless the store contains it. Returns true if the file was copied.
async fn copy_file_unless_intact(file: &VersionFile, from: &Store, to: &Store) -> Result<bool, FileCopyError> {
    if inspect_file(to, file, CheckDepth::Everything).await.is_ok() {
        return Ok(false);
    }
    copy_file(&ObjectPath::from(file.path.as_str()), from, to).await?;
    inspect_file(to, file, CheckDepth::Everything).await?;
    Ok(true)
}
