//! Table `datasets`: creates, reads, and changes datasets, including pins and freezes (docs/reference/refreshes.md).

use chrono::{DateTime, Utc};
use strata_runtime::failpoint;
use strata_types::dataset::{
    Dataset, DatasetChange, DatasetName, DatasetSource, DatasetVisibility, NewDataset, RollbackMode,
};
use strata_types::secret::Secret;
use strata_types::source::SourceFormat;

use super::attempts::{LAST_ATTEMPTS_SQL, RefreshAttempt};
use super::checks::{find_checks, store_checks};
use super::convert::{from_cursor, from_optional_text, from_text, from_time, to_unsigned};
use super::database_engine::{CatalogTransaction, SqlValue, columns, select};
use super::dataset_rows::{commit_dataset_change, index_to_json, lock_dataset, update_checksum_and_notify};
use super::leases::end_expired_lease;
use super::listings::fold_search_fields;
use super::users::lock_owner;
use super::validators::{self, has_same_source_settings};
use super::version_rows::{VERSIONS_SQL, VersionStatus, check_versions_complete, missing_version_error};
use super::{Catalog, CatalogError, DatasetId, Result, UserId, VersionNumber};

const MAX_VIEWED_ATTEMPTS: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetView {
    pub dataset: Dataset,
    pub versions: Vec<VersionStatus>,
    /// The latest refresh attempts of the dataset, newest first, at most ten.
    pub last_attempts: Vec<RefreshAttempt>,
    /// The checks of new versions as JSON.
    pub checks: Option<String>,
}

impl Catalog {
    /// Creates a dataset without versions. [`CatalogError::NameTaken`] takes precedence over
    /// [`CatalogError::TooManyDatasets`], so that a caller that creates or finds a dataset learns that it exists.
    pub async fn create_dataset(&self, new: &NewDataset, active_limit: u64) -> Result<Dataset> {
        let mut transaction = self.engine.begin().await?;
        let dataset = insert_dataset(&mut transaction, new, active_limit, self.now()).await?;
        transaction.commit().await?;
        Ok(dataset)
    }

    pub async fn dataset(&self, id: DatasetId) -> Result<Option<Dataset>> {
        let sql = select!(datasets, "WHERE datasets.dataset_id = $1");
        let dataset = self.engine.find(sql, &[id.into()]).await?;
        if dataset.is_none() {
            self.check_dataset_absent(id).await?;
        }
        Ok(dataset)
    }

    pub async fn dataset_by_name(&self, owner: UserId, name: &DatasetName) -> Result<Option<Dataset>> {
        let sql = select!(datasets, "WHERE datasets.owner_id = $1 AND datasets.name = $2");
        self.engine.find(sql, &[owner.into(), SqlValue::Text(Some(name.as_str()))]).await
    }

    pub async fn has_datasets(&self) -> Result<bool> {
        self.engine.has_row("SELECT dataset_id FROM datasets LIMIT 1", &[]).await
    }

    /// Returns the dataset if it belongs to `owner`. The owner of a dataset never changes.
    pub async fn owned_dataset(&self, owner: UserId, id: DatasetId) -> Result<Dataset> {
        let dataset = self.dataset(id).await?;
        dataset.filter(|dataset| dataset.owner == owner).ok_or(CatalogError::NotFound)
    }

    /// Returns the number of the owner's datasets, and how many of them are not frozen.
    pub async fn count_all_and_active_datasets(&self, owner: UserId) -> Result<(u64, u64)> {
        let sql = "SELECT COUNT(*), COUNT(CASE WHEN frozen THEN NULL ELSE 1 END) FROM datasets WHERE owner_id = $1";
        let (all, active): (i64, i64) = self.engine.find(sql, &[owner.into()]).await?.unwrap_or_default();
        Ok((to_unsigned(all, "datasets count")?, to_unsigned(active, "datasets count")?))
    }

    pub async fn dataset_by_ping_token(&self, token: &str) -> Result<Option<Dataset>> {
        if token.contains('\0') {
            return Ok(None);
        }
        let sql = select!(datasets, "WHERE datasets.ping_token = $1");
        self.engine.find(sql, &[SqlValue::Text(Some(token))]).await
    }

    pub async fn datasets_by_owner(&self, owner: UserId, after: Option<DatasetId>, limit: u32) -> Result<Vec<Dataset>> {
        let sql = select!(
            datasets,
            "WHERE datasets.owner_id = $1 AND datasets.dataset_id > $2 ORDER BY datasets.dataset_id LIMIT $3"
        );
        let values = &[owner.into(), from_cursor(after.map(DatasetId::get), 0), limit.into()];
        self.engine.list(sql, values).await
    }

