//! The backup: a directory that `strata serve --data` opens and answers the same from.
//!
//! 1. The directory, new or empty, gets a mark that it is not complete ([`INCOMPLETE`]); a service refuses to open it.
//! 2. All files are held. The catalog is copied as of one moment, under a name that nothing opens.
//! 3. Every file that the copy names is linked or copied, and then read whole and compared with its record. The copy of
//!    the catalog is checked itself.
//! 4. The catalog gets its name, and the mark goes. Each step is on the disk before the next.
//!
//! Files never change, so a link is as good as a copy on the same file system; `copy` makes copies all the same.
//!
//! A file that is damaged ends a backup, or is told of ([`OnDamage`]). A missing file that no version needs is neither.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures::TryStreamExt;
use object_store::ObjectStoreExt;
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

/// The file that marks a data directory which is a backup that was not finished.
pub(crate) const INCOMPLETE: &str = "INCOMPLETE-BACKUP";

const INCOMPLETE_TEXT: &str = "This backup is in progress or was interrupted. It is incomplete and cannot be used.\n";

const PARTIAL_CATALOG: &str = "catalog.partial";

/// Most versions that are named with a file.
const NAMED: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupFiles {
    /// As hard links where the store is a directory on the same file system, else as copies.
    LinkedWherePossible,
    Copied,
}

/// What a backup or a restore does about a version file that is damaged or missing.
pub enum OnDamage<'a> {
    End,
    /// It tells of the file and goes on. A damaged file is taken as it is.
    GoOn(&'a mut (dyn FnMut(&Finding) + Send)),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// Files in it that were verified.
    pub files: u64,
    pub bytes: u64,
    pub linked: u64,
    /// Files besides that are damaged or missing.
    pub damaged: u64,
}

/// No backup was made. What there is of it is marked as not complete, and can be deleted.
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
    /// read and write. `tell` learns the files done so far. On an error the directory stays marked as not complete.
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
        let (partial, catalog) = (directory.join(PARTIAL_CATALOG), directory.join(CATALOG_FILE));
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
            // Damage goes along with a copy, and a backup is for the day of damage.
            Ok(backed_up) => match first_damage(&copy).await {
                Ok(None) => Ok(backed_up),
                Ok(Some(reason)) => Err(BackupError::Damaged { reason }),
                Err(error) => Err(error.into()),
            },
            failed => failed,
        };
        // Whole, without a log beside it, before it is renamed.
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
        // The backup is of this catalog.
        target.give_identity(&copy.installation().await?.identity).await.map_err(BackupError::Store)?;
        for directory in [versions.as_path(), root.as_path(), directory] {
            sync(directory).await.map_err(failed)?;
        }
        Ok(backed_up)
    }

    /// Brings one file into the backup and verifies it there; tells whether it is a link.
    async fn back_up_file(&self, file: &VersionFile, target: &Store, files: BackupFiles) -> Result<bool, FileFailure> {
        let path = ObjectPath::from(file.path.as_str());
        let to = target.file_of(&path).ok_or_else(|| io::Error::other("the backup's store is not a directory"))?;
        if let Some(parent) = to.parent() {
            tokio::fs::create_dir_all(parent).await?;
        }
        let linked = match (files, self.store.file_of(&path)) {
            (BackupFiles::LinkedWherePossible, Some(from)) => tokio::fs::hard_link(from, &to).await.is_ok(),
            _ => false,
        };
        if !linked && let Err(failure) = self.copy_file(&path, &to).await {
            // A part of a file is none.
            let _ = tokio::fs::remove_file(&to).await;
            return Err(failure);
        }
        inspect(target, file, CheckDepth::Everything).await?;
        Ok(linked)
    }

    async fn copy_file(&self, path: &ObjectPath, to: &Path) -> Result<(), FileFailure> {
        self.store.check_regular(path).await?;
        let mut parts = self.store.objects().get(path).await.map_err(StorageError::from)?.into_stream();
        let mut file = tokio::fs::File::create_new(to).await?;
        while let Some(part) = parts.try_next().await.map_err(StorageError::from)? {
            file.write_all(&part).await?;
        }
        file.flush().await?;
        file.sync_all().await?;
        Ok(())
    }
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

/// Whether a file that could not be copied `from` a store may be passed over, and how many damaged files that makes:
/// none if nobody needs what is missing. The error names the versions that need it, by the `copy` of the catalog.
pub(super) async fn passed_over(
    copy: &Catalog,
    from: &Store,
    file: &VersionFile,
    failure: FileFailure,
    on_damage: &mut OnDamage<'_>,
) -> Result<Result<u64, UnusableFile>, CatalogError> {
    let versions = copy.references_to(file.id, NAMED).await?;
    // Is it the file, or where it was copied to?
    let damage = match inspect(from, file, CheckDepth::Everything).await {
        Ok(()) => None,
        Err(damage) => damage.lasting().ok(),
    };
    Ok(match (damage, on_damage) {
        (Some(damage), _) if damage.is_loss_of_nobody(Some(&versions)) => Ok(0),
        (Some(damage), OnDamage::GoOn(tell)) => {
            let (path, reason) = (file.path.clone(), damage.to_string());
            tell(&Finding::Damaged { path, reason, versions: Some(versions) });
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

/// Whether a directory, which need not be there yet, lies in another one, or is that.
pub(super) fn is_inside(inner: &Path, outer: &Path) -> bool {
    let (Ok(inner), Ok(outer)) = (std::path::absolute(inner), outer.canonicalize()) else { return false };
    let there = inner.ancestors().find_map(|above| above.canonicalize().ok());
    there.is_some_and(|there| there.starts_with(outer))
}

/// Makes the directory, or takes an empty one, and marks it.
async fn begin(directory: &Path, mark: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::Directory { path: directory.to_owned(), source };
    // Its own entry, too: a backup that was made must be found.
    let new = directory.to_owned();
    let made = tokio::task::spawn_blocking(move || durable::create_directory(&new)).await;
    made.map_err(io::Error::other).flatten().map_err(failed)?;
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

/// Waits until what was made, renamed or removed in a directory is on the disk.
async fn sync(directory: &Path) -> io::Result<()> {
    tokio::fs::File::open(directory).await?.sync_all().await
}
