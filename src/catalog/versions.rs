//! Table `versions`: publishes versions, lists them, and finds the one that a reader asks for.

use chrono::{DateTime, Utc};

use super::attempts::{AttemptOutcome, finish, start};
use super::checksums::{RecordChecksum, joined_file, no_version, seal_dataset};
use super::convert::{from_optional, from_time, to_time, to_unsigned};
use super::datasets::{DatasetRow, dataset_columns, insert, lock_dataset};
use super::engine::{Transaction, Value};
use super::files::record;
use super::leases::give_back;
use super::validators::{self, FetchedState};
use super::webhooks;
use super::{AttemptId, Catalog, CatalogError, DatasetId, FileId, VersionNumber};
use crate::crash;
use crate::model::dataset::{Dataset, NewDataset, RefreshTrigger};
use crate::model::version::{NewFile, Version, VersionFile, VersionSelector};

/// A dataset and the version of it that a reader asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The dataset.
    pub dataset: Dataset,
    /// The version; `None` if the dataset has no such version.
    pub version: Option<Version>,
}

/// A version and whether it is the active one (docs/semantics.md, Records).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRecord {
    /// The version.
    pub version: Version,
    /// Whether it is the active version, as of the moment in which it was read or written.
    pub is_active: bool,
}

/// The entities of a version that is published.
#[derive(Clone, Copy, Debug)]
pub enum VersionContent<'a> {
    /// A file that was written for it, under a path that is reserved.
    New(&'a NewFile),
    /// The file of an earlier version of the same dataset, because the entities are the same.
    Shared {
        /// The file.
        file: FileId,
        /// The hash of the entities that are published; the file's must be equal.
        content_hash: &'a str,
    },
}

#[derive(sqlx::FromRow)]
struct ResolvedRow {
    #[sqlx(flatten)]
    dataset: DatasetRow,
    #[sqlx(flatten)]
    version: JoinedRow,
}

/// A version and its files, from outer joins.
#[derive(sqlx::FromRow)]
struct JoinedRow {
    version_number: Option<i64>,
    version_created_at: Option<i64>,
    version_checksum: Option<String>,
    /// What the version's row says, whether or not the files were found.
    file_reference: Option<i64>,
    alt_reference: Option<i64>,
    file_id: Option<i64>,
    path: Option<String>,
    size_bytes: Option<i64>,
    entity_count: Option<i64>,
    content_hash: Option<String>,
    alt_file_id: Option<i64>,
    alt_path: Option<String>,
    alt_size_bytes: Option<i64>,
    alt_entity_count: Option<i64>,
    alt_content_hash: Option<String>,
}

impl JoinedRow {
    /// The version; `None` if the join found none. `dataset_created_at` is the dataset's.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Unverified`] if it is not what was written, [`CatalogError::Corrupt`].
    fn version(self, dataset: DatasetId, dataset_created_at: DateTime<Utc>) -> Result<Option<Version>, CatalogError> {
        let Some(number) = self.version_number else { return Ok(None) };
        let record = || format!("version {number} of dataset {dataset}");
        let file = version_file(self.file_id, self.path, self.size_bytes, self.entity_count, self.content_hash)?;
        let alt = version_file(
            self.alt_file_id,
            self.alt_path,
            self.alt_size_bytes,
            self.alt_entity_count,
            self.alt_content_hash,
        )?;
        let file = joined_file(self.file_reference, file, record)?;
        let alt = joined_file(self.alt_reference, alt, record)?;
        let (Some(created_at), Some(file)) = (self.version_created_at, file) else {
            return Err(CatalogError::Unverified { record: record() });
        };
        let version = Version {
            dataset,
            number: VersionNumber::new(to_unsigned(number, "versions.version_number")?),
            file,
            alt,
            created_at: to_time(created_at, "versions.created_at")?,
        };
        version_checksum(&version, dataset_created_at).check(self.version_checksum.as_deref(), record)?;
        Ok(Some(version))
    }
}

