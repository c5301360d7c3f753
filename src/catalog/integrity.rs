//! Checks the database itself: its own check of pages and indexes, and every row of every table, read through the types
//! of the service.
//!
//! 1. The engine's own check. SQLite: `integrity_check` (or `quick_check`) and `foreign_key_check`. PostgreSQL: indexes
//!    that it has marked invalid, and `amcheck`, which compares indexes with their tables, where the extension is
//!    installed.
//! 2. Every row, page by page by primary key.
//! 3. What rows of different tables must agree in.
//!
//! The check reports damage and goes on. It cannot notice a value that became another possible value, such as a letter
//! of a description.

use std::fmt;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use strata_types::dataset::Dataset;
use strata_types::schedule::Schedule;
use strata_types::user::{User, email_key};
use strata_types::version::VersionSelector;

use super::attempts::Attempt;
use super::convert::{to_optional_time, to_optional_unsigned, to_time, to_unsigned};
use super::engine::{Engine, Record, Row, Value};
use super::installation::check_identity;
use super::validators::{self, validators_checksum};
use super::webhooks::Webhook;
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};

const PAGE: i64 = 1_000;

const TOLD: i64 = 100;

/// The tables of SQLite whose ids have gone further than the last one that is recorded as assigned.
const ASSIGNED: &str = "SELECT used.name, used.last FROM (
         SELECT 'users' AS name, MAX(user_id) AS last FROM users
         UNION ALL SELECT 'datasets', MAX(dataset_id) FROM datasets
         UNION ALL SELECT 'files', MAX(file_id) FROM files
         UNION ALL SELECT 'refresh_attempts', MAX(attempt_id) FROM refresh_attempts
         UNION ALL SELECT 'file_holds', MAX(hold_id) FROM file_holds
     ) used LEFT JOIN sqlite_sequence s ON s.name = used.name
     WHERE used.last > 0 AND (typeof(s.seq) <> 'integer' OR s.seq < used.last)";

type Tell<'a> = dyn FnMut(String) + Send + 'a;

/// A page of a table by its key: that, and these columns or all.
macro_rules! page_sql {
    ($table:literal, $key:literal, $columns:literal) => {
        concat!(
            "SELECT ",
            $key,
            ", ",
            $columns,
            " FROM ",
            $table,
            " WHERE ",
            $key,
            " > $1 ORDER BY ",
            $key,
            " LIMIT $2"
        )
    };
}

impl Catalog {
    /// Reads the whole database and reports all that is wrong with it. Under SQLite, `quick` does not compare indexes
    /// with tables, which takes most of the time. Damage is no error here.
    pub async fn check_integrity(&self, quick: bool, tell: &mut Tell<'_>) -> Result<()> {
        self.check_engine(quick, tell).await?;
        self.check_rows(tell).await?;
        self.check_agreement(tell).await
    }

    /// The first thing that is wrong with the pages of an SQLite file; `None` if nothing is, or the database is no
    /// file. Reads all of it once.
    pub async fn first_damage(&self) -> Result<Option<String>> {
        let Engine::Sqlite { .. } = &*self.engine else { return Ok(None) };
        match self.engine.list::<(String,)>("PRAGMA quick_check(1)", &[]).await {
            Ok(found) => Ok(found.into_iter().map(|(line,)| line).find(|line| line != "ok")),
            Err(error) => told(error).map(Some),
        }
    }

    async fn check_engine(&self, quick: bool, tell: &mut Tell<'_>) -> Result<()> {
        let readers = match &*self.engine {
            Engine::Sqlite { readers, .. } => readers,
            Engine::Postgres(link) => return check_postgres(&link.pool, tell).await,
        };
        check_partial_indexes(&readers.pool, tell).await?;
        let sql = if quick { "PRAGMA quick_check(100)" } else { "PRAGMA integrity_check(100)" };
        let lines: Vec<(String,)> = or_tell(self.engine.list(sql, &[]).await, "", tell)?.unwrap_or_default();
        lines.into_iter().filter(|(line,)| line != "ok").for_each(|(line,)| tell(line));
        let sql = "SELECT \"table\", \"parent\", COUNT(*) FROM pragma_foreign_key_check GROUP BY 1, 2";
        let orphans: Vec<(String, String, i64)> =
            or_tell(self.engine.list(sql, &[]).await, "", tell)?.unwrap_or_default();
        for (table, parent, rows) in orphans {
            tell(format!("rows in {table} that refer to missing rows in {parent}: {rows}"));
        }
        let assigned: Vec<(String, i64)> =
            or_tell(self.engine.list(ASSIGNED, &[]).await, "", tell)?.unwrap_or_default();
        for (table, last) in assigned {
            tell(format!("sqlite_sequence: IDs in {table} up to {last} are in use but would be assigned again"));
        }
        Ok(())
    }

