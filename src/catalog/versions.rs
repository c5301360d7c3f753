//! Table `versions`: publishes and lists versions, and resolves the version that a read requests. Versions are never
//! deleted. Therefore a missing number up to the dataset's latest version shows that a row is lost, as does a version
//! whose dataset or file is missing.

use chrono::{DateTime, Utc};
use strata_runtime::failpoint;
use strata_types::dataset::{Dataset, NewDataset};
use strata_types::version::{DatasetVersion, NewVersionFile, VersionFile, VersionSelector};

use super::attempts::{AttemptOutcome, AttemptWithWarnings, FirstAttempt, finish_attempt, start_attempt};
use super::convert::{from_cursor, from_optional_id, from_text, from_time};
use super::database_engine::{CatalogTransaction, SqlValue, columns};
use super::dataset_rows::update_checksum_and_notify;
use super::datasets::insert_dataset;
use super::files::{mark_if_unreferenced, record_file};
use super::leases::release_lease;
use super::validators::{self, FetchedValidators};
use super::version_rows::{
    ResolvedDataset, VERSIONS_SQL, VersionStatus, missing_version_error, version_checksum, version_columns,
    versions_sql,
};
use super::webhooks;
use super::{Catalog, CatalogError, DatasetId, Result, VersionFileId, VersionNumber};

#[derive(Clone, Copy, Debug)]
pub enum VersionContent<'a> {
    New(&'a NewVersionFile),
    /// The new version shares the file of an earlier version of the dataset, because the entities are the same.
    Shared {
        file: VersionFileId,
        /// The hash of the entities to publish, which must equal the hash of the shared file.
        content_hash: &'a str,
    },
}

/// The IDs of a version's files, which change when its alternate (edited copy) is saved or deleted, and when its file
/// is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionFileIds {
    pub file: VersionFileId,
    pub alt: Option<VersionFileId>,
}

impl VersionFileIds {
    pub fn from_version(version: &DatasetVersion) -> VersionFileIds {
        VersionFileIds { file: version.file.id, alt: version.alternate.as_ref().map(|alt| alt.id) }
    }
}

macro_rules! resolve_sql {
    ($number:literal) => {
        concat!(
            "SELECT ",
            columns!(datasets),
            ", ",
            version_columns!(),
            " FROM datasets
              LEFT JOIN versions v ON v.dataset_id = datasets.dataset_id AND v.version_number = ",
            $number,
            " LEFT JOIN files f ON f.file_id = v.file_id
              LEFT JOIN files a ON a.file_id = v.alt_file_id
              WHERE datasets.dataset_id = $1"
        )
    };
}

/// Selects the newest version of the dataset `$1` whose file has the content hash `$2`. The inner subquery reads the
/// file of one version at a time, newest first, so that no planner reads the files of other datasets.
const VERSION_WITH_CONTENT_SQL: &str = versions_sql!(
    "v.version_number = (
         SELECT n.version_number FROM versions n
         WHERE n.dataset_id = $1 AND (SELECT c.content_hash FROM files c WHERE c.file_id = n.file_id) = $2
         ORDER BY n.version_number DESC LIMIT 1)"
);

impl Catalog {
    /// Returns the dataset and the selected version, from one snapshot. Every read calls this function once; it costs
    /// one statement with four lookups by primary key. Returns [`CatalogError::DamagedRecord`] if a record does not
    /// match its checksum, or is missing although others refer to it.
    pub async fn resolve_read(&self, id: DatasetId, selector: VersionSelector) -> Result<Option<ResolvedDataset>> {
        let (sql, number) = match selector {
            VersionSelector::Active => {
                (resolve_sql!("COALESCE(datasets.pinned_version, datasets.latest_version)"), None)
            }
            VersionSelector::Latest => (resolve_sql!("datasets.latest_version"), None),
            VersionSelector::Number(number) => (resolve_sql!("$2"), Some(number)),
        };
        let values = [id.into(), from_optional_id(number)];
        let resolved = self.engine.find(sql, &values[..1 + usize::from(number.is_some())]).await?;
        self.check_version_not_missing(id, selector, resolved.as_ref()).await?;
        Ok(resolved)
    }

