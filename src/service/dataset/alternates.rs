//! Alternates: second entity lists of versions, saved and deleted as a whole.
//!
//! An alternate is a separate file. An edited one refers to the version's file for unchanged entities
//! ([`strata_format::editing`]). A save writes the file, and then replaces the alternate in one transaction of the
//! catalog, so that every read sees the old or the new one. A later sweep removes replaced and deleted files.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use strata_catalog::{AlternateBase, VersionRecord};
use strata_ingest::SourceError;
use strata_store::budget::SpoolFull;
use strata_types::dataset::Dataset;
use strata_types::ids::{DatasetId, UserId};
use strata_types::index::IndexSettings;
use strata_types::user::User;
use strata_types::version::{Version, VersionNumber};

use crate::dataset::Datasets;
use crate::refresh::version_file::WrittenFile;
use crate::{ManageError, Overloaded, PushedEntities, RefreshError};

/// The alternate was not saved. The version is unchanged, unless the catalog failed during the commit.
#[derive(Debug, thiserror::Error)]
pub enum AlternateError {
    #[error(transparent)]
    Manage(#[from] ManageError),
    #[error(transparent)]
    Body(#[from] SourceError),
    #[error(transparent)]
    Full(#[from] SpoolFull),
    #[error(transparent)]
    Refused(#[from] Overloaded),
    #[error(transparent)]
    Edit(#[from] EditError),
    #[error("the service stopped before the alternate was saved")]
    Stopping,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("edits[{index}]: {problem}")]
pub struct EditError {
    pub index: usize,
    pub problem: EditProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditProblem {
    PastEnd { position: u64, length: u64, inserts: bool },
    Twice { position: u64, other: usize },
}

impl EditProblem {
    /// The text for the caller, with the position as the caller wrote it.
    pub fn text(&self, position: impl fmt::Display) -> String {
        let (length, inserts) = match self {
            EditProblem::PastEnd { length, inserts, .. } => (length, *inserts),
            EditProblem::Twice { other, .. } => {
                return format!(
                    "position {position} is already set or removed by edits[{other}]; valid: at most one set or \
                     remove per position"
                );
            }
        };
        let entities = if *length == 1 { "1 entity".to_owned() } else { format!("{length} entities") };
        if inserts {
            return format!(
                "position {position} is past the end: the list has {entities}; valid for insert: 0 to {length}"
            );
        }
        let valid = match length.checked_sub(1) {
            Some(last) => format!("valid for set and remove: 0 to {last}; to append, insert at {length}"),
            None => "the only valid edit is an insert at position 0".to_owned(),
        };
        format!("position {position} does not exist: the list has {entities}; {valid}")
    }
}

impl fmt::Display for EditProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (EditProblem::PastEnd { position, .. } | EditProblem::Twice { position, .. }) = self;
        formatter.write_str(&self.text(position))
    }
}

impl From<RefreshError> for AlternateError {
    fn from(error: RefreshError) -> AlternateError {
        match error {
            RefreshError::Source(error) => AlternateError::Body(error),
            RefreshError::NotFound => AlternateError::Manage(ManageError::DatasetNotFound),
            RefreshError::Full(full) => AlternateError::Full(full),
            RefreshError::Refused(refused) => AlternateError::Refused(refused),
            RefreshError::Stopping => AlternateError::Stopping,
            RefreshError::Catalog(error) => AlternateError::Manage(error.into()),
            RefreshError::Storage(error) => AlternateError::Manage(ManageError::Storage(error)),
            other => AlternateError::Manage(ManageError::Failed(format!("failed to save the alternate: {other:?}"))),
        }
    }
}

/// The etag of a version and its alternate, in quotes. It changes with each save and deletion.
pub fn alternate_etag(version: &Version) -> String {
    let base = AlternateBase::of(version);
    let alt = base.alt.map_or("none".to_owned(), |alt| alt.to_string());
    let hash = Sha256::digest(format!("{}/{}/{}/{alt}", version.dataset, version.number, base.file));
    format!("\"{}\"", hex::encode(&hash[..16]))
}

pub(super) struct Current {
    pub(super) version: Version,
    pub(super) index: IndexSettings,
}

impl Current {
    /// The base of a change, if the etag is current.
    pub(super) fn base(&self, etag: &str) -> Result<AlternateBase, ManageError> {
        // Clients can omit the quotes.
        match etag.trim_matches('"') == alternate_etag(&self.version).trim_matches('"') {
            true => Ok(AlternateBase::of(&self.version)),
            false => Err(ManageError::Stale),
        }
    }
}

impl Datasets {
    pub(super) async fn current_version(
        &self,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
    ) -> Result<Current, ManageError> {
        let Dataset { index, latest_version, .. } = self.catalog.owned_dataset(owner.id, dataset).await?;
        let found = self.catalog.version(dataset, version).await.map_err(ManageError::from);
        let version = found.map_err(|error| error.naming(version, latest_version))?.version;
        Ok(Current { version, index })
    }

    /// Saves the alternate of a version of the owner's dataset, if the version's [`alternate_etag`] is `expected` or
    /// nothing is expected. Dropping the future cancels nothing. A missing dataset or version and a stale etag are
    /// refused before anything is written. [`ManageError::Stale`] if another save or delete was faster.
    pub async fn save_alternate(
        self: &Arc<Self>,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
        entities: PushedEntities,
        expected: Option<&str>,
    ) -> Result<VersionRecord, AlternateError> {
        let current = self.current_version(owner, dataset, version).await?;
        let base = expected.map(|etag| current.base(etag)).transpose()?;
        let datasets = self.clone();
        let owner = owner.id;
        let saving = async move {
            let writing = datasets.write_alternate(entities, current.index);
            Ok(datasets.save_file(owner, dataset, version, writing, base).await)
        };
        self.refreshes.tasks.run(saving).await?
    }

    pub(super) async fn write_alternate(
        &self,
        PushedEntities { spooled, permit }: PushedEntities,
        index: IndexSettings,
    ) -> Result<WrittenFile, RefreshError> {
        self.refreshes.files.reserve().await?.write(spooled, index, &permit, &Arc::default()).await
    }

    /// Waits for a file, and saves it as the alternate of a version, if `base` is current.
    pub(super) async fn save_file(
        &self,
        owner: UserId,
        dataset: DatasetId,
        version: VersionNumber,
        writing: impl Future<Output = Result<WrittenFile, RefreshError>>,
        base: Option<AlternateBase>,
    ) -> Result<VersionRecord, AlternateError> {
        let file = tokio::select! {
            file = writing => file?,
            () = self.refreshes.tasks.stopped() => return Err(AlternateError::Stopping),
        };
        let new = file.new.clone();
        let saving = self.writes.run(owner, self.catalog.save_alternate(dataset, version, &new, base));
        Ok(file.record(saving).await?)
    }

    pub async fn delete_alternate(
        &self,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
    ) -> Result<VersionRecord, ManageError> {
        let latest = self.catalog.owned_dataset(owner.id, dataset).await?.latest_version;
        let deleted = self.writes.run(owner.id, self.catalog.delete_alternate(dataset, version)).await;
        deleted.map_err(|error| error.naming(version, latest))
    }
}