    async fn check_rows(&self, tell: &mut Tell<'_>) -> Result<()> {
        type Check = fn(&Row) -> Result<()>;
        let tables: [(&'static str, i64, &'static str, Check); 10] = [
            ("users", 0, page_sql!("users", "user_id", "*"), check_user),
            ("datasets", 0, page_sql!("datasets", "dataset_id", "*"), check_dataset),
            ("datasets", 0, page_sql!("datasets", "dataset_id", "*"), check_rest_of_dataset),
            ("files", 0, page_sql!("files", "file_id", "*"), check_file),
            ("refresh_attempts", 0, page_sql!("refresh_attempts", "attempt_id", "*"), check_record::<Attempt>),
            ("webhooks", 0, page_sql!("webhooks", "dataset_id", "*"), check_record::<Webhook>),
            ("refresh_leases", 0, page_sql!("refresh_leases", "dataset_id", "*"), check_lease),
            ("file_holds", -1, page_sql!("file_holds", "hold_id", "*"), check_hold),
            ("write_probes", -1, page_sql!("write_probes", "probe_id", "*"), check_probe),
            ("installation", -1, page_sql!("installation", "installation_id", "*"), check_installation),
        ];
        for (table, before_all, sql, check) in tables {
            let mut last = before_all;
            loop {
                let values = &[Value::Integer(last), Value::Integer(PAGE)];
                // What follows a page that cannot be read is not reached.
                let page = self.page::<(i64,)>(format!("{table}, after {last}: "), sql, values, check, tell).await?;
                let Some(((key,), _)) = page.last() else { break };
                last = *key;
                for ((key,), checked) in page {
                    or_tell(checked, format_args!("{table} {key}: "), tell)?;
                }
            }
        }
        self.check_named_rows(tell).await?;
        self.check_version_rows(tell).await
    }

    /// Tables whose primary key is a text.
    async fn check_named_rows(&self, tell: &mut Tell<'_>) -> Result<()> {
        for (table, sql) in [
            ("sessions", page_sql!("sessions", "session_hash", "user_id, created_at, expires_at")),
            ("api_tokens", page_sql!("api_tokens", "token_hash", "user_id, created_at, last_used_at")),
            ("usage_writers", page_sql!("usage_writers", "writer", "batch, written_at, written_at")),
            ("nodes", page_sql!("nodes", "node_id", "CAST(NULL AS BIGINT), started_at, seen_at")),
            ("shared_exports", page_sql!("shared_exports", "export_key", "file_id, used_at, claimed_until")),
            ("file_reservations", page_sql!("file_reservations", "path", "attempt_id, expires_at, expires_at")),
        ] {
            let place = format!("{table}: ");
            let check = |row: &Row| {
                to_optional_unsigned(row.get(1)?, table)?;
                to_time(row.get(2)?, table)?;
                to_optional_time(row.get(3)?, table).map(drop)
            };
            let mut last = String::new();
            loop {
                let values = &[Value::Text(&last), Value::Integer(PAGE)];
                let page = self.page::<(String,)>(&place, sql, values, check, tell).await?;
                let Some(((key,), _)) = page.last() else { break };
                last = key.clone();
                for ((key,), checked) in page {
                    or_tell(checked, &place, tell)?;
                    if matches!(table, "sessions" | "api_tokens") && !is_hash(&key) {
                        tell(format!("{table}: a key is not a valid hash"));
                    }
                    let verified = match table {
                        "sessions" => self.check_session(&key).await,
                        "api_tokens" => self.check_token(&key).await,
                        _ => Ok(()),
                    };
                    or_tell(verified, &place, tell)?;
                }
            }
        }
        Ok(())
    }

