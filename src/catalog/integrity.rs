//! Checks the database itself, and reports damage:
//!
//! 1. The engine's own check. SQLite: `integrity_check` (or `quick_check`) and `foreign_key_check`. PostgreSQL: invalid
//!    indexes, and `amcheck`, which compares indexes with their tables, if the extension is installed.
//! 2. Every row, page by page by primary key, read through the types of the service.
//! 3. What rows of different tables must agree in.

use std::fmt;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use strata_types::dataset::Dataset;
use strata_types::schedule::Schedule;
use strata_types::user::{User, email_key};
use strata_types::version::VersionSelector;

use super::attempts::Attempt;
use super::convert::to_unsigned;
use super::engine::{Engine, Record, Row, Value};
use super::installation::check_identity;
use super::nodes::Node;
use super::sessions::SessionRecord;
use super::tokens::check_token;
use super::usage::counts;
use super::validators::{self, validators_checksum};
use super::webhooks::Webhook;
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};

const ROWS_TOLD: u32 = 100;

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

#[derive(Clone)]
enum Key {
    Number(i64),
    Pair(i64, i64),
    /// Not shown, because it can be the hash of a secret.
    Text(String),
}

impl Key {
    fn values(&self) -> Vec<Value<'_>> {
        match self {
            Key::Number(number) => vec![Value::Integer(Some(*number))],
            Key::Pair(first, second) => vec![Value::Integer(Some(*first)), Value::Integer(Some(*second))],
            Key::Text(text) => vec![Value::Text(Some(text))],
        }
    }

    /// The key of the same kind that a row begins with.
    fn read(&self, row: &Row) -> Result<Key> {
        Ok(match self {
            Key::Number(_) => Key::Number(row.get(0)?),
            Key::Pair(..) => Key::Pair(row.get(0)?, row.get(1)?),
            Key::Text(_) => Key::Text(row.get(0)?),
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Number(number) => write!(formatter, " {number}"),
            Key::Pair(first, second) => write!(formatter, " {first} {second}"),
            Key::Text(_) => Ok(()),
        }
    }
}

/// The rows of a table: its name, the key before all others, a page of rows after a key, and the check of a row.
type Rows = (&'static str, Key, &'static str, fn(&Row) -> Result<()>);

macro_rules! page {
    ($table:literal, $key:literal, $last:literal) => {
        concat!("SELECT ", $key, ", * FROM ", $table, " WHERE (", $key, ") > (", $last, ") ORDER BY 1, 2 LIMIT 1000")
    };
}