    pub async fn datasets(&self, after: Option<DatasetId>, limit: u32) -> Result<Vec<Dataset>> {
        let sql = select!(datasets, "WHERE datasets.dataset_id > $1 ORDER BY datasets.dataset_id LIMIT $2");
        self.engine.list(sql, &[from_cursor(after.map(DatasetId::get), 0), limit.into()]).await
    }

    /// Returns the dataset with all versions and the latest attempts, from one snapshot. Costs four statements.
    pub async fn dataset_view(&self, id: DatasetId) -> Result<Option<DatasetView>> {
        let mut snapshot = self.engine.begin_snapshot().await?;
        let sql = select!(datasets, "WHERE datasets.dataset_id = $1");
        let Some(dataset): Option<Dataset> = snapshot.find(sql, &[id.into()]).await? else {
            drop(snapshot);
            self.check_dataset_absent(id).await?;
            return Ok(None);
        };
        let values = &[id.into(), SqlValue::Integer(Some(i64::MAX)), SqlValue::Integer(Some(i64::MAX))];
        let versions: Vec<VersionStatus> = snapshot.list(VERSIONS_SQL, values).await?;
        let values = &[id.into(), MAX_VIEWED_ATTEMPTS.into(), SqlValue::Integer(Some(i64::MAX))];
        let last_attempts = snapshot.list(LAST_ATTEMPTS_SQL, values).await?;
        let checks = find_checks(&mut snapshot, id).await?;
        snapshot.commit().await?;
        check_versions_complete(&dataset, &versions)?;
        Ok(Some(DatasetView { dataset, versions, last_attempts, checks }))
    }

    /// Deletes a dataset without versions, unless a refresh is running ([`CatalogError::RefreshRunning`]).
    pub async fn delete_dataset(&self, id: DatasetId) -> Result<()> {
        let (mut transaction, _) = self.lock_dataset(id).await?;
        let sql = "SELECT version_number FROM versions WHERE dataset_id = $1 LIMIT 1";
        let version: Option<(i64,)> = transaction.find(sql, &[id.into()]).await?;
        if version.is_some() {
            return Err(CatalogError::HasVersions);
        }
        end_expired_lease(&mut transaction, id, self.now()).await?;
        for sql in [
            "DELETE FROM refresh_attempts WHERE dataset_id = $1",
            "DELETE FROM webhooks WHERE dataset_id = $1",
            "DELETE FROM datasets WHERE dataset_id = $1",
        ] {
            transaction.execute(sql, &[id.into()]).await?;
        }
        transaction.notify_change().await?;
        transaction.commit().await
    }

    /// Changes the fields that are set in `change`. The next scheduled run is computed again if the schedule has
    /// changed or the source has changed from or to `push`. If the same schedule is saved again, the next run is also
    /// computed again unless it is due, because a due run must not be lost.
    pub async fn update_dataset(&self, id: DatasetId, change: &DatasetChange) -> Result<Dataset> {
        let (mut transaction, old) = self.lock_dataset(id).await?;
        let mut new = old.clone();
        new.name = change.name.clone().unwrap_or(new.name);
        new.metadata.description = change.description.clone().unwrap_or(new.metadata.description);
        new.metadata.license = change.licence.clone().unwrap_or(new.metadata.license);
        new.metadata.listed = change.listed.unwrap_or(new.metadata.listed);
        new.private_key = match &change.visibility {
            None => new.private_key,
            Some(DatasetVisibility::Public) => None,
            Some(DatasetVisibility::Private { new_private_key }) => {
                new.private_key.or_else(|| Some(new_private_key.clone()))
            }
        };
        new.source = change.source.clone().unwrap_or(new.source);
        new.format = change.format.unwrap_or(new.format);
        new.records_path = change.records_path.clone().unwrap_or(new.records_path);
        new.publish_query = change.publish_query.unwrap_or(new.publish_query);
        new.infer_types = change.infer_types.unwrap_or(new.infer_types);
        new.schedule = change.schedule.clone().unwrap_or(new.schedule);
        new.index = change.index.clone().unwrap_or(new.index);

        if let Some(checks) = &change.checks {
            store_checks(&mut transaction, id, checks.as_deref()).await?;
        }
        update_dataset_row(&mut transaction, &new).await.map_err(|error| match error {
            CatalogError::Database(sqlx::Error::Database(cause)) if cause.is_unique_violation() => {
                CatalogError::NameTaken
            }
            error => error,
        })?;
        if !has_same_source_settings(&new, &old) {
            validators::clear_validators(&mut transaction, id).await?;
        }
        if new.schedule != old.schedule || has_push_source(&new) != has_push_source(&old) {
            reset_next_run(&mut transaction, id).await?;
        } else if change.schedule.is_some() {
            let sql = "UPDATE datasets SET next_run_at = 0 WHERE dataset_id = $1 AND next_run_at > $2";
            transaction.execute(sql, &[id.into(), from_time(self.now())]).await?;
        }
        commit_dataset_change(transaction, id).await
    }

