//! Checksums of rows.
//!
//! A database does not notice a flipped bit in a value, which can decide what is served: another file, another version,
//! or a frozen dataset. Each writer of such a row computes its checksum, and each reader compares it:
//!
//! - `datasets`: all columns that [`super::Catalog::dataset`] returns. After each statement that changes one of them,
//!   `seal_dataset` runs in the same transaction. A second checksum covers the validators of the source. If they do not
//!   verify, the whole source is fetched.
//! - `versions`: the version with its files, and the time when its dataset was created. So it fits no other dataset,
//!   also in another catalog.
//! - `api_tokens`: the user, the scope and the expiry. `sessions`: the user, the content and the expiry.
//!
//! An operator who changes a row by hand sets its checksum to null (`seals.rs`).

use sha2::{Digest, Sha256};
use strata_types::version::VersionFile;

use super::convert::saturated;
use super::{CatalogError, Result};

/// The scheme: which columns the checksum covers, and how. This build cannot compare checksums of another scheme.
const SCHEME: &str = "1";

const CHECKSUM_BYTES: usize = 16;

pub(super) struct RecordChecksum(Sha256);

impl RecordChecksum {
    pub(super) fn of(table: &'static str) -> RecordChecksum {
        RecordChecksum(Sha256::new()).text(table)
    }

    pub(super) fn number(self, number: i64) -> RecordChecksum {
        self.optional_number(Some(number))
    }

    pub(super) fn optional_number(mut self, number: Option<i64>) -> RecordChecksum {
        self.0.update([u8::from(number.is_some())]);
        self.0.update(number.unwrap_or_default().to_le_bytes());
        self
    }

    pub(super) fn text(self, text: &str) -> RecordChecksum {
        self.optional_text(Some(text))
    }

    pub(super) fn optional_text(self, text: Option<&str>) -> RecordChecksum {
        let length = text.map(|text| i64::try_from(text.len()).unwrap_or(i64::MAX));
        let mut taken = self.optional_number(length);
        taken.0.update(text.unwrap_or_default());
        taken
    }

    pub(super) fn file(self, file: Option<&VersionFile>) -> RecordChecksum {
        match file {
            None => self.optional_number(None),
            Some(VersionFile { id, path, size_bytes, entity_count, content_hash }) => self
                .number(saturated(id.get()))
                .text(path)
                .number(saturated(*size_bytes))
                .number(saturated(*entity_count))
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

    /// Checks that this is the checksum of the record. One of another scheme covers other columns, and counts as equal.
    pub(super) fn check(self, stored: Option<&str>, record: impl FnOnce() -> String) -> Result<()> {
        let is_equal = match stored.map(|stored| stored.split_once(':')) {
            None => true,
            Some(Some((SCHEME, digits))) => digits == self.digits(),
            Some(Some((scheme, _))) => !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_digit()),
            Some(None) => false,
        };
        if is_equal { Ok(()) } else { Err(CatalogError::Unverified { record: record() }) }
    }
}
