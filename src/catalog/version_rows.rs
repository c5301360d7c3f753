//! Rows of `versions`, with their files and their datasets.

use chrono::{DateTime, Utc};
use strata_types::dataset::Dataset;
use strata_types::version::{Version, VersionFile};

use super::checksums::RecordChecksum;
use super::convert::{saturated, to_time, to_unsigned};
use super::engine::{Record, Row};
use super::{CatalogError, DatasetId, FileId, Result, VersionNumber};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub dataset: Dataset,
    pub version: Option<Version>,
}

/// A version and whether it is the active one (docs/reference/records.md, Records).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRecord {
    pub version: Version,
    /// Whether it is the active version, as of the moment in which it was read or written.
    pub is_active: bool,
}

impl Record for Resolved {
    fn from_row(row: &Row) -> Result<Resolved> {
        let dataset = Dataset::from_row(row)?;
        let version = joined_version(row, dataset.id, dataset.created_at)?;
        Ok(Resolved { dataset, version })
    }
}

impl Record for VersionRecord {
    fn from_row(row: &Row) -> Result<VersionRecord> {
        let dataset = DatasetId::new(row.unsigned("versions.dataset_id")?);
        let created_at = to_time(row.get("dataset_created_at")?, "datasets.created_at")?;
        let version = joined_version(row, dataset, created_at)?.ok_or(CatalogError::NoVersion)?;
        Ok(VersionRecord { version, is_active: row.get("is_active")? })
    }
}

/// The version of an outer join's [`version_columns`]; `None` if there is none.
fn joined_version(row: &Row, dataset: DatasetId, dataset_created_at: DateTime<Utc>) -> Result<Option<Version>> {
    let Some(number) = row.get::<Option<i64>, _>("version_number")? else { return Ok(None) };
    let record = || format!("version {number} of dataset {dataset}");
    let file = joined_file(row, "", record)?;
    let alt = joined_file(row, "alt_", record)?;
    let (Some(created_at), Some(file)) = (row.get("version_created_at")?, file) else {
        return Err(CatalogError::Unverified { record: record() });
    };
    let version = Version {
        dataset,
        number: VersionNumber::new(to_unsigned(number, "versions.version_number")?),
        file,
        alt,
        created_at: to_time(created_at, "versions.created_at")?,
    };
    version_checksum(&version, dataset_created_at).check(row.get("version_checksum")?, record)?;
    Ok(Some(version))
}

/// The file that a version's row refers to, in the columns with this prefix. The join must have found it.
fn joined_file(row: &Row, prefix: &str, record: impl Fn() -> String) -> Result<Option<VersionFile>> {
    let column = |name: &str| format!("{prefix}{name}");
    let reference: Option<i64> = row.get(&*column("reference"))?;
    let id: Option<i64> = row.get(&*column("file_id"))?;
    if reference != id {
        return Err(CatalogError::Unverified { record: record() });
    }
    let Some(id) = id else { return Ok(None) };
    Ok(Some(VersionFile {
        id: FileId::new(to_unsigned(id, "files.file_id")?),
        path: row.get(&*column("path"))?,
        size_bytes: to_unsigned(row.get(&*column("size_bytes"))?, "files.size_bytes")?,
        entity_count: to_unsigned(row.get(&*column("entity_count"))?, "files.entity_count")?,
        content_hash: row.get(&*column("content_hash"))?,
    }))
}

/// The checksum of a version's record, with its files, of the dataset that was created at that time.
pub(super) fn version_checksum(version: &Version, dataset_created_at: DateTime<Utc>) -> RecordChecksum {
    RecordChecksum::of("versions")
        .number(saturated(version.dataset.get()))
        .number(dataset_created_at.timestamp_micros())
        .number(saturated(version.number.get()))
        .number(version.created_at.timestamp_micros())
        .file(Some(&version.file))
        .file(version.alt.as_ref())
}

macro_rules! version_columns {
    () => {
        "v.version_number, v.created_at AS version_created_at, v.record_checksum AS version_checksum,
         v.file_id AS reference, v.alt_file_id AS alt_reference,
         f.file_id, f.path, f.size_bytes, f.entity_count, f.content_hash,
         a.file_id AS alt_file_id, a.path AS alt_path, a.size_bytes AS alt_size_bytes,
         a.entity_count AS alt_entity_count, a.content_hash AS alt_content_hash"
    };
}
pub(super) use version_columns;

/// Versions of a dataset as [`VersionRecord`]s, with a condition on them.
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

/// The newest `$3` versions of the dataset `$1` below the number `$2`, newest first, as [`VersionRecord`]s.
pub(super) const VERSIONS: &str = versions_sql!("v.version_number < $2 ORDER BY v.version_number DESC LIMIT $3");

/// Checks that these are all versions of the dataset, newest first.
pub(super) fn check_all_versions(dataset: &Dataset, versions: &[VersionRecord]) -> Result<()> {
    let latest = dataset.latest_version.map_or(0, VersionNumber::get);
    let numbers = versions.iter().map(|record| record.version.number.get());
    match numbers.eq((1..=latest).rev()) {
        true => Ok(()),
        false => Err(CatalogError::Unverified { record: format!("a version of dataset {}", dataset.id) }),
    }
}

/// The error for a version that was not found, of a locked dataset with this latest one: lost, or never there.
pub(super) fn no_version(dataset: DatasetId, latest: Option<VersionNumber>, number: VersionNumber) -> CatalogError {
    match latest {
        Some(latest) if (VersionNumber::new(1)..=latest).contains(&number) => {
            CatalogError::Unverified { record: format!("version {number} of dataset {dataset}") }
        }
        _ => CatalogError::NoVersion,
    }
}