    /// Tables whose primary key is a dataset and a number, of a version or of a day.
    async fn check_version_rows(&self, tell: &mut Tell<'_>) -> Result<()> {
        for (table, sql) in [
            (
                "versions",
                "SELECT dataset_id, version_number, file_id, alt_file_id, created_at FROM versions
                 WHERE dataset_id > $1 OR (dataset_id = $1 AND version_number > $2)
                 ORDER BY dataset_id, version_number LIMIT $3",
            ),
            (
                "webhook_deliveries",
                "SELECT dataset_id, version_number, due_at, claimed_at, due_at FROM webhook_deliveries
                 WHERE dataset_id > $1 OR (dataset_id = $1 AND version_number > $2)
                 ORDER BY dataset_id, version_number LIMIT $3",
            ),
            (
                "dataset_usage",
                "SELECT dataset_id, day, requests, bytes, not_modified FROM dataset_usage
                 WHERE dataset_id > $1 OR (dataset_id = $1 AND day > $2)
                 ORDER BY dataset_id, day LIMIT $3",
            ),
        ] {
            let check = |row: &Row| {
                (0..3_usize).try_for_each(|column| to_unsigned(row.get(column)?, table).map(drop))?;
                to_optional_unsigned(row.get(3)?, table)?;
                to_time(row.get(4)?, table).map(drop)
            };
            let mut last = (0, 0);
            loop {
                let values = &[Value::Integer(last.0), Value::Integer(last.1), Value::Integer(PAGE)];
                let page = self.page::<(i64, i64)>(format!("{table}: "), sql, values, check, tell).await?;
                let Some((key, _)) = page.last() else { break };
                last = *key;
                for ((dataset, number), mut checked) in page {
                    if checked.is_ok() && table == "versions" {
                        // With its files and its checksum, as a read finds it.
                        let id = DatasetId::new(to_unsigned(dataset, table)?);
                        let number = VersionSelector::Number(VersionNumber::new(to_unsigned(number, table)?));
                        checked = self.resolve_read(id, number).await.map(drop);
                    }
                    or_tell(checked, format_args!("{table} {dataset} {number}: "), tell)?;
                }
            }
        }
        Ok(())
    }

    /// The keys of a page, each with what `check` says of its row. If the database is too damaged to read the page, or
    /// a value is of another type than its column, that is told, and there are none.
    async fn page<K: Record>(
        &self,
        place: impl fmt::Display + Send,
        sql: &'static str,
        values: &[Value<'_>],
        check: impl Fn(&Row) -> Result<()> + Send + Sync,
        tell: &mut Tell<'_>,
    ) -> Result<Vec<(K, Result<()>)>> {
        let read = |row: &Row| match check(row) {
            Err(error @ CatalogError::Database(_)) => Err(error),
            checked => Ok((K::from_row(row)?, checked)),
        };
        Ok(or_tell(self.engine.list_with(sql, values, read).await, place, tell)?.unwrap_or_default())
    }

    /// The rules that the service relies on and that no rule of the database ensures.
    async fn check_agreement(&self, tell: &mut Tell<'_>) -> Result<()> {
        let sql = "SELECT hold_id FROM file_holds WHERE hold_id = $1";
        if or_tell(self.engine.has_row(sql, &[Value::Integer(0)]).await, "", tell)? == Some(false) {
            tell("file_holds 0: the row is missing, so sweeps and backups do not wait for each other".to_owned());
        }
        let sql = "SELECT file_id, finished_at, leased_until FROM scrub_progress WHERE scrub_id = $1";
        let found = self.engine.find::<(i64, i64, i64)>(sql, &[Value::Integer(0)]).await;
        match or_tell(found, "", tell)? {
            Some(Some((file, finished_at, leased_until))) => {
                let checked = to_unsigned(file, "scrub_progress.file_id")
                    .and_then(|_| to_time(finished_at, "scrub_progress.finished_at"))
                    .and_then(|_| to_time(leased_until, "scrub_progress.leased_until"));
                or_tell(checked, "scrub_progress 0: ", tell)?;
            }
            Some(None) => tell("scrub_progress 0: the row is missing, so files are never scrubbed".to_owned()),
            None => {}
        }
        let sql = "SELECT d.dataset_id, COALESCE(d.latest_version, 0), COUNT(v.version_number),
                          COALESCE(MAX(v.version_number), 0)
                   FROM datasets d LEFT JOIN versions v ON v.dataset_id = d.dataset_id
                   GROUP BY d.dataset_id, d.latest_version
                   HAVING COALESCE(d.latest_version, 0) <> COUNT(v.version_number)
                       OR COALESCE(d.latest_version, 0) <> COALESCE(MAX(v.version_number), 0)
                   ORDER BY d.dataset_id LIMIT $1";
        let most = &[Value::Integer(TOLD)];
        let differing: Vec<(i64, i64, i64, i64)> =
            or_tell(self.engine.list(sql, most).await, "", tell)?.unwrap_or_default();
        for (dataset, latest, count, last) in differing {
            tell(format!(
                "dataset {dataset}: the recorded latest version is {latest}, but there are {count} versions, numbered \
                 up to {last}"
            ));
        }
        let sql = "SELECT file_id FROM files f WHERE unreferenced_since IS NULL
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = f.file_id)
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = f.file_id)
                   ORDER BY file_id LIMIT $1";
        let unmarked: Vec<(i64,)> = or_tell(self.engine.list(sql, most).await, "", tell)?.unwrap_or_default();
        for (file,) in unmarked {
            tell(format!("files {file}: no version refers to the file, but the file is not marked as unreferenced"));
        }
        Ok(())
    }
}

