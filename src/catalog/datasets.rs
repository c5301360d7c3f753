//! Table `datasets`: creating, reading and changing datasets, and their states: which version is pinned, and whether it
//! is frozen (docs/reference/refreshes.md, States).

use chrono::{DateTime, Utc};
use strata_runtime::crash;
use strata_types::dataset::{Dataset, DatasetChange, DatasetName, DatasetSource, NewDataset, Visibility};
use strata_types::secret::Secret;
use strata_types::source::SourceFormat;

use super::attempts::{Attempt, LAST_ATTEMPTS};
use super::convert::{from_cursor, from_time, optional_text, text, to_unsigned};
use super::dataset_rows::{commit_sealed, from_index, lock_dataset, seal_dataset};
use super::engine::{Transaction, Value, columns, select};
use super::leases::give_up_lease;
use super::listings::folded;
use super::users::lock_owner;
use super::validators::{self, is_fetched_alike};
use super::version_rows::{VERSIONS, VersionRecord, check_all_versions, no_version};
use super::{Catalog, CatalogError, DatasetId, Result, UserId, VersionNumber};

const VIEWED_ATTEMPTS: u32 = 10;

/// All that its owner sees of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetView {
    pub dataset: Dataset,
    pub versions: Vec<VersionRecord>,
    /// The last attempts to refresh it, newest first, at most ten.
    pub last_attempts: Vec<Attempt>,
}

impl Catalog {
    /// Creates a dataset without versions, unless its owner would then have more than `active_limit` datasets that are
    /// not frozen. [`CatalogError::NameTaken`] comes before [`CatalogError::PlanLimit`], so that a caller who wants to
    /// create or find the dataset learns that it exists.
    pub async fn create_dataset(&self, new: &NewDataset, active_limit: u64) -> Result<Dataset> {
        let mut transaction = self.engine.begin().await?;
        let dataset = insert(&mut transaction, new, active_limit, self.now()).await?;
        transaction.commit().await?;
        Ok(dataset)
    }

    pub async fn dataset(&self, id: DatasetId) -> Result<Option<Dataset>> {
        let sql = select!(datasets, "WHERE datasets.dataset_id = $1");
        let dataset = self.engine.find(sql, &[id.into()]).await?;
        if dataset.is_none() {
            self.check_no_dataset(id).await?;
        }
        Ok(dataset)
    }

    /// The owner's dataset of exactly this name. One indexed look-up.
    pub async fn dataset_by_name(&self, owner: UserId, name: &DatasetName) -> Result<Option<Dataset>> {
        let sql = select!(datasets, "WHERE datasets.owner_id = $1 AND datasets.name = $2");
        self.engine.find(sql, &[owner.into(), Value::Text(Some(name.as_str()))]).await
    }

    pub async fn has_datasets(&self) -> Result<bool> {
        self.engine.has_row("SELECT dataset_id FROM datasets LIMIT 1", &[]).await
    }

    /// The dataset with this id, if it is this owner's, which never changes. One look-up by primary key.
    pub async fn owned_dataset(&self, owner: UserId, id: DatasetId) -> Result<Dataset> {
        let dataset = self.dataset(id).await?;
        dataset.filter(|dataset| dataset.owner == owner).ok_or(CatalogError::NotFound)
    }

    /// How many datasets an owner has, and how many of them are not frozen.
    pub async fn count_datasets(&self, owner: UserId) -> Result<(u64, u64)> {
        let sql = "SELECT COUNT(*), COUNT(CASE WHEN frozen THEN NULL ELSE 1 END) FROM datasets WHERE owner_id = $1";
        let (all, active): (i64, i64) = self.engine.find(sql, &[owner.into()]).await?.unwrap_or_default();
        Ok((to_unsigned(all, "datasets count")?, to_unsigned(active, "datasets count")?))
    }

