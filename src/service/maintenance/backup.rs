//! Backups: directories that `strata serve --data` can serve.
//!
//! 1. The directory, new or empty, is marked as incomplete ([`INCOMPLETE`]); services refuse to open it.
//! 2. All files are held. The catalog is copied as of one moment, under a name that nothing opens.
//! 3. Every file that the copy names is linked or copied, read in full, and compared with its record. The copy of the
//!    catalog is checked, too.
//! 4. The catalog gets its name, and the mark is removed. Each step is on the disk before the next one begins.
//!
//! Files never change, so links are enough on the same file system, but [`BackupFiles::Copied`] copies them.
//!
//! A damaged file ends the backup or is reported ([`OnDamage`]), unless the file is missing and no version needs it.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::buffered::BufWriter;
use object_store::path::Path as ObjectPath;
use strata_catalog::{Catalog, CatalogError, ListedFile};
use strata_config::{CATALOG_FILE, STORE_FOLDER, VERSIONS_FOLDER};
use strata_store::store::{self, S3Options, Store};
use strata_store::{StorageError, durable};
use strata_types::ids::FileId;
use strata_types::version::VersionFile;
use tokio::io::AsyncWriteExt;

use crate::maintenance::check::{CheckDepth, Damage, Finding, for_people, inspect};
use crate::maintenance::{Maintenance, recorded_files};

/// The file that marks an incomplete backup.
pub(crate) const INCOMPLETE: &str = "INCOMPLETE-BACKUP";

const INCOMPLETE_TEXT: &str = "This backup is in progress or was interrupted. It is incomplete and cannot be used.\n";

const PARTIAL_CATALOG: &str = "catalog.partial";

/// The size of a part of an upload.
const PART_BYTES: usize = 8 << 20;

const MAX_CONCURRENT_PARTS: usize = 3;

/// The maximum number of versions in the error about a file.
const MAX_NAMED: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupFiles {
    /// Hard links if the store is a directory on the same file system, otherwise copies.
    LinkedWherePossible,
    Copied,
}

/// What a backup or a restore does if a version file is damaged or missing.
pub enum OnDamage<'a> {
    End,
    /// Reports the file, and continues. Damaged files are copied, too.
    GoOn(&'a mut (dyn FnMut(&Finding) + Send)),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// Verified files.
    pub files: u64,
    pub bytes: u64,
    pub linked: u64,
    /// Other files, which are damaged or missing.
    pub damaged: u64,
}

