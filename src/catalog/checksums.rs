//! Checks that records are unchanged: checksums of rows, and look-ups that must find something.
//!
//! A database does not notice a flipped bit in a value. Such a bit can decide what is served: another file, another
//! version, or a frozen dataset as one that is not frozen. So the rows that decide this have a checksum. Each writer
//! computes it, and each reader compares it:
//!
//! - `datasets`: all columns that [`super::Catalog::dataset`] returns. After each statement that changes one of them,
//!   [`seal_dataset`] runs in the same transaction.
//! - `versions`: the version, with its file and its alternate's file as `files` records them, and with the dataset's
//!   time of creation. So it fits no other dataset, also in another catalog.
//!
//! - `api_tokens`: whose a token is. `sessions`: whose a session is, what it holds and when it ends.
//! - `datasets` has a second checksum, over its source's validators. If they do not verify, no reader is affected: the
//!   source is fetched whole.
//!
//! Rows written before checksums existed have none. An operator who changes a row by hand sets its checksum to null.
//! Such rows are accepted as they are, and sealed when the catalog is next opened (`seals.rs`).
//!
//! References show which rows are lost. Versions are never deleted, so each number up to the dataset's latest must
//! exist. So must a dataset that has versions, and a file that a version names.

use sha2::{Digest, Sha256};

use super::convert::{text, to_unsigned};
use super::datasets::{DatasetRow, dataset_columns};
use super::engine::{Transaction, Value};
use super::files::{FileRow, RecordedFile, file_columns};
use super::{Catalog, CatalogError, DatasetId, FileId, Resolved, VersionNumber, VersionRecord};
use crate::model::dataset::Dataset;
use crate::model::version::{VersionFile, VersionSelector};

/// The scheme: which columns the checksum covers, and how. This build cannot compare checksums of another scheme.
const SCHEME: &str = "1";

/// Bytes of a SHA-256 that are kept.
const CHECKSUM_BYTES: usize = 16;

/// A checksum of a record, field by field.
pub(super) struct RecordChecksum(Sha256);

impl RecordChecksum {
    /// Of a record of a table.
    pub(super) fn of(table: &'static str) -> RecordChecksum {
        RecordChecksum(Sha256::new()).text(table)
    }

    /// Takes the next field.
    pub(super) fn number(self, number: i64) -> RecordChecksum {
        self.optional_number(Some(number))
    }

    /// Takes the next field.
    pub(super) fn optional_number(mut self, number: Option<i64>) -> RecordChecksum {
        self.0.update([u8::from(number.is_some())]);
        self.0.update(number.unwrap_or_default().to_le_bytes());
        self
    }

    /// Takes the next field.
    pub(super) fn text(self, text: &str) -> RecordChecksum {
        self.optional_text(Some(text))
    }

    /// Takes the next field.
    pub(super) fn optional_text(self, text: Option<&str>) -> RecordChecksum {
        let length = text.map(|text| i64::try_from(text.len()).unwrap_or(i64::MAX));
        let mut taken = self.optional_number(length);
        taken.0.update(text.unwrap_or_default());
        taken
    }

    /// The fields of a file in a version's record.
    pub(super) fn file(self, file: Option<&VersionFile>) -> RecordChecksum {
        // What the database holds fits.
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        match file {
            None => self.optional_number(None),
            Some(VersionFile { id, path, size_bytes, entity_count, content_hash }) => self
                .number(signed(id.get()))
                .text(path)
                .number(signed(*size_bytes))
                .number(signed(*entity_count))
                .text(content_hash),
        }
    }

    /// The stored form: the scheme, and the checksum in hexadecimal.
    pub(super) fn finish(self) -> String {
        format!("{SCHEME}:{}", self.digits())
    }

    fn digits(self) -> String {
        hex::encode(&self.0.finalize()[..CHECKSUM_BYTES])
    }

    /// Whether this is the checksum of the record. A checksum of another scheme covers other columns, and counts as
    /// equal.
    pub(super) fn agrees(self, stored: &str) -> bool {
        match stored.split_once(':') {
            Some((SCHEME, digits)) => digits == self.digits(),
            Some((scheme, _)) => !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_digit()),
            // From before there were schemes.
            None => stored == self.digits(),
        }
    }

    /// Compares it with the stored one, if there is one.
    ///
    /// # Errors
    /// [`CatalogError::Unverified`] with the name of the record.
    pub(super) fn check(self, stored: Option<&str>, record: impl FnOnce() -> String) -> Result<(), CatalogError> {
        match stored {
            Some(stored) if !self.agrees(stored) => Err(CatalogError::Unverified { record: record() }),
            _ => Ok(()),
        }
    }
}

