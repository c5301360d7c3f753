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

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, Connection};

use super::attempts::{Attempt, AttemptRow};
use super::convert::{to_optional_time, to_time, to_unsigned};
use super::engine::{Engine, Row, Value};
use super::installation::check_identity;
use super::rows::dataset::{DatasetRow, dataset_columns};
use super::users::{UserRow, user_columns};
use super::validators::{self, validators_checksum};
use super::webhooks::{Webhook, WebhookRow, webhook_columns};
use super::{Catalog, CatalogError, DatasetId, FileId, VersionNumber};
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

impl Catalog {
    /// Reads the whole database and reports all that is wrong with it. Under SQLite, `quick` does not compare indexes
    /// with tables, which takes most of the time.
    ///
    /// # Errors
    /// [`CatalogError`] if the database cannot be asked. Damage is not an error here.
    pub async fn check_integrity(&self, quick: bool, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
        self.check_engine(quick, tell).await?;
        self.check_rows(tell).await?;
        self.check_agreement(tell).await
    }

    /// The first thing that is wrong with the pages of an SQLite file; `None` if nothing is, or the database is no
    /// file. Reads all of it once.
    pub async fn first_damage(&self) -> Result<Option<String>, CatalogError> {
        let Engine::Sqlite { .. } = &self.engine else { return Ok(None) };
        let found: Vec<(String,)> = match self.engine.fetch_all("PRAGMA quick_check(1)", &[]).await {
            Ok(found) => found,
            Err(error) => return told(error.into()).map(Some),
        };
        Ok(found.into_iter().map(|(line,)| line).find(|line| line != "ok"))
    }

    async fn check_engine(&self, quick: bool, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
        match &self.engine {
            Engine::Sqlite { readers, .. } => {
                check_partial_indexes(readers.pool(), tell).await?;
                let sql = if quick { "PRAGMA quick_check(100)" } else { "PRAGMA integrity_check(100)" };
                match self.engine.fetch_all::<(String,)>(sql, &[]).await {
                    Ok(lines) => lines.into_iter().filter(|(line,)| line != "ok").for_each(|(line,)| tell(line)),
                    Err(error) => tell(told(error.into())?),
                }
                let sql = "SELECT \"table\", \"parent\", COUNT(*) FROM pragma_foreign_key_check GROUP BY 1, 2";
                match self.engine.fetch_all::<(String, String, i64)>(sql, &[]).await {
                    Ok(rows) => rows.into_iter().for_each(|(table, parent, rows)| {
                        tell(format!("{rows} rows of {table} refer to rows of {parent} that are not there"));
                    }),
                    Err(error) => tell(told(error.into())?),
                }
                match self.engine.fetch_all::<(String, i64)>(ASSIGNED, &[]).await {
                    Ok(rows) => rows.into_iter().for_each(|(table, last)| {
                        tell(format!(
                            "sqlite_sequence: ids of {table} are used up to {last}, and would be assigned again"
                        ));
                    }),
                    Err(error) => tell(told(error.into())?),
                }
                Ok(())
            }
            Engine::Postgres(link) => check_postgres(link.pool(), tell).await,
        }
    }