    /// The dataset whose ping URL holds this token. One indexed look-up.
    pub async fn dataset_by_ping_token(&self, token: &str) -> Result<Option<Dataset>> {
        if token.contains('\0') {
            return Ok(None);
        }
        let sql = select!(datasets, "WHERE datasets.ping_token = $1");
        self.engine.find(sql, &[Value::Text(Some(token))]).await
    }

    /// The owner's datasets with ids greater than `after`, by id, at most `limit`. Sorts a range of an index.
    pub async fn datasets_of(&self, owner: UserId, after: Option<DatasetId>, limit: u32) -> Result<Vec<Dataset>> {
        let sql = select!(
            datasets,
            "WHERE datasets.owner_id = $1 AND datasets.dataset_id > $2 ORDER BY datasets.dataset_id LIMIT $3"
        );
        let values = &[owner.into(), from_cursor(after.map(DatasetId::get), 0), limit.into()];
        self.engine.list(sql, values).await
    }

    /// The datasets of all owners with ids greater than `after`, by id, at most `limit`. One range of the primary key.
    pub async fn datasets(&self, after: Option<DatasetId>, limit: u32) -> Result<Vec<Dataset>> {
        let sql = select!(datasets, "WHERE datasets.dataset_id > $1 ORDER BY datasets.dataset_id LIMIT $2");
        self.engine.list(sql, &[from_cursor(after.map(DatasetId::get), 0), limit.into()]).await
    }

    /// The dataset with its versions and its last attempts, as of one moment. Three statements; costs what it returns.
    pub async fn dataset_view(&self, id: DatasetId) -> Result<Option<DatasetView>> {
        let mut snapshot = self.engine.begin_snapshot().await?;
        let sql = select!(datasets, "WHERE datasets.dataset_id = $1");
        let Some(dataset): Option<Dataset> = snapshot.find(sql, &[id.into()]).await? else {
            drop(snapshot);
            self.check_no_dataset(id).await?;
            return Ok(None);
        };
        let values = &[id.into(), Value::Integer(Some(i64::MAX)), Value::Integer(Some(i64::MAX))];
        let versions: Vec<VersionRecord> = snapshot.list(VERSIONS, values).await?;
        let values = &[id.into(), VIEWED_ATTEMPTS.into(), Value::Integer(Some(i64::MAX))];
        let last_attempts = snapshot.list(LAST_ATTEMPTS, values).await?;
        snapshot.commit().await?;
        check_all_versions(&dataset, &versions)?;
        Ok(Some(DatasetView { dataset, versions, last_attempts }))
    }

    /// Deletes a dataset without versions. [`CatalogError::Busy`] while it is refreshed. Its id is never used again.
    pub async fn delete_dataset(&self, id: DatasetId) -> Result<()> {
        let (mut transaction, _) = self.lock_dataset(id).await?;
        let sql = "SELECT version_number FROM versions WHERE dataset_id = $1 LIMIT 1";
        let version: Option<(i64,)> = transaction.find(sql, &[id.into()]).await?;
        if version.is_some() {
            return Err(CatalogError::HasVersions);
        }
        give_up_lease(&mut transaction, id, self.now()).await?;
        for sql in [
            "DELETE FROM refresh_attempts WHERE dataset_id = $1",
            "DELETE FROM webhooks WHERE dataset_id = $1",
            "DELETE FROM datasets WHERE dataset_id = $1",
        ] {
            transaction.execute(sql, &[id.into()]).await?;
        }
        transaction.tell().await?;
        transaction.commit().await
    }

