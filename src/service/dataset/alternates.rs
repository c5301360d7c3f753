//! Alternates: a second entity list that a version may have, saved and deleted as a whole.
//!
//! An alternate is a file of its own; one that was edited refers to the version's file, too, for the entities that no
//! edit touched ([`strata_format::editing`]). A save writes it where nobody looks, then one transaction of the catalog
//! makes it the version's: every read sees the one before or the one after. The file of an alternate that was replaced
//! or deleted stays for the reads that began before, and goes with a sweep.

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

/// An alternate was not saved; the version is as it was, unless the catalog failed in its commit.
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
    /// The text for the caller, in which the position is written in this way.
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

/// The etag of a version and its alternate, in quotes: another one after each save, and after a deletion.
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
    /// That the version is as it is now.
    pub(super) fn base(&self, etag: &str) -> Result<AlternateBase, ManageError> {
        // The quotes may have been lost on the way.
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

    /// Gives a version of the owner's dataset these entities as its alternate; one that is there is replaced as a
    /// whole. With `expected` only if that is still the version's [`alternate_etag`]. Dropping it cancels nothing.
    /// A missing dataset or version and a stale etag are refused before anything is written; [`ManageError::Stale`] is
    /// also the error if another save or delete came first.
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
        let (datasets, owner) = (self.clone(), owner.id);
        let saving = async move {
            let writing = datasets.write_alternate(entities, current.index);
            Ok(datasets.save_file(owner, (dataset, version), writing, base).await)
        };
        self.refreshes.tasks.run(saving).await?
    }

    /// Writes entities as a file that no record names yet.
    pub(super) async fn write_alternate(
        &self,
        PushedEntities { spooled, permit }: PushedEntities,
        index: IndexSettings,
    ) -> Result<WrittenFile, RefreshError> {
        self.refreshes.files.reserve().await?.write(spooled, index, &permit, &Arc::default()).await
    }

    /// Makes a file, once it is written, the alternate of a version, if that is as `base` says.
    pub(super) async fn save_file(
        &self,
        owner: UserId,
        (dataset, version): (DatasetId, VersionNumber),
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