    async fn check_rows(&self, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
        let sql = concat!("SELECT ", user_columns!(), " FROM users WHERE user_id > $1 ORDER BY user_id LIMIT $2");
        self.check_table("users", sql, 0, |row: &UserRow| row.id(), check_user, tell).await?;
        let sql =
            concat!("SELECT ", dataset_columns!(), " FROM datasets WHERE dataset_id > $1 ORDER BY dataset_id LIMIT $2");
        self.check_table("datasets", sql, 0, |row: &DatasetRow| row.id(), check_dataset, tell).await?;
        let sql =
            "SELECT dataset_id, next_run_at, webhook_registrations, validated_url, source_etag, source_last_modified,
                    validators_checksum
                   FROM datasets WHERE dataset_id > $1 ORDER BY dataset_id LIMIT $2";
        self.check_table("datasets", sql, 0, |row: &DatasetRestRow| row.dataset_id, DatasetRestRow::check, tell)
            .await?;
        let sql = "SELECT file_id, size_bytes, entity_count, content_hash, created_at, unreferenced_since FROM files
                   WHERE file_id > $1 ORDER BY file_id LIMIT $2";
        self.check_table("files", sql, 0, |row: &FileRow| row.file_id, FileRow::check, tell).await?;
        let sql = "SELECT attempt_id, trigger_name, started_at, finished_at, version_number, error, warnings
                   FROM refresh_attempts WHERE attempt_id > $1 ORDER BY attempt_id LIMIT $2";
        let key = |row: &AttemptRow| row.id();
        self.check_table("refresh_attempts", sql, 0, key, |row| Attempt::try_from(row).map(drop), tell).await?;
        let sql = concat!(
            "SELECT dataset_id, ",
            webhook_columns!(),
            " FROM webhooks WHERE dataset_id > $1 ORDER BY dataset_id LIMIT $2"
        );
        let key = |row: &KeyedWebhookRow| row.dataset_id;
        self.check_table("webhooks", sql, 0, key, |row| Webhook::try_from(row.webhook).map(drop), tell).await?;
        let sql = "SELECT dataset_id, attempt_id, expires_at FROM refresh_leases
                   WHERE dataset_id > $1 ORDER BY dataset_id LIMIT $2";
        self.check_table("refresh_leases", sql, 0, |row: &(i64, i64, i64)| row.0, check_lease, tell).await?;
        let sql = "SELECT hold_id, expires_at FROM file_holds WHERE hold_id > $1 ORDER BY hold_id LIMIT $2";
        let check = |(_, expires_at)| to_time(expires_at, "file_holds.expires_at").map(drop);
        self.check_table("file_holds", sql, -1, |row: &(i64, i64)| row.0, check, tell).await?;
        let sql = "SELECT probe_id, written_at FROM write_probes WHERE probe_id > $1 ORDER BY probe_id LIMIT $2";
        self.check_table("write_probes", sql, -1, |row: &(i64, i64)| row.0, check_probe, tell).await?;
        let sql = "SELECT installation_id, identity, store_marked FROM installation
                   WHERE installation_id > $1 ORDER BY installation_id LIMIT $2";
        let check = |(_, identity, _): (i64, String, bool)| check_identity(&identity);
        self.check_table("installation", sql, -1, |row: &(i64, String, bool)| row.0, check, tell).await?;
        self.check_named_rows(tell).await?;
        self.check_version_rows(tell).await
    }

    /// Tables whose primary key is a text.
    async fn check_named_rows(&self, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
        for (table, sql) in [
            (
                "sessions",
                "SELECT session_hash, user_id, created_at, expires_at FROM sessions
                 WHERE session_hash > $1 ORDER BY session_hash LIMIT $2",
            ),
            (
                "api_tokens",
                "SELECT token_hash, user_id, created_at, last_used_at FROM api_tokens
                 WHERE token_hash > $1 ORDER BY token_hash LIMIT $2",
            ),
            (
                "usage_writers",
                "SELECT writer, batch, written_at, written_at FROM usage_writers
                 WHERE writer > $1 ORDER BY writer LIMIT $2",
            ),
            (
                "nodes",
                "SELECT node_id, CAST(NULL AS BIGINT), started_at, seen_at FROM nodes
                 WHERE node_id > $1 ORDER BY node_id LIMIT $2",
            ),
            (
                "shared_exports",
                "SELECT export_key, file_id, used_at, claimed_until FROM shared_exports
                 WHERE export_key > $1 ORDER BY export_key LIMIT $2",
            ),
            (
                "file_reservations",
                "SELECT path, attempt_id, expires_at, expires_at FROM file_reservations
                 WHERE path > $1 ORDER BY path LIMIT $2",
            ),
        ] {
            let mut last = String::new();
            loop {
                let values = &[Value::Text(&last), Value::Integer(PAGE)];
                let rows: Vec<(String, Option<i64>, i64, Option<i64>)> = match self.engine.fetch_all(sql, values).await
                {
                    Ok(rows) => rows,
                    Err(error) => {
                        tell(format!("{table}: {}", told(error.into())?));
                        break;
                    }
                };
                let Some((key, ..)) = rows.last() else { break };
                last = key.clone();
                for (key, id, time, other) in rows {
                    let checked = || {
                        id.map(|id| to_unsigned(id, table)).transpose()?;
                        to_time(time, table)?;
                        to_optional_time(other, table).map(drop)
                    };
                    if let Err(error) = checked() {
                        tell(format!("{table}: {}", told(error)?));
                    }
                    if matches!(table, "sessions" | "api_tokens") && !is_hash(&key) {
                        tell(format!("{table}: a hash is none"));
                    }
                    let verified = match table {
                        "sessions" => self.check_session(&key).await,
                        "api_tokens" => self.check_token(&key).await,
                        _ => Ok(()),
                    };
                    if let Err(error) = verified {
                        tell(format!("{table}: {}", told(error)?));
                    }
                }
            }
        }
        Ok(())
    }