impl TryFrom<ResolvedRow> for Resolved {
    type Error = CatalogError;

    fn try_from(row: ResolvedRow) -> Result<Self, Self::Error> {
        let dataset = Dataset::try_from(row.dataset)?;
        let version = row.version.version(dataset.id, dataset.created_at)?;
        Ok(Resolved { dataset, version })
    }
}

#[derive(sqlx::FromRow)]
pub(super) struct VersionRow {
    dataset_id: i64,
    is_active: bool,
    dataset_created_at: i64,
    #[sqlx(flatten)]
    version: JoinedRow,
}

impl TryFrom<VersionRow> for VersionRecord {
    type Error = CatalogError;

    fn try_from(row: VersionRow) -> Result<Self, Self::Error> {
        let dataset = DatasetId::new(to_unsigned(row.dataset_id, "versions.dataset_id")?);
        let created_at = to_time(row.dataset_created_at, "datasets.created_at")?;
        let version = row.version.version(dataset, created_at)?.ok_or(CatalogError::NoVersion)?;
        Ok(VersionRecord { version, is_active: row.is_active })
    }
}

/// The checksum of a version's record, with its files, of the dataset that was created at that time.
pub(super) fn version_checksum(version: &Version, dataset_created_at: DateTime<Utc>) -> RecordChecksum {
    // What the database holds fits.
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    RecordChecksum::of("versions")
        .number(signed(version.dataset.get()))
        .number(dataset_created_at.timestamp_micros())
        .number(signed(version.number.get()))
        .number(version.created_at.timestamp_micros())
        .file(Some(&version.file))
        .file(version.alt.as_ref())
}

/// The file of an outer join's columns; they are null together.
fn version_file(
    file_id: Option<i64>,
    path: Option<String>,
    size_bytes: Option<i64>,
    entity_count: Option<i64>,
    content_hash: Option<String>,
) -> Result<Option<VersionFile>, CatalogError> {
    let (Some(file_id), Some(path), Some(size_bytes), Some(entity_count), Some(content_hash)) =
        (file_id, path, size_bytes, entity_count, content_hash)
    else {
        return Ok(None);
    };
    Ok(Some(VersionFile {
        id: FileId::new(to_unsigned(file_id, "files.file_id")?),
        path,
        size_bytes: to_unsigned(size_bytes, "files.size_bytes")?,
        entity_count: to_unsigned(entity_count, "files.entity_count")?,
        content_hash,
    }))
}

/// The columns of a [`JoinedRow`].
macro_rules! version_columns {
    () => {
        "v.version_number, v.created_at AS version_created_at, v.record_checksum AS version_checksum,
         v.file_id AS file_reference, v.alt_file_id AS alt_reference,
         f.file_id, f.path, f.size_bytes, f.entity_count, f.content_hash,
         a.file_id AS alt_file_id, a.path AS alt_path, a.size_bytes AS alt_size_bytes,
         a.entity_count AS alt_entity_count, a.content_hash AS alt_content_hash"
    };
}

