//! Table `file_bases`: records which files use rows of other files. A delta file contains only new entities and refers
//! to rows of its base files. For example, an alternate (edited copy) with one changed entity contains that entity, and
//! has the file of its version as base.
//!
//! - The list of a file's bases is complete and never changes: it includes the bases of its bases. Therefore each
//!   question about references needs one lookup, without recursion.
//! - A base of a recorded file is referenced, even if no version refers to either of them. It is not marked as
//!   unreferenced until the record of the last file that uses it is removed.
//! - A lost or changed row could let a sweep remove a base that is in use. Therefore the record of each file contains
//!   the sum of the IDs of its bases, and no file record is removed while a sum differs.
//! - Two transactions can lock the same files, for example one that records a file and one that removes another file
//!   with the same bases. Each of them locks its files in ascending order of their IDs, so that they cannot deadlock.

use std::collections::BTreeMap;

use strata_types::version::VersionFile;

use super::convert::{from_text, to_saturating_i64, to_unsigned};
use super::database_engine::{CatalogTransaction, FromSqlRow, SqlRow, SqlValue};
use super::{Catalog, CatalogError, Result, VersionFileId};

impl Catalog {
    /// Returns the base files of a recorded file, in the order of [`NewVersionFile::bases`]. Returns
    /// [`CatalogError::DamagedRecord`] if a base has no record. Costs one lookup for the file and one for each base.
    ///
    /// [`NewVersionFile::bases`]: strata_types::version::NewVersionFile::bases
    pub async fn bases_of_file(&self, file: VersionFileId) -> Result<Vec<VersionFile>> {
        let sql = "SELECT f.file_id, f.path, f.size_bytes, f.entity_count, f.content_hash
                   FROM file_bases b LEFT JOIN files f ON f.file_id = b.base_file_id
                   WHERE b.file_id = $1 ORDER BY b.base_position";
        let base = |row: &SqlRow| match row.get::<Option<i64>, _>("file_id")? {
            Some(_) => VersionFile::from_row(row),
            None => Err(CatalogError::DamagedRecord { record: format!("a base of file {file}") }),
        };
        self.engine.list_with(sql, &[file.into()], base).await
    }

    /// Returns [`CatalogError::DamagedRecord`] if a row of `file_bases` was lost or changed. Reads all files and bases.
    pub(super) async fn verify_all_bases(&self) -> Result<()> {
        let wrong: Vec<(i64,)> = self.engine.list(FILES_WITH_WRONG_BASES_SQL, &[SqlValue::Integer(Some(1))]).await?;
        match wrong.first() {
            None => Ok(()),
            Some((file,)) => Err(CatalogError::DamagedRecord { record: format!("list of bases of file {file}") }),
        }
    }
}

/// Selects the files whose bases do not add up to the sum in the record of the file, at most `$1`. Reads all files and
/// bases. The condition on `base_position` lets SQLite scan the table instead of an index.
pub(super) const FILES_WITH_WRONG_BASES_SQL: &str = "SELECT f.file_id
    FROM files f LEFT JOIN (
        SELECT file_id, CAST(SUM(CASE WHEN base_position >= 0 THEN base_file_id END) AS BIGINT) AS id_sum
        FROM file_bases GROUP BY file_id
    ) b ON b.file_id = f.file_id
    WHERE f.base_id_sum <> COALESCE(b.id_sum, 0) ORDER BY f.file_id LIMIT $1";

/// Locks the files with these paths, because the caller is about to record a file that uses them, and removes their
/// marks as unreferenced. Also locks the file `replaced`, which the caller is about to mark. Returns the bases in the
/// order of `paths`, or [`CatalogError::Conflict`] if one has no record.
///
/// Under PostgreSQL, a concurrent removal of a base waits for the lock, finds that the mark is gone, and keeps the
/// base.
pub(super) async fn lock_bases(
    transaction: &mut CatalogTransaction,
    paths: &[String],
    replaced: Option<VersionFileId>,
) -> Result<Vec<VersionFileId>> {
    let mut bases = Vec::with_capacity(paths.len());
    for path in paths {
        let sql = "SELECT file_id FROM files WHERE path = $1";
        let found: Option<(i64,)> = transaction.find(sql, &[from_text(path, "path")?]).await?;
        let (id,) = found.ok_or(CatalogError::Conflict)?;
        let id = VersionFileId::new(to_unsigned(id, "files.file_id")?);
        if !bases.contains(&id) {
            bases.push(id);
        }
    }
    if bases.is_empty() {
        return Ok(bases);
    }
    let mut locks: BTreeMap<VersionFileId, bool> = replaced.map(|id| (id, false)).into_iter().collect();
    locks.extend(bases.iter().map(|id| (*id, true)));
    for (id, is_base) in locks {
        if is_base {
            let sql = "UPDATE files SET unreferenced_since = NULL WHERE file_id = $1";
            transaction.execute_or_error(sql, &[id.into()], CatalogError::Conflict).await?;
        } else {
            lock_file(transaction, id).await?;
        }
    }
    Ok(bases)
}

/// Returns the value of `files.base_id_sum` for a file with these bases.
pub(super) fn sum_base_ids(bases: &[VersionFileId]) -> SqlValue<'static> {
    SqlValue::Integer(Some(bases.iter().map(|base| to_saturating_i64(base.get())).fold(0, i64::saturating_add)))
}

pub(super) async fn insert_bases(
    transaction: &mut CatalogTransaction,
    file: VersionFileId,
    bases: &[VersionFileId],
) -> Result<()> {
    for (position, base) in (0_i64..).zip(bases) {
        let sql = "INSERT INTO file_bases (file_id, base_file_id, base_position) VALUES ($1, $2, $3)";
        let values = &[file.into(), (*base).into(), SqlValue::Integer(Some(position))];
        transaction.execute(sql, values).await?;
    }
    Ok(())
}

/// Returns the IDs of a file's bases.
pub(super) async fn list_base_ids(
    transaction: &mut CatalogTransaction,
    file: VersionFileId,
) -> Result<Vec<VersionFileId>> {
    let sql = "SELECT base_file_id FROM file_bases WHERE file_id = $1";
    let bases: Vec<(i64,)> = transaction.list(sql, &[file.into()]).await?;
    let id = |(base,)| to_unsigned(base, "file_bases.base_file_id").map(VersionFileId::new);
    bases.into_iter().map(id).collect()
}

/// Locks the record of a file with an update that changes nothing. A transaction that locks several files must lock
/// them in ascending order of their IDs.
pub(super) async fn lock_file(transaction: &mut CatalogTransaction, file: VersionFileId) -> Result<()> {
    let sql = "UPDATE files SET unreferenced_since = unreferenced_since WHERE file_id = $1";
    transaction.execute(sql, &[file.into()]).await.map(drop)
}
