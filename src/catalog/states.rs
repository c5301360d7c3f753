//! The states of a dataset: which version is pinned, and whether it is frozen (docs/semantics.md, States).

use super::convert::to_unsigned;
use super::dataset_rows::{lock_dataset, seal_dataset};
use super::datasets::{check_limit, reschedule};
use super::users::lock_owner;
use super::version_rows::no_version;
use super::{Catalog, CatalogError, DatasetId, Result, UserId, VersionNumber};
use crate::crash;
use crate::model::dataset::Dataset;

impl Catalog {
    /// Pins the dataset to a version, which stays active after later refreshes. `freeze` also freezes the dataset.
    /// Versions do not change. This works on a frozen dataset too, which stays frozen.
    pub async fn rollback(&self, dataset: DatasetId, version: VersionNumber, freeze: bool) -> Result<Dataset> {
        let mut transaction = self.engine.begin().await?;
        let mut record = lock_dataset(&mut transaction, dataset).await?;
        let sql = "UPDATE datasets SET pinned_version = $2
                   WHERE dataset_id = $1 AND EXISTS (
                       SELECT 1 FROM versions WHERE dataset_id = $1 AND version_number = $2)";
        let pinned = transaction.execute(sql, &[dataset.into(), version.into()]).await?;
        if pinned == 0 {
            return Err(no_version(dataset, record.latest_version, version));
        }
        record.pinned_version = Some(version);
        if freeze {
            let sql = "UPDATE datasets SET frozen = (1 = 1), next_run_at = NULL WHERE dataset_id = $1";
            transaction.execute(sql, &[dataset.into()]).await?;
            record.frozen = true;
        }
        seal_dataset(&mut transaction, dataset).await?;
        crash::point("rollback.uncommitted");
        transaction.commit().await?;
        crash::point("rollback.committed");
        Ok(record)
    }

    /// Makes the newest version the active one, and later each new version. A frozen dataset stays frozen.
    pub async fn unpin(&self, dataset: DatasetId) -> Result<Dataset> {
        let mut transaction = self.engine.begin().await?;
        let mut record = lock_dataset(&mut transaction, dataset).await?;
        let sql = "UPDATE datasets SET pinned_version = NULL WHERE dataset_id = $1";
        transaction.execute(sql, &[dataset.into()]).await?;
        seal_dataset(&mut transaction, dataset).await?;
        transaction.commit().await?;
        record.pinned_version = None;
        Ok(record)
    }

    /// Unfreezes the dataset, unless its owner would then have more than `active_limit` that are not. A pin stays.
    pub async fn unfreeze(&self, dataset: DatasetId, active_limit: u64) -> Result<Dataset> {
        let mut transaction = self.engine.begin().await?;
        let sql = "SELECT owner_id FROM datasets WHERE dataset_id = $1";
        let owner: Option<(i64,)> = transaction.fetch_optional(sql, &[dataset.into()]).await?;
        let (owner,) = owner.ok_or(CatalogError::NotFound)?;
        let owner = UserId::new(to_unsigned(owner, "datasets.owner_id")?);
        lock_owner(&mut transaction, owner).await?;
        let mut record = lock_dataset(&mut transaction, dataset).await?;
        if !record.frozen {
            return Err(CatalogError::NotFrozen);
        }
        transaction.execute("UPDATE datasets SET frozen = (1 = 0) WHERE dataset_id = $1", &[dataset.into()]).await?;
        check_limit(&mut transaction, owner, active_limit).await?;
        reschedule(&mut transaction, dataset).await?;
        seal_dataset(&mut transaction, dataset).await?;
        transaction.commit().await?;
        record.frozen = false;
        Ok(record)
    }
}
