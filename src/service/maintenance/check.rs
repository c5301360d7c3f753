//! Checks: whether the catalog's database is intact, and every file that it names exists and is unchanged.
//!
//! A check holds all files, so that no sweep removes a file between its listing and its reading. It reads several files
//! at once, and reports each finding with the versions that need the file.

use std::pin::pin;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path as ObjectPath;
use strata_catalog::{CatalogError, FileReference, ListedFile};
use strata_config::VERSIONS_FOLDER;
use strata_format::cache::PartCache;
use strata_format::reader::{Unbounded, VersionReader};
use strata_format::verify;
use strata_store::StorageError;
use strata_store::shortage::Shortage;
use strata_store::store::Store;
use strata_types::ids::{FileId, HoldId};
use strata_types::version::VersionFile;

use crate::maintenance::{Maintenance, PAGE, pages_of, recorded_files};

/// The lease of a hold.
const LEASE: Duration = Duration::from_secs(180);

/// How often a hold is renewed.
const RENEW_INTERVAL: Duration = Duration::from_secs(45);

/// The maximum number of reported versions of a damaged file. Clones and unchanged sources can share it among more.
const MAX_REFERENCES: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    Footers,
    /// Every byte that a read can use.
    Everything,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Damaged {
        path: String,
        reason: String,
        /// The versions that need the file; `None` if the catalog cannot be read.
        versions: Option<Vec<FileReference>>,
    },
    /// The store does not identify itself as the catalog's, so that no version can be created.
    Store { reason: String },
    /// The catalog's database is damaged, or its records are inconsistent.
    Catalog { reason: String },
    /// A version names a file without a record.
    Dangling(FileReference),
    /// A file that no version needs is missing, or lacks its base. The next sweep removes the rest.
    Unneeded { path: String, reason: String },
    /// The catalog does not know the file, or its writer has not finished it. A later sweep removes it.
    Unnamed { path: String, size_bytes: u64 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub files: u64,
    pub bytes: u64,
    /// Damaged files, versions and parts of the catalog, and the store if it does not identify itself.
    pub damaged: u64,
    pub unnamed: u64,
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
pub(crate) enum Damage {
    #[error("it is missing")]
    Missing,
    #[error("it has {found} bytes, but should have {recorded}")]
    Size { found: u64, recorded: u64 },
    #[error("its documents have changed")]
    Content,
    #[error("it cannot be read: {}", without_path(.0))]
    Unreadable(#[from] StorageError),
}

fn without_path(error: &StorageError) -> String {
    match error {
        StorageError::Damaged { part, cause, .. } => format!("{part}: {cause}"),
        StorageError::Unreadable { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}

impl Damage {
    /// Whether no version needs the file, and it is missing, or its base is damaged. A changed file is reported
    /// regardless of its versions, because a disk can be failing.
    pub(crate) fn is_loss_of_nobody(&self, versions: Option<&[FileReference]>) -> bool {
        let is_gone = match self {
            Damage::Missing => true,
            Damage::Unreadable(error) => error.is_of_base(),
            Damage::Size { .. } | Damage::Content => false,
        };
        is_gone && versions.is_some_and(<[FileReference]>::is_empty)
    }

    /// The damage of the file, or the error if the store or this process cannot read at the moment.
    pub(crate) fn lasting(self) -> Result<Damage, StorageError> {
        use Shortage::{Credentials, Descriptors, Gone, Memory, NoDirectory, NoTemporaryFiles, Threads, Unreachable};
        match self {
            Damage::Unreadable(error) => match Shortage::of(&error) {
                Some(Unreachable | Credentials | Descriptors | Memory | Threads) => Err(error),
                Some(Gone | NoDirectory | NoTemporaryFiles(_)) => Err(error),
                _ => Ok(Damage::Unreadable(error)),
            },
            damage => Ok(damage),
        }
    }
}

type Tell<'a> = &'a mut (dyn FnMut(&Finding) + Send);

impl Maintenance {
    /// Checks the catalog and every recorded file, and reports each finding to `tell`.
    pub async fn check(&self, depth: CheckDepth, tell: Tell<'_>) -> Result<Checked, CheckError> {
        let damaged = self.check_catalog(depth, tell).await?;
        let hold = async |_| self.check_held(depth, tell).await;
        let checked = match self.holding_files(hold).await {
            // A catalog that rejects writes also rejects those of a sweep.
            Err(CheckError::Catalog(error)) if error.unavailability().is_some() => {
                tracing::warn!(?error, "failed to place a hold on files; checking them without a hold");
                self.check_held(depth, tell).await
            }
            checked => checked,
        };
        checked.map(|checked| Checked { damaged: checked.damaged + damaged, ..checked })
    }

    async fn check_catalog(&self, depth: CheckDepth, tell: Tell<'_>) -> Result<u64, CheckError> {
        let mut found = 0;
        let mut tell = |reason| {
            found += 1;
            tell(&Finding::Catalog { reason });
        };
        self.catalog.check_integrity(depth == CheckDepth::Footers, &mut tell).await?;
        Ok(found)
    }

    async fn check_held(&self, depth: CheckDepth, tell: Tell<'_>) -> Result<Checked, CheckError> {
        let mut checked = Checked::default();
        if let Err(gone @ StorageError::Gone(_)) = self.binding.verify().await {
            checked.damaged += 1;
            tell(&Finding::Store { reason: gone.to_string() });
        }
        let dangling = unless_damaged(self.catalog.references_to_nothing(MAX_REFERENCES).await)?;
        for reference in dangling.unwrap_or_default() {
            checked.damaged += 1;
            tell(&Finding::Dangling(reference));
        }
        let at_once = strata_runtime::priority::processors().max(2);
        let mut listed = pin!(recorded_files(&self.catalog, None));
        let mut reading = FuturesUnordered::new();
        while let Some(ListedFile { id, file }) = listed.try_next().await? {
            checked.files += 1;
            let file = match file {
                Ok(recorded) => recorded.file,
                Err(error) => {
                    checked.damaged += 1;
                    let versions = self.known_references(id).await?;
                    tell(&Finding::Damaged { path: record_name(id), reason: error.to_string(), versions });
                    continue;
                }
            };
            checked.bytes += file.size_bytes;
            if reading.len() >= at_once
                && let Some((file, found)) = reading.next().await
            {
                self.tell_damage(&file, found, &mut checked, tell).await?;
            }
            reading.push(inspected(self.store.clone(), file, depth));
        }
        while let Some((file, found)) = reading.next().await {
            self.tell_damage(&file, found, &mut checked, tell).await?;
        }
        let mut pages = pin!(pages_of(&self.store, VERSIONS_FOLDER, PAGE as usize));
        while let Some(page) = pages.try_next().await? {
            let paths: Vec<&str> = page.iter().map(|object| object.location.as_ref()).collect();
            let named = self.catalog.files_named(&paths).await?;
            for object in page.iter().filter(|object| !named.contains(object.location.as_ref())) {
                checked.unnamed += 1;
                tell(&Finding::Unnamed { path: object.location.to_string(), size_bytes: object.size });
            }
        }
        for file in self.store.unfinished(VERSIONS_FOLDER).await? {
            checked.unnamed += 1;
            tell(&Finding::Unnamed { path: file.path, size_bytes: file.size_bytes });
        }
        Ok(checked)
    }

    async fn tell_damage(
        &self,
        file: &VersionFile,
        found: Result<(), Damage>,
        checked: &mut Checked,
        tell: Tell<'_>,
    ) -> Result<(), CheckError> {
        let Err(damage) = found else { return Ok(()) };
        let damage = damage.lasting().map_err(CheckError::Unavailable)?;
        let versions = self.known_references(file.id).await?;
        if damage.is_loss_of_nobody(versions.as_deref()) {
            tell(&Finding::Unneeded { path: file.path.clone(), reason: damage.to_string() });
            return Ok(());
        }
        checked.damaged += 1;
        tell(&Finding::Damaged { path: file.path.clone(), reason: damage.to_string(), versions });
        Ok(())
    }

    /// The versions that name a file; `None` if the catalog is damaged there.
    pub(crate) async fn known_references(&self, file: FileId) -> Result<Option<Vec<FileReference>>, CatalogError> {
        unless_damaged(self.catalog.references_to(file, MAX_REFERENCES).await)
    }

    /// Does `work` while all files are held. Drops the work and fails if the hold is lost, for example because the
    /// process was stopped for minutes. A hold that is not released expires.
    pub(crate) async fn holding_files<T, E: From<CatalogError>>(
        &self,
        work: impl AsyncFnOnce(HoldId) -> Result<T, E>,
    ) -> Result<T, E> {
        let hold = self.catalog.hold_files(LEASE).await?;
        let done = tokio::select! {
            done = work(hold) => done,
            lost = self.keep_held(hold) => Err(lost.into()),
        };
        if let Err(error) = self.catalog.release_hold(hold).await {
            tracing::warn!(%error, "failed to release the hold on files; it will expire");
        }
        done
    }

    /// Renews a hold until it is lost, and returns that error.
    async fn keep_held(&self, hold: HoldId) -> CatalogError {
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            match self.catalog.renew_hold(hold, LEASE).await {
                Ok(()) => {}
                Err(CatalogError::LeaseLost) => return CatalogError::LeaseLost,
                // There is time for another attempt.
                Err(error) => tracing::warn!(%error, "failed to renew the hold on files"),
            }
        }
    }
}

/// The result of the catalog; `None` if the catalog is damaged there.
pub(crate) fn unless_damaged<T>(result: Result<T, CatalogError>) -> Result<Option<T>, CatalogError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_damage() => {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to read part of the metadata database");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn record_name(file: FileId) -> String {
    format!("(file record {file} in the metadata database)")
}

pub(crate) fn for_people(versions: Option<&[FileReference]>) -> String {
    match versions {
        None => "unknown".to_owned(),
        Some([]) => "none; a sweep will remove the file".to_owned(),
        Some(versions) => versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// [`inspect`] in a separate task, so that several files are decoded at once.
async fn inspected(store: Store, file: VersionFile, depth: CheckDepth) -> (VersionFile, Result<(), Damage>) {
    let inspected = file.clone();
    let task = tokio::spawn(async move { inspect(&store, &inspected, depth).await });
    let found = task.await.unwrap_or(Err(Damage::Unreadable(StorageError::Worker)));
    (file, found)
}

pub(crate) async fn inspect(store: &Store, file: &VersionFile, depth: CheckDepth) -> Result<(), Damage> {
    inspect_size(store, file).await?;
    // A cache would contain what an earlier check has read.
    let reader = VersionReader::open_recorded(store, file, &PartCache::new(0)).await?;
    reader.verify_end().await?;
    if depth == CheckDepth::Everything && verify::verify(&reader, &mut Unbounded).await? != file.content_hash {
        return Err(Damage::Content);
    }
    Ok(())
}

pub(crate) async fn inspect_size(store: &Store, file: &VersionFile) -> Result<(), Damage> {
    let path = ObjectPath::from(file.path.as_str());
    store.check_regular(&path).await?;
    let size_bytes = match store.objects().head(&path).await {
        Ok(object) => object.size,
        Err(error) => {
            return Err(match store.meaning(error.into()).await {
                StorageError::Store(object_store::Error::NotFound { .. }) => Damage::Missing,
                error => Damage::Unreadable(error),
            });
        }
    };
    match size_bytes == file.size_bytes {
        true => Ok(()),
        false => Err(Damage::Size { found: size_bytes, recorded: file.size_bytes }),
    }
}
