//! Table `shared_exports`: Parquet exports that are in the store, for all servers.
//!
//! 1. Who needs an export that is not there claims it, and makes it. Others wait for it, or make their own.
//! 2. A finished export is recorded. The first one to be recorded wins, claim or not.
//! 3. Records go when their files' records go, when nobody has fetched the export for long, or when others need the
//!    room. Then their objects are removed.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use super::clock::{after, before};
use super::convert::{from_time, from_unsigned, text, to_unsigned};
use super::engine::{AT_ONCE, Record, Row, Transaction, Value, placeholders, texts_found};
use super::{Catalog, CatalogError, FileId, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedExport {
    pub path: String,
    /// The size of the export without the data that follows it in its object.
    pub size_bytes: u64,
    pub entity_count: u64,
    pub match_count: Option<u64>,
    /// The checksum of the checksums of its blocks.
    pub checksum: u32,
}

/// An export that is not recorded any more: its object may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedExport {
    pub path: String,
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportClaim {
    Made(SharedExport),
    /// The caller is to make it.
    Granted,
    Anothers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportRecorded {
    /// It is the one that all servers serve. These had to go for it.
    First(Vec<DroppedExport>),
    Second(SharedExport),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportRoom {
    pub bytes: u64,
    pub exports: u64,
}

const MAX_EXPORTS: u64 = 65_536;

impl ExportRoom {
    pub fn of_bytes(bytes: u64) -> ExportRoom {
        ExportRoom { bytes, exports: MAX_EXPORTS }
    }
}

const USE_RECORDED_AFTER: Duration = Duration::from_secs(600);

const PAGE: u32 = 100;

static NAMED: LazyLock<String> =
    LazyLock::new(|| format!("SELECT path FROM shared_exports WHERE path IN ({})", placeholders(AT_ONCE)));

struct ExportRow {
    export: Option<SharedExport>,
    used_at: i64,
}

impl Record for DroppedExport {
    fn from_row(row: &Row) -> Result<DroppedExport> {
        Ok(DroppedExport { path: row.get("path")?, size_bytes: row.unsigned("shared_exports.size_bytes")? })
    }
}

impl Record for ExportRow {
    fn from_row(row: &Row) -> Result<ExportRow> {
        let used_at = row.get("used_at")?;
        let Some(path) = row.get("path")? else { return Ok(ExportRow { export: None, used_at }) };
        let checksum: i64 = row.get("checksum")?;
        let wrong = |_| CatalogError::Corrupt { column: "shared_exports.checksum", value: checksum.to_string() };
        let export = SharedExport {
            path,
            size_bytes: row.unsigned("shared_exports.size_bytes")?,
            entity_count: row.unsigned("shared_exports.entity_count")?,
            match_count: row.optional_unsigned("shared_exports.match_count")?,
            checksum: u32::try_from(checksum).map_err(wrong)?,
        };
        Ok(ExportRow { export: Some(export), used_at })
    }
}

const SELECT: &str = "SELECT path, size_bytes, entity_count, match_count, checksum, used_at FROM shared_exports
                      WHERE export_key = $1";

impl Catalog {
    /// The export of this key, if it is in the store. Does not count as a use of it.
    pub async fn shared_export(&self, key: &str) -> Result<Option<SharedExport>> {
        let found: Option<ExportRow> = self.engine.find(SELECT, &[text(key, "export_key")?]).await?;
        Ok(found.and_then(|row| row.export))
    }

    /// The export of this key, or who makes it: `maker`, if nobody else has claimed it within the time that claims
    /// last. A claim is renewed by claiming again. [`CatalogError::Database`] also if the record of the version file is
    /// gone.
    pub async fn claim_export(&self, key: &str, file: FileId, maker: &str, lasts: Duration) -> Result<ExportClaim> {
        let now = self.now();
        let found = self.engine.find(SELECT, &[text(key, "export_key")?]).await?;
        if let Some(ExportRow { export: Some(export), used_at }) = found {
            if used_at < before(now, USE_RECORDED_AFTER).timestamp_micros() {
                let sql = "UPDATE shared_exports SET used_at = $2 WHERE export_key = $1 AND used_at < $2";
                self.engine.write(sql, &[Value::Text(Some(key)), from_time(now)]).await?;
            }
            return Ok(ExportClaim::Made(export));
        }
        let sql = "INSERT INTO shared_exports
                   (export_key, file_id, maker, claimed_until, size_bytes, entity_count, checksum, used_at)
                   VALUES ($1, $2, $3, $4, 0, 0, 0, $5)
                   ON CONFLICT (export_key) DO UPDATE
                   SET maker = EXCLUDED.maker, claimed_until = EXCLUDED.claimed_until, used_at = EXCLUDED.used_at
                   WHERE shared_exports.path IS NULL
                     AND (shared_exports.maker = EXCLUDED.maker OR shared_exports.claimed_until <= $5)";
        let values =
            &[Value::Text(Some(key)), file.into(), text(maker, "maker")?, from_time(after(now, lasts)), from_time(now)];
        if self.engine.write(sql, values).await? > 0 {
            return Ok(ExportClaim::Granted);
        }
        let made = self.shared_export(key).await?;
        Ok(made.map_or(ExportClaim::Anothers, ExportClaim::Made))
    }

    /// Ends the claim of `maker`, if no export was recorded.
    pub async fn release_export(&self, key: &str, maker: &str) -> Result<()> {
        let sql = "DELETE FROM shared_exports WHERE export_key = $1 AND maker = $2 AND path IS NULL";
        self.engine.write(sql, &[text(key, "export_key")?, text(maker, "maker")?]).await.map(drop)
    }

    /// Records an export that lies in the store, unless one of its key is recorded. Those that were used least recently
    /// go, until all that are recorded are within `room`. Exports that are recorded at the same moment may both find
    /// room for themselves; the next one makes room for both.
    pub async fn record_export(
        &self,
        key: &str,
        file: FileId,
        export: &SharedExport,
        room: ExportRoom,
    ) -> Result<ExportRecorded> {
        let key = text(key, "export_key")?;
        let mut transaction = self.engine.begin().await?;
        let sql = "INSERT INTO shared_exports
                   (export_key, file_id, path, size_bytes, entity_count, match_count, checksum, used_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                   ON CONFLICT (export_key) DO UPDATE
                   SET file_id = EXCLUDED.file_id, maker = NULL, claimed_until = NULL, path = EXCLUDED.path,
                       size_bytes = EXCLUDED.size_bytes, entity_count = EXCLUDED.entity_count,
                       match_count = EXCLUDED.match_count, checksum = EXCLUDED.checksum, used_at = EXCLUDED.used_at
                   WHERE shared_exports.path IS NULL";
        let matches = export.match_count.map(|matches| from_unsigned(matches, "match_count")).transpose()?;
        let values = &[
            key,
            file.into(),
            text(&export.path, "path")?,
            from_unsigned(export.size_bytes, "size_bytes")?,
            from_unsigned(export.entity_count, "entity_count")?,
            matches.unwrap_or(Value::Integer(None)),
            Value::Integer(Some(export.checksum.into())),
            from_time(self.now()),
        ];
        if transaction.execute(sql, values).await? == 0 {
            let recorded: ExportRow = transaction.one(SELECT, &[key]).await?;
            transaction.commit().await?;
            let export = recorded.export.ok_or(sqlx::Error::RowNotFound)?;
            return Ok(ExportRecorded::Second(export));
        }
        let dropped = make_room(&mut transaction, room, Some(&export.path)).await?;
        transaction.commit().await?;
        Ok(ExportRecorded::First(dropped))
    }

    /// Forgets an export whose object is gone or damaged. Whether it was recorded.
    pub async fn forget_export(&self, key: &str, path: &str) -> Result<bool> {
        let sql = "DELETE FROM shared_exports WHERE export_key = $1 AND path = $2";
        Ok(self.engine.write(sql, &[text(key, "export_key")?, text(path, "path")?]).await? > 0)
    }

    /// Forgets exports unused for so long, and what is beyond `room`, at most 100; ends claims that nobody renews.
    pub async fn forget_unused_exports(&self, unused_for: Duration, room: ExportRoom) -> Result<Vec<DroppedExport>> {
        let mut transaction = self.engine.begin().await?;
        let sql = "DELETE FROM shared_exports WHERE path IS NULL AND claimed_until <= $1";
        transaction.execute(sql, &[from_time(self.now())]).await?;
        let sql = "DELETE FROM shared_exports WHERE path IN (
                       SELECT path FROM shared_exports WHERE path IS NOT NULL AND used_at < $1
                       ORDER BY used_at, path LIMIT $2)
                   RETURNING path, size_bytes";
        let values = &[from_time(before(self.now(), unused_for)), PAGE.into()];
        let mut dropped = transaction.list(sql, values).await?;
        if dropped.is_empty() {
            dropped = make_room(&mut transaction, room, None).await?;
        }
        transaction.commit().await?;
        Ok(dropped)
    }

    pub async fn shared_exports_named(&self, paths: &[&str]) -> Result<HashSet<String>> {
        texts_found(&self.engine, NAMED.as_str(), paths).await
    }
}

/// Forgets what was used least recently until the rest is within `room`, but at most a page, and not this one.
async fn make_room(transaction: &mut Transaction, room: ExportRoom, kept: Option<&str>) -> Result<Vec<DroppedExport>> {
    // A sum of integers is a decimal number in PostgreSQL.
    let sql = "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT), COUNT(*) FROM shared_exports
               WHERE path IS NOT NULL";
    let (bytes, exports): (i64, i64) = transaction.one(sql, &[]).await?;
    let mut bytes = to_unsigned(bytes, "shared_exports.size_bytes")?;
    let mut exports = to_unsigned(exports, "shared_exports")?;
    if bytes <= room.bytes && exports <= room.exports {
        return Ok(Vec::new());
    }
    let sql = "SELECT path, size_bytes FROM shared_exports WHERE path IS NOT NULL AND path <> $1
               ORDER BY used_at, path LIMIT $2";
    let oldest: Vec<DroppedExport> = transaction.list(sql, &[Value::Text(kept.or(Some(""))), PAGE.into()]).await?;
    let mut dropped = Vec::new();
    for export in oldest {
        if bytes <= room.bytes && exports <= room.exports {
            break;
        }
        bytes = bytes.saturating_sub(export.size_bytes);
        exports -= 1;
        let sql = "DELETE FROM shared_exports WHERE path = $1 RETURNING path, size_bytes";
        dropped.extend(transaction.find::<DroppedExport>(sql, &[Value::Text(Some(&export.path))]).await?);
    }
    Ok(dropped)
}
