//! Clones datasets: creates a dataset whose version 1 is the latest version of another dataset, with its edited copy.
//!
//! The files are immutable, so the clone shares them instead of copying them. They are verified once, so that damage
//! does not spread. A sweep removes a file only if no dataset refers to it.

use strata_catalog::VersionFileIds;
use strata_types::dataset::{DEFAULT_CRON_SCHEDULE, DatasetName, NewDatasetClone};
use strata_types::ids::DatasetId;
use strata_types::secret::Secret;
use strata_types::user::User;
use strata_types::version::DatasetVersion;

use crate::RefreshError;
use crate::dataset::{DatasetService, DatasetWithAttempts};
use crate::management::{ManageError, Result};

impl DatasetService {
    /// Clones a public dataset or a dataset of the user. The clone of a private dataset is private, with a new key.
    /// Another user's private dataset gives [`ManageError::CloneSourceNotFound`].
    pub async fn clone_dataset(&self, user: &User, id: DatasetId, name: DatasetName) -> Result<DatasetWithAttempts> {
        let clone = NewDatasetClone {
            source: id,
            owner: user.id,
            name,
            private_key: Secret::new_private_key(rand::random()),
            // A clone has no source to fetch. Its schedule takes effect when it gets one.
            schedule: Some(DEFAULT_CRON_SCHEDULE.to_owned()),
            ping_token: Secret::new_ping_token(rand::random()),
        };
        let limit = self.refreshes.ingest.config.plans.max_active_datasets(user.plan);
        let version = self.catalog.resolve_clone_source(&clone, limit).await.map_err(to_clone_error)?;
        self.verify_files(user, &version).await?;
        let base = VersionFileIds::from_version(&version);
        let cloned = self.owner_writer.run_write(user.id, self.catalog.clone_dataset(&clone, limit, Some(base))).await;
        let (dataset, _) = cloned.map_err(to_clone_error)?;
        self.load_attempts_and_checks(dataset).await
    }

    /// Verifies the version files that a clone would share, with a refresh permit of the user.
    async fn verify_files(&self, user: &User, version: &DatasetVersion) -> Result<()> {
        let _permit = self.refreshes.ingest.acquire_permit(user.id).await?;
        for file in [Some(&version.file), version.alternate.as_ref()].into_iter().flatten() {
            let is_intact = self.refreshes.files.is_intact(file).await.map_err(|error| match error {
                RefreshError::Catalog(error) => error.into(),
                RefreshError::Storage(error) => ManageError::Storage(error),
                other => ManageError::Internal(other.to_string()),
            });
            if !is_intact? {
                return Err(ManageError::Internal(format!("the version file {} is damaged", file.path)));
            }
        }
        Ok(())
    }
}

fn to_clone_error(error: impl Into<ManageError>) -> ManageError {
    match error.into() {
        ManageError::DatasetNotFound => ManageError::CloneSourceNotFound,
        ManageError::VersionNotFound => ManageError::CloneSourceEmpty,
        ManageError::Stale => ManageError::CloneSourceChanged,
        other => other,
    }
}
