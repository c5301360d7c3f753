//! Table `versions`: publishes versions, lists them, and finds the one that a reader asks for. A version may have a
//! second file, its alternate.
//!
//! References show which rows are lost. Versions are never deleted, so each number up to the dataset's latest must
//! exist. So must a dataset that has versions, and a file that a version names.

use chrono::{DateTime, Utc};
use strata_runtime::crash;
use strata_types::dataset::{Dataset, NewDataset};
use strata_types::version::{NewFile, Version, VersionFile, VersionSelector};

use super::attempts::{AttemptOutcome, FirstAttempt, PublishingAttempt, finish, start};
use super::convert::{from_cursor, from_optional, from_time};
use super::dataset_rows::seal_dataset;
use super::datasets::insert;
use super::engine::{Transaction, Value, columns};
use super::files::{record, unreference};
use super::leases::give_back;
use super::validators::{self, FetchedState};
use super::version_rows::{
    Resolved, VERSIONS, VersionRecord, no_version, version_checksum, version_columns, versions_sql,
};
use super::webhooks;
use super::{Catalog, CatalogError, DatasetId, FileId, Result, VersionNumber};

#[derive(Clone, Copy, Debug)]
pub enum VersionContent<'a> {
    New(&'a NewFile),
    /// The file of an earlier version of the same dataset, because the entities are the same.
    Shared {
        file: FileId,
        /// The hash of the entities that are published; the file's must be equal.
        content_hash: &'a str,
    },
}

/// The state from which an alternate was edited: another one after the alternate was replaced or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlternateBase {
    pub file: FileId,
    pub alt: Option<FileId>,
}

impl AlternateBase {
    pub fn of(version: &Version) -> AlternateBase {
        AlternateBase { file: version.file.id, alt: version.alt.as_ref().map(|alt| alt.id) }
    }
}

/// The query of [`Catalog::resolve_read`] with the number of the version as an expression.
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

impl Catalog {
    /// The dataset with this id and the version of it that `selector` names, as of one moment.
    ///
    /// Every read asks this once: one statement, four look-ups by primary key. If the version is not found, it costs
    /// another look-up. [`CatalogError::Unverified`] if a record is not what was written, or is missing although others
    /// need it.
    pub async fn resolve_read(&self, id: DatasetId, selector: VersionSelector) -> Result<Option<Resolved>> {
        let (sql, number) = match selector {
            VersionSelector::Active => {
                (resolve_sql!("COALESCE(datasets.pinned_version, datasets.latest_version)"), None)
            }
            VersionSelector::Latest => (resolve_sql!("datasets.latest_version"), None),
            VersionSelector::Number(number) => (resolve_sql!("$2"), Some(number)),
        };
        let values = [id.into(), from_optional(number)];
        let used = 1 + usize::from(number.is_some());
        let resolved = self.engine.find(sql, &values[..used]).await?;
        self.check_found(id, selector, resolved.as_ref()).await?;
        Ok(resolved)
    }

    /// Tells a record that does not exist from one that was only not found.
    pub(super) async fn check_found(
        &self,
        id: DatasetId,
        selector: VersionSelector,
        resolved: Option<&Resolved>,
    ) -> Result<()> {
        let Some(resolved) = resolved else { return self.check_no_dataset(id).await };
        if resolved.version.is_some() {
            return Ok(());
        }
        match (resolved.dataset.latest_version, selector) {
            (None, _) => self.check_no_dataset(id).await,
            (Some(latest), VersionSelector::Number(number)) if number > latest || number < VersionNumber::new(1) => {
                Ok(())
            }
            (Some(_), _) => Err(CatalogError::Unverified { record: format!("a version of dataset {id}") }),
        }
    }

    /// Checks that a dataset that was not found, or has no version, really has no version.
    pub(super) async fn check_no_dataset(&self, id: DatasetId) -> Result<()> {
        // One statement: the first version may have been published since the dataset was read.
        let sql = "SELECT v.version_number FROM versions v LEFT JOIN datasets d ON d.dataset_id = v.dataset_id
                   WHERE v.dataset_id = $1 AND (d.dataset_id IS NULL OR d.latest_version IS NULL) LIMIT 1";
        match self.engine.has_row(sql, &[id.into()]).await? {
            false => Ok(()),
            true => Err(CatalogError::Unverified { record: format!("dataset {id}") }),
        }
    }