    /// Replaces and revokes the private key. Returns [`CatalogError::Conflict`] if the dataset is public.
    pub async fn rotate_key(&self, id: DatasetId, new_private_key: &Secret) -> Result<Dataset> {
        let (mut transaction, dataset) = self.lock_dataset(id).await?;
        if !dataset.is_private() {
            return Err(CatalogError::Conflict);
        }
        let sql = "UPDATE datasets SET private_key = $2 WHERE dataset_id = $1";
        transaction.execute(sql, &[id.into(), SqlValue::Text(Some(new_private_key.expose()))]).await?;
        commit_dataset_change(transaction, id).await
    }

    pub async fn rotate_ping_token(&self, id: DatasetId, new_token: &Secret) -> Result<Dataset> {
        let (mut transaction, _) = self.lock_dataset(id).await?;
        let sql = "UPDATE datasets SET ping_token = $2 WHERE dataset_id = $1";
        transaction.execute(sql, &[id.into(), SqlValue::Text(Some(new_token.expose()))]).await?;
        commit_dataset_change(transaction, id).await
    }

    /// Pins the dataset to a version, which remains active after later refreshes.
    pub async fn rollback(&self, dataset: DatasetId, version: VersionNumber, mode: RollbackMode) -> Result<Dataset> {
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        let sql = "UPDATE datasets SET pinned_version = $2
                   WHERE dataset_id = $1 AND EXISTS (
                       SELECT 1 FROM versions WHERE dataset_id = $1 AND version_number = $2)";
        let pinned = transaction.execute(sql, &[dataset.into(), version.into()]).await?;
        if pinned == 0 {
            return Err(missing_version_error(dataset, locked.latest_version, version));
        }
        if mode == RollbackMode::PinAndFreeze {
            let sql = "UPDATE datasets SET frozen = (1 = 1), next_run_at = NULL WHERE dataset_id = $1";
            transaction.execute(sql, &[dataset.into()]).await?;
        }
        let dataset = update_checksum_and_notify(&mut transaction, dataset).await?;
        failpoint::trigger_failpoint("rollback.uncommitted");
        transaction.commit().await?;
        failpoint::trigger_failpoint("rollback.committed");
        Ok(dataset)
    }

    /// Makes the newest version active, now and after each refresh. A frozen dataset remains frozen.
    pub async fn unpin(&self, dataset: DatasetId) -> Result<Dataset> {
        let (mut transaction, _) = self.lock_dataset(dataset).await?;
        let sql = "UPDATE datasets SET pinned_version = NULL WHERE dataset_id = $1";
        transaction.execute(sql, &[dataset.into()]).await?;
        commit_dataset_change(transaction, dataset).await
    }

    /// Unfreezes the dataset unless its owner already has `active_limit` datasets that are not frozen. A pin remains.
    pub async fn unfreeze(&self, dataset: DatasetId, active_limit: u64) -> Result<Dataset> {
        let mut transaction = self.engine.begin().await?;
        let sql = "SELECT owner_id FROM datasets WHERE dataset_id = $1";
        let owner: Option<(i64,)> = transaction.find(sql, &[dataset.into()]).await?;
        let (owner,) = owner.ok_or(CatalogError::NotFound)?;
        let owner = UserId::new(to_unsigned(owner, "datasets.owner_id")?);
        lock_owner(&mut transaction, owner).await?;
        if !lock_dataset(&mut transaction, dataset).await?.frozen {
            return Err(CatalogError::NotFrozen);
        }
        transaction.execute("UPDATE datasets SET frozen = (1 = 0) WHERE dataset_id = $1", &[dataset.into()]).await?;
        check_active_dataset_limit(&mut transaction, owner, active_limit).await?;
        reset_next_run(&mut transaction, dataset).await?;
        commit_dataset_change(transaction, dataset).await
    }
}

fn has_push_source(dataset: &Dataset) -> bool {
    dataset.source == DatasetSource::Push
}