    /// Returns an error if no version was found, although the requested version should exist.
    pub(super) async fn check_version_not_missing(
        &self,
        id: DatasetId,
        selector: VersionSelector,
        resolved: Option<&ResolvedDataset>,
    ) -> Result<()> {
        let Some(resolved) = resolved else { return self.check_dataset_absent(id).await };
        if resolved.version.is_some() {
            return Ok(());
        }
        match (resolved.dataset.latest_version, selector) {
            (None, _) => self.check_dataset_absent(id).await,
            (Some(latest), VersionSelector::Number(number)) if number > latest || number < VersionNumber::new(1) => {
                Ok(())
            }
            (Some(_), _) => Err(CatalogError::DamagedRecord { record: format!("a version of dataset {id}") }),
        }
    }

    /// Returns an error if the dataset was not found, or has no latest version, although versions of it exist.
    pub(super) async fn check_dataset_absent(&self, id: DatasetId) -> Result<()> {
        // This check is one statement, because the first version might have been published since the dataset was read.
        let sql = "SELECT v.version_number FROM versions v LEFT JOIN datasets d ON d.dataset_id = v.dataset_id
                   WHERE v.dataset_id = $1 AND (d.dataset_id IS NULL OR d.latest_version IS NULL) LIMIT 1";
        match self.engine.has_row(sql, &[id.into()]).await? {
            false => Ok(()),
            true => Err(CatalogError::DamagedRecord { record: format!("dataset {id}") }),
        }
    }

    pub async fn version(&self, dataset: DatasetId, number: VersionNumber) -> Result<VersionStatus> {
        let resolved = self.resolve_read(dataset, VersionSelector::Number(number)).await?;
        let ResolvedDataset { dataset, version } = resolved.ok_or(CatalogError::NotFound)?;
        let is_active = dataset.active_version() == Some(number);
        Ok(VersionStatus { version: version.ok_or(CatalogError::NoVersion)?, is_active })
    }

    pub async fn versions(
        &self,
        dataset: DatasetId,
        before: Option<VersionNumber>,
        limit: u32,
    ) -> Result<Vec<VersionStatus>> {
        let values = &[dataset.into(), from_cursor(before.map(VersionNumber::get), i64::MAX), limit.into()];
        self.engine.list(VERSIONS_SQL, values).await
    }

    /// Returns the file of the newest version of the dataset whose file has this content hash, not considering
    /// alternates. Costs two lookups by primary key for each version, from the newest one to the match.
    pub async fn file_with_content(&self, dataset: DatasetId, content_hash: &str) -> Result<Option<VersionFile>> {
        let values = &[dataset.into(), from_text(content_hash, "content_hash")?];
        let found: Option<VersionStatus> = self.engine.find(VERSION_WITH_CONTENT_SQL, values).await?;
        Ok(found.map(|status| status.version.file))
    }

    /// Publishes the next version of the dataset in one transaction:
    ///
    /// 1. Locks the dataset, and checks that it is not frozen and that `attempt` holds the lease.
    /// 2. Records the file and the version with the next number, which becomes active unless a version is pinned.
    /// 3. Stores the source validators in `fetched`, unless the dataset's source settings have changed since the fetch.
    /// 4. Makes the delivery of the dataset's webhook due, if there is one.
    /// 5. Records the outcome and the warnings of the attempt, and releases the lease.
    ///
    /// Returns [`CatalogError::Conflict`] if no version of this dataset has the shared file or a file that replaced it,
    /// if the shared file has another hash, or if a base of a new file has no record.
    pub async fn publish_version(
        &self,
        dataset: DatasetId,
        content: VersionContent<'_>,
        fetched: Option<FetchedValidators<'_>>,
        attempt: impl Into<AttemptWithWarnings<'_>>,
    ) -> Result<VersionStatus> {
        let attempt = attempt.into();
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        if locked.frozen {
            return Err(CatalogError::Frozen);
        }
        // This update changes nothing, but locks the refresh lease before its file reservations, as renewals do.
        let sql = "UPDATE refresh_leases SET expires_at = expires_at WHERE dataset_id = $1 AND attempt_id = $2";
        transaction.execute_or_error(sql, &[dataset.into(), attempt.id.into()], CatalogError::LeaseLost).await?;
        // The clock is read while the dataset is locked, so that creation times increase with version numbers.
        let now = self.now();
        let file = match content {
            VersionContent::New(file) => record_file(&mut transaction, file, None, now).await?,
            VersionContent::Shared { file, content_hash } => {
                find_shared_file(&mut transaction, dataset, file, content_hash).await?
            }
        };
        let published = add_version(&mut transaction, &locked, file, None, now).await?;
        validators::record_validators(&mut transaction, &locked, fetched).await?;
        webhooks::record_due_webhook_delivery(&mut transaction, dataset, published.version.number, now).await?;
        release_lease(&mut transaction, attempt.id).await?;
        finish_attempt(&mut transaction, attempt, &AttemptOutcome::Published(published.version.number), now).await?;
        failpoint::trigger_failpoint("publish.uncommitted");
        transaction.commit().await?;
        failpoint::trigger_failpoint("publish.committed");
        Ok(published)
    }