/// The error in words, if it says that the database is damaged; otherwise the check cannot go on.
fn told(error: CatalogError) -> Result<String> {
    match error {
        CatalogError::Corrupt { .. } | CatalogError::Unverified { .. } => Ok(error.to_string()),
        CatalogError::Damaged { source, .. } => Ok(source.to_string()),
        CatalogError::Database(
            source @ (sqlx::Error::Database(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)),
        ) => Ok(source.to_string()),
        other => Err(other),
    }
}

/// What was found; `None` after telling of damage that was found in its place. Another error ends the whole check.
fn or_tell<T>(found: Result<T>, place: impl fmt::Display, tell: &mut Tell<'_>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => {
            tell(format!("{place}{}", told(error)?));
            Ok(None)
        }
    }
}

/// Whether each index over a part of a table has as many entries as the table has such rows. SQLite's own check finds
/// entries that are missing there, but none that are too many.
async fn check_partial_indexes(pool: &sqlx::SqlitePool, tell: &mut Tell<'_>) -> Result<()> {
    let sql = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'";
    let indexes: sqlx::Result<Vec<(String, String, String)>> = sqlx::query_as(sql).fetch_all(pool).await;
    for (index, table, sql) in or_tell(indexes.map_err(CatalogError::from), "", tell)?.unwrap_or_default() {
        let Some((_, condition)) = sql.split_once(" WHERE ") else { continue };
        // All three come from the migrations; the connection only reads.
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM {table} INDEXED BY {index} WHERE {condition})
                  - (SELECT COUNT(*) FROM {table} NOT INDEXED WHERE {condition})"
        );
        let more = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(pool).await.map_err(CatalogError::from);
        if let Some(more) = or_tell(more, format_args!("the index {index}: "), tell)?
            && more != 0
        {
            tell(format!("the index {index} does not match {table}: entry count minus row count is {more}"));
        }
    }
    Ok(())
}