/// Returns an error if the owner has too many datasets that are not frozen. The caller must have locked the owner.
pub(super) async fn check_active_dataset_limit(
    transaction: &mut CatalogTransaction,
    owner: UserId,
    active_limit: u64,
) -> Result<()> {
    let sql = "SELECT COUNT(*) FROM datasets WHERE owner_id = $1 AND NOT frozen";
    let (active,): (i64,) = transaction.fetch_one(sql, &[owner.into()]).await?;
    match to_unsigned(active, "datasets count")? > active_limit {
        true => Err(CatalogError::TooManyDatasets { limit: active_limit }),
        false => Ok(()),
    }
}

/// Marks the next scheduled run for computation, or clears it if the dataset is frozen or has no schedule or URL.
pub(super) async fn reset_next_run(transaction: &mut CatalogTransaction, id: DatasetId) -> Result<()> {
    let sql = "UPDATE datasets
               SET next_run_at = CASE WHEN schedule IS NULL OR source = 'push' OR frozen THEN NULL ELSE 0 END
               WHERE dataset_id = $1";
    transaction.execute(sql, &[id.into()]).await.map(drop)
}

pub(super) async fn insert_dataset(
    transaction: &mut CatalogTransaction,
    new: &NewDataset,
    active_limit: u64,
    now: DateTime<Utc>,
) -> Result<Dataset> {
    lock_owner(transaction, new.owner).await?;
    let sql = concat!(
        "INSERT INTO datasets (owner_id, name, name_slug, source, ping_token, created_at)
         VALUES ($1, $2, $3, '', $4, $5)
         ON CONFLICT (owner_id, name) DO NOTHING
         RETURNING ",
        columns!(datasets)
    );
    let values = &[
        new.owner.into(),
        SqlValue::Text(Some(new.name.as_str())),
        SqlValue::Text(Some(new.name.slug())),
        SqlValue::Text(Some(new.ping_token.expose())),
        from_time(now),
    ];
    let inserted: Dataset = transaction.find(sql, values).await?.ok_or(CatalogError::NameTaken)?;
    let id = inserted.id;
    let dataset = Dataset {
        metadata: new.metadata.clone(),
        private_key: new.private_key.clone(),
        source: new.source.clone(),
        format: new.format,
        records_path: new.records_path.clone(),
        publish_query: new.publish_query,
        infer_types: new.infer_types,
        schedule: new.schedule.clone(),
        index: new.index.clone(),
        ..inserted
    };
    update_dataset_row(transaction, &dataset).await?;
    store_checks(transaction, id, new.checks.as_deref()).await?;
    check_active_dataset_limit(transaction, new.owner, active_limit).await?;
    reset_next_run(transaction, id).await?;
    update_checksum_and_notify(transaction, id).await
}

async fn update_dataset_row(transaction: &mut CatalogTransaction, dataset: &Dataset) -> Result<()> {
    let source = dataset.source.to_string();
    let index = index_to_json(&dataset.index);
    let (folded_name, folded_description) = fold_search_fields(&dataset.name, &dataset.metadata);
    let sql = "UPDATE datasets SET name = $2, name_slug = $3, private_key = $4, source = $5, format = $6,
                   records_path = $7, schedule = $8, index_paths = $9, publish_query = $10,
                   description = $11, licence = $12, listed = $13, infer_types = $14,
                   folded_name = $15, folded_description = $16
               WHERE dataset_id = $1";
    let values = &[
        dataset.id.into(),
        SqlValue::Text(Some(dataset.name.as_str())),
        SqlValue::Text(Some(dataset.name.slug())),
        SqlValue::Text(dataset.private_key.as_ref().map(Secret::expose)),
        from_text(&source, "source")?,
        SqlValue::Text(dataset.format.map(SourceFormat::name)),
        from_optional_text(dataset.records_path.as_deref(), "records_path")?,
        from_optional_text(dataset.schedule.as_deref(), "schedule")?,
        SqlValue::Text(index.as_deref()),
        SqlValue::Boolean(Some(dataset.publish_query)),
        from_optional_text(dataset.metadata.description.as_deref(), "description")?,
        from_optional_text(dataset.metadata.license.as_deref(), "licence")?,
        SqlValue::Boolean(Some(dataset.metadata.listed)),
        SqlValue::Boolean(Some(dataset.infer_types)),
        SqlValue::Text(Some(&folded_name)),
        from_optional_text(folded_description.as_deref(), "description")?,
    ];
    transaction.execute(sql, values).await.map(drop)
}