    pub async fn create_dataset_with_version(
        &self,
        new: &NewDataset,
        active_limit: u64,
        attempt: FirstAttempt<'_>,
        file: &NewVersionFile,
    ) -> Result<(Dataset, VersionStatus)> {
        let mut transaction = self.engine.begin().await?;
        let now = self.now();
        let mut dataset = insert_dataset(&mut transaction, new, active_limit, now).await?;
        let file = record_file(&mut transaction, file, None, now).await?;
        let published = add_version(&mut transaction, &dataset, file, None, now).await?;
        let FirstAttempt { trigger, started_at, warnings } = attempt;
        let id = start_attempt(&mut transaction, dataset.id, trigger, started_at.min(now)).await?;
        let ended = AttemptWithWarnings { id, warnings };
        finish_attempt(&mut transaction, ended, &AttemptOutcome::Published(published.version.number), now).await?;
        transaction.commit().await?;
        dataset.latest_version = Some(published.version.number);
        Ok((dataset, published))
    }

    /// Sets the alternate (edited copy) of a version, even in a frozen dataset. Marks a replaced file as unreferenced.
    /// Returns [`CatalogError::Conflict`] if the alternate is not the one of `expected`, or if a base of `file` has no
    /// record. The file of the version can differ from `expected`, because a replacement has the same entities.
    pub async fn save_alternate(
        &self,
        dataset: DatasetId,
        number: VersionNumber,
        file: &NewVersionFile,
        expected: Option<VersionFileIds>,
    ) -> Result<VersionStatus> {
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        let mut status = find_version(&mut transaction, &locked, number).await?;
        let replaced = status.version.alternate.as_ref().map(|alt| alt.id);
        if expected.is_some_and(|expected| expected.alt != replaced) {
            return Err(CatalogError::Conflict);
        }
        let now = self.now();
        let alt = record_file(&mut transaction, file, replaced, now).await?;
        status.version.alternate = Some(alt);
        set_alternate(&mut transaction, &locked, &status.version).await?;
        if let Some(replaced) = replaced {
            mark_if_unreferenced(&mut transaction, replaced, now).await?;
        }
        failpoint::trigger_failpoint("alternate.uncommitted");
        transaction.commit().await?;
        failpoint::trigger_failpoint("alternate.committed");
        Ok(status)
    }

    /// Replaces the file of a version with a file of the same entities, for example a delta file with a complete one
    /// (compaction), even in a frozen dataset. Other versions, clones, and delta files still refer to the old file; if
    /// none does, the old file is marked as unreferenced. The path of the new file must be reserved.
    ///
    /// Returns [`CatalogError::Conflict`] if the version's file is not `expected`, if the content hash or the entity
    /// count differs from the old file's, or if a base of the new file has no record.
    pub async fn replace_version_file(
        &self,
        dataset: DatasetId,
        number: VersionNumber,
        expected: VersionFileId,
        file: &NewVersionFile,
    ) -> Result<VersionStatus> {
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        let mut status = find_version(&mut transaction, &locked, number).await?;
        let old = &status.version.file;
        if old.id != expected || old.content_hash != file.content_hash || old.entity_count != file.entity_count {
            return Err(CatalogError::Conflict);
        }
        let now = self.now();
        status.version.file = record_file(&mut transaction, file, Some(expected), now).await?;
        let sql =
            "UPDATE versions SET file_id = $3, record_checksum = $4 WHERE dataset_id = $1 AND version_number = $2";
        let new = status.version.file.id.into();
        update_version_row(&mut transaction, &locked, &status.version, sql, new).await?;
        mark_if_unreferenced(&mut transaction, expected, now).await?;
        failpoint::trigger_failpoint("compact.uncommitted");
        transaction.commit().await?;
        failpoint::trigger_failpoint("compact.committed");
        Ok(status)
    }