/// The backup failed. The directory is marked as incomplete, and can be deleted.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} is not empty; choose a new or empty directory", .0.display())]
    NotEmpty(PathBuf),
    #[error(
        "{} is inside {}, which is part of the backup; choose another directory, preferably on another disk",
        directory.display(),
        within.display()
    )]
    Within { directory: PathBuf, within: PathBuf },
    #[error("{}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// The catalog failed, or the hold on the files was lost.
    #[error("the metadata database")]
    Catalog(#[from] CatalogError),
    #[error("the backup's store")]
    Store(#[source] StorageError),
    /// The copy of the catalog is damaged, as the catalog then is.
    #[error("the metadata database is damaged: {reason}; to list all damage, run `strata check`")]
    Damaged { reason: String },
    #[error("cannot back up file record {file} in the metadata database")]
    Record { file: FileId, source: CatalogError },
    #[error(transparent)]
    File(#[from] UnusableFile),
}

#[derive(Debug, thiserror::Error)]
#[error("cannot copy the file {path} ({versions})")]
pub struct UnusableFile {
    path: String,
    versions: String,
    source: Box<FileFailure>,
}

impl Maintenance {
    /// Copies the catalog, as of one moment, and all files that it names into a new or empty directory, while others
    /// read and write. Reports the finished files to `tell`.
    pub async fn backup(
        &self,
        directory: &Path,
        files: BackupFiles,
        mut damaged: OnDamage<'_>,
        tell: &mut (dyn FnMut(&BackedUp) + Send),
    ) -> Result<BackedUp, BackupError> {
        let mark = directory.join(INCOMPLETE);
        for within in [Some(self.config.data.directory.clone()), self.config.store_directory()].into_iter().flatten() {
            if is_inside(directory, &within) {
                return Err(BackupError::Within { directory: directory.to_owned(), within });
            }
        }
        begin(directory, &mark).await?;
        let backed_up =
            self.holding_files(async |_| self.back_up_held(directory, files, &mut damaged, tell).await).await?;
        let partial = directory.join(PARTIAL_CATALOG);
        let catalog = directory.join(CATALOG_FILE);
        let finish = async {
            tokio::fs::rename(&partial, &catalog).await?;
            sync(directory).await?;
            tokio::fs::remove_file(&mark).await?;
            sync(directory).await
        };
        finish.await.map_err(|source| BackupError::Directory { path: catalog.clone(), source })?;
        Ok(backed_up)
    }

    async fn back_up_held(
        &self,
        directory: &Path,
        files: BackupFiles,
        damaged: &mut OnDamage<'_>,
        tell: &mut (dyn FnMut(&BackedUp) + Send),
    ) -> Result<BackedUp, BackupError> {
        let catalog = directory.join(PARTIAL_CATALOG);
        self.catalog.copy_to_sqlite(&catalog).await?;
        let copy = Catalog::open(&format!("sqlite://{}", catalog.display())).await?;
        let backed_up = match self.back_up_files(&copy, directory, files, damaged, tell).await {
            // A copy contains the damage of its original.
            Ok(backed_up) => match first_damage(&copy).await {
                Ok(None) => Ok(backed_up),
                Ok(Some(reason)) => Err(BackupError::Damaged { reason }),
                Err(error) => Err(error.into()),
            },
            failed => failed,
        };
        // Closed, it has no log next to it, and can be renamed.
        copy.close().await;
        backed_up
    }

    async fn back_up_files(
        &self,
        copy: &Catalog,
        directory: &Path,
        files: BackupFiles,
        damaged: &mut OnDamage<'_>,
        tell: &mut (dyn FnMut(&BackedUp) + Send),
    ) -> Result<BackedUp, BackupError> {
        let root = directory.join(STORE_FOLDER);
        let versions = root.join(VERSIONS_FOLDER);
        let failed = |source| BackupError::Directory { path: versions.clone(), source };
        tokio::fs::create_dir_all(&versions).await.map_err(failed)?;
        let target = store::open(&root.to_string_lossy(), &S3Options::default()).map_err(BackupError::Store)?;
        let mut backed_up = BackedUp::default();
        let mut listed = pin!(recorded_files(copy, None));
        while let Some(ListedFile { id, file }) = listed.try_next().await? {
            let recorded = file.map_err(|source| BackupError::Record { file: id, source })?;
            match self.back_up_file(&recorded.file, &target, files).await {
                Ok(linked) => {
                    backed_up.linked += u64::from(linked);
                    backed_up.files += 1;
                    backed_up.bytes += recorded.file.size_bytes;
                }
                Err(failure) => {
                    backed_up.damaged += passed_over(copy, &self.store, &recorded.file, failure, damaged).await??;
                }
            }
            tell(&backed_up);
        }
        // The store of the backup belongs to this catalog.
        target.give_identity(&copy.installation().await?.identity).await.map_err(BackupError::Store)?;
        for directory in [versions.as_path(), root.as_path(), directory] {
            sync(directory).await.map_err(failed)?;
        }
        Ok(backed_up)
    }

    /// Copies or links a file, and verifies it. Returns whether it is a link.
    async fn back_up_file(&self, file: &VersionFile, target: &Store, files: BackupFiles) -> Result<bool, FileFailure> {
        let path = ObjectPath::from(file.path.as_str());
        let linked = match (files, self.store.file_of(&path), target.file_of(&path)) {
            (BackupFiles::LinkedWherePossible, Some(from), Some(to)) => tokio::fs::hard_link(from, to).await.is_ok(),
            _ => false,
        };
        if !linked {
            copy_file(&path, &self.store, target).await?;
        }
        inspect(target, file, CheckDepth::Everything).await?;
        Ok(linked)
    }
}

/// Copies a file from one store to another, durably.
pub(super) async fn copy_file(path: &ObjectPath, from: &Store, to: &Store) -> Result<(), FileFailure> {
    from.check_regular(path).await?;
    let mut parts = from.objects().get(path).await.map_err(StorageError::from)?.into_stream();
    let writer = BufWriter::with_capacity(to.objects().clone(), path.clone(), PART_BYTES);
    let mut writer = writer.with_max_concurrency(MAX_CONCURRENT_PARTS);
    let written = async {
        while let Some(part) = parts.try_next().await? {
            writer.put(part).await?;
        }
        Ok::<_, object_store::Error>(())
    };
    if let Err(error) = written.await {
        // If this fails, the store's own rule removes the parts.
        let _ = writer.abort().await;
        return Err(StorageError::from(error).into());
    }
    writer.shutdown().await?;
    Ok(to.persist(path).await?)
}

#[derive(Debug, thiserror::Error)]
pub(super) enum FileFailure {
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StorageError),
    #[error(transparent)]
    Damage(#[from] Damage),
}

/// Decides about a file that could not be copied `from` a store. Returns the number of damaged files, which is 0 if no
/// version in the `copy` of the catalog needs the missing file, or an error with the versions that need it.
pub(super) async fn passed_over(
    copy: &Catalog,
    from: &Store,
    file: &VersionFile,
    failure: FileFailure,
    on_damage: &mut OnDamage<'_>,
) -> Result<Result<u64, UnusableFile>, CatalogError> {
    let versions = copy.references_to(file.id, MAX_NAMED).await?;
    // The failure can also be one of the target.
    let damage = match inspect(from, file, CheckDepth::Everything).await {
        Ok(()) => None,
        Err(damage) => damage.lasting().ok(),
    };
    Ok(match (damage, on_damage) {
        (Some(damage), _) if damage.is_loss_of_nobody(Some(&versions)) => Ok(0),
        (Some(damage), OnDamage::GoOn(tell)) => {
            let reason = damage.to_string();
            tell(&Finding::Damaged { path: file.path.clone(), reason, versions: Some(versions) });
            Ok(1)
        }
        _ => Err(UnusableFile {
            path: file.path.clone(),
            versions: for_people(Some(&versions)),
            source: Box::new(failure),
        }),
    })
}

pub(super) async fn first_damage(copy: &Catalog) -> Result<Option<String>, CatalogError> {
    let mut first = None;
    copy.check_integrity(true, &mut |reason| first = first.take().or(Some(reason))).await?;
    Ok(first)
}

/// Whether a directory, which need not exist, is another one, or is inside it.
pub(super) fn is_inside(inner: &Path, outer: &Path) -> bool {
    let (Ok(inner), Ok(outer)) = (std::path::absolute(inner), outer.canonicalize()) else { return false };
    let existing = inner.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    existing.is_some_and(|existing| existing.starts_with(outer))
}

/// Creates the directory, or accepts an empty one, and marks it as incomplete.
async fn begin(directory: &Path, mark: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::Directory { path: directory.to_owned(), source };
    let new = directory.to_owned();
    let created = tokio::task::spawn_blocking(move || durable::create_directory(&new)).await;
    created.map_err(io::Error::other).flatten().map_err(failed)?;
    let mut entries = tokio::fs::read_dir(directory).await.map_err(failed)?;
    if entries.next_entry().await.map_err(failed)?.is_some() {
        return Err(BackupError::NotEmpty(directory.to_owned()));
    }
    let write = async {
        let mut file = tokio::fs::File::create_new(mark).await?;
        file.write_all(INCOMPLETE_TEXT.as_bytes()).await?;
        file.sync_all().await?;
        sync(directory).await
    };
    write.await.map_err(failed)
}

/// Waits until changes of the entries of a directory are on the disk.
async fn sync(directory: &Path) -> io::Result<()> {
    tokio::fs::File::open(directory).await?.sync_all().await
}