    pub async fn version(&self, dataset: DatasetId, number: VersionNumber) -> Result<VersionRecord> {
        let resolved = self.resolve_read(dataset, VersionSelector::Number(number)).await?;
        let Resolved { dataset, version } = resolved.ok_or(CatalogError::NotFound)?;
        let is_active = dataset.active_version() == Some(number);
        Ok(VersionRecord { version: version.ok_or(CatalogError::NoVersion)?, is_active })
    }

    /// The versions below `before`, newest first, at most `limit`, in one statement: a range, two look-ups for each.
    pub async fn versions(
        &self,
        dataset: DatasetId,
        before: Option<VersionNumber>,
        limit: u32,
    ) -> Result<Vec<VersionRecord>> {
        let before = from_cursor(before.map(VersionNumber::get), i64::MAX);
        let values = &[dataset.into(), before, limit.into()];
        self.engine.list(VERSIONS, values).await
    }

    /// Records the dataset's next version, all at once:
    ///
    /// 1. waits for other changes of the dataset, and checks that it is not frozen and that `attempt` still holds it;
    /// 2. takes the next number, so that numbers are consecutive;
    /// 3. records the version and its file; the version becomes active unless a rollback has pinned another;
    /// 4. records that the dataset's webhook is due, if one is registered;
    /// 5. records that the attempt has ended with this version and these warnings, and gives the dataset back.
    ///
    /// `fetched` has the validators of the source. They are kept until the next version, unless the dataset's source,
    /// format or records path has changed since. [`CatalogError::Conflict`] if a file to share is of no version of this
    /// dataset or has another hash.
    pub async fn publish_version(
        &self,
        dataset: DatasetId,
        content: VersionContent<'_>,
        fetched: Option<FetchedState<'_>>,
        attempt: impl Into<PublishingAttempt<'_>>,
    ) -> Result<VersionRecord> {
        let attempt = attempt.into();
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        if locked.frozen {
            return Err(CatalogError::Frozen);
        }
        // Changes nothing, but locks the lease before its reservations, in the order of a renewal.
        let sql = "UPDATE refresh_leases SET expires_at = expires_at WHERE dataset_id = $1 AND attempt_id = $2";
        transaction.execute_or(sql, &[dataset.into(), attempt.id.into()], CatalogError::LeaseLost).await?;
        // Only now, when the versions before it are committed, so that times rise with the numbers.
        let now = self.now();
        let file = match content {
            VersionContent::New(file) => record(&mut transaction, file, now).await?,
            VersionContent::Shared { file, content_hash } => {
                shared_file(&mut transaction, dataset, file, content_hash).await?
            }
        };
        let published = add_version(&mut transaction, &locked, file, None, now).await?;
        validators::record(&mut transaction, &locked, fetched).await?;
        webhooks::record_due(&mut transaction, dataset, published.version.number, now).await?;
        give_back(&mut transaction, attempt.id).await?;
        finish(&mut transaction, attempt, &AttemptOutcome::Published(published.version.number), now).await?;
        crash::point("publish.uncommitted");
        transaction.commit().await?;
        crash::point("publish.committed");
        Ok(published)
    }

    /// Creates a dataset together with its first version and the attempt that made it: all or nothing.
    pub async fn create_dataset_with_version(
        &self,
        new: &NewDataset,
        active_limit: u64,
        attempt: FirstAttempt<'_>,
        file: &NewFile,
    ) -> Result<(Dataset, VersionRecord)> {
        let mut transaction = self.engine.begin().await?;
        let now = self.now();
        let mut dataset = insert(&mut transaction, new, active_limit, now).await?;
        let file = record(&mut transaction, file, now).await?;
        let published = add_version(&mut transaction, &dataset, file, None, now).await?;
        let FirstAttempt { trigger, started_at, warnings } = attempt;
        let id = start(&mut transaction, dataset.id, trigger, started_at.min(now)).await?;
        let ended = PublishingAttempt { id, warnings };
        finish(&mut transaction, ended, &AttemptOutcome::Published(published.version.number), now).await?;
        transaction.commit().await?;
        dataset.latest_version = Some(published.version.number);
        Ok((dataset, published))
    }