    /// Deletes the alternate (edited copy) of a version, and marks its file as unreferenced unless a clone shares it.
    pub async fn delete_alternate(&self, dataset: DatasetId, number: VersionNumber) -> Result<VersionStatus> {
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        let mut status = find_version(&mut transaction, &locked, number).await?;
        let deleted = status.version.alternate.take().ok_or(CatalogError::NoAlternate)?;
        set_alternate(&mut transaction, &locked, &status.version).await?;
        mark_if_unreferenced(&mut transaction, deleted.id, self.now()).await?;
        transaction.commit().await?;
        Ok(status)
    }
}

async fn set_alternate(transaction: &mut CatalogTransaction, locked: &Dataset, version: &DatasetVersion) -> Result<()> {
    let sql =
        "UPDATE versions SET alt_file_id = $3, record_checksum = $4 WHERE dataset_id = $1 AND version_number = $2";
    let alt = from_optional_id(version.alternate.as_ref().map(|alt| alt.id));
    update_version_row(transaction, locked, version, sql, alt).await
}

/// Runs `sql`, which sets one column of a version's row to `value` (`$3`), and updates the checksum of the row (`$4`).
async fn update_version_row(
    transaction: &mut CatalogTransaction,
    locked: &Dataset,
    version: &DatasetVersion,
    sql: &'static str,
    value: SqlValue<'_>,
) -> Result<()> {
    let checksum = version_checksum(version, locked.created_at).into_stored();
    let values = &[version.dataset.into(), version.number.into(), value, SqlValue::Text(Some(&checksum))];
    transaction.execute(sql, values).await?;
    transaction.notify_change().await
}

/// Inserts the next version of `dataset`, whose row must be locked.
pub(super) async fn add_version(
    transaction: &mut CatalogTransaction,
    dataset: &Dataset,
    file: VersionFile,
    alt: Option<VersionFile>,
    now: DateTime<Utc>,
) -> Result<VersionStatus> {
    let number = VersionNumber::new(dataset.latest_version.map_or(0, VersionNumber::get) + 1);
    let version = DatasetVersion { dataset: dataset.id, number, file, alternate: alt, created_at: now };
    let checksum = version_checksum(&version, dataset.created_at).into_stored();
    let sql = "INSERT INTO versions (dataset_id, version_number, file_id, alt_file_id, created_at, record_checksum)
               VALUES ($1, $2, $3, $4, $5, $6)";
    let values = &[
        dataset.id.into(),
        number.into(),
        version.file.id.into(),
        from_optional_id(version.alternate.as_ref().map(|alt| alt.id)),
        from_time(now),
        SqlValue::Text(Some(&checksum)),
    ];
    transaction.execute(sql, values).await?;
    let sql = "UPDATE datasets SET latest_version = $2 WHERE dataset_id = $1";
    transaction.execute(sql, &[dataset.id.into(), number.into()]).await?;
    update_checksum_and_notify(transaction, dataset.id).await?;
    Ok(VersionStatus { version, is_active: dataset.pinned_version.is_none() })
}

/// Returns the file that a new version shares. If the file of the earlier version was replaced since the caller chose
/// it ([`Catalog::replace_version_file`]), returns the file that a version has now with the same content hash.
async fn find_shared_file(
    transaction: &mut CatalogTransaction,
    dataset: DatasetId,
    file: VersionFileId,
    content_hash: &str,
) -> Result<VersionFile> {
    let sql = versions_sql!("v.file_id = $2 ORDER BY v.version_number DESC LIMIT 1");
    let mut found: Option<VersionStatus> = transaction.find(sql, &[dataset.into(), file.into()]).await?;
    if found.is_none() {
        let values = &[dataset.into(), from_text(content_hash, "content_hash")?];
        found = transaction.find(VERSION_WITH_CONTENT_SQL, values).await?;
    }
    let file = found.ok_or(CatalogError::Conflict)?.version.file;
    if file.content_hash == content_hash { Ok(file) } else { Err(CatalogError::Conflict) }
}

pub(super) async fn find_version(
    transaction: &mut CatalogTransaction,
    dataset: &Dataset,
    number: VersionNumber,
) -> Result<VersionStatus> {
    let sql = versions_sql!("v.version_number = $2");
    let found = transaction.find(sql, &[dataset.id.into(), number.into()]).await?;
    found.ok_or_else(|| missing_version_error(dataset.id, dataset.latest_version, number))
}
