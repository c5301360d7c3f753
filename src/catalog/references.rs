//! The versions that name a file. They are lost when the file is lost.

use std::fmt;

use super::convert::to_unsigned;
use super::engine::{Record, Value};
use super::{Catalog, DatasetId, FileId, Result, VersionNumber};

/// A version that names a file, as its entities or as its alternate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReference {
    pub dataset: DatasetId,
    pub dataset_name: String,
    pub version: VersionNumber,
    pub alt: bool,
}

impl fmt::Display for FileReference {
    /// For people: `dataset 7 "World Countries" v3 alt`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alt = if self.alt { " alt" } else { "" };
        write!(formatter, "dataset {} {:?} v{}{alt}", self.dataset, self.dataset_name, self.version)
    }
}

/// Dataset, its name, number, and 1 for an alternate.
type ReferenceRow = (i64, String, i64, i64);

impl Record for FileReference {
    type Row = ReferenceRow;

    fn from_row((dataset, dataset_name, version, is_alt): ReferenceRow) -> Result<FileReference> {
        let dataset = DatasetId::new(to_unsigned(dataset, "versions.dataset_id")?);
        let version = VersionNumber::new(to_unsigned(version, "versions.version_number")?);
        Ok(FileReference { dataset, dataset_name, version, alt: is_alt != 0 })
    }
}

impl Catalog {
    /// The versions that name a file, by dataset and number, at most `limit`. Two ranges of an index each.
    pub async fn references_to(&self, file: FileId, limit: u32) -> Result<Vec<FileReference>> {
        let sql = "SELECT v.dataset_id, d.name, v.version_number, CAST(0 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id WHERE v.file_id = $1
                   UNION ALL
                   SELECT v.dataset_id, d.name, v.version_number, CAST(1 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id WHERE v.alt_file_id = $1
                   ORDER BY 1, 3, 4 LIMIT $2";
        self.engine.list(sql, &[file.into(), Value::Integer(limit.into())]).await
    }

    /// Versions whose file, or alternate's, has no record, as after an edit without rules; at most `limit`. Reads all.
    pub async fn references_to_nothing(&self, limit: u32) -> Result<Vec<FileReference>> {
        let sql = "SELECT v.dataset_id, d.name, v.version_number, CAST(0 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id
                   LEFT JOIN files f ON f.file_id = v.file_id WHERE f.file_id IS NULL
                   UNION ALL
                   SELECT v.dataset_id, d.name, v.version_number, CAST(1 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id
                   LEFT JOIN files f ON f.file_id = v.alt_file_id
                   WHERE v.alt_file_id IS NOT NULL AND f.file_id IS NULL
                   ORDER BY 1, 3, 4 LIMIT $1";
        self.engine.list(sql, &[Value::Integer(limit.into())]).await
    }
}
