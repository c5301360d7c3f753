//! Rows of `versions`, joined with their files and datasets.

use chrono::{DateTime, Utc};
use strata_types::dataset::Dataset;
use strata_types::version::{DatasetVersion, VersionFile};

use super::convert::{to_saturating_i64, to_time, to_unsigned};
use super::database_engine::{FromSqlRow, OrderedColumns, SqlRow};
use super::dataset_rows::read_verified_dataset;
use super::record_checksum::RecordChecksum;
use super::{CatalogError, DatasetId, Result, VersionFileId, VersionNumber};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedDataset {
    pub dataset: Dataset,
    pub version: Option<DatasetVersion>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionStatus {
    pub version: DatasetVersion,
    pub is_active: bool,
}

impl FromSqlRow for ResolvedDataset {
    fn from_row(row: &SqlRow) -> Result<ResolvedDataset> {
        let (dataset, mut columns) = read_verified_dataset(row)?;
        let version = read_joined_version(&mut columns, dataset.id, dataset.created_at)?;
        Ok(ResolvedDataset { dataset, version })
    }
}

impl FromSqlRow for VersionStatus {
    fn from_row(row: &SqlRow) -> Result<VersionStatus> {
        let mut columns = OrderedColumns::new(row);
        let dataset = DatasetId::new(to_unsigned(columns.read_next("dataset_id")?, "versions.dataset_id")?);
        let is_active = columns.read_next("is_active")?;
        let created_at = to_time(columns.read_next("dataset_created_at")?, "datasets.created_at")?;
        let version = read_joined_version(&mut columns, dataset, created_at)?.ok_or(CatalogError::NoVersion)?;
        Ok(VersionStatus { version, is_active })
    }
}

/// Decodes the [`version_columns`] of an outer join; `None` if the join found no version.
fn read_joined_version(
    columns: &mut OrderedColumns<'_>,
    dataset: DatasetId,
    dataset_created: DateTime<Utc>,
) -> Result<Option<DatasetVersion>> {
    let Some(number) = columns.read_next::<Option<i64>>("version_number")? else { return Ok(None) };
    let record = || format!("version {number} of dataset {dataset}");
    let created_at = columns.read_next("version_created_at")?;
    let checksum = columns.read_next("version_checksum")?;
    let file = read_joined_file(columns, record)?;
    let alternate = read_joined_file(columns, record)?;
    let (Some(created_at), Some(file)) = (created_at, file) else {
        return Err(CatalogError::DamagedRecord { record: record() });
    };
    let version = DatasetVersion {
        dataset,
        number: VersionNumber::new(to_unsigned(number, "versions.version_number")?),
        file,
        alternate,
        created_at: to_time(created_at, "versions.created_at")?,
    };
    version_checksum(&version, dataset_created).verify(checksum, record)?;
    Ok(Some(version))
}

/// Decodes the file of a version from columns of an outer join. Fails if the version refers to a missing file.
fn read_joined_file(columns: &mut OrderedColumns<'_>, record: impl Fn() -> String) -> Result<Option<VersionFile>> {
    let reference: Option<i64> = columns.read_next("reference")?;
    let id: Option<i64> = columns.read_next("file_id")?;
    let path: Option<String> = columns.read_next("path")?;
    let size: Option<i64> = columns.read_next("size_bytes")?;
    let count: Option<i64> = columns.read_next("entity_count")?;
    let content_hash: Option<String> = columns.read_next("content_hash")?;
    let damage = || CatalogError::DamagedRecord { record: record() };
    if reference != id {
        return Err(damage());
    }
    let Some(id) = id else { return Ok(None) };
    Ok(Some(VersionFile {
        id: VersionFileId::new(to_unsigned(id, "files.file_id")?),
        path: path.ok_or_else(damage)?,
        size_bytes: to_unsigned(size.ok_or_else(damage)?, "files.size_bytes")?,
        entity_count: to_unsigned(count.ok_or_else(damage)?, "files.entity_count")?,
        content_hash: content_hash.ok_or_else(damage)?,
    }))
}

pub(super) fn version_checksum(version: &DatasetVersion, dataset_created_at: DateTime<Utc>) -> RecordChecksum {
    RecordChecksum::for_table("versions")
        .with_number(to_saturating_i64(version.dataset.get()))
        .with_number(dataset_created_at.timestamp_micros())
        .with_number(to_saturating_i64(version.number.get()))
        .with_number(version.created_at.timestamp_micros())
        .with_file(Some(&version.file))
        .with_file(version.alternate.as_ref())
}

macro_rules! version_columns {
    () => {
        "v.version_number, v.created_at AS version_created_at, v.record_checksum AS version_checksum,
         v.file_id AS reference, f.file_id, f.path, f.size_bytes, f.entity_count, f.content_hash,
         v.alt_file_id AS reference, a.file_id, a.path, a.size_bytes, a.entity_count, a.content_hash"
    };
}
pub(super) use version_columns;

/// Selects versions of the dataset `$1` that satisfy a condition, as [`VersionStatus`] rows.
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
pub(super) use versions_sql;

/// Selects the newest `$3` versions of the dataset `$1` below the number `$2`, newest first.
pub(super) const VERSIONS_SQL: &str = versions_sql!("v.version_number < $2 ORDER BY v.version_number DESC LIMIT $3");

/// Returns an error unless `versions` are all versions of the dataset, newest first.
pub(super) fn check_versions_complete(dataset: &Dataset, versions: &[VersionStatus]) -> Result<()> {
    let latest = dataset.latest_version.map_or(0, VersionNumber::get);
    let numbers = versions.iter().map(|record| record.version.number.get());
    match numbers.eq((1..=latest).rev()) {
        true => Ok(()),
        false => Err(CatalogError::DamagedRecord { record: format!("a version of dataset {}", dataset.id) }),
    }
}

/// Returns the error for a version that was not found: damage if it should exist, else [`CatalogError::NoVersion`].
pub(super) fn missing_version_error(
    dataset: DatasetId,
    latest: Option<VersionNumber>,
    number: VersionNumber,
) -> CatalogError {
    match latest {
        Some(latest) if (VersionNumber::new(1)..=latest).contains(&number) => {
            CatalogError::DamagedRecord { record: format!("version {number} of dataset {dataset}") }
        }
        _ => CatalogError::NoVersion,
    }
}