fn tables() -> [Rows; 19] {
    const NUMBER: Key = Key::Number(0);
    // The first number of some tables is 0.
    const NUMBER_OR_0: Key = Key::Number(-1);
    const PAIR: Key = Key::Pair(0, 0);
    const TEXT: Key = Key::Text(String::new());
    [
        ("users", NUMBER, page!("users", "user_id", "$1"), check_user),
        ("datasets", NUMBER, page!("datasets", "dataset_id", "$1"), check_dataset),
        ("datasets", NUMBER, page!("datasets", "dataset_id", "$1"), check_rest_of_dataset),
        ("files", NUMBER, page!("files", "file_id", "$1"), check_file),
        ("refresh_attempts", NUMBER, page!("refresh_attempts", "attempt_id", "$1"), check_record::<Attempt>),
        ("webhooks", NUMBER, page!("webhooks", "dataset_id", "$1"), check_record::<Webhook>),
        ("refresh_leases", NUMBER, page!("refresh_leases", "dataset_id", "$1"), |row| {
            row.unsigned("refresh_leases.attempt_id")?;
            row.time("refresh_leases.expires_at").map(drop)
        }),
        ("file_holds", NUMBER_OR_0, page!("file_holds", "hold_id", "$1"), |row| {
            row.time("file_holds.expires_at").map(drop)
        }),
        ("write_probes", NUMBER_OR_0, page!("write_probes", "probe_id", "$1"), |row| match row.get("written_at")? {
            1_i64.. => row.time("write_probes.written_at").map(drop),
            other => Err(CatalogError::Corrupt { column: "write_probes.written_at", value: other.to_string() }),
        }),
        ("installation", NUMBER_OR_0, page!("installation", "installation_id", "$1"), |row| {
            row.get::<bool, _>("store_marked")?;
            check_identity(row.get("identity")?)
        }),
        ("scrub_progress", NUMBER_OR_0, page!("scrub_progress", "scrub_id", "$1"), |row| {
            row.unsigned("scrub_progress.file_id")?;
            row.time("scrub_progress.finished_at")?;
            row.time("scrub_progress.leased_until").map(drop)
        }),
        ("sessions", TEXT, page!("sessions", "session_hash", "$1"), check_record::<SessionRecord>),
        ("api_tokens", TEXT, page!("api_tokens", "token_hash", "$1"), check_token),
        ("usage_writers", TEXT, page!("usage_writers", "writer", "$1"), |row| {
            row.unsigned("usage_writers.batch")?;
            row.time("usage_writers.written_at").map(drop)
        }),
        ("nodes", TEXT, page!("nodes", "node_id", "$1"), check_record::<Node>),
        ("file_reservations", TEXT, page!("file_reservations", "path", "$1"), |row| {
            row.optional_unsigned("file_reservations.attempt_id")?;
            row.time("file_reservations.expires_at").map(drop)
        }),
        // As a read finds them, too: [`Catalog::check_version`].
        ("versions", PAIR, page!("versions", "dataset_id, version_number", "$1, $2"), |row| {
            row.time("versions.created_at").map(drop)
        }),
        ("webhook_deliveries", PAIR, page!("webhook_deliveries", "dataset_id, version_number", "$1, $2"), |row| {
            row.time("webhook_deliveries.due_at")?;
            row.optional_time("webhook_deliveries.claimed_at").map(drop)
        }),
        ("dataset_usage", PAIR, page!("dataset_usage", "dataset_id, day", "$1, $2"), |row| counts(row).map(drop)),
    ]
}

impl Catalog {
    /// Reads the whole database and reports damage. Under SQLite, `quick` does not compare indexes with tables.
    pub async fn check_integrity(&self, quick: bool, tell: &mut Tell<'_>) -> Result<()> {
        self.check_engine(quick, tell).await?;
        for (table, before_all, sql, check) in tables() {
            self.check_rows(table, before_all, sql, check, tell).await?;
        }
        self.check_agreement(tell).await
    }

    /// The first damage of the pages of an SQLite file. Reads all of it once.
    pub async fn first_damage(&self) -> Result<Option<String>> {
        let Engine::Sqlite { .. } = &*self.engine else { return Ok(None) };
        match self.engine.list::<(String,)>("PRAGMA quick_check(1)", &[]).await {
            Ok(found) => Ok(found.into_iter().map(|(line,)| line).find(|line| line != "ok")),
            Err(error) => told(error).map(Some),
        }
    }

    async fn list_or_tell<T: Record>(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
        tell: &mut Tell<'_>,
    ) -> Result<Vec<T>> {
        or_tell(self.engine.list(sql, values).await, "", tell).map(Option::unwrap_or_default)
    }

    async fn check_engine(&self, quick: bool, tell: &mut Tell<'_>) -> Result<()> {
        let readers = match &*self.engine {
            Engine::Sqlite { readers, .. } => readers,
            Engine::Postgres(link) => return check_postgres(&link.pool, tell).await,
        };
        check_partial_indexes(&readers.pool, tell).await?;
        let sql = if quick { "PRAGMA quick_check(100)" } else { "PRAGMA integrity_check(100)" };
        let lines: Vec<(String,)> = self.list_or_tell(sql, &[], tell).await?;
        lines.into_iter().filter(|(line,)| line != "ok").for_each(|(line,)| tell(line));
        let sql = "SELECT \"table\", \"parent\", COUNT(*) FROM pragma_foreign_key_check GROUP BY 1, 2";
        for (table, parent, rows) in self.list_or_tell::<(String, String, i64)>(sql, &[], tell).await? {
            tell(format!("rows in {table} that refer to missing rows in {parent}: {rows}"));
        }
        for (table, last) in self.list_or_tell::<(String, i64)>(ASSIGNED, &[], tell).await? {
            tell(format!("sqlite_sequence: IDs in {table} up to {last} are in use but would be assigned again"));
        }
        Ok(())
    }

