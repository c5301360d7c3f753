//! Tables `files`, `file_reservations`, and `file_holds`: records which files of the store are in use.
//!
//! 1. A writer reserves the path before it writes the file. One transaction records the file and ends the reservation,
//!    so that each file is reserved, recorded, or unused at any time.
//! 2. A recorded file that loses its last reference is marked with the time. After a delay, when no query reads it any
//!    longer, a sweep deletes first the record, if there is still no reference, and then the file.
//! 3. A file in the store that is neither recorded nor reserved was left behind by a crash.
//!
//! References are looked up, not counted. Versions and alternates of a dataset and of its clones refer to files by id,
//! as do delta files (`file_bases.rs`).

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::version::{NewVersionFile, VersionFile};

use super::clock::{saturating_add, saturating_sub};
use super::convert::{from_cursor, from_optional_id, from_text, from_time, from_unsigned, to_unsigned};
use super::database_engine::{
    CatalogTransaction, FromSqlRow, LIST_PLACEHOLDERS, SqlRow, SqlValue, find_texts, placeholders, select,
};
use super::file_bases::{insert_bases, list_base_ids, lock_bases, lock_file, sum_base_ids};
use super::{Catalog, CatalogError, DatasetId, FileHoldId, RefreshAttemptId, Result, VersionFileId, VersionNumber};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFile {
    pub file: VersionFile,
    /// The time since which the file has been unreferenced; `None` if a version, an edited copy of one, or another
    /// recorded file refers to it.
    pub unreferenced_since: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub struct FileRecordResult {
    pub id: VersionFileId,
    pub file: Result<RecordedFile>,
}

impl FromSqlRow for VersionFile {
    fn from_row(row: &SqlRow) -> Result<VersionFile> {
        Ok(VersionFile {
            id: VersionFileId::new(row.get_unsigned("files.file_id")?),
            path: row.get("path")?,
            size_bytes: row.get_unsigned("files.size_bytes")?,
            entity_count: row.get_unsigned("files.entity_count")?,
            content_hash: row.get("content_hash")?,
        })
    }
}

impl FromSqlRow for RecordedFile {
    fn from_row(row: &SqlRow) -> Result<RecordedFile> {
        let unreferenced_since = row.get_optional_time("files.unreferenced_since")?;
        Ok(RecordedFile { file: VersionFile::from_row(row)?, unreferenced_since })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReference {
    pub dataset: DatasetId,
    pub dataset_name: String,
    pub version: VersionNumber,
    pub alt: bool,
}

impl fmt::Display for FileReference {
    /// Writes the reference in a form such as `dataset 7 "World Countries" v3 alt`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alt = if self.alt { " alt" } else { "" };
        write!(formatter, "dataset {} {:?} v{}{alt}", self.dataset, self.dataset_name, self.version)
    }
}

impl FromSqlRow for FileReference {
    fn from_row(row: &SqlRow) -> Result<FileReference> {
        Ok(FileReference {
            dataset: DatasetId::new(row.get_unsigned("versions.dataset_id")?),
            dataset_name: row.get("name")?,
            version: VersionNumber::new(row.get_unsigned("versions.version_number")?),
            alt: row.get::<i64, _>("is_alt")? != 0,
        })
    }
}

const MAX_LISTED_RESERVATIONS: u32 = 1_000;

/// Selects the recorded and reserved paths among `$1` to `$100`. Expired reservations count until they are deleted.
static KNOWN_PATHS_SQL: LazyLock<String> = LazyLock::new(|| {
    let list = placeholders(LIST_PLACEHOLDERS);
    format!(
        "SELECT path FROM files WHERE path IN ({list})
         UNION SELECT path FROM file_reservations WHERE path IN ({list})"
    )
});

/// Like [`KNOWN_PATHS_SQL`], but scans the tables: no index matches the conditions or contains both selected columns.
static KNOWN_PATHS_FULL_SCAN_SQL: LazyLock<String> = LazyLock::new(|| {
    let list = placeholders(LIST_PLACEHOLDERS);
    format!(
        "SELECT path, created_at FROM files WHERE path || '' IN ({list})
         UNION ALL SELECT path, expires_at FROM file_reservations WHERE path || '' IN ({list})"
    )
});

/// Selects the files among `$1` to `$100` that a version or another file refers to, by scanning the tables
/// (see [`KNOWN_PATHS_FULL_SCAN_SQL`]). `COALESCE` prevents SQLite from scanning the partial index of alternates.
static REFERENCED_FILES_FULL_SCAN_SQL: LazyLock<String> = LazyLock::new(|| {
    let list = placeholders(LIST_PLACEHOLDERS);
    format!(
        "SELECT COALESCE(file_id, 0) AS file, MAX(created_at) AS newest FROM versions
         WHERE COALESCE(file_id, 0) IN ({list}) GROUP BY COALESCE(file_id, 0)
         UNION ALL SELECT COALESCE(alt_file_id, 0) AS file, MAX(created_at) AS newest FROM versions
         WHERE COALESCE(alt_file_id, 0) IN ({list}) GROUP BY COALESCE(alt_file_id, 0)
         UNION ALL SELECT COALESCE(base_file_id, 0) AS file, MAX(base_position) AS newest FROM file_bases
         WHERE COALESCE(base_file_id, 0) IN ({list}) GROUP BY COALESCE(base_file_id, 0)"
    )
});

/// Reserves a path until `expires_at`. A reservation with a `holder` is renewed and ends with the holder's lease.
pub(super) async fn reserve_path(
    transaction: &mut CatalogTransaction,
    path: &str,
    holder: Option<RefreshAttemptId>,
    expires_at: DateTime<Utc>,
) -> Result<()> {
    let sql = "INSERT INTO file_reservations (path, attempt_id, expires_at) VALUES ($1, $2, $3)
               ON CONFLICT (path) DO UPDATE
               SET attempt_id = EXCLUDED.attempt_id, expires_at = EXCLUDED.expires_at";
    let values = &[from_text(path, "path")?, from_optional_id(holder), from_time(expires_at)];
    transaction.execute(sql, values).await.map(drop)
}

impl Catalog {
    pub async fn file_by_path(&self, path: &str) -> Result<Option<VersionFile>> {
        self.engine.find(select!(files, "WHERE path = $1"), &[from_text(path, "path")?]).await
    }

    /// Returns other files with the same entities as `file`, at most `limit`. Reads the records of all files.
    pub async fn files_with_same_content(&self, file: &VersionFile, limit: u32) -> Result<Vec<VersionFile>> {
        let sql = select!(files, "WHERE content_hash = $1 AND file_id <> $2 ORDER BY file_id DESC LIMIT $3");
        let values = &[from_text(&file.content_hash, "content_hash")?, file.id.into(), limit.into()];
        self.engine.list(sql, values).await
    }

    /// Reserves a path for the duration `lease`. Call this function before writing the first byte, so that no sweep
    /// finds an unknown file. A refresh reserves its path together with its lease ([`Catalog::acquire_refresh`]).
    pub async fn reserve_file(&self, path: &str, lease: Duration) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        reserve_path(&mut transaction, path, None, saturating_add(self.now(), lease)).await?;
        transaction.commit().await
    }

    pub async fn release_file_reservation(&self, path: &str) -> Result<()> {
        self.engine.write("DELETE FROM file_reservations WHERE path = $1", &[from_text(path, "path")?]).await.map(drop)
    }

    /// Returns up to 1,000 paths that are reserved for new datasets or alternates (edited versions), not for refreshes.
    pub async fn reserved_paths(&self) -> Result<Vec<String>> {
        let sql = "SELECT path FROM file_reservations WHERE attempt_id IS NULL LIMIT $1";
        self.engine.list_with(sql, &[MAX_LISTED_RESERVATIONS.into()], |row| row.get(0)).await
    }

    /// Deletes expired file reservations and returns their number. Their files can no longer be recorded.
    pub async fn expire_reservations(&self) -> Result<u64> {
        let now = from_time(self.now());
        let mut ended = 0;
        loop {
            let sql = "SELECT path FROM file_reservations WHERE expires_at <= $1 LIMIT $2";
            let expired: Vec<(String,)> = self.engine.list(sql, &[now, MAX_LISTED_RESERVATIONS.into()]).await?;
            if expired.is_empty() {
                return Ok(ended);
            }
            for (path,) in expired {
                // Each row is deleted in its own transaction, which cannot deadlock with a renewal of several rows.
                let sql = "DELETE FROM file_reservations WHERE path = $1 AND expires_at <= $2";
                ended += self.engine.write(sql, &[SqlValue::Text(Some(&path)), now]).await?;
            }
        }
    }

    /// Returns which of `paths` are recorded or reserved. A sweep can delete all other files that it listed before this
    /// call, unless files are held ([`Catalog::has_file_holds`]). Costs two indexed lookups for each path.
    pub async fn find_known_paths(&self, paths: &[&str]) -> Result<HashSet<String>> {
        find_texts(&self.engine, KNOWN_PATHS_SQL.as_str(), paths).await
    }

    /// Like [`Catalog::find_known_paths`], but without indexes, which might be damaged. Use both before a deletion.
    pub async fn find_known_paths_by_scan(&self, paths: &[&str]) -> Result<HashSet<String>> {
        find_texts(&self.engine, KNOWN_PATHS_FULL_SCAN_SQL.as_str(), paths).await
    }

    /// Returns which of `files` a version or another file refers to, by scans without an index. Per 100 files, reads
    /// all versions twice and all bases once.
    async fn find_referenced_files_by_scan(&self, files: &[VersionFileId]) -> Result<HashSet<VersionFileId>> {
        let mut referenced = HashSet::new();
        for chunk in files.chunks(LIST_PLACEHOLDERS) {
            let value = |position: usize| chunk.get(position).map_or(SqlValue::Integer(None), |id| (*id).into());
            let values: Vec<SqlValue<'_>> = (0..LIST_PLACEHOLDERS).map(value).collect();
            let file = |row: &SqlRow| Ok(VersionFileId::new(to_unsigned(row.get("file")?, "versions.file_id")?));
            referenced.extend(self.engine.list_with(REFERENCED_FILES_FULL_SCAN_SQL.as_str(), &values, file).await?);
        }
        Ok(referenced)
    }

    /// Returns the versions and alternates that need the file: their own file is `file`, or has it as base. Each occurs
    /// once. Costs indexed lookups for the file and for each file that uses it.
    pub async fn file_references(&self, file: VersionFileId, limit: u32) -> Result<Vec<FileReference>> {
        let sql = "SELECT v.dataset_id, d.name, v.version_number, CAST(0 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id WHERE v.file_id = $1
                   UNION ALL
                   SELECT v.dataset_id, d.name, v.version_number, CAST(1 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id WHERE v.alt_file_id = $1
                   UNION ALL
                   SELECT v.dataset_id, d.name, v.version_number, CAST(0 AS BIGINT) AS is_alt
                   FROM file_bases b JOIN versions v ON v.file_id = b.file_id
                   JOIN datasets d ON d.dataset_id = v.dataset_id WHERE b.base_file_id = $1
                   UNION ALL
                   SELECT v.dataset_id, d.name, v.version_number, CAST(1 AS BIGINT) AS is_alt
                   FROM file_bases b JOIN versions v ON v.alt_file_id = b.file_id
                   JOIN datasets d ON d.dataset_id = v.dataset_id WHERE b.base_file_id = $1
                   ORDER BY 1, 3, 4 LIMIT $2";
        self.engine.list(sql, &[file.into(), limit.into()]).await
    }

    /// Returns the versions and alternates whose file, or a base of it, has no record. Reads all versions twice.
    pub async fn dangling_file_references(&self, limit: u32) -> Result<Vec<FileReference>> {
        let sql = "SELECT v.dataset_id, d.name, v.version_number, CAST(0 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id
                   LEFT JOIN files f ON f.file_id = v.file_id
                   WHERE f.file_id IS NULL OR EXISTS (
                       SELECT 1 FROM file_bases b LEFT JOIN files base ON base.file_id = b.base_file_id
                       WHERE b.file_id = v.file_id AND base.file_id IS NULL)
                   UNION ALL
                   SELECT v.dataset_id, d.name, v.version_number, CAST(1 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id
                   LEFT JOIN files f ON f.file_id = v.alt_file_id
                   WHERE v.alt_file_id IS NOT NULL AND (f.file_id IS NULL OR EXISTS (
                       SELECT 1 FROM file_bases b LEFT JOIN files base ON base.file_id = b.base_file_id
                       WHERE b.file_id = v.alt_file_id AND base.file_id IS NULL))
                   ORDER BY 1, 3, 4 LIMIT $1";
        self.engine.list(sql, &[limit.into()]).await
    }

    pub async fn files(&self, after: Option<VersionFileId>, limit: u32) -> Result<Vec<RecordedFile>> {
        let sql = select!(files, "WHERE file_id > $1 ORDER BY file_id LIMIT $2");
        self.engine.list(sql, &[from_cursor(after.map(VersionFileId::get), 0), limit.into()]).await
    }

    /// Like [`Catalog::files`], but returns an error for each damaged record, at the cost of one statement per record.
    pub async fn file_record_results(&self, after: Option<VersionFileId>, limit: u32) -> Result<Vec<FileRecordResult>> {
        match self.files(after, limit).await {
            Ok(page) => {
                let record = |file: RecordedFile| FileRecordResult { id: file.file.id, file: Ok(file) };
                return Ok(page.into_iter().map(record).collect());
            }
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(error),
        }
        let sql = "SELECT file_id FROM files WHERE file_id > $1 ORDER BY file_id LIMIT $2";
        let values = &[from_cursor(after.map(VersionFileId::get), 0), limit.into()];
        let ids =
            self.engine.list_with(sql, values, |row| row.get_unsigned("files.file_id").map(VersionFileId::new)).await?;
        let mut page = Vec::with_capacity(ids.len());
        for id in ids {
            match self.recorded_file(id).await {
                Ok(None) => {}
                Ok(Some(file)) => page.push(FileRecordResult { id, file: Ok(file) }),
                Err(error) if error.is_corruption() => page.push(FileRecordResult { id, file: Err(error) }),
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }

    pub async fn recorded_file(&self, id: VersionFileId) -> Result<Option<RecordedFile>> {
        self.engine.find(select!(files, "WHERE file_id = $1"), &[id.into()]).await
    }

    /// Returns the files that are marked as unreferenced for longer than `older_than`, oldest first. The base of a
    /// recorded file is never marked. Returns none while a hold prevents the deletion of files.
    pub async fn unreferenced_files(&self, older_than: Duration, limit: u32) -> Result<Vec<VersionFile>> {
        let sql = select!(
            files,
            "WHERE unreferenced_since < $1 AND NOT EXISTS (SELECT 1 FROM file_holds WHERE expires_at > $2)
             ORDER BY unreferenced_since LIMIT $3"
        );
        let now = self.now();
        self.engine.list(sql, &[from_time(saturating_sub(now, older_than)), from_time(now), limit.into()]).await
    }

    /// Deletes the records of files that have been unreferenced for longer than `older_than`, unless a hold protects
    /// them. The caller must delete the returned files from the store. Both the indexes and the tables `versions` and
    /// `file_bases` must show that nothing refers to a file. If only a table shows a reference, the file is no longer
    /// marked as unreferenced. Bases that lose their last reference are marked, so that a later call can delete them.
    /// For every hundred files, reads all versions twice and all bases once.
    ///
    /// Returns [`CatalogError::DamagedRecord`] if a row of `file_bases` was lost or changed, because then any of the
    /// files could be in use. To verify that, reads all files and bases once more.
    pub async fn remove_file_records(&self, files: &[VersionFileId], older_than: Duration) -> Result<Vec<VersionFile>> {
        let mut removed = Vec::new();
        if files.is_empty() {
            return Ok(removed);
        }
        self.verify_all_bases().await?;
        let scan_started_at = self.now();
        // The scan for references runs outside the transaction. An unreferenced file can get only one kind of new
        // reference: it can become a base. Its mark is then removed, and without the mark, the record is not deleted.
        let referenced = self.find_referenced_files_by_scan(files).await?;
        let (referenced, unreferenced): (BTreeSet<_>, BTreeSet<_>) =
            files.iter().copied().partition(|file| referenced.contains(file));
        let mut transaction = self.engine.begin().await?;
        lock_holds(&mut transaction).await?;
        let now = self.now();
        let mut candidates = Vec::with_capacity(unreferenced.len());
        let mut locks: BTreeSet<VersionFileId> = files.iter().copied().collect();
        for file in unreferenced {
            // The bases of a file never change, so they can be read before the file is locked.
            let bases = list_base_ids(&mut transaction, file).await?;
            locks.extend(&bases);
            candidates.push((file, bases));
        }
        for file in locks {
            lock_file(&mut transaction, file).await?;
        }
        for file in referenced {
            // A newer mark can be correct, because the reference might have been removed after the scan.
            let sql = "UPDATE files SET unreferenced_since = NULL WHERE file_id = $1 AND unreferenced_since < $2";
            let marked_before = saturating_sub(scan_started_at, older_than);
            if transaction.execute(sql, &[file.into(), from_time(marked_before)]).await? > 0 {
                tracing::error!(
                    file_id = file.get(),
                    "found a file that is marked as unreferenced but is in use; a metadata database index might be \
                     damaged: run `strata check`"
                );
            }
        }
        for (file, bases) in candidates {
            // The deletion of the record also deletes its rows of `file_bases`.
            let sql = "DELETE FROM files
                       WHERE file_id = $1 AND unreferenced_since < $2
                         AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = $1)
                         AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = $1)
                         AND NOT EXISTS (SELECT 1 FROM file_bases WHERE base_file_id = $1)
                         AND NOT EXISTS (SELECT 1 FROM file_holds WHERE expires_at > $3)
                       RETURNING file_id, path, size_bytes, entity_count, content_hash, unreferenced_since";
            let deleted: Option<VersionFile> = transaction
                .find(sql, &[file.into(), from_time(saturating_sub(now, older_than)), from_time(now)])
                .await?;
            let Some(deleted) = deleted else { continue };
            removed.push(deleted);
            for base in bases {
                mark_if_unreferenced(&mut transaction, base, now).await?;
            }
        }
        transaction.commit().await?;
        Ok(removed)
    }

    /// Prevents sweeps from deleting files for the duration `lease`, while the caller copies them.
    pub async fn acquire_file_hold(&self, lease: Duration) -> Result<FileHoldId> {
        let mut transaction = self.engine.begin().await?;
        lock_holds(&mut transaction).await?;
        let now = self.now();
        transaction.execute("DELETE FROM file_holds WHERE expires_at <= $1 AND hold_id > 0", &[from_time(now)]).await?;
        let sql = "INSERT INTO file_holds (expires_at) VALUES ($1) RETURNING hold_id";
        let (hold,): (i64,) = transaction.fetch_one(sql, &[from_time(saturating_add(now, lease))]).await?;
        transaction.commit().await?;
        Ok(FileHoldId::new(to_unsigned(hold, "file_holds.hold_id")?))
    }

    /// Extends a hold to `lease` from now. Returns [`CatalogError::LeaseLost`] if it has expired.
    pub async fn renew_hold(&self, hold: FileHoldId, lease: Duration) -> Result<()> {
        let now = self.now();
        let sql = "UPDATE file_holds SET expires_at = $2 WHERE hold_id = $1 AND expires_at > $3";
        let values = &[hold.into(), from_time(saturating_add(now, lease)), from_time(now)];
        self.engine.write_or_error(sql, values, CatalogError::LeaseLost).await
    }

    pub async fn release_hold(&self, hold: FileHoldId) -> Result<()> {
        self.engine.write("DELETE FROM file_holds WHERE hold_id = $1", &[hold.into()]).await.map(drop)
    }

    pub async fn has_file_holds(&self) -> Result<bool> {
        let sql = "SELECT hold_id FROM file_holds WHERE expires_at > $1 LIMIT 1";
        self.engine.has_row(sql, &[from_time(self.now())]).await
    }
}

/// Serializes deletions of file records with the creation of holds, so that every file listed during a hold exists.
async fn lock_holds(transaction: &mut CatalogTransaction) -> Result<()> {
    transaction.execute("UPDATE file_holds SET expires_at = expires_at WHERE hold_id = 0", &[]).await.map(drop)
}

/// Records a file, with its bases, and ends the reservation of its path. `replaced` is the file that this one replaces
/// and that the same transaction then passes to [`mark_if_unreferenced`]; it is locked together with the bases. Returns
/// [`CatalogError::Conflict`] if a base has no record.
pub(super) async fn record_file(
    transaction: &mut CatalogTransaction,
    file: &NewVersionFile,
    replaced: Option<VersionFileId>,
    now: DateTime<Utc>,
) -> Result<VersionFile> {
    let path = from_text(&file.path, "path")?;
    let sql = "DELETE FROM file_reservations WHERE path = $1";
    transaction.execute_or_error(sql, &[path], CatalogError::ReservationLost).await?;
    let bases = lock_bases(transaction, &file.bases, replaced).await?;
    let sql = "INSERT INTO files (path, size_bytes, entity_count, content_hash, created_at, base_id_sum)
               VALUES ($1, $2, $3, $4, $5, $6)
               RETURNING file_id";
    let values = &[
        path,
        from_unsigned(file.size_bytes, "size_bytes")?,
        from_unsigned(file.entity_count, "entity_count")?,
        from_text(&file.content_hash, "content_hash")?,
        from_time(now),
        sum_base_ids(&bases),
    ];
    let (file_id,): (i64,) = transaction.fetch_one(sql, values).await?;
    let id = VersionFileId::new(to_unsigned(file_id, "files.file_id")?);
    insert_bases(transaction, id, &bases).await?;
    Ok(VersionFile {
        id,
        path: file.path.clone(),
        size_bytes: file.size_bytes,
        entity_count: file.entity_count,
        content_hash: file.content_hash.clone(),
    })
}

/// Marks a file as unreferenced after `transaction` has removed a reference, unless the file has another reference.
pub(super) async fn mark_if_unreferenced(
    transaction: &mut CatalogTransaction,
    file: VersionFileId,
    now: DateTime<Utc>,
) -> Result<()> {
    // The lock serializes transactions that remove the last two references.
    lock_file(transaction, file).await?;
    let sql = "UPDATE files SET unreferenced_since = $2
               WHERE file_id = $1 AND unreferenced_since IS NULL
                 AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = $1)
                 AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = $1)
                 AND NOT EXISTS (SELECT 1 FROM file_bases WHERE base_file_id = $1)";
    transaction.execute(sql, &[file.into(), from_time(now)]).await.map(drop)
}