    /// Tables whose primary key is a dataset and a number, of a version or of a day.
    async fn check_version_rows(&self, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
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
            // Negative ones were told of.
            let of = |dataset: i64| DatasetId::new(dataset.unsigned_abs());
            let numbered = |number: i64| VersionNumber::new(number.unsigned_abs());
            let mut last = (0, 0);
            loop {
                let values = &[Value::Integer(last.0), Value::Integer(last.1), Value::Integer(PAGE)];
                let rows: Vec<(i64, i64, i64, Option<i64>, i64)> = match self.engine.fetch_all(sql, values).await {
                    Ok(rows) => rows,
                    Err(error) => {
                        tell(format!("{table}: {}", told(error.into())?));
                        break;
                    }
                };
                let Some(row) = rows.last() else { break };
                last = (row.0, row.1);
                for (dataset, number, one, other, time) in rows {
                    let checked = || {
                        to_unsigned(dataset, table)?;
                        to_unsigned(number, table)?;
                        to_unsigned(one, table)?;
                        other.map(|other| to_unsigned(other, table)).transpose()?;
                        to_time(time, table).map(drop)
                    };
                    if let Err(error) = checked() {
                        tell(format!("{table} {dataset} {number}: {}", told(error)?));
                    } else if table == "versions"
                        // With its files and its checksum, as a read finds it.
                        && let Err(error) = self.resolve_read(of(dataset), VersionSelector::Number(numbered(number))).await
                    {
                        tell(format!("{table} {dataset} {number}: {}", told(error)?));
                    }
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
        check: impl Fn(R) -> Result<(), CatalogError> + Send,
        tell: &mut Tell<'_>,
    ) -> Result<(), CatalogError> {
        let mut last = before_all;
        loop {
            let rows: Vec<R> = match self.engine.fetch_all(sql, &[Value::Integer(last), Value::Integer(PAGE)]).await {
                Ok(rows) => rows,
                Err(error) => {
                    // What follows in this table is not reached.
                    tell(format!("{table}, after {last}: {}", told(error.into())?));
                    return Ok(());
                }
            };
            let Some(row) = rows.last() else { return Ok(()) };
            last = key(row);
            for row in rows {
                let key = key(&row);
                if let Err(error) = check(row) {
                    tell(format!("{table} {key}: {}", told(error)?));
                }
            }
        }
    }

    /// The rules that the service relies on and that no rule of the database ensures.
    async fn check_agreement(&self, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
        let sql = "SELECT hold_id FROM file_holds WHERE hold_id = $1";
        match self.engine.fetch_optional::<(i64,)>(sql, &[Value::Integer(0)]).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                tell("file_holds 0: it is missing, so that sweeps and backups do not wait for each other".to_owned())
            }
            Err(error) => tell(told(error.into())?),
        }
        let sql = "SELECT file_id, finished_at, leased_until FROM scrub_progress WHERE scrub_id = $1";
        match self.engine.fetch_optional::<(i64, i64, i64)>(sql, &[Value::Integer(0)]).await {
            Ok(Some((file, finished_at, leased_until))) => {
                let checked = || {
                    to_unsigned(file, "scrub_progress.file_id")?;
                    to_time(finished_at, "scrub_progress.finished_at")?;
                    to_time(leased_until, "scrub_progress.leased_until")
                };
                if let Err(error) = checked() {
                    tell(format!("scrub_progress 0: {}", told(error)?));
                }
            }
            Ok(None) => tell("scrub_progress 0: it is missing, so that files are never scrubbed".to_owned()),
            Err(error) => tell(told(error.into())?),
        }
        let sql = "SELECT d.dataset_id, COALESCE(d.latest_version, 0), COUNT(v.version_number),
                          COALESCE(MAX(v.version_number), 0)
                   FROM datasets d LEFT JOIN versions v ON v.dataset_id = d.dataset_id
                   GROUP BY d.dataset_id, d.latest_version
                   HAVING COALESCE(d.latest_version, 0) <> COUNT(v.version_number)
                       OR COALESCE(d.latest_version, 0) <> COALESCE(MAX(v.version_number), 0)
                   ORDER BY d.dataset_id LIMIT $1";
        match self.engine.fetch_all::<(i64, i64, i64, i64)>(sql, &[Value::Integer(TOLD)]).await {
            Ok(rows) => rows.into_iter().for_each(|(dataset, latest, count, last)| {
                tell(format!("dataset {dataset}: its latest version is {latest}, and it has {count}, up to {last}"));
            }),
            Err(error) => tell(told(error.into())?),
        }
        let sql = "SELECT file_id FROM files f WHERE unreferenced_since IS NULL
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = f.file_id)
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = f.file_id)
                   ORDER BY file_id LIMIT $1";
        match self.engine.fetch_all::<(i64,)>(sql, &[Value::Integer(TOLD)]).await {
            Ok(rows) => rows.into_iter().for_each(|(file,)| {
                tell(format!("files {file}: no version names it, and it is not marked so"));
            }),
            Err(error) => tell(told(error.into())?),
        }
        Ok(())
    }
}

