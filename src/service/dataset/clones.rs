//! Clones: a new dataset that begins with another's latest version and its alternate.
//!
//! The clone shares the files, which never change: they are read once, so that no damage spreads, and not copied. A
//! file goes only when neither names it any more.

use strata_catalog::AlternateBase;
use strata_types::dataset::{DEFAULT_SCHEDULE, DatasetName, NewClone};
use strata_types::ids::DatasetId;
use strata_types::secret::Secret;
use strata_types::user::User;
use strata_types::version::Version;

use crate::dataset::{Datasets, OwnedDataset};
use crate::manage::ManageError;

impl Datasets {
    /// Makes a dataset of the user's whose version 1 is the latest version of a public dataset, or one of the user's
    /// own, with its alternate. The clone of a private dataset is private, with a key of its own.
    /// [`ManageError::CloneNotFound`] also for another's private dataset. Refusals of the request come before a file is
    /// read.
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
            // It counts from when the owner gives the clone a source.
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

    /// Reads the files that a clone would share, holding a permit of the user's: damage is not to spread.
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
