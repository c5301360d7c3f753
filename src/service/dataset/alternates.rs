//! Saves and deletes alternates, which are second entity lists of versions: edited copies.
//!
//! An alternate is a separate file. The file of an edited alternate refers to the version's file for unchanged entities
//! ([`strata_format::editing`]). A save writes the file, then replaces the alternate in one catalog transaction, so
//! that every read sees either the old or the new alternate. A later sweep removes replaced and deleted files.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use strata_catalog::{VersionFileIds, VersionStatus};
use strata_ingest::SourceError;
use strata_store::spool_quota::SpoolQuotaExceeded;
use strata_types::dataset::Dataset;
use strata_types::ids::{DatasetId, UserId};
use strata_types::index_settings::IndexSettings;
use strata_types::user::User;
use strata_types::version::{DatasetVersion, VersionNumber};

use crate::dataset::DatasetService;
use crate::refresh::version_file::WrittenFile;
use crate::{ManageError, Overloaded, PushedEntities, RefreshError};

/// An error while saving an alternate (edited copy), which is unchanged unless the catalog failed during the commit.
#[derive(Debug, thiserror::Error)]
pub enum AlternateError {
    #[error(transparent)]
    Manage(#[from] ManageError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    DiskQuotaExceeded(#[from] SpoolQuotaExceeded),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
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
    PastEnd { position: u64, length: u64, is_insert: bool },
    DuplicatePosition { position: u64, other: usize },
}

impl EditProblem {
    /// Returns the error message of an invalid edit. It shows `position` as the caller wrote it.
    pub fn message(&self, position: impl fmt::Display) -> String {
        let (length, is_insert) = match self {
            EditProblem::PastEnd { length, is_insert, .. } => (length, *is_insert),
            EditProblem::DuplicatePosition { other, .. } => {
                return format!(
                    "position {position} is already set or removed by edits[{other}]; valid: at most one set or \
                     remove per position"
                );
            }
        };
        let entities = if *length == 1 { "1 entity".to_owned() } else { format!("{length} entities") };
        if is_insert {
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
        let (EditProblem::PastEnd { position, .. } | EditProblem::DuplicatePosition { position, .. }) = self;
        formatter.write_str(&self.message(position))
    }
}

impl From<RefreshError> for AlternateError {
    fn from(error: RefreshError) -> AlternateError {
        match error {
            RefreshError::Source(error) => AlternateError::Source(error),
            RefreshError::DatasetNotFound => AlternateError::Manage(ManageError::DatasetNotFound),
            RefreshError::DiskQuotaExceeded(error) => AlternateError::DiskQuotaExceeded(error),
            RefreshError::Overloaded(error) => AlternateError::Overloaded(error),
            RefreshError::Stopping => AlternateError::Stopping,
            RefreshError::Catalog(error) => AlternateError::Manage(error.into()),
            RefreshError::Storage(error) => AlternateError::Manage(ManageError::Storage(error)),
            other => AlternateError::Manage(ManageError::Internal(format!("failed to save the alternate: {other:?}"))),
        }
    }
}

/// Returns the quoted ETag of a version, which changes when its alternate (edited copy) is saved or deleted, but not
/// when a compaction replaces its file.
pub fn alternate_etag(version: &DatasetVersion) -> String {
    let alt = version.alternate.as_ref().map_or("none".to_owned(), |alt| alt.id.to_string());
    let content_hash = &version.file.content_hash;
    let hash = Sha256::digest(format!("{}/{}/{content_hash}/{alt}", version.dataset, version.number));
    format!("\"{}\"", hex::encode(&hash[..16]))
}

pub(super) struct VersionUnderEdit {
    pub(super) version: DatasetVersion,
    pub(super) index: IndexSettings,
}

impl VersionUnderEdit {
    /// Returns the IDs of the version's files if `etag` is current, and [`ManageError::Stale`] otherwise.
    pub(super) fn file_ids_if_unchanged(&self, etag: &str) -> Result<VersionFileIds, ManageError> {
        // Clients can omit the quotes of the ETag.
        match etag.trim_matches('"') == alternate_etag(&self.version).trim_matches('"') {
            true => Ok(VersionFileIds::from_version(&self.version)),
            false => Err(ManageError::Stale),
        }
    }
}

impl DatasetService {
    pub(super) async fn find_version_to_edit(
        &self,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
    ) -> Result<VersionUnderEdit, ManageError> {
        let Dataset { index, latest_version, .. } = self.catalog.owned_dataset(owner.id, dataset).await?;
        let found = self.catalog.version(dataset, version).await.map_err(ManageError::from);
        let version = found.map_err(|error| error.with_version_details(version, latest_version))?.version;
        Ok(VersionUnderEdit { version, index })
    }

    /// Saves the alternate of a version. If `expected` is set but is not the current [`alternate_etag`], or if another
    /// change is faster, the error is [`ManageError::Stale`]. The work continues if the future is dropped.
    pub async fn save_alternate(
        self: &Arc<Self>,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
        entities: PushedEntities,
        expected: Option<&str>,
    ) -> Result<VersionStatus, AlternateError> {
        let current = self.find_version_to_edit(owner, dataset, version).await?;
        let base = expected.map(|etag| current.file_ids_if_unchanged(etag)).transpose()?;
        let datasets = self.clone();
        let owner = owner.id;
        let saving = async move {
            let writing = datasets.write_alternate(entities, current.index);
            Ok(datasets.save_written_alternate(owner, dataset, version, writing, base).await)
        };
        self.refreshes.tasks.run(saving).await?
    }

    pub(super) async fn write_alternate(
        &self,
        PushedEntities { spooled, permit }: PushedEntities,
        index: IndexSettings,
    ) -> Result<WrittenFile, RefreshError> {
        self.refreshes.files.reserve_path().await?.write_version(spooled, None, index, &permit, &Arc::default()).await
    }

    /// Waits until the file is written, then saves it as the version's alternate unless the files differ from `base`.
    pub(super) async fn save_written_alternate(
        &self,
        owner: UserId,
        dataset: DatasetId,
        version: VersionNumber,
        writing: impl Future<Output = Result<WrittenFile, RefreshError>>,
        base: Option<VersionFileIds>,
    ) -> Result<VersionStatus, AlternateError> {
        let file = tokio::select! {
            file = writing => file?,
            () = self.refreshes.tasks.wait_for_stop() => return Err(AlternateError::Stopping),
        };
        let new = file.new.clone();
        let saving = self.owner_writer.run_write(owner, self.catalog.save_alternate(dataset, version, &new, base));
        Ok(file.record_in_catalog(saving).await?)
    }

    pub async fn delete_alternate(
        &self,
        owner: &User,
        dataset: DatasetId,
        version: VersionNumber,
    ) -> Result<VersionStatus, ManageError> {
        let latest = self.catalog.owned_dataset(owner.id, dataset).await?.latest_version;
        let deleted = self.owner_writer.run_write(owner.id, self.catalog.delete_alternate(dataset, version)).await;
        deleted.map_err(|error| error.with_version_details(version, latest))
    }
}
