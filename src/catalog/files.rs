//! Tables `files`, `file_reservations` and `file_holds`: which files of the store are needed, and which a
//! sweep may remove.
//!
//! 1. A writer reserves the path of its file first. Recording the file needs the reservation and ends it, in one
//!    transaction. So a file is always reserved, recorded, or unused.
//! 2. A recorded file that loses its last reference is marked with the time. After some time no read uses it. Then its
//!    record is removed, under a check that still nothing refers to it, and after that the file.
//! 3. A file of the store that is neither recorded nor reserved was left behind by a crash.
//!
//! References are not counted but looked up: versions and alternates, also of clones, name files by id.

use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::version::{NewFile, VersionFile};

use super::clock::{after, before};
use super::convert::{from_cursor, from_optional, from_time, from_unsigned, text, to_unsigned};
use super::engine::{AT_ONCE, Record, Row, Transaction, Value, placeholders, select, texts_found};
use super::{AttemptId, Catalog, CatalogError, DatasetId, FileId, HoldId, Result, VersionNumber};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFile {
    pub file: VersionFile,
    /// Since when no version and no alternate names it; `None` while one does.
    pub unreferenced_since: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub struct ListedFile {
    pub id: FileId,
    pub file: Result<RecordedFile>,
}

impl Record for VersionFile {
    fn from_row(row: &Row) -> Result<VersionFile> {
        Ok(VersionFile {
            id: FileId::new(row.unsigned("files.file_id")?),
            path: row.get("path")?,
            size_bytes: row.unsigned("files.size_bytes")?,
            entity_count: row.unsigned("files.entity_count")?,
            content_hash: row.get("content_hash")?,
        })
    }
}

impl Record for RecordedFile {
    fn from_row(row: &Row) -> Result<RecordedFile> {
        let unreferenced_since = row.optional_time("files.unreferenced_since")?;
        Ok(RecordedFile { file: VersionFile::from_row(row)?, unreferenced_since })
    }
}

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

impl Record for FileReference {
    fn from_row(row: &Row) -> Result<FileReference> {
        Ok(FileReference {
            dataset: DatasetId::new(row.unsigned("versions.dataset_id")?),
            dataset_name: row.get("name")?,
            version: VersionNumber::new(row.unsigned("versions.version_number")?),
            alt: row.get::<i64, _>("is_alt")? != 0,
        })
    }
}

const LISTED_AT_ONCE: u32 = 1_000;

/// Which of the paths `$1` to `$100` are recorded or reserved. An expired reservation counts until
/// [`Catalog::expire_reservations`] removes it, because until then its file can be recorded.
static NAMED: LazyLock<String> = LazyLock::new(|| {
    let list = placeholders(AT_ONCE);
    format!(
        "SELECT path FROM files WHERE path IN ({list})
         UNION SELECT path FROM file_reservations WHERE path IN ({list})"
    )
});

/// The same, from the tables themselves: no index can be used for the condition, and none holds both columns.
static NAMED_IN_TABLES: LazyLock<String> = LazyLock::new(|| {
    let list = placeholders(AT_ONCE);
    format!(
        "SELECT path, created_at FROM files WHERE path || '' IN ({list})
         UNION ALL SELECT path, expires_at FROM file_reservations WHERE path || '' IN ({list})"
    )
});

/// Which of the files `$1` to `$100` a version names, from the table itself; see [`NAMED_IN_TABLES`]. The condition can
/// be met by null, because otherwise SQLite could scan the index of versions with an alternate.
static REFERRED_IN_TABLE: LazyLock<String> = LazyLock::new(|| {
    let list = placeholders(AT_ONCE);
    format!(
        "SELECT COALESCE(file_id, 0) AS file, MAX(created_at) AS newest FROM versions
         WHERE COALESCE(file_id, 0) IN ({list}) GROUP BY COALESCE(file_id, 0)
         UNION ALL SELECT COALESCE(alt_file_id, 0) AS file, MAX(created_at) AS newest FROM versions
         WHERE COALESCE(alt_file_id, 0) IN ({list}) GROUP BY COALESCE(alt_file_id, 0)"
    )
});

/// Reserves a path until then. With a `holder`, the reservation is renewed and ends with the holder's lease.
pub(super) async fn reserve(
    transaction: &mut Transaction,
    path: &str,
    holder: Option<AttemptId>,
    expires_at: DateTime<Utc>,
) -> Result<()> {
    let sql = "INSERT INTO file_reservations (path, attempt_id, expires_at) VALUES ($1, $2, $3)
               ON CONFLICT (path) DO UPDATE
               SET attempt_id = EXCLUDED.attempt_id, expires_at = EXCLUDED.expires_at";
    transaction.execute(sql, &[text(path, "path")?, from_optional(holder), from_time(expires_at)]).await.map(drop)
}

impl Catalog {
    /// The recorded file at a path of the store. One look-up by index.
    pub async fn file_at(&self, path: &str) -> Result<Option<VersionFile>> {
        self.engine.find(select!(files, "WHERE path = $1"), &[text(path, "path")?]).await
    }

    /// Other recorded files of the same entities as `file`, at most `limit`. Reads all records of files.
    pub async fn files_alike(&self, file: &VersionFile, limit: u32) -> Result<Vec<VersionFile>> {
        let sql = select!(files, "WHERE content_hash = $1 AND file_id <> $2 ORDER BY file_id DESC LIMIT $3");
        let values = &[text(&file.content_hash, "content_hash")?, file.id.into(), limit.into()];
        self.engine.list(sql, values).await
    }

    /// Reserves a path of the store for a new file, for `lasts`. Call it before the first byte is written, so that no
    /// sweep finds an unknown file. A refresh reserves its file with its lease ([`Catalog::acquire_refresh`]).
    pub async fn reserve_file(&self, path: &str, lasts: Duration) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        reserve(&mut transaction, path, None, after(self.now(), lasts)).await?;
        transaction.commit().await
    }

    pub async fn release_file(&self, path: &str) -> Result<()> {
        self.engine.write("DELETE FROM file_reservations WHERE path = $1", &[text(path, "path")?]).await.map(drop)
    }

    /// The paths that are reserved without a refresh, at most 1,000: of files of new datasets and of alternates.
    pub async fn reserved_files(&self) -> Result<Vec<String>> {
        let sql = "SELECT path FROM file_reservations WHERE attempt_id IS NULL LIMIT $1";
        self.engine.list_with(sql, &[LISTED_AT_ONCE.into()], |row| row.get(0)).await
    }

    /// Ends the expired reservations and returns their number. Their files can then no longer be recorded.
    pub async fn expire_reservations(&self) -> Result<u64> {
        let now = from_time(self.now());
        let mut ended = 0;
        loop {
            let sql = "SELECT path FROM file_reservations WHERE expires_at <= $1 LIMIT $2";
            let expired: Vec<(String,)> = self.engine.list(sql, &[now, LISTED_AT_ONCE.into()]).await?;
            if expired.is_empty() {
                return Ok(ended);
            }
            for (path,) in expired {
                // One at a time, so that no renewal of several waits for it in a circle.
                let sql = "DELETE FROM file_reservations WHERE path = $1 AND expires_at <= $2";
                ended += self.engine.write(sql, &[Value::Text(Some(&path)), now]).await?;
            }
        }
    }

    /// Which of these paths are recorded or reserved. A file of the store that was listed before this call, and is not
    /// in the result, can be removed, unless files are held ([`Catalog::files_held`]). Two look-ups by index for each
    /// path.
    pub async fn files_named(&self, paths: &[&str]) -> Result<HashSet<String>> {
        texts_found(&self.engine, NAMED.as_str(), paths).await
    }

    /// As [`Catalog::files_named`], but without indexes. Ask this too before you remove a file, because a damaged index
    /// may have fewer entries than its table. Reads all records of files and reservations for every hundred paths.
    pub async fn files_named_in_tables(&self, paths: &[&str]) -> Result<HashSet<String>> {
        texts_found(&self.engine, NAMED_IN_TABLES.as_str(), paths).await
    }

    /// Which of these files a version names, without indexes. Reads all versions twice for every hundred files.
    async fn referred_in_table(&self, files: &[FileId]) -> Result<HashSet<FileId>> {
        let mut referred = HashSet::new();
        for chunk in files.chunks(AT_ONCE) {
            let value = |position: usize| chunk.get(position).map_or(Value::Integer(None), |id| (*id).into());
            let values: Vec<Value<'_>> = (0..AT_ONCE).map(value).collect();
            let file = |row: &Row| Ok(FileId::new(to_unsigned(row.get("file")?, "versions.file_id")?));
            referred.extend(self.engine.list_with(REFERRED_IN_TABLE.as_str(), &values, file).await?);
        }
        Ok(referred)
    }

    /// The versions that name a file, by dataset and number, at most `limit`. Two ranges of an index each.
    pub async fn references_to(&self, file: FileId, limit: u32) -> Result<Vec<FileReference>> {
        let sql = "SELECT v.dataset_id, d.name, v.version_number, CAST(0 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id WHERE v.file_id = $1
                   UNION ALL
                   SELECT v.dataset_id, d.name, v.version_number, CAST(1 AS BIGINT) AS is_alt
                   FROM versions v JOIN datasets d ON d.dataset_id = v.dataset_id WHERE v.alt_file_id = $1
                   ORDER BY 1, 3, 4 LIMIT $2";
        self.engine.list(sql, &[file.into(), limit.into()]).await
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
        self.engine.list(sql, &[limit.into()]).await
    }

    /// The recorded files with ids greater than `after`, by id, at most `limit`. One range of the primary key.
    pub async fn files(&self, after: Option<FileId>, limit: u32) -> Result<Vec<RecordedFile>> {
        let sql = select!(files, "WHERE file_id > $1 ORDER BY file_id LIMIT $2");
        self.engine.list(sql, &[from_cursor(after.map(FileId::get), 0), limit.into()]).await
    }

    /// As [`Catalog::files`], but an unreadable record gives its error in its place, for one statement per record.
    pub async fn files_apart(&self, after: Option<FileId>, limit: u32) -> Result<Vec<ListedFile>> {
        match self.files(after, limit).await {
            Ok(page) => {
                return Ok(page.into_iter().map(|file| ListedFile { id: file.file.id, file: Ok(file) }).collect());
            }
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
        let sql = "SELECT file_id FROM files WHERE file_id > $1 ORDER BY file_id LIMIT $2";
        let values = &[from_cursor(after.map(FileId::get), 0), limit.into()];
        let ids = self.engine.list_with(sql, values, |row| row.unsigned("files.file_id").map(FileId::new)).await?;
        let mut page = Vec::with_capacity(ids.len());
        for id in ids {
            match self.recorded_file(id).await {
                Ok(None) => {}
                Ok(Some(file)) => page.push(ListedFile { id, file: Ok(file) }),
                Err(error) if error.is_damage() => page.push(ListedFile { id, file: Err(error) }),
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }

    pub async fn recorded_file(&self, id: FileId) -> Result<Option<RecordedFile>> {
        self.engine.find(select!(files, "WHERE file_id = $1"), &[id.into()]).await
    }

    /// The files without a reference for longer than `older_than`, the longest first. None while files are held.
    pub async fn unreferenced_files(&self, older_than: Duration, limit: u32) -> Result<Vec<VersionFile>> {
        let sql = select!(
            files,
            "WHERE unreferenced_since < $1 AND NOT EXISTS (SELECT 1 FROM file_holds WHERE expires_at > $2)
             ORDER BY unreferenced_since LIMIT $3"
        );
        let now = self.now();
        self.engine.list(sql, &[from_time(before(now, older_than)), from_time(now), limit.into()]).await
    }

    /// Removes the records of those `files` that have had no reference for longer than `older_than`, and still have
    /// none. None while files are held. The caller removes the returned files from the store. After a crash they are
    /// files that no record names.
    ///
    /// Both the indexes of `versions` and the table must show that nothing refers to a file. A file to which only the
    /// table refers loses its mark. Reads all versions twice for every hundred files.
    pub async fn remove_file_records(&self, files: &[FileId], older_than: Duration) -> Result<Vec<VersionFile>> {
        let mut removed = Vec::new();
        if files.is_empty() {
            return Ok(removed);
        }
        // Read outside of the transaction, so that others do not wait: a file without a reference gets no new one.
        let referred = self.referred_in_table(files).await?;
        let mut transaction = self.engine.begin().await?;
        lock_holds(&mut transaction).await?;
        let now = self.now();
        for file in files {
            if referred.contains(file) {
                let sql = "UPDATE files SET unreferenced_since = NULL
                           WHERE file_id = $1 AND unreferenced_since IS NOT NULL";
                if transaction.execute(sql, &[(*file).into()]).await? > 0 {
                    tracing::error!(
                        file_id = file.get(),
                        "found a file that is marked as unreferenced but belongs to a version; a metadata database \
                         index might be damaged: run `strata check`"
                    );
                }
                continue;
            }
            let sql = "DELETE FROM files
                       WHERE file_id = $1 AND unreferenced_since < $2
                         AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = $1)
                         AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = $1)
                         AND NOT EXISTS (SELECT 1 FROM file_holds WHERE expires_at > $3)
                       RETURNING file_id, path, size_bytes, entity_count, content_hash, unreferenced_since";
            let deleted: Option<VersionFile> =
                transaction.find(sql, &[(*file).into(), from_time(before(now, older_than)), from_time(now)]).await?;
            removed.extend(deleted);
        }
        transaction.commit().await?;
        Ok(removed)
    }

    /// Keeps every file that a sweep would remove, for `lasts`, while the caller copies files. Removes expired holds.
    pub async fn hold_files(&self, lasts: Duration) -> Result<HoldId> {
        let mut transaction = self.engine.begin().await?;
        lock_holds(&mut transaction).await?;
        let now = self.now();
        transaction.execute("DELETE FROM file_holds WHERE expires_at <= $1 AND hold_id > 0", &[from_time(now)]).await?;
        let sql = "INSERT INTO file_holds (expires_at) VALUES ($1) RETURNING hold_id";
        let (hold,): (i64,) = transaction.one(sql, &[from_time(after(now, lasts))]).await?;
        transaction.commit().await?;
        Ok(HoldId::new(to_unsigned(hold, "file_holds.hold_id")?))
    }

    /// Extends a hold to `lasts` from now; [`CatalogError::LeaseLost`] if it has expired, because files may be gone.
    pub async fn renew_hold(&self, hold: HoldId, lasts: Duration) -> Result<()> {
        let now = self.now();
        let sql = "UPDATE file_holds SET expires_at = $2 WHERE hold_id = $1 AND expires_at > $3";
        let values = &[hold.into(), from_time(after(now, lasts)), from_time(now)];
        self.engine.write_or(sql, values, CatalogError::LeaseLost).await
    }

    /// Ends a hold; one that has expired is over already.
    pub async fn release_hold(&self, hold: HoldId) -> Result<()> {
        self.engine.write("DELETE FROM file_holds WHERE hold_id = $1", &[hold.into()]).await.map(drop)
    }

    /// Whether the files are held, so that none may be removed from the store.
    pub async fn files_held(&self) -> Result<bool> {
        let sql = "SELECT hold_id FROM file_holds WHERE expires_at > $1 LIMIT 1";
        self.engine.has_row(sql, &[from_time(self.now())]).await
    }
}

/// Makes removals of file records and new holds wait for each other: what is listed under a hold is there.
async fn lock_holds(transaction: &mut Transaction) -> Result<()> {
    transaction.execute("UPDATE file_holds SET expires_at = expires_at WHERE hold_id = 0", &[]).await.map(drop)
}

/// Records a file that was reserved, and ends the reservation, as a part of `transaction`.
pub(super) async fn record(transaction: &mut Transaction, file: &NewFile, now: DateTime<Utc>) -> Result<VersionFile> {
    let path = text(&file.path, "path")?;
    let sql = "DELETE FROM file_reservations WHERE path = $1";
    transaction.execute_or(sql, &[path], CatalogError::ReservationLost).await?;
    let sql = "INSERT INTO files (path, size_bytes, entity_count, content_hash, created_at)
               VALUES ($1, $2, $3, $4, $5)
               RETURNING file_id";
    let values = &[
        path,
        from_unsigned(file.size_bytes, "size_bytes")?,
        from_unsigned(file.entity_count, "entity_count")?,
        text(&file.content_hash, "content_hash")?,
        from_time(now),
    ];
    let (file_id,): (i64,) = transaction.one(sql, values).await?;
    Ok(VersionFile {
        id: FileId::new(to_unsigned(file_id, "files.file_id")?),
        path: file.path.clone(),
        size_bytes: file.size_bytes,
        entity_count: file.entity_count,
        content_hash: file.content_hash.clone(),
    })
}

/// Marks a file that `transaction` has taken a reference from, unless it has another.
pub(super) async fn unreference(transaction: &mut Transaction, file: FileId, now: DateTime<Utc>) -> Result<()> {
    // Changes nothing, but the removals of the last two references wait for each other, and the second sees the first.
    let sql = "UPDATE files SET unreferenced_since = unreferenced_since WHERE file_id = $1";
    transaction.execute(sql, &[file.into()]).await?;
    let sql = "UPDATE files SET unreferenced_since = $2
               WHERE file_id = $1 AND unreferenced_since IS NULL
                 AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = $1)
                 AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = $1)";
    transaction.execute(sql, &[file.into(), from_time(now)]).await.map(drop)
}
