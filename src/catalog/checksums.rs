//! Whether records are what was written: checksums of rows, and look-ups that cannot come out empty.
//!
//! A flipped bit in a value is nothing that a database notices, and it can decide what is served: another file, another
//! version, a frozen dataset as one that is not. So the rows that decide that have a checksum, made by whoever writes
//! them and compared by whoever reads them:
//!
//! - `datasets`: all that a [`super::Catalog::dataset`] tells. Every statement that changes one of these columns is
//!   followed by [`seal_dataset`] in its transaction.
//! - `versions`: the version, with its file and its alternate's as `files` records them, and with the dataset's time of
//!   creation, so that it belongs to that dataset alone, in no other catalog either.
//!
//! - `api_tokens`: whose a token is. `sessions`: whose a session is, what it holds and when it ends.
//! - `datasets` once more: what its source is asked by. What does not verify there is no damage to whoever reads: the
//!   source is fetched whole.
//!
//! Rows from before there were checksums have none; neither have those that somebody changes by hand and sets it to
//! null. They are taken as they are, and sealed when the catalog is opened next (`seals.rs`).
//!
//! What is lost altogether is noticed where the rest refers to it: versions are never deleted, so each number up to the
//! dataset's latest must be there, and so must a dataset that has versions, and a file that a version names.

use sha2::{Digest, Sha256};

use super::convert::{text, to_unsigned};
use super::datasets::{DatasetRow, dataset_columns};
use super::engine::{Transaction, Value};
use super::files::{FileRow, RecordedFile, file_columns};
use super::{Catalog, CatalogError, DatasetId, FileId, Resolved, VersionNumber, VersionRecord};
use crate::model::dataset::Dataset;
use crate::model::version::{VersionFile, VersionSelector};

/// Which columns are taken, and how. Another number says that a build took others, which this one cannot compare.
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

    /// What a version's record says of a file.
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

    /// As it is stored: the scheme, and the checksum in hexadecimal.
    pub(super) fn finish(self) -> String {
        format!("{SCHEME}:{}", self.digits())
    }

    fn digits(self) -> String {
        hex::encode(&self.0.finalize()[..CHECKSUM_BYTES])
    }

    /// Whether this is the checksum of the record. One of another scheme, over other columns, says nothing.
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
    /// Whether what a reader asked for is not there, or only not found.
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

    /// Checks that a dataset that was not found, or has no version, has indeed none.
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

/// What a version is that was not found, under the lock of its dataset, whose latest version this is: lost, or never
/// there.
pub(super) fn no_version(dataset: DatasetId, latest: Option<VersionNumber>, number: VersionNumber) -> CatalogError {
    match latest {
        Some(latest) if (VersionNumber::new(1)..=latest).contains(&number) => {
            CatalogError::Unverified { record: format!("version {number} of dataset {dataset}") }
        }
        _ => CatalogError::NoVersion,
    }
}

/// The file that a version's row refers to, which the join must have found.
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