    /// Gives the version this file as its alternate, also of a frozen dataset. An existing alternate is replaced as a
    /// whole; its file is then unreferenced, unless a clone shares it. [`CatalogError::Conflict`] if the version is not
    /// as `expected`.
    pub async fn save_alternate(
        &self,
        dataset: DatasetId,
        number: VersionNumber,
        file: &NewFile,
        expected: Option<AlternateBase>,
    ) -> Result<VersionRecord> {
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        let mut found = find_version(&mut transaction, &locked, number).await?;
        if expected.is_some_and(|expected| expected != AlternateBase::of(&found.version)) {
            return Err(CatalogError::Conflict);
        }
        let now = self.now();
        let alt = record(&mut transaction, file, now).await?;
        let replaced = found.version.alt.replace(alt);
        set_alternate(&mut transaction, &locked, &found.version).await?;
        if let Some(replaced) = replaced {
            unreference(&mut transaction, replaced.id, now).await?;
        }
        crash::point("alternate.uncommitted");
        transaction.commit().await?;
        crash::point("alternate.committed");
        Ok(found)
    }

    /// Removes the version's alternate. Its file is then unreferenced, unless a clone shares it.
    pub async fn delete_alternate(&self, dataset: DatasetId, number: VersionNumber) -> Result<VersionRecord> {
        let (mut transaction, locked) = self.lock_dataset(dataset).await?;
        let mut found = find_version(&mut transaction, &locked, number).await?;
        let deleted = found.version.alt.take().ok_or(CatalogError::NoAlternate)?;
        set_alternate(&mut transaction, &locked, &found.version).await?;
        unreference(&mut transaction, deleted.id, self.now()).await?;
        transaction.commit().await?;
        Ok(found)
    }
}

async fn set_alternate(transaction: &mut Transaction, dataset: &Dataset, version: &Version) -> Result<()> {
    let sql =
        "UPDATE versions SET alt_file_id = $3, record_checksum = $4 WHERE dataset_id = $1 AND version_number = $2";
    let alt = from_optional(version.alt.as_ref().map(|alt| alt.id));
    let checksum = version_checksum(version, dataset.created_at).finish();
    transaction
        .execute(sql, &[version.dataset.into(), version.number.into(), alt, Value::Text(Some(&checksum))])
        .await?;
    transaction.tell().await
}

/// Records the next version of `dataset`, whose row is locked, as a part of `transaction`.
pub(super) async fn add_version(
    transaction: &mut Transaction,
    dataset: &Dataset,
    file: VersionFile,
    alt: Option<VersionFile>,
    now: DateTime<Utc>,
) -> Result<VersionRecord> {
    let number = VersionNumber::new(dataset.latest_version.map_or(0, VersionNumber::get) + 1);
    let version = Version { dataset: dataset.id, number, file, alt, created_at: now };
    let checksum = version_checksum(&version, dataset.created_at).finish();
    let sql = "INSERT INTO versions (dataset_id, version_number, file_id, alt_file_id, created_at, record_checksum)
               VALUES ($1, $2, $3, $4, $5, $6)";
    let values = &[
        dataset.id.into(),
        number.into(),
        version.file.id.into(),
        from_optional(version.alt.as_ref().map(|alt| alt.id)),
        from_time(now),
        Value::Text(Some(&checksum)),
    ];
    transaction.execute(sql, values).await?;
    let sql = "UPDATE datasets SET latest_version = $2 WHERE dataset_id = $1";
    transaction.execute(sql, &[dataset.id.into(), number.into()]).await?;
    seal_dataset(transaction, dataset.id).await?;
    Ok(VersionRecord { version, is_active: dataset.pinned_version.is_none() })
}

/// The file that an earlier version of the dataset has, if its entities have that hash.
async fn shared_file(
    transaction: &mut Transaction,
    dataset: DatasetId,
    file: FileId,
    content_hash: &str,
) -> Result<VersionFile> {
    let sql = versions_sql!("v.file_id = $2 ORDER BY v.version_number DESC LIMIT 1");
    let found: Option<VersionRecord> = transaction.find(sql, &[dataset.into(), file.into()]).await?;
    let file = found.ok_or(CatalogError::Conflict)?.version.file;
    if file.content_hash == content_hash { Ok(file) } else { Err(CatalogError::Conflict) }
}

pub(super) async fn find_version(
    transaction: &mut Transaction,
    dataset: &Dataset,
    number: VersionNumber,
) -> Result<VersionRecord> {
    let sql = versions_sql!("v.version_number = $2");
    let found = transaction.find(sql, &[dataset.id.into(), number.into()]).await?;
    found.ok_or_else(|| no_version(dataset.id, dataset.latest_version, number))
}
