//! Clones: a new dataset that begins with another's latest version and its alternate.
//!
//! The clone shares the files, which never change, so cloning costs a transaction whatever the size; a file goes only
//! when neither names it any more.

use super::App;
use super::datasets::OwnedDataset;
use super::manage::ManageError;
use crate::model::dataset::{DEFAULT_SCHEDULE, DatasetName, NewClone};
use crate::model::ids::DatasetId;
use crate::model::secret::Secret;
use crate::model::user::User;

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
        let cloned = self.write(self.catalog().clone_dataset(&clone, self.active_limit(user.plan))).await;
        let (dataset, _) = cloned.map_err(|error| match error {
            ManageError::DatasetNotFound => ManageError::CloneNotFound,
            ManageError::VersionNotFound => ManageError::NothingToClone,
            other => other,
        })?;
        self.with_attempts(dataset).await
    }
}