/// The query of [`Catalog::resolve_read`] with the number of the version as an expression.
macro_rules! resolve_sql {
    ($number:literal) => {
        concat!(
            "SELECT ",
            dataset_columns!(),
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

/// Versions of a dataset as [`VersionRow`]s, with a condition on them.
macro_rules! versions_sql {
    ($condition:literal) => {
        concat!(
            "SELECT v.dataset_id,
                    v.version_number = COALESCE(d.pinned_version, d.latest_version) AS is_active,
                    d.created_at AS dataset_created_at, ",
            version_columns!(),
            " FROM versions v
              JOIN datasets d ON d.dataset_id = v.dataset_id
              LEFT JOIN files f ON f.file_id = v.file_id
              LEFT JOIN files a ON a.file_id = v.alt_file_id
              WHERE v.dataset_id = $1 AND ",
            $condition
        )
    };
}

/// The newest `$3` versions of the dataset `$1` below the number `$2`, newest first, as [`VersionRow`]s.
pub(super) const VERSIONS: &str = versions_sql!("v.version_number < $2 ORDER BY v.version_number DESC LIMIT $3");

impl Catalog {
    /// The dataset with this id and the version of it that `selector` names, as of one moment.
    ///
    /// Every read asks this once: one statement, four look-ups by primary key for any number of datasets and versions.
    /// Under SQLite most of its cost is the way to a connection's thread and back. Under PostgreSQL it is one round
    /// trip. If the version is not found, it costs another look-up.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Unverified`] if a record is not what was written, or is missing although others need it.
    pub async fn resolve_read(
        &self,
        id: DatasetId,
        selector: VersionSelector,
    ) -> Result<Option<Resolved>, CatalogError> {
        let row: Option<ResolvedRow> = match selector {
            VersionSelector::Active => {
                let sql = resolve_sql!("COALESCE(datasets.pinned_version, datasets.latest_version)");
                self.engine.fetch_optional(sql, &[id.into()]).await?
            }
            VersionSelector::Latest => {
                let sql = resolve_sql!("datasets.latest_version");
                self.engine.fetch_optional(sql, &[id.into()]).await?
            }
            VersionSelector::Number(number) => {
                let sql = resolve_sql!("$2");
                let values = &[id.into(), number.into()];
                self.engine.fetch_optional(sql, values).await?
            }
        };
        let resolved = row.map(Resolved::try_from).transpose()?;
        self.check_found(id, selector, resolved.as_ref()).await?;
        Ok(resolved)
    }

    /// One version. Four look-ups by primary key.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotFound`] if there is no such dataset, [`CatalogError::NoVersion`].
    pub async fn version(&self, dataset: DatasetId, number: VersionNumber) -> Result<VersionRecord, CatalogError> {
        let resolved = self.resolve_read(dataset, VersionSelector::Number(number)).await?;
        let Resolved { dataset, version } = resolved.ok_or(CatalogError::NotFound)?;
        let is_active = dataset.active_version() == Some(number);
        Ok(VersionRecord { version: version.ok_or(CatalogError::NoVersion)?, is_active })
    }

    /// The versions with numbers below `before`, newest first, at most `limit`, as of one moment. One
    /// statement: a range of the primary key, and two look-ups for each version.
    pub async fn versions(
        &self,
        dataset: DatasetId,
        before: Option<VersionNumber>,
        limit: u32,
    ) -> Result<Vec<VersionRecord>, CatalogError> {
        let before = before.map_or(i64::MAX, |number| i64::try_from(number.get()).unwrap_or(i64::MAX));
        let values = &[dataset.into(), Value::Integer(before), Value::Integer(limit.into())];
        let rows: Vec<VersionRow> = self.engine.fetch_all(VERSIONS, values).await?;
        rows.into_iter().map(VersionRecord::try_from).collect()
    }

    /// Records the dataset's next version, all at once:
    ///
    /// 1. waits for other changes of the dataset, and checks that it is not frozen and that `attempt` still holds it;
    /// 2. takes the next number, so that numbers are consecutive;
    /// 3. records the file, or that a file is shared, and the version; the version becomes active unless a rollback has
    ///    pinned another;
    /// 4. records that the dataset's webhook is due, if one is registered;
    /// 5. records that the attempt has ended with this version, and gives the dataset back.
    ///
    /// `fetched` has the validators of the source. They are kept until the next version, unless the dataset's source,
    /// format or records path has changed since. A dozen statements by index and a commit.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotFound`] if there is no such dataset, [`CatalogError::Frozen`],
    /// [`CatalogError::LeaseLost`], [`CatalogError::ReservationLost`], [`CatalogError::OutOfRange`];
    /// [`CatalogError::Conflict`] if a file to share is of no version of this dataset or has another hash. No
    /// number is used up then, and the attempt has not ended.
    pub async fn publish_version(
        &self,
        dataset: DatasetId,
        content: VersionContent<'_>,
        fetched: Option<FetchedState<'_>>,
        attempt: AttemptId,
    ) -> Result<VersionRecord, CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let locked = lock_dataset(&mut transaction, dataset).await?;
        if locked.frozen {
            return Err(CatalogError::Frozen);
        }
        // Changes nothing, but locks the lease before its reservations, in the order of a renewal.
        let sql = "UPDATE refresh_leases SET expires_at = expires_at WHERE dataset_id = $1 AND attempt_id = $2";
        if transaction.execute(sql, &[dataset.into(), attempt.into()]).await? == 0 {
            return Err(CatalogError::LeaseLost);
        }
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
        give_back(&mut transaction, attempt).await?;
        finish(&mut transaction, attempt, &AttemptOutcome::Published(published.version.number), now).await?;
        crash::point("publish.uncommitted");
        transaction.commit().await?;
        crash::point("publish.committed");
        Ok(published)
    }

    /// Creates a dataset together with its first version and the attempt that made it: all or nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Catalog::create_dataset`], and [`CatalogError::ReservationLost`].
    pub async fn create_dataset_with_version(
        &self,
        new: &NewDataset,
        active_limit: u64,
        trigger: RefreshTrigger,
        file: &NewFile,
    ) -> Result<(Dataset, VersionRecord), CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let now = self.now();
        let mut dataset = insert(&mut transaction, new, active_limit, now).await?;
        let file = record(&mut transaction, file, now).await?;
        let published = add_version(&mut transaction, &dataset, file, None, now).await?;
        let attempt = start(&mut transaction, dataset.id, trigger, now).await?;
        finish(&mut transaction, attempt, &AttemptOutcome::Published(published.version.number), now).await?;
        transaction.commit().await?;
        dataset.latest_version = Some(published.version.number);
        Ok((dataset, published))
    }
}

/// Records the next version of `dataset`, whose row is locked, as a part of `transaction`.
pub(super) async fn add_version(
    transaction: &mut Transaction,
    dataset: &Dataset,
    file: VersionFile,
    alt: Option<VersionFile>,
    now: DateTime<Utc>,
) -> Result<VersionRecord, CatalogError> {
    let number = VersionNumber::new(dataset.latest_version.map_or(0, VersionNumber::get) + 1);
    let version = Version { dataset: dataset.id, number, file, alt, created_at: now };
    let checksum = version_checksum(&version, dataset.created_at).finish();
    transaction
        .execute(
            "INSERT INTO versions (dataset_id, version_number, file_id, alt_file_id, created_at, record_checksum)
             VALUES ($1, $2, $3, $4, $5, $6)",
            &[
                dataset.id.into(),
                number.into(),
                version.file.id.into(),
                from_optional(version.alt.as_ref().map(|alt| alt.id)),
                from_time(now),
                Value::Text(&checksum),
            ],
        )
        .await?;
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
) -> Result<VersionFile, CatalogError> {
    let sql = versions_sql!("v.file_id = $2 ORDER BY v.version_number DESC LIMIT 1");
    let row: Option<VersionRow> = transaction.fetch_optional(sql, &[dataset.into(), file.into()]).await?;
    let file = VersionRecord::try_from(row.ok_or(CatalogError::Conflict)?)?.version.file;
    match file.content_hash == content_hash {
        true => Ok(file),
        false => Err(CatalogError::Conflict),
    }
}

/// One version of `dataset`, whose row is locked, as a part of `transaction`.
///
/// # Errors
///
/// [`CatalogError::NoVersion`]; [`CatalogError::Unverified`] if it is lost.
pub(super) async fn find_version(
    transaction: &mut Transaction,
    dataset: &Dataset,
    number: VersionNumber,
) -> Result<VersionRecord, CatalogError> {
    let sql = versions_sql!("v.version_number = $2");
    let row: Option<VersionRow> = transaction.fetch_optional(sql, &[dataset.id.into(), number.into()]).await?;
    VersionRecord::try_from(row.ok_or_else(|| no_version(dataset.id, dataset.latest_version, number))?)
}
