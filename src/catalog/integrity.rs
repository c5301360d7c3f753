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

use super::attempts::{Attempt, AttemptRow};
use super::convert::{to_optional_time, to_time, to_unsigned};
use super::dataset_rows::{DatasetRow, dataset_columns};
use super::engine::{Engine, Record, Row, Value, select};
use super::installation::check_identity;
use super::users::{UserRow, user_columns};
use super::validators::{self, validators_checksum};
use super::webhooks::{Webhook, WebhookRow, webhook_columns};
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};
use crate::model::dataset::Dataset;
use crate::model::schedule::Schedule;
use crate::model::user::{User, email_key};
use crate::model::version::VersionSelector;

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

/// A page of a table by its key: that, and these columns.
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
        let Engine::Sqlite { .. } = &self.engine else { return Ok(None) };
        match self.engine.fetch_all::<(String,)>("PRAGMA quick_check(1)", &[]).await {
            Ok(found) => Ok(found.into_iter().map(|(line,)| line).find(|line| line != "ok")),
            Err(error) => told(error).map(Some),
        }
    }

    /// The rows that a statement yields. If the database is too damaged for that, this is told, and there are none.
    async fn rows_or_tell<R: Row>(
        &self,
        place: impl fmt::Display + Send,
        sql: &'static str,
        values: &[Value<'_>],
        tell: &mut Tell<'_>,
    ) -> Result<Vec<R>> {
        match self.engine.fetch_all(sql, values).await {
            Ok(rows) => return Ok(rows),
            Err(error) => tell(format!("{place}{}", told(error)?)),
        }
        Ok(Vec::new())
    }

    async fn check_engine(&self, quick: bool, tell: &mut Tell<'_>) -> Result<()> {
        let readers = match &self.engine {
            Engine::Sqlite { readers, .. } => readers,
            Engine::Postgres(link) => return check_postgres(link.pool(), tell).await,
        };
        check_partial_indexes(readers.pool(), tell).await?;
        let sql = if quick { "PRAGMA quick_check(100)" } else { "PRAGMA integrity_check(100)" };
        let lines: Vec<(String,)> = self.rows_or_tell("", sql, &[], tell).await?;
        lines.into_iter().filter(|(line,)| line != "ok").for_each(|(line,)| tell(line));
        let sql = "SELECT \"table\", \"parent\", COUNT(*) FROM pragma_foreign_key_check GROUP BY 1, 2";
        for (table, parent, rows) in self.rows_or_tell::<(String, String, i64)>("", sql, &[], tell).await? {
            tell(format!("{rows} rows of {table} refer to rows of {parent} that are not there"));
        }
        for (table, last) in self.rows_or_tell::<(String, i64)>("", ASSIGNED, &[], tell).await? {
            tell(format!("sqlite_sequence: ids of {table} are used up to {last}, and would be assigned again"));
        }
        Ok(())
    }

    async fn check_rows(&self, tell: &mut Tell<'_>) -> Result<()> {
        let sql = select!(user_columns, "users WHERE user_id > $1 ORDER BY user_id LIMIT $2");
        self.check_table("users", sql, 0, |row: &UserRow| row.user_id, check_user, tell).await?;
        let sql = select!(dataset_columns, "datasets WHERE dataset_id > $1 ORDER BY dataset_id LIMIT $2");
        self.check_table("datasets", sql, 0, |row: &DatasetRow| row.dataset_id, check_dataset, tell).await?;
        let sql = page_sql!(
            "datasets",
            "dataset_id",
            "next_run_at, webhook_registrations, validated_url, source_etag, source_last_modified, validators_checksum"
        );
        self.check_table("datasets", sql, 0, |row: &DatasetRestRow| row.dataset_id, DatasetRestRow::check, tell)
            .await?;
        let sql =
            page_sql!("files", "file_id", "size_bytes, entity_count, content_hash, created_at, unreferenced_since");
        self.check_table("files", sql, 0, |row: &FileRow| row.0, check_file, tell).await?;
        let sql = page_sql!(
            "refresh_attempts",
            "attempt_id",
            "trigger_name, started_at, finished_at, version_number, error, warnings"
        );
        let key = |row: &AttemptRow| row.attempt_id;
        self.check_table("refresh_attempts", sql, 0, key, |row| Attempt::from_row(row).map(drop), tell).await?;
        let sql = concat!(
            "SELECT dataset_id, ",
            webhook_columns!(),
            " FROM webhooks WHERE dataset_id > $1 ORDER BY dataset_id LIMIT $2"
        );
        let key = |row: &KeyedWebhookRow| row.dataset_id;
        self.check_table("webhooks", sql, 0, key, |row| Webhook::from_row(row.webhook).map(drop), tell).await?;
        let sql = page_sql!("refresh_leases", "dataset_id", "attempt_id, expires_at");
        self.check_table("refresh_leases", sql, 0, |row: &(i64, i64, i64)| row.0, check_lease, tell).await?;
        let sql = page_sql!("file_holds", "hold_id", "expires_at");
        let check = |(_, expires_at)| to_time(expires_at, "file_holds.expires_at").map(drop);
        self.check_table("file_holds", sql, -1, |row: &(i64, i64)| row.0, check, tell).await?;
        let sql = page_sql!("write_probes", "probe_id", "written_at");
        self.check_table("write_probes", sql, -1, |row: &(i64, i64)| row.0, check_probe, tell).await?;
        let sql = page_sql!("installation", "installation_id", "identity, store_marked");
        let check = |(_, identity, _): (i64, String, bool)| check_identity(&identity);
        self.check_table("installation", sql, -1, |row: &(i64, String, bool)| row.0, check, tell).await?;
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
            let mut last = String::new();
            loop {
                let values = &[Value::Text(&last), Value::Integer(PAGE)];
                let rows: Vec<(String, Option<i64>, i64, Option<i64>)> =
                    self.rows_or_tell(format!("{table}: "), sql, values, tell).await?;
                let Some((key, ..)) = rows.last() else { break };
                last = key.clone();
                for (key, id, time, other) in rows {
                    let checked = || {
                        id.map(|id| to_unsigned(id, table)).transpose()?;
                        to_time(time, table)?;
                        to_optional_time(other, table).map(drop)
                    };
                    report(table, checked(), tell)?;
                    if matches!(table, "sessions" | "api_tokens") && !is_hash(&key) {
                        tell(format!("{table}: a hash is none"));
                    }
                    let verified = match table {
                        "sessions" => self.check_session(&key).await,
                        "api_tokens" => self.check_token(&key).await,
                        _ => Ok(()),
                    };
                    report(table, verified, tell)?;
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
            let mut last = (0, 0);
            loop {
                let values = &[Value::Integer(last.0), Value::Integer(last.1), Value::Integer(PAGE)];
                let rows: Vec<(i64, i64, i64, Option<i64>, i64)> =
                    self.rows_or_tell(format!("{table}: "), sql, values, tell).await?;
                let Some(row) = rows.last() else { break };
                last = (row.0, row.1);
                for (dataset, number, one, other, time) in rows {
                    let checked = || {
                        let id = DatasetId::new(to_unsigned(dataset, table)?);
                        let number = VersionNumber::new(to_unsigned(number, table)?);
                        to_unsigned(one, table)?;
                        other.map(|other| to_unsigned(other, table)).transpose()?;
                        to_time(time, table).map(|_| (id, number))
                    };
                    let checked = match checked() {
                        // With its files and its checksum, as a read finds it.
                        Ok((id, number)) if table == "versions" => {
                            self.resolve_read(id, VersionSelector::Number(number)).await.map(drop)
                        }
                        checked => checked.map(drop),
                    };
                    report(format_args!("{table} {dataset} {number}"), checked, tell)?;
                }
            }
        }
        Ok(())
    }

    async fn check_table<R: Row>(
        &self,
        table: &'static str,
        sql: &'static str,
        before_all: i64,
        key: impl Fn(&R) -> i64 + Send,
        check: impl Fn(R) -> Result<()> + Send,
        tell: &mut Tell<'_>,
    ) -> Result<()> {
        let mut last = before_all;
        loop {
            let values = &[Value::Integer(last), Value::Integer(PAGE)];
            // What follows a page that cannot be read is not reached.
            let rows: Vec<R> = self.rows_or_tell(format!("{table}, after {last}: "), sql, values, tell).await?;
            let Some(row) = rows.last() else { return Ok(()) };
            last = key(row);
            for row in rows {
                report(format_args!("{table} {}", key(&row)), check(row), tell)?;
            }
        }
    }

    /// The rules that the service relies on and that no rule of the database ensures.
    async fn check_agreement(&self, tell: &mut Tell<'_>) -> Result<()> {
        match self.engine.has_row("SELECT hold_id FROM file_holds WHERE hold_id = $1", &[Value::Integer(0)]).await {
            Ok(true) => {}
            Ok(false) => {
                tell("file_holds 0: it is missing, so that sweeps and backups do not wait for each other".to_owned())
            }
            Err(error) => tell(told(error)?),
        }
        let sql = "SELECT file_id, finished_at, leased_until FROM scrub_progress WHERE scrub_id = $1";
        match self.engine.fetch_optional::<(i64, i64, i64)>(sql, &[Value::Integer(0)]).await {
            Ok(Some((file, finished_at, leased_until))) => {
                let checked = || {
                    to_unsigned(file, "scrub_progress.file_id")?;
                    to_time(finished_at, "scrub_progress.finished_at")?;
                    to_time(leased_until, "scrub_progress.leased_until").map(drop)
                };
                report("scrub_progress 0", checked(), tell)?;
            }
            Ok(None) => tell("scrub_progress 0: it is missing, so that files are never scrubbed".to_owned()),
            Err(error) => tell(told(error)?),
        }
        let sql = "SELECT d.dataset_id, COALESCE(d.latest_version, 0), COUNT(v.version_number),
                          COALESCE(MAX(v.version_number), 0)
                   FROM datasets d LEFT JOIN versions v ON v.dataset_id = d.dataset_id
                   GROUP BY d.dataset_id, d.latest_version
                   HAVING COALESCE(d.latest_version, 0) <> COUNT(v.version_number)
                       OR COALESCE(d.latest_version, 0) <> COALESCE(MAX(v.version_number), 0)
                   ORDER BY d.dataset_id LIMIT $1";
        let most = &[Value::Integer(TOLD)];
        for (dataset, latest, count, last) in self.rows_or_tell::<(i64, i64, i64, i64)>("", sql, most, tell).await? {
            tell(format!("dataset {dataset}: its latest version is {latest}, and it has {count}, up to {last}"));
        }
        let sql = "SELECT file_id FROM files f WHERE unreferenced_since IS NULL
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = f.file_id)
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = f.file_id)
                   ORDER BY file_id LIMIT $1";
        for (file,) in self.rows_or_tell::<(i64,)>("", sql, most, tell).await? {
            tell(format!("files {file}: no version names it, and it is not marked so"));
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

/// Tells of a check that has found damage; another error ends the whole check.
fn report(place: impl fmt::Display, checked: Result<()>, tell: &mut Tell<'_>) -> Result<()> {
    if let Err(error) = checked {
        tell(format!("{place}: {}", told(error)?));
    }
    Ok(())
}

/// Whether each index over a part of a table has as many entries as the table has such rows. SQLite's own check finds
/// entries that are missing there, but none that are too many.
async fn check_partial_indexes(pool: &sqlx::SqlitePool, tell: &mut Tell<'_>) -> Result<()> {
    let sql = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'";
    let indexes: Vec<(String, String, String)> = match sqlx::query_as(sql).fetch_all(pool).await {
        Ok(indexes) => indexes,
        Err(error) => {
            tell(told(error.into())?);
            return Ok(());
        }
    };
    for (index, table, sql) in indexes {
        let Some((_, condition)) = sql.split_once(" WHERE ") else { continue };
        // All three come from the migrations; the connection only reads.
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM {table} INDEXED BY {index} WHERE {condition})
                  - (SELECT COUNT(*) FROM {table} NOT INDEXED WHERE {condition})"
        );
        match sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(pool).await {
            Ok(0) => {}
            Ok(more) => tell(format!("the index {index} has {more} entries more than rows of {table} belong into it")),
            Err(error) => tell(format!("the index {index}: {}", told(error.into())?)),
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
    invalid.into_iter().for_each(|(index,)| tell(format!("the index {index} is not valid")));

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
                        "amcheck is installed, but the catalog's user may not run it: indexes are not checked"
                    );
                    break;
                }
                _ => tell(format!("the index {index}: {}", told(error.into())?)),
            }
        }
    }
    Ok(connection.close().await?)
}