    async fn check_rows(
        &self,
        table: &str,
        before_all: Key,
        sql: &'static str,
        check: fn(&Row) -> Result<()>,
        tell: &mut Tell<'_>,
    ) -> Result<()> {
        let mut last = before_all;
        loop {
            let read = |row: &Row| match check(row) {
                // The value is of another type than its column.
                Err(error @ CatalogError::Database(_)) => Err(error),
                checked => Ok((last.read(row)?, checked)),
            };
            let page = self.engine.list_with(sql, &last.values(), read).await;
            let after = if let Key::Text(_) = last { "" } else { ", after" };
            // Rows after a page that cannot be read are not checked.
            let page = or_tell(page, format_args!("{table}{after}{last}: "), tell)?.unwrap_or_default();
            let Some((key, _)) = page.last() else { return Ok(()) };
            last = key.clone();
            for (key, mut checked) in page {
                match (&key, table) {
                    (Key::Pair(dataset, number), "versions") if checked.is_ok() => {
                        checked = self.check_version(*dataset, *number).await;
                    }
                    (Key::Text(text), "sessions" | "api_tokens") if !is_hash(text) => {
                        tell(format!("{table}: a key is not a valid hash"));
                    }
                    _ => {}
                }
                or_tell(checked, format_args!("{table}{key}: "), tell)?;
            }
        }
    }

    async fn check_version(&self, dataset: i64, number: i64) -> Result<()> {
        let id = DatasetId::new(to_unsigned(dataset, "versions.dataset_id")?);
        let number = VersionNumber::new(to_unsigned(number, "versions.version_number")?);
        self.resolve_read(id, VersionSelector::Number(number)).await.map(drop)
    }

    /// The rules that the service relies on and that no rule of the database ensures.
    async fn check_agreement(&self, tell: &mut Tell<'_>) -> Result<()> {
        let sql = "SELECT hold_id FROM file_holds WHERE hold_id = $1";
        if or_tell(self.engine.has_row(sql, &[Value::Integer(Some(0))]).await, "", tell)? == Some(false) {
            tell("file_holds 0: the row is missing, so sweeps and backups do not wait for each other".to_owned());
        }
        let sql = "SELECT CAST(scrub_id AS BIGINT) FROM scrub_progress WHERE scrub_id = $1";
        if or_tell(self.engine.has_row(sql, &[Value::Integer(Some(0))]).await, "", tell)? == Some(false) {
            tell("scrub_progress 0: the row is missing, so files are never scrubbed".to_owned());
        }
        let sql = "SELECT d.dataset_id, COALESCE(d.latest_version, 0), COUNT(v.version_number),
                          COALESCE(MAX(v.version_number), 0)
                   FROM datasets d LEFT JOIN versions v ON v.dataset_id = d.dataset_id
                   GROUP BY d.dataset_id, d.latest_version
                   HAVING COALESCE(d.latest_version, 0) <> COUNT(v.version_number)
                       OR COALESCE(d.latest_version, 0) <> COALESCE(MAX(v.version_number), 0)
                   ORDER BY d.dataset_id LIMIT $1";
        let differing: Vec<(i64, i64, i64, i64)> = self.list_or_tell(sql, &[ROWS_TOLD.into()], tell).await?;
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
        let unmarked: Vec<(i64,)> = self.list_or_tell(sql, &[ROWS_TOLD.into()], tell).await?;
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

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn check_rest_of_dataset(row: &Row) -> Result<()> {
    let id: i64 = row.get("dataset_id")?;
    let url: Option<&str> = row.get("validated_url")?;
    let etag: Option<&str> = row.get("source_etag")?;
    let last_modified: Option<&str> = row.get("source_last_modified")?;
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