/// PostgreSQL's own means, on a connection without the limits of the service's statements.
async fn check_postgres(pool: &sqlx::PgPool, tell: &mut Tell<'_>) -> Result<()> {
    let mut connection = pool.connect_options().as_ref().clone().connect().await?;
    let invalid: Vec<(String,)> = sqlx::query_as(
        "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = current_schema() AND NOT (i.indisvalid AND i.indisready)",
    )
    .fetch_all(&mut connection)
    .await?;
    invalid.into_iter().for_each(|(index,)| tell(format!("the index {index} is invalid")));

    let schema: Option<(String,)> = sqlx::query_as(
        "SELECT quote_ident(n.nspname)::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'amcheck'",
    )
    .fetch_optional(&mut connection)
    .await?;
    let Some((schema,)) = schema else { return Ok(connection.close().await?) };
    let indexes: Vec<(String,)> = sqlx::query_as(
        "SELECT c.oid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         JOIN pg_am a ON a.oid = c.relam JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = current_schema() AND a.amname = 'btree' AND i.indisvalid AND i.indisready",
    )
    .fetch_all(&mut connection)
    .await?;
    for (index,) in indexes {
        // Both names come from the database's own catalog, quoted.
        let sql = format!("SELECT {schema}.bt_index_check('{}'::regclass, true)", index.replace('\'', "''"));
        if let Err(error) = sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await {
            const NOT_ALLOWED: &str = "42501";
            match error.as_database_error().and_then(|error| error.code()).as_deref() {
                Some(NOT_ALLOWED) => {
                    tracing::warn!(
                        "failed to check indexes: amcheck is installed, but the database user is not allowed to run it"
                    );
                    break;
                }
                _ => tell(format!("the index {index}: {}", told(error.into())?)),
            }
        }
    }
    Ok(connection.close().await?)
}

fn check_record<R: Record>(row: &Row) -> Result<()> {
    R::from_row(row).map(drop)
}

fn check_user(row: &Row) -> Result<()> {
    let key: String = row.get("email_key")?;
    let user = User::from_row(row)?;
    match key == email_key(&user.email) {
        true => Ok(()),
        false => Err(CatalogError::Corrupt { column: "users.email_key", value: key }),
    }
}

fn check_dataset(row: &Row) -> Result<()> {
    let dataset = Dataset::from_row(row)?;
    match dataset.schedule {
        Some(schedule) if schedule.parse::<Schedule>().is_err() => {
            Err(CatalogError::Corrupt { column: "datasets.schedule", value: schedule })
        }
        _ => Ok(()),
    }
}

fn check_lease(row: &Row) -> Result<()> {
    row.unsigned("refresh_leases.attempt_id")?;
    row.time("refresh_leases.expires_at").map(drop)
}

fn check_hold(row: &Row) -> Result<()> {
    row.time("file_holds.expires_at").map(drop)
}

fn check_installation(row: &Row) -> Result<()> {
    row.get::<bool, _>("store_marked")?;
    check_identity(row.get("identity")?)
}

fn check_probe(row: &Row) -> Result<()> {
    match row.get("written_at")? {
        written_at @ 1.. => to_time(written_at, "write_probes.written_at").map(drop),
        written_at => Err(CatalogError::Corrupt { column: "write_probes.written_at", value: written_at.to_string() }),
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The columns that a [`Dataset`] has not.
fn check_rest_of_dataset(row: &Row) -> Result<()> {
    type Text<'r> = Option<&'r str>;
    let (id, url): (i64, Text<'_>) = (row.get("dataset_id")?, row.get("validated_url")?);
    let (etag, last_modified): (Text<'_>, Text<'_>) = (row.get("source_etag")?, row.get("source_last_modified")?);
    let checksum = row.get("validators_checksum")?;
    row.optional_time("datasets.next_run_at")?;
    row.unsigned("datasets.webhook_registrations")?;
    validators_checksum(id, url, etag, last_modified).check(checksum, || validators::record_name(id))?;
    match (url, etag.or(last_modified)) {
        (None, Some(value)) => Err(CatalogError::Corrupt { column: "datasets.source_etag", value: value.to_owned() }),
        _ => Ok(()),
    }
}

fn check_file(row: &Row) -> Result<()> {
    let hash: String = row.get("content_hash")?;
    row.unsigned("files.file_id")?;
    row.unsigned("files.size_bytes")?;
    row.unsigned("files.entity_count")?;
    row.time("files.created_at")?;
    row.optional_time("files.unreferenced_since")?;
    if is_hash(&hash) { Ok(()) } else { Err(CatalogError::Corrupt { column: "files.content_hash", value: hash }) }
}