fn check_user(row: UserRow) -> Result<()> {
    let key = row.email_key.clone();
    let user = User::from_row(row)?;
    match key == email_key(&user.email) {
        true => Ok(()),
        false => Err(CatalogError::Corrupt { column: "users.email_key", value: key }),
    }
}

fn check_dataset(row: DatasetRow) -> Result<()> {
    let dataset = Dataset::from_row(row)?;
    match &dataset.schedule {
        Some(schedule) if schedule.parse::<Schedule>().is_err() => {
            Err(CatalogError::Corrupt { column: "datasets.schedule", value: schedule.clone() })
        }
        _ => Ok(()),
    }
}

fn check_probe((_, written_at): (i64, i64)) -> Result<()> {
    match written_at > 0 {
        true => to_time(written_at, "write_probes.written_at").map(drop),
        false => Err(CatalogError::Corrupt { column: "write_probes.written_at", value: written_at.to_string() }),
    }
}

fn check_lease((_, attempt, expires_at): (i64, i64, i64)) -> Result<()> {
    to_unsigned(attempt, "refresh_leases.attempt_id")?;
    to_time(expires_at, "refresh_leases.expires_at").map(drop)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The columns that a [`Dataset`] has not.
#[derive(sqlx::FromRow)]
struct DatasetRestRow {
    dataset_id: i64,
    next_run_at: Option<i64>,
    webhook_registrations: i64,
    validated_url: Option<String>,
    source_etag: Option<String>,
    source_last_modified: Option<String>,
    validators_checksum: Option<String>,
}

impl DatasetRestRow {
    fn check(self) -> Result<()> {
        to_optional_time(self.next_run_at, "datasets.next_run_at")?;
        to_unsigned(self.webhook_registrations, "datasets.webhook_registrations")?;
        let (etag, last_modified) = (self.source_etag.as_deref(), self.source_last_modified.as_deref());
        validators_checksum(self.dataset_id, self.validated_url.as_deref(), etag, last_modified)
            .check(self.validators_checksum.as_deref(), || validators::record_name(self.dataset_id))?;
        match (self.validated_url, self.source_etag.or(self.source_last_modified)) {
            (None, Some(value)) => Err(CatalogError::Corrupt { column: "datasets.source_etag", value }),
            _ => Ok(()),
        }
    }
}

/// Id, bytes, entities, hash, and the times since when it is recorded, and unreferenced.
type FileRow = (i64, i64, i64, String, i64, Option<i64>);

fn check_file((id, size_bytes, entity_count, hash, created_at, unreferenced): FileRow) -> Result<()> {
    to_unsigned(id, "files.file_id")?;
    to_unsigned(size_bytes, "files.size_bytes")?;
    to_unsigned(entity_count, "files.entity_count")?;
    to_time(created_at, "files.created_at")?;
    to_optional_time(unreferenced, "files.unreferenced_since")?;
    match is_hash(&hash) {
        true => Ok(()),
        false => Err(CatalogError::Corrupt { column: "files.content_hash", value: hash }),
    }
}

#[derive(sqlx::FromRow)]
struct KeyedWebhookRow {
    dataset_id: i64,
    #[sqlx(flatten)]
    webhook: WebhookRow,
}
