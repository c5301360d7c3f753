//! Checksums of rows. A database does not notice a flipped bit in a value, which might select the wrong file or
//! version, or unfreeze a dataset. Therefore each writer of such a row stores a checksum, and each reader verifies it:
//!
//! - `datasets`: all columns that [`super::Catalog::dataset`] returns. After each change of one of them,
//!   `update_checksum_and_notify` runs in the same transaction. A second checksum covers the validators of the source;
//!   if it does not match, the whole source is fetched. A third one covers the checks.
//! - `versions`: the version with its files, and the creation time of its dataset, so that the row matches no other
//!   dataset, not even in another database.
//! - `api_tokens`: the user, the scope, and the expiry. `sessions`: the user, the content, and the expiry.
//!
//! Instead of a checksum, the rows of `file_bases` have a sum in the record of their file (`file_bases.rs`).
//!
//! An operator who edits a row must set its checksum to null (`checksum_backfill.rs`).

use sha2::{Digest, Sha256};
use strata_types::version::VersionFile;

use super::convert::to_saturating_i64;
use super::database_engine::{OrderedColumns, SqlRow};
use super::{CatalogError, Result};

/// The number of the checksum scheme, which defines the covered columns. This build cannot verify other schemes.
const CHECKSUM_SCHEME: &str = "1";
const CHECKSUM_BYTES: usize = 16;

/// Reads the first columns of a row, and adds each value to a checksum.
pub(super) struct ChecksummedColumns<'r> {
    pub(super) columns: OrderedColumns<'r>,
    pub(super) checksum: RecordChecksum,
}

impl<'r> ChecksummedColumns<'r> {
    pub(super) fn new(row: &'r SqlRow, table: &'static str) -> ChecksummedColumns<'r> {
        ChecksummedColumns { columns: OrderedColumns::new(row), checksum: RecordChecksum::for_table(table) }
    }

    pub(super) fn read_optional_number(&mut self, column: &str) -> Result<Option<i64>> {
        let number = self.columns.read_next(column)?;
        self.checksum.update_number(number);
        Ok(number)
    }

    pub(super) fn read_number(&mut self, column: &str) -> Result<i64> {
        let number = self.columns.read_next(column)?;
        self.checksum.update_number(Some(number));
        Ok(number)
    }

    pub(super) fn read_flag(&mut self, column: &str) -> Result<bool> {
        let flag: bool = self.columns.read_next(column)?;
        self.checksum.update_number(Some(flag.into()));
        Ok(flag)
    }

    pub(super) fn read_optional_text(&mut self, column: &str) -> Result<Option<String>> {
        let text: Option<String> = self.columns.read_next(column)?;
        self.checksum.update_text(text.as_deref());
        Ok(text)
    }

    pub(super) fn read_text(&mut self, column: &str) -> Result<String> {
        let text: String = self.columns.read_next(column)?;
        self.checksum.update_text(Some(&text));
        Ok(text)
    }
}

pub(super) struct RecordChecksum(Sha256);

impl RecordChecksum {
    pub(super) fn for_table(table: &'static str) -> RecordChecksum {
        RecordChecksum(Sha256::new()).with_text(table)
    }

    pub(super) fn with_number(self, number: i64) -> RecordChecksum {
        self.with_optional_number(Some(number))
    }

    pub(super) fn with_optional_number(mut self, number: Option<i64>) -> RecordChecksum {
        self.update_number(number);
        self
    }

    fn update_number(&mut self, number: Option<i64>) {
        self.0.update([u8::from(number.is_some())]);
        self.0.update(number.unwrap_or_default().to_le_bytes());
    }

    pub(super) fn with_text(self, text: &str) -> RecordChecksum {
        self.with_optional_text(Some(text))
    }

    pub(super) fn with_optional_text(mut self, text: Option<&str>) -> RecordChecksum {
        self.update_text(text);
        self
    }

    fn update_text(&mut self, text: Option<&str>) {
        self.update_number(text.map(|text| i64::try_from(text.len()).unwrap_or(i64::MAX)));
        self.0.update(text.unwrap_or_default());
    }

    pub(super) fn with_file(self, file: Option<&VersionFile>) -> RecordChecksum {
        match file {
            None => self.with_optional_number(None),
            Some(VersionFile { id, path, size_bytes, entity_count, content_hash }) => self
                .with_number(to_saturating_i64(id.get()))
                .with_text(path)
                .with_number(to_saturating_i64(*size_bytes))
                .with_number(to_saturating_i64(*entity_count))
                .with_text(content_hash),
        }
    }

    pub(super) fn into_stored(self) -> String {
        format!("{CHECKSUM_SCHEME}:{}", self.into_hex())
    }

    fn into_hex(self) -> String {
        hex::encode(&self.0.finalize()[..CHECKSUM_BYTES])
    }

    /// Returns an error if `stored` is not this checksum. A missing checksum or one of another scheme is accepted.
    pub(super) fn verify(self, stored: Option<&str>, record: impl FnOnce() -> String) -> Result<()> {
        let is_equal = match stored.map(|stored| stored.split_once(':')) {
            None => true,
            Some(Some((CHECKSUM_SCHEME, digits))) => digits == self.into_hex(),
            Some(Some((scheme, _))) => !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_digit()),
            Some(None) => false,
        };
        if is_equal { Ok(()) } else { Err(CatalogError::DamagedRecord { record: record() }) }
    }
}