    /// Changes only the fields that `change` names. The next time of a schedule is computed again if the schedule is
    /// new or now has something to fetch. If the same schedule is saved again, the next time is computed again unless
    /// it is due, because a due run must not be lost.
    pub async fn update_dataset(&self, id: DatasetId, change: &DatasetChange) -> Result<Dataset> {
        let (mut transaction, old) = self.lock_dataset(id).await?;
        let mut new = old.clone();
        new.name = change.name.clone().unwrap_or(new.name);
        new.about.description = change.description.clone().unwrap_or(new.about.description);
        new.about.licence = change.licence.clone().unwrap_or(new.about.licence);
        new.about.listed = change.listed.unwrap_or(new.about.listed);
        new.private_key = match &change.visibility {
            None => new.private_key,
            Some(Visibility::Public) => None,
            Some(Visibility::Private { new_key }) => new.private_key.or_else(|| Some(new_key.clone())),
        };
        new.source = change.source.clone().unwrap_or(new.source);
        new.format = change.format.unwrap_or(new.format);
        new.records_path = change.records_path.clone().unwrap_or(new.records_path);
        new.publish_query = change.publish_query.unwrap_or(new.publish_query);
        new.infer_types = change.infer_types.unwrap_or(new.infer_types);
        new.schedule = change.schedule.clone().unwrap_or(new.schedule);
        new.index = change.index.clone().unwrap_or(new.index);

        write_fields(&mut transaction, &new).await.map_err(|error| match error {
            CatalogError::Database(sqlx::Error::Database(cause)) if cause.is_unique_violation() => {
                CatalogError::NameTaken
            }
            error => error,
        })?;
        if !is_fetched_alike(&new, &old) {
            validators::forget(&mut transaction, id).await?;
        }
        if new.schedule != old.schedule || is_push(&new) != is_push(&old) {
            reschedule(&mut transaction, id).await?;
        } else if change.schedule.is_some() {
            let sql = "UPDATE datasets SET next_run_at = 0 WHERE dataset_id = $1 AND next_run_at > $2";
            transaction.execute(sql, &[id.into(), from_time(self.now())]).await?;
        }
        commit_sealed(transaction, id).await
    }

    /// Replaces the key of a private dataset; [`CatalogError::Conflict`] if it is public. The old key opens nothing.
    pub async fn rotate_key(&self, id: DatasetId, new_key: &Secret) -> Result<Dataset> {
        let (mut transaction, dataset) = self.lock_dataset(id).await?;
        if !dataset.is_private() {
            return Err(CatalogError::Conflict);
        }
        let sql = "UPDATE datasets SET private_key = $2 WHERE dataset_id = $1";
        transaction.execute(sql, &[id.into(), Value::Text(Some(new_key.expose()))]).await?;
        commit_sealed(transaction, id).await
    }

    /// Replaces the token of the dataset's ping URL. The old URL finds nothing from then on.
    pub async fn rotate_ping_token(&self, id: DatasetId, new_token: &Secret) -> Result<Dataset> {
        let (mut transaction, _) = self.lock_dataset(id).await?;
        let sql = "UPDATE datasets SET ping_token = $2 WHERE dataset_id = $1";
        transaction.execute(sql, &[id.into(), Value::Text(Some(new_token.expose()))]).await?;
        commit_sealed(transaction, id).await
    }

    /// Pins the dataset to a version, which stays active after later refreshes. `freeze` also freezes the dataset.
    /// Versions do not change. This works on a frozen dataset too, which stays frozen.
    pub async fn rollback(&self, dataset: DatasetId, version: VersionNumber, freeze: bool) -> Result<Dataset> {
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        let sql = "UPDATE datasets SET pinned_version = $2
                   WHERE dataset_id = $1 AND EXISTS (
                       SELECT 1 FROM versions WHERE dataset_id = $1 AND version_number = $2)";
        let pinned = transaction.execute(sql, &[dataset.into(), version.into()]).await?;
        if pinned == 0 {
            return Err(no_version(dataset, locked.latest_version, version));
        }
        if freeze {
            let sql = "UPDATE datasets SET frozen = (1 = 1), next_run_at = NULL WHERE dataset_id = $1";
            transaction.execute(sql, &[dataset.into()]).await?;
        }
        let dataset = seal_dataset(&mut transaction, dataset).await?;
        crash::point("rollback.uncommitted");
        transaction.commit().await?;
        crash::point("rollback.committed");
        Ok(dataset)
    }