/// The error in words, if it says that the database is damaged; otherwise the check cannot go on.
fn told(error: CatalogError) -> Result<String, CatalogError> {
    match error {
        CatalogError::Corrupt { .. } | CatalogError::Unverified { .. } => Ok(error.to_string()),
        CatalogError::Damaged { source, .. } => Ok(source.to_string()),
        CatalogError::Database(
            source @ (sqlx::Error::Database(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)),
        ) => Ok(source.to_string()),
        other => Err(other),
    }
}

/// Whether each index over a part of a table has as many entries as the table has such rows. SQLite's own check finds
/// entries that are missing there, but none that are too many.
async fn check_partial_indexes(pool: &sqlx::SqlitePool, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
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
async fn check_postgres(pool: &sqlx::PgPool, tell: &mut Tell<'_>) -> Result<(), CatalogError> {
    use sqlx::ConnectOptions;

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

fn check_user(row: UserRow) -> Result<(), CatalogError> {
    let key = row.email_key().to_owned();
    let user = User::try_from(row)?;
    match key == email_key(&user.email) {
        true => Ok(()),
        false => Err(CatalogError::Corrupt { column: "users.email_key", value: key }),
    }
}

fn check_dataset(row: DatasetRow) -> Result<(), CatalogError> {
    let dataset = Dataset::try_from(row)?;
    match &dataset.schedule {
        Some(schedule) if schedule.parse::<Schedule>().is_err() => {
            Err(CatalogError::Corrupt { column: "datasets.schedule", value: schedule.clone() })
        }
        _ => Ok(()),
    }
}

fn check_probe((_, written_at): (i64, i64)) -> Result<(), CatalogError> {
    match written_at > 0 {
        true => to_time(written_at, "write_probes.written_at").map(drop),
        false => Err(CatalogError::Corrupt { column: "write_probes.written_at", value: written_at.to_string() }),
    }
}

fn check_lease((_, attempt, expires_at): (i64, i64, i64)) -> Result<(), CatalogError> {
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
    fn check(self) -> Result<(), CatalogError> {
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

#[derive(sqlx::FromRow)]
struct FileRow {
    file_id: i64,
    size_bytes: i64,
    entity_count: i64,
    content_hash: String,
    created_at: i64,
    unreferenced_since: Option<i64>,
}

impl FileRow {
    fn check(self) -> Result<(), CatalogError> {
        let _: FileId = FileId::new(to_unsigned(self.file_id, "files.file_id")?);
        to_unsigned(self.size_bytes, "files.size_bytes")?;
        to_unsigned(self.entity_count, "files.entity_count")?;
        let _: DateTime<Utc> = to_time(self.created_at, "files.created_at")?;
        to_optional_time(self.unreferenced_since, "files.unreferenced_since")?;
        match is_hash(&self.content_hash) {
            true => Ok(()),
            false => Err(CatalogError::Corrupt { column: "files.content_hash", value: self.content_hash }),
        }
    }
}

#[derive(sqlx::FromRow)]
struct KeyedWebhookRow {
    dataset_id: i64,
    #[sqlx(flatten)]
    webhook: WebhookRow,
}
