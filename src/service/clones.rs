//! Clones: a new dataset that begins with another's latest version and its alternate.
//!
//! The clone shares the files, which never change: they are read once, so that no damage spreads, and not copied. A file
//! goes only when neither names it any more.

use super::App;
use super::datasets::OwnedDataset;
use super::manage::ManageError;
use crate::catalog::Resolved;
use crate::model::dataset::{DEFAULT_SCHEDULE, DatasetName, NewClone};
use crate::model::ids::DatasetId;
use crate::model::secret::Secret;
use crate::model::user::User;
use crate::model::version::VersionSelector;

impl App {
    /// Makes a dataset of the user's whose version 1 is the latest version of a public dataset, or one of the user's
    /// own, with its alternate. The clone of a private dataset is private, with a key of its own.
    ///
    /// # Errors
    /// [`ManageError::CloneNotFound`], also for another's private dataset; [`ManageError::Frozen`],
    /// [`ManageError::NothingToClone`], [`ManageError::PlanLimit`], [`ManageError::NameTaken`].
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
        self.check_clonable(user, source).await?;
        let cloned = self.write(user.id, self.catalog().clone_dataset(&clone, self.active_limit(user.plan))).await;
        let (dataset, _) = cloned.map_err(|error| match error {
            ManageError::DatasetNotFound => ManageError::CloneNotFound,
            ManageError::VersionNotFound => ManageError::NothingToClone,
            other => other,
        })?;
        self.with_attempts(dataset).await
    }

    /// Reads the files that a clone would share: damage is not to spread. Whether there is something to clone, and for
    /// whom, is settled with the clone.
    async fn check_clonable(&self, user: &User, source: DatasetId) -> Result<(), ManageError> {
        let Some(Resolved { dataset, version: Some(version) }) =
            self.catalog().resolve_read(source, VersionSelector::Latest).await?
        else {
            return Ok(());
        };
        if dataset.frozen || (dataset.is_private() && dataset.owner != user.id) {
            return Ok(());
        }
        for file in [Some(&version.file), version.alt.as_ref()].into_iter().flatten() {
            if !self.is_sound(file).await {
                return Err(ManageError::Failed(format!("the version file {} is damaged", file.path)));
            }
        }
        Ok(())
    }
}