    /// Makes the newest version the active one, and later each new version. A frozen dataset stays frozen.
    pub async fn unpin(&self, dataset: DatasetId) -> Result<Dataset> {
        let (mut transaction, _) = self.lock_dataset(dataset).await?;
        let sql = "UPDATE datasets SET pinned_version = NULL WHERE dataset_id = $1";
        transaction.execute(sql, &[dataset.into()]).await?;
        commit_sealed(transaction, dataset).await
    }

    /// Unfreezes the dataset, unless its owner would then have more than `active_limit` that are not. A pin stays.
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
        check_limit(&mut transaction, owner, active_limit).await?;
        reschedule(&mut transaction, dataset).await?;
        commit_sealed(transaction, dataset).await
    }
}

fn is_push(dataset: &Dataset) -> bool {
    dataset.source == DatasetSource::Push
}

/// Call it under the owner's lock.
pub(super) async fn check_limit(transaction: &mut Transaction, owner: UserId, active_limit: u64) -> Result<()> {
    let sql = "SELECT COUNT(*) FROM datasets WHERE owner_id = $1 AND NOT frozen";
    let (active,): (i64,) = transaction.one(sql, &[owner.into()]).await?;
    match to_unsigned(active, "datasets count")? > active_limit {
        true => Err(CatalogError::PlanLimit { limit: active_limit }),
        false => Ok(()),
    }
}

/// Marks the next time of the dataset's schedule as to be computed, if it has a schedule that matters.
pub(super) async fn reschedule(transaction: &mut Transaction, id: DatasetId) -> Result<()> {
    let sql = "UPDATE datasets
               SET next_run_at = CASE WHEN schedule IS NULL OR source = 'push' OR frozen THEN NULL ELSE 0 END
               WHERE dataset_id = $1";
    transaction.execute(sql, &[id.into()]).await.map(drop)
}

pub(super) async fn insert(
    transaction: &mut Transaction,
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
        Value::Text(Some(new.name.as_str())),
        Value::Text(Some(new.name.slug())),
        Value::Text(Some(new.ping_token.expose())),
        from_time(now),
    ];
    let inserted: Dataset = transaction.find(sql, values).await?.ok_or(CatalogError::NameTaken)?;
    let id = inserted.id;
    let dataset = Dataset {
        about: new.about.clone(),
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
    write_fields(transaction, &dataset).await?;
    check_limit(transaction, new.owner, active_limit).await?;
    reschedule(transaction, id).await?;
    seal_dataset(transaction, id).await
}

async fn write_fields(transaction: &mut Transaction, dataset: &Dataset) -> Result<()> {
    let source = dataset.source.to_string();
    let index = from_index(&dataset.index);
    let (folded_name, folded_description) = folded(&dataset.name, &dataset.about);
    let sql = "UPDATE datasets SET name = $2, name_slug = $3, private_key = $4, source = $5, format = $6,
                   records_path = $7, schedule = $8, index_paths = $9, publish_query = $10,
                   description = $11, licence = $12, listed = $13, infer_types = $14,
                   folded_name = $15, folded_description = $16
               WHERE dataset_id = $1";
    let values = &[
        dataset.id.into(),
        Value::Text(Some(dataset.name.as_str())),
        Value::Text(Some(dataset.name.slug())),
        Value::Text(dataset.private_key.as_ref().map(Secret::expose)),
        text(&source, "source")?,
        Value::Text(dataset.format.map(SourceFormat::name)),
        optional_text(dataset.records_path.as_deref(), "records_path")?,
        optional_text(dataset.schedule.as_deref(), "schedule")?,
        Value::Text(index.as_deref()),
        Value::Boolean(Some(dataset.publish_query)),
        optional_text(dataset.about.description.as_deref(), "description")?,
        optional_text(dataset.about.licence.as_deref(), "licence")?,
        Value::Boolean(Some(dataset.about.listed)),
        Value::Boolean(Some(dataset.infer_types)),
        Value::Text(Some(&folded_name)),
        optional_text(folded_description.as_deref(), "description")?,
    ];
    transaction.execute(sql, values).await.map(drop)
}