/// Gives a dataset's row the checksum of what it holds now, as a part of the transaction that changed it.
pub(super) async fn seal_dataset(transaction: &mut Transaction, id: DatasetId) -> Result<(), CatalogError> {
    let sql = concat!("SELECT ", dataset_columns!(), " FROM datasets WHERE datasets.dataset_id = $1");
    let row: DatasetRow = transaction.fetch_one(sql, &[id.into()]).await?;
    let sql = "UPDATE datasets SET record_checksum = $2 WHERE dataset_id = $1";
    transaction.execute(sql, &[id.into(), Value::Text(&row.checksum().finish())]).await?;
    Ok(())
}

impl Catalog {
    /// Tells a record that does not exist from one that was only not found.
    ///
    /// # Errors
    /// [`CatalogError::Unverified`] when it must be there.
    pub(super) async fn check_found(
        &self,
        id: DatasetId,
        selector: VersionSelector,
        resolved: Option<&Resolved>,
    ) -> Result<(), CatalogError> {
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
    ///
    /// # Errors
    /// [`CatalogError::Unverified`].
    pub(super) async fn check_no_dataset(&self, id: DatasetId) -> Result<(), CatalogError> {
        // One statement: the first version may have been published since the dataset was read.
        let sql = "SELECT v.version_number FROM versions v LEFT JOIN datasets d ON d.dataset_id = v.dataset_id
                   WHERE v.dataset_id = $1 AND (d.dataset_id IS NULL OR d.latest_version IS NULL) LIMIT 1";
        let version: Option<(i64,)> = self.engine.fetch_optional(sql, &[id.into()]).await?;
        match version {
            None => Ok(()),
            Some(_) => Err(CatalogError::Unverified { record: format!("dataset {id}") }),
        }
    }

    /// The recorded file at a path of the store. One look-up by index.
    pub async fn file_at(&self, path: &str) -> Result<Option<VersionFile>, CatalogError> {
        let sql = concat!("SELECT ", file_columns!(), " FROM files WHERE path = $1");
        let row: Option<FileRow> = self.engine.fetch_optional(sql, &[text(path, "path")?]).await?;
        row.map(|row| RecordedFile::try_from(row).map(|recorded| recorded.file)).transpose()
    }

    /// Other recorded files of the same entities as `file`, at most `limit`. Reads all records of files.
    pub async fn files_alike(&self, file: &VersionFile, limit: u32) -> Result<Vec<VersionFile>, CatalogError> {
        let sql = concat!(
            "SELECT ",
            file_columns!(),
            " FROM files WHERE content_hash = $1 AND file_id <> $2 ORDER BY file_id DESC LIMIT $3"
        );
        let values = &[text(&file.content_hash, "content_hash")?, file.id.into(), Value::Integer(limit.into())];
        let rows: Vec<FileRow> = self.engine.fetch_all(sql, values).await?;
        rows.into_iter().map(|row| RecordedFile::try_from(row).map(|recorded| recorded.file)).collect()
    }
}

/// Checks that these are all versions of the dataset, newest first.
///
/// # Errors
/// [`CatalogError::Unverified`].
pub(super) fn check_all_versions(dataset: &Dataset, versions: &[VersionRecord]) -> Result<(), CatalogError> {
    let latest = dataset.latest_version.map_or(0, VersionNumber::get);
    let numbers = versions.iter().map(|record| record.version.number.get());
    match numbers.eq((1..=latest).rev()) {
        true => Ok(()),
        false => Err(CatalogError::Unverified { record: format!("a version of dataset {}", dataset.id) }),
    }
}

/// The error for a version that was not found, under the lock of its dataset with this latest version: it is lost, or
/// never existed.
pub(super) fn no_version(dataset: DatasetId, latest: Option<VersionNumber>, number: VersionNumber) -> CatalogError {
    match latest {
        Some(latest) if (VersionNumber::new(1)..=latest).contains(&number) => {
            CatalogError::Unverified { record: format!("version {number} of dataset {dataset}") }
        }
        _ => CatalogError::NoVersion,
    }
}

/// The file that a version's row refers to. The join must have found it.
pub(super) fn joined_file(
    reference: Option<i64>,
    file: Option<VersionFile>,
    record: impl Fn() -> String,
) -> Result<Option<VersionFile>, CatalogError> {
    let reference = reference.map(|id| to_unsigned(id, "versions.file_id").map(FileId::new)).transpose()?;
    match reference == file.as_ref().map(|file| file.id) {
        true => Ok(file),
        false => Err(CatalogError::Unverified { record: record() }),
    }
}
