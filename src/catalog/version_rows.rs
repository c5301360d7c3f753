//! Rows of `versions`, with their files and their datasets.

use chrono::{DateTime, Utc};

use super::checksums::RecordChecksum;
use super::convert::{saturated, to_time, to_unsigned};
use super::dataset_rows::DatasetRow;
use super::engine::Record;
use super::{CatalogError, DatasetId, FileId, Result, VersionNumber};
use crate::model::dataset::Dataset;
use crate::model::version::{Version, VersionFile};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub dataset: Dataset,
    pub version: Option<Version>,
}

/// A version and whether it is the active one (docs/semantics.md, Records).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRecord {
    pub version: Version,
    /// Whether it is the active version, as of the moment in which it was read or written.
    pub is_active: bool,
}

#[derive(sqlx::FromRow)]
pub(super) struct ResolvedRow {
    #[sqlx(flatten)]
    dataset: DatasetRow,
    #[sqlx(flatten)]
    version: JoinedRow,
}

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
    fn version(self, dataset: DatasetId, dataset_created_at: DateTime<Utc>) -> Result<Option<Version>> {
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

impl Record for Resolved {
    type Row = ResolvedRow;

    fn from_row(row: ResolvedRow) -> Result<Resolved> {
        let dataset = Dataset::from_row(row.dataset)?;
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

impl Record for VersionRecord {
    type Row = VersionRow;

    fn from_row(row: VersionRow) -> Result<VersionRecord> {
        let dataset = DatasetId::new(to_unsigned(row.dataset_id, "versions.dataset_id")?);
        let created_at = to_time(row.dataset_created_at, "datasets.created_at")?;
        let version = row.version.version(dataset, created_at)?.ok_or(CatalogError::NoVersion)?;
        Ok(VersionRecord { version, is_active: row.is_active })
    }
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

/// The file of an outer join's columns; they are null together.
fn version_file(
    file_id: Option<i64>,
    path: Option<String>,
    size_bytes: Option<i64>,
    entity_count: Option<i64>,
    content_hash: Option<String>,
) -> Result<Option<VersionFile>> {
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

macro_rules! version_columns {
    () => {
        "v.version_number, v.created_at AS version_created_at, v.record_checksum AS version_checksum,
         v.file_id AS file_reference, v.alt_file_id AS alt_reference,
         f.file_id, f.path, f.size_bytes, f.entity_count, f.content_hash,
         a.file_id AS alt_file_id, a.path AS alt_path, a.size_bytes AS alt_size_bytes,
         a.entity_count AS alt_entity_count, a.content_hash AS alt_content_hash"
    };
}
pub(super) use version_columns;

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
pub(super) use versions_sql;

/// The newest `$3` versions of the dataset `$1` below the number `$2`, newest first, as [`VersionRow`]s.
pub(super) const VERSIONS: &str = versions_sql!("v.version_number < $2 ORDER BY v.version_number DESC LIMIT $3");

/// The file that a version's row refers to. The join must have found it.
fn joined_file(
    reference: Option<i64>,
    file: Option<VersionFile>,
    record: impl Fn() -> String,
) -> Result<Option<VersionFile>> {
    let reference = reference.map(|id| to_unsigned(id, "versions.file_id").map(FileId::new)).transpose()?;
    match reference == file.as_ref().map(|file| file.id) {
        true => Ok(file),
        false => Err(CatalogError::Unverified { record: record() }),
    }
}

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
