//! Restores a backup, or the data directory of a stopped server, into an empty catalog and store of any kind, for
//! example from SQLite and a directory into PostgreSQL and S3.
//!
//! 1. The original's catalog is copied, and the copy is checked. The original is only read.
//! 2. The store gets the identity of the new catalog. A store that belongs to another catalog is refused, also that of
//!    the original, so that two catalogs never sweep one store.
//! 3. Every file that the catalog names is copied, read back and compared with its record. A complete file stays, so
//!    that an interrupted restore continues.
//! 4. All records are written to the catalog at once.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogError, CatalogOptions, ListedFile};
use strata_config::{CATALOG_FILE, Config, STORE_FOLDER};
use strata_store::store::{self, S3Options, Store};
use strata_store::{StorageError, durable};
use strata_types::version::VersionFile;

use crate::maintenance::backup::{
    FileFailure, INCOMPLETE, OnDamage, UnusableFile, copy_file, first_damage, is_inside, passed_over,
};
use crate::maintenance::binding::{BindingError, bind, open_store};
use crate::maintenance::check::{CheckDepth, inspect};
use crate::maintenance::recorded_files;
use crate::maintenance::scratch::{Scratch, TEMPORARY_FOLDER, is_in_use};
use crate::version_path;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Verified files.
    pub files: u64,
    pub bytes: u64,
    /// Files that were copied. The store already contained the others.
    pub copied: u64,
    /// Other files, which are damaged or missing.
    pub damaged: u64,
}

/// The restore failed, and the catalog is still empty. A later restore uses the files that were copied.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{} is neither a backup nor a data directory: it has no {missing}", directory.display())]
    NoBackup { directory: PathBuf, missing: &'static str },
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
    Original(#[source] CatalogError),
    #[error("the backup's metadata database is damaged: {reason}")]
    Damaged { reason: String },
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the store {0} is in memory; use a directory or an S3 URL")]
    Volatile(String),
    #[error(transparent)]
    Binding(#[from] BindingError),
    #[error("the store")]
    Store(#[source] StorageError),
    /// The file could replace something else, or be swept.
    #[error("the backup's metadata database contains the file path {0}, which strata never creates")]
    Path(String),
    #[error(transparent)]
    File(#[from] UnusableFile),
}

/// Restores a backup into an empty catalog and store. Reports the finished files to `tell`.
pub async fn restore(
    config: &Config,
    directory: &Path,
    mut damaged: OnDamage<'_>,
    tell: &mut (dyn FnMut(&Restored) + Send),
) -> Result<Restored, RestoreError> {
    if directory.join(INCOMPLETE).exists() {
        return Err(RestoreError::Incomplete(directory.to_owned()));
    }
    for missing in [CATALOG_FILE, STORE_FOLDER] {
        let path = directory.join(missing);
        if !path.try_exists().map_err(|source| RestoreError::Directory { path, source })? {
            return Err(RestoreError::NoBackup { directory: directory.to_owned(), missing });
        }
    }
    check(directory)?;
    if is_in_use(&directory.join(TEMPORARY_FOLDER)) {
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
    durable::create_directory(data).map_err(failed)?;
    let scratch = Scratch::create(&data.join(TEMPORARY_FOLDER)).map_err(failed)?;
    let original = copied_catalog(directory, scratch.path()).await?;
    let catalog = Catalog::open_with(&config.catalog_url(), &CatalogOptions::from(&config.catalog)).await?;
    let restored = Box::pin(fill(config, directory, &original, &catalog, &mut damaged, tell)).await;
    original.close().await;
    drop(scratch);
    // A closed SQLite file has no log next to it.
    catalog.close().await;
    restored
}

/// Refuses a directory whose catalog is not a complete file, or whose name a store cannot have.
fn check(directory: &Path) -> Result<(), RestoreError> {
    let unreadable = |path: PathBuf, reason| Err(RestoreError::Unreadable { path, reason });
    if directory.to_str().is_none() {
        return unreadable(directory.to_owned(), "is not valid UTF-8; rename the directory");
    }
    for suffix in ["", "-wal"] {
        let path = directory.join(format!("{CATALOG_FILE}{suffix}"));
        let Ok(found) = path.metadata() else { continue };
        if !found.is_file() {
            return unreadable(path, "is not a regular file");
        }
        if found.len() == 0 && suffix.is_empty() {
            return unreadable(path, "is empty, so it is not a metadata database");
        }
    }
    Ok(())
}

/// A checked and migrated copy of the original's catalog, without running refreshes.
async fn copied_catalog(directory: &Path, scratch: &Path) -> Result<Catalog, RestoreError> {
    // A killed server leaves a log.
    for suffix in ["", "-wal"] {
        let name = format!("{CATALOG_FILE}{suffix}");
        let from = directory.join(&name);
        match tokio::fs::copy(&from, scratch.join(&name)).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => {}
            Err(source) => return Err(RestoreError::Directory { path: from, source }),
        }
    }
    let url = |path: &Path| format!("sqlite://{}", path.display());
    let read = Catalog::open(&url(&scratch.join(CATALOG_FILE))).await.map_err(RestoreError::Original)?;
    let copy = scratch.join("copy.sqlite");
    let copied = read.move_to_sqlite(&copy).await;
    read.close().await;
    copied.map_err(RestoreError::Original)?;
    let copy = Catalog::open(&url(&copy)).await.map_err(RestoreError::Original)?;
    match first_damage(&copy).await.map_err(RestoreError::Original)? {
        None => Ok(copy),
        Some(reason) => Err(RestoreError::Damaged { reason }),
    }
}

async fn fill(
    config: &Config,
    directory: &Path,
    original: &Catalog,
    catalog: &Catalog,
    damaged: &mut OnDamage<'_>,
    tell: &mut (dyn FnMut(&Restored) + Send),
) -> Result<Restored, RestoreError> {
    if !catalog.is_empty().await? {
        return Err(CatalogError::NotEmpty.into());
    }
    let folder = directory.join(STORE_FOLDER);
    let from = store::open(&folder.to_string_lossy(), &S3Options::default()).map_err(RestoreError::Store)?;
    let to = open_store(config).map_err(RestoreError::Store)?;
    if to.is_volatile() {
        return Err(RestoreError::Volatile(config.store_url()));
    }
    bind(config, catalog, &to).await.map_err(|error| error.named(config))?;
    let mut restored = Restored::default();
    let mut listed = pin!(recorded_files(original, None).map_err(RestoreError::Original));
    while let Some(ListedFile { file, .. }) = listed.try_next().await? {
        let file = file.map_err(RestoreError::Original)?.file;
        if !version_path::is_path(&file.path) {
            return Err(RestoreError::Path(file.path));
        }
        match restore_file(&file, &from, &to).await {
            Ok(copied) => {
                restored.files += 1;
                restored.bytes += file.size_bytes;
                restored.copied += u64::from(copied);
            }
            Err(failure) => {
                let passed_over = passed_over(original, &from, &file, failure, damaged).await;
                restored.damaged += passed_over.map_err(RestoreError::Original)??;
            }
        }
        tell(&restored);
    }
    catalog.restore_from(original).await?;
    Ok(restored)
}

/// Copies a file, unless the store contains it, and verifies it. Returns whether it was copied.
async fn restore_file(file: &VersionFile, from: &Store, to: &Store) -> Result<bool, FileFailure> {
    if inspect(to, file, CheckDepth::Everything).await.is_ok() {
        return Ok(false);
    }
    copy_file(&ObjectPath::from(file.path.as_str()), from, to).await?;
    inspect(to, file, CheckDepth::Everything).await?;
    Ok(true)
}
