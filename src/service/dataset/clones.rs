//! Clones: new datasets that begin with the latest version of another dataset, and its alternate.
//!
//! The clone shares the files, which never change. They are not copied, but read once, so that damage does not spread.
//! A sweep removes a file only if no dataset names it.

use strata_catalog::AlternateBase;
use strata_types::dataset::{DEFAULT_SCHEDULE, DatasetName, NewClone};
use strata_types::ids::DatasetId;
use strata_types::secret::Secret;
use strata_types::user::User;
use strata_types::version::Version;

use crate::dataset::{Datasets, OwnedDataset};
use crate::manage::ManageError;

impl Datasets {
    /// Creates a dataset whose version 1 is the latest version of a public dataset, or of one of the user's datasets,
    /// with its alternate. The clone of a private dataset is private, with a new key.
    /// [`ManageError::CloneNotFound`] also for another user's private dataset. Checks the request before reading files.
    pub async fn clone_dataset(
        &self,
        user: &User,
        source: DatasetId,
        name: DatasetName,
    ) -> Result<OwnedDataset, ManageError> {
        let clone = NewClone {
            source,
            owner: user.id,
            name,
            private_key: Secret::private_key(rand::random()),
            // The schedule takes effect when the clone gets a source.
            schedule: Some(DEFAULT_SCHEDULE.to_owned()),
            ping_token: Secret::ping_token(rand::random()),
        };
        let limit = self.refreshes.ingest.config.plans.active_datasets(user.plan);
        let found = self.catalog.check_clone(&clone, limit).await.map_err(refused)?;
        self.check_sound(user, &found).await?;
        let base = AlternateBase::of(&found);
        let cloned = self.writes.run(user.id, self.catalog.clone_dataset(&clone, limit, Some(base))).await;
        let (dataset, _) = cloned.map_err(refused)?;
        self.with_attempts(dataset).await
    }

    /// Reads the files that a clone would share, with a permit of the user.
    async fn check_sound(&self, user: &User, version: &Version) -> Result<(), ManageError> {
        let _permit = self.refreshes.ingest.permit(user.id).await?;
        for file in [Some(&version.file), version.alt.as_ref()].into_iter().flatten() {
            if !self.refreshes.files.is_sound(file).await.map_err(ManageError::Storage)? {
                return Err(ManageError::Failed(format!("the version file {} is damaged", file.path)));
            }
        }
        Ok(())
    }
}

fn refused(error: impl Into<ManageError>) -> ManageError {
    match error.into() {
        ManageError::DatasetNotFound => ManageError::CloneNotFound,
        ManageError::VersionNotFound => ManageError::NothingToClone,
        ManageError::Stale => ManageError::SourceChanged,
        other => other,
    }
}
