//! Checks the metadata database and reports damage, in three steps:
//!
//! 1. The engine's own checks. SQLite: `integrity_check` (or `quick_check`) and `foreign_key_check`. PostgreSQL:
//!    invalid indexes, and `amcheck`, which compares indexes with their tables, if the extension is installed.
//! 2. All rows, page by page in primary key order, decoded into the row types of this crate.
//! 3. The rules between tables that the database does not enforce.

use std::fmt;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use strata_types::dataset::Dataset;
use strata_types::schedule::RefreshSchedule;
use strata_types::user::{User, normalize_email};
use strata_types::version::VersionSelector;

use super::attempts::RefreshAttempt;
use super::checks::verify_checks;
use super::convert::to_unsigned;
use super::database_engine::{DatabaseEngine, FromSqlRow, SqlRow, SqlValue, select};
use super::file_bases::FILES_WITH_WRONG_BASES_SQL;
use super::installation::check_identity;
use super::nodes::NodeRecord;
use super::sessions::StoredSession;
use super::tokens::check_token;
use super::usage::counts_from_row;
use super::validators::{self, validators_checksum};
use super::webhooks::Webhook;
use super::{Catalog, CatalogError, DatasetId, Result, VersionNumber};

const MAX_REPORTED_ROWS: u32 = 100;

/// Lists SQLite tables with an id greater than the last one that `sqlite_sequence` records as assigned.
const STALE_SEQUENCES_SQL: &str = "SELECT used.name, used.last FROM (
         SELECT 'users' AS name, MAX(user_id) AS last FROM users
         UNION ALL SELECT 'datasets', MAX(dataset_id) FROM datasets
         UNION ALL SELECT 'files', MAX(file_id) FROM files
         UNION ALL SELECT 'refresh_attempts', MAX(attempt_id) FROM refresh_attempts
         UNION ALL SELECT 'file_holds', MAX(hold_id) FROM file_holds
     ) used LEFT JOIN sqlite_sequence s ON s.name = used.name
     WHERE used.last > 0 AND (typeof(s.seq) <> 'integer' OR s.seq < used.last)";

type DamageReporter<'a> = dyn FnMut(String) + Send + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogCheckDepth {
    /// SQLite does not compare indexes with tables.
    Quick,
    Full,
}

#[derive(Clone)]
enum PrimaryKey {
    Number(i64),
    Pair(i64, i64),
    /// Damage reports omit a text key, because it can be the hash of a secret.
    Text(String),
}

impl PrimaryKey {
    fn to_values(&self) -> Vec<SqlValue<'_>> {
        match self {
            PrimaryKey::Number(number) => vec![SqlValue::Integer(Some(*number))],
            PrimaryKey::Pair(first, second) => vec![SqlValue::Integer(Some(*first)), SqlValue::Integer(Some(*second))],
            PrimaryKey::Text(text) => vec![SqlValue::Text(Some(text))],
        }
    }

    fn read_from(&self, row: &SqlRow) -> Result<PrimaryKey> {
        Ok(match self {
            PrimaryKey::Number(_) => PrimaryKey::Number(row.get(0)?),
            PrimaryKey::Pair(..) => PrimaryKey::Pair(row.get(0)?, row.get(1)?),
            PrimaryKey::Text(_) => PrimaryKey::Text(row.get(0)?),
        })
    }
}

impl fmt::Display for PrimaryKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrimaryKey::Number(number) => write!(formatter, " {number}"),
            PrimaryKey::Pair(first, second) => write!(formatter, " {first} {second}"),
            PrimaryKey::Text(_) => Ok(()),
        }
    }
}

/// A table with a key below all its keys, the SQL that selects the rows after a key, and the check of each row.
type TableCheck = (&'static str, PrimaryKey, &'static str, fn(&SqlRow) -> Result<()>);

macro_rules! page {
    ($table:literal, $key:literal, $last:literal) => {
        concat!("SELECT ", $key, ", * FROM ", $table, " WHERE (", $key, ") > (", $last, ") ORDER BY 1, 2 LIMIT 1000")
    };
}

/// Selects a page of datasets. The columns are in the order in which the decoder of a dataset reads them.
const DATASETS_PAGE_SQL: &str =
    select!(datasets, "WHERE datasets.dataset_id > $1 ORDER BY datasets.dataset_id LIMIT 1000");

fn table_checks() -> [TableCheck; 20] {
    const NUMBER: PrimaryKey = PrimaryKey::Number(0);
    // In some tables, the key 0 is valid, so their checks start after -1.
    const NUMBER_OR_0: PrimaryKey = PrimaryKey::Number(-1);
    const PAIR: PrimaryKey = PrimaryKey::Pair(0, 0);
    const TEXT: PrimaryKey = PrimaryKey::Text(String::new());
    [
        ("users", NUMBER, page!("users", "user_id", "$1"), check_user),
        ("datasets", NUMBER, DATASETS_PAGE_SQL, check_dataset),
        ("datasets", NUMBER, page!("datasets", "dataset_id", "$1"), check_dataset_internal_columns),
        ("files", NUMBER, page!("files", "file_id", "$1"), check_file),
        ("refresh_attempts", NUMBER, page!("refresh_attempts", "attempt_id", "$1"), check_record::<RefreshAttempt>),
        ("webhooks", NUMBER, page!("webhooks", "dataset_id", "$1"), check_record::<Webhook>),
        ("refresh_leases", NUMBER, page!("refresh_leases", "dataset_id", "$1"), |row| {
            row.get_unsigned("refresh_leases.attempt_id")?;
            row.get_time("refresh_leases.expires_at").map(drop)
        }),
        ("file_holds", NUMBER_OR_0, page!("file_holds", "hold_id", "$1"), |row| {
            row.get_time("file_holds.expires_at").map(drop)
        }),
        ("write_probes", NUMBER_OR_0, page!("write_probes", "probe_id", "$1"), |row| match row.get("written_at")? {
            1_i64.. => row.get_time("write_probes.written_at").map(drop),
            other => Err(CatalogError::invalid_value("write_probes.written_at", other)),
        }),
        ("installation", NUMBER_OR_0, page!("installation", "installation_id", "$1"), |row| {
            row.get::<bool, _>("store_marked")?;
            check_identity(row.get("identity")?)
        }),
        ("scrub_progress", NUMBER_OR_0, page!("scrub_progress", "scrub_id", "$1"), |row| {
            row.get_unsigned("scrub_progress.file_id")?;
            row.get_time("scrub_progress.finished_at")?;
            row.get_time("scrub_progress.leased_until").map(drop)
        }),
        ("sessions", TEXT, page!("sessions", "session_hash", "$1"), check_record::<StoredSession>),
        ("api_tokens", TEXT, page!("api_tokens", "token_hash", "$1"), check_token),
        ("usage_writers", TEXT, page!("usage_writers", "writer", "$1"), |row| {
            row.get_unsigned("usage_writers.batch")?;
            row.get_time("usage_writers.written_at").map(drop)
        }),
        ("nodes", TEXT, page!("nodes", "node_id", "$1"), check_record::<NodeRecord>),
        ("file_reservations", TEXT, page!("file_reservations", "path", "$1"), |row| {
            row.get_optional_unsigned("file_reservations.attempt_id")?;
            row.get_time("file_reservations.expires_at").map(drop)
        }),
        // This check covers only the creation times. `check_version` reads each version as a request does.
        ("versions", PAIR, page!("versions", "dataset_id, version_number", "$1, $2"), |row| {
            row.get_time("versions.created_at").map(drop)
        }),
        ("file_bases", PAIR, page!("file_bases", "file_id, base_file_id", "$1, $2"), |row| {
            row.get_unsigned("file_bases.base_file_id")?;
            row.get_unsigned("file_bases.base_position").map(drop)
        }),
        ("webhook_deliveries", PAIR, page!("webhook_deliveries", "dataset_id, version_number", "$1, $2"), |row| {
            row.get_time("webhook_deliveries.due_at")?;
            row.get_optional_time("webhook_deliveries.claimed_at").map(drop)
        }),
        ("dataset_usage", PAIR, page!("dataset_usage", "dataset_id, day", "$1, $2"), |row| {
            counts_from_row(row).map(drop)
        }),
    ]
}

impl Catalog {
    /// Checks the whole database and reports damage.
    pub async fn check_integrity(&self, depth: CatalogCheckDepth, report: &mut DamageReporter<'_>) -> Result<()> {
        self.check_engine(depth, report).await?;
        for (table, start_key, sql, check) in table_checks() {
            self.check_table(table, start_key, sql, check, report).await?;
        }
        self.check_cross_table_rules(report).await
    }

    pub async fn find_first_damage(&self) -> Result<Option<String>> {
        let DatabaseEngine::Sqlite { .. } = &*self.engine else { return Ok(None) };
        match self.engine.list::<(String,)>("PRAGMA quick_check(1)", &[]).await {
            Ok(lines) => Ok(lines.into_iter().map(|(line,)| line).find(|line| line != "ok")),
            Err(error) => describe_damage(error).map(Some),
        }
    }

    async fn list_or_report<T: FromSqlRow>(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        report: &mut DamageReporter<'_>,
    ) -> Result<Vec<T>> {
        ok_or_report(self.engine.list(sql, values).await, "", report).map(Option::unwrap_or_default)
    }

    async fn check_engine(&self, depth: CatalogCheckDepth, report: &mut DamageReporter<'_>) -> Result<()> {
        let readers = match &*self.engine {
            DatabaseEngine::Sqlite { readers, .. } => readers,
            DatabaseEngine::Postgres(pool) => return check_postgres(&pool.pool, report).await,
        };
        check_partial_indexes(&readers.pool, report).await?;
        let sql = match depth {
            CatalogCheckDepth::Quick => "PRAGMA quick_check(100)",
            CatalogCheckDepth::Full => "PRAGMA integrity_check(100)",
        };
        let lines: Vec<(String,)> = self.list_or_report(sql, &[], report).await?;
        lines.into_iter().filter(|(line,)| line != "ok").for_each(|(line,)| report(line));
        let sql = "SELECT \"table\", \"parent\", COUNT(*) FROM pragma_foreign_key_check GROUP BY 1, 2";
        for (table, parent, rows) in self.list_or_report::<(String, String, i64)>(sql, &[], report).await? {
            report(format!("rows in {table} that refer to missing rows in {parent}: {rows}"));
        }
        for (table, last) in self.list_or_report::<(String, i64)>(STALE_SEQUENCES_SQL, &[], report).await? {
            report(format!("sqlite_sequence: IDs in {table} up to {last} are in use but would be assigned again"));
        }
        Ok(())
    }

    async fn check_table(
        &self,
        table: &str,
        start_key: PrimaryKey,
        sql: &'static str,
        check: fn(&SqlRow) -> Result<()>,
        report: &mut DamageReporter<'_>,
    ) -> Result<()> {
        let mut last = start_key;
        loop {
            let decode = |row: &SqlRow| match check(row) {
                // A value whose type differs from the type of its column makes the whole page unreadable.
                Err(error @ CatalogError::Database(_)) => Err(error),
                checked => Ok((last.read_from(row)?, checked)),
            };
            let page = self.engine.list_with(sql, &last.to_values(), decode).await;
            let after = if let PrimaryKey::Text(_) = last { "" } else { ", after" };
            // Rows after an unreadable page are not checked.
            let page = ok_or_report(page, format_args!("{table}{after}{last}: "), report)?.unwrap_or_default();
            let Some((key, _)) = page.last() else { return Ok(()) };
            last = key.clone();
            for (key, mut checked) in page {
                match (&key, table) {
                    (PrimaryKey::Pair(dataset, number), "versions") if checked.is_ok() => {
                        checked = self.check_version(*dataset, *number).await;
                    }
                    (PrimaryKey::Text(text), "sessions" | "api_tokens") if !is_sha256_hex(text) => {
                        report(format!("{table}: a key is not a valid hash"));
                    }
                    _ => {}
                }
                ok_or_report(checked, format_args!("{table}{key}: "), report)?;
            }
        }
    }

    async fn check_version(&self, dataset: i64, number: i64) -> Result<()> {
        let id = DatasetId::new(to_unsigned(dataset, "versions.dataset_id")?);
        let number = VersionNumber::new(to_unsigned(number, "versions.version_number")?);
        self.resolve_read(id, VersionSelector::Number(number)).await.map(drop)
    }

    async fn check_cross_table_rules(&self, report: &mut DamageReporter<'_>) -> Result<()> {
        let sql = "SELECT hold_id FROM file_holds WHERE hold_id = $1";
        if ok_or_report(self.engine.has_row(sql, &[SqlValue::Integer(Some(0))]).await, "", report)? == Some(false) {
            report("file_holds 0: the row is missing, so sweeps and backups do not wait for each other".to_owned());
        }
        let sql = "SELECT CAST(scrub_id AS BIGINT) FROM scrub_progress WHERE scrub_id = $1";
        if ok_or_report(self.engine.has_row(sql, &[SqlValue::Integer(Some(0))]).await, "", report)? == Some(false) {
            report("scrub_progress 0: the row is missing, so files are never scrubbed".to_owned());
        }
        let sql = "SELECT d.dataset_id, COALESCE(d.latest_version, 0), COUNT(v.version_number),
                          COALESCE(MAX(v.version_number), 0)
                   FROM datasets d LEFT JOIN versions v ON v.dataset_id = d.dataset_id
                   GROUP BY d.dataset_id, d.latest_version
                   HAVING COALESCE(d.latest_version, 0) <> COUNT(v.version_number)
                       OR COALESCE(d.latest_version, 0) <> COALESCE(MAX(v.version_number), 0)
                   ORDER BY d.dataset_id LIMIT $1";
        let differing: Vec<(i64, i64, i64, i64)> =
            self.list_or_report(sql, &[MAX_REPORTED_ROWS.into()], report).await?;
        for (dataset, latest, count, last) in differing {
            report(format!(
                "dataset {dataset}: the recorded latest version is {latest}, but there are {count} versions, numbered \
                 up to {last}"
            ));
        }
        let sql = "SELECT file_id FROM files f WHERE unreferenced_since IS NULL
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE file_id = f.file_id)
                     AND NOT EXISTS (SELECT 1 FROM versions WHERE alt_file_id = f.file_id)
                     AND NOT EXISTS (SELECT 1 FROM file_bases WHERE base_file_id = f.file_id)
                   ORDER BY file_id LIMIT $1";
        let unmarked: Vec<(i64,)> = self.list_or_report(sql, &[MAX_REPORTED_ROWS.into()], report).await?;
        for (file,) in unmarked {
            report(format!("files {file}: nothing refers to the file, but the file is not marked as unreferenced"));
        }
        let sql = "SELECT b.file_id, b.base_file_id FROM file_bases b
                   LEFT JOIN files f ON f.file_id = b.file_id
                   LEFT JOIN files base ON base.file_id = b.base_file_id
                   WHERE f.file_id IS NULL OR base.file_id IS NULL
                   ORDER BY 1, 2 LIMIT $1";
        let incomplete: Vec<(i64, i64)> = self.list_or_report(sql, &[MAX_REPORTED_ROWS.into()], report).await?;
        for (file, base) in incomplete {
            report(format!("file_bases {file} {base}: the file or its base file has no record"));
        }
        let wrong: Vec<(i64,)> =
            self.list_or_report(FILES_WITH_WRONG_BASES_SQL, &[MAX_REPORTED_ROWS.into()], report).await?;
        for (file,) in wrong {
            report(format!("files {file}: rows of file_bases were lost or changed, so sweeps remove no recorded file"));
        }
        Ok(())
    }
}

/// Returns the text of an error that shows damage. Any other error prevents the check from continuing.
fn describe_damage(error: CatalogError) -> Result<String> {
    match error {
        CatalogError::InvalidColumnValue { .. } | CatalogError::DamagedRecord { .. } => Ok(error.to_string()),
        CatalogError::DamagedDatabase { source, .. } => Ok(source.to_string()),
        CatalogError::Database(
            source @ (sqlx::Error::Database(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)),
        ) => Ok(source.to_string()),
        other => Err(other),
    }
}

/// Returns the value of a result. If the result is an error that shows damage, reports it and returns `None`. Any other
/// error ends the whole check.
fn ok_or_report<T>(result: Result<T>, prefix: impl fmt::Display, report: &mut DamageReporter<'_>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            report(format!("{prefix}{}", describe_damage(error)?));
            Ok(None)
        }
    }
}

/// Compares the entry count of each partial index with the row count, because SQLite's check misses surplus entries.
async fn check_partial_indexes(pool: &sqlx::SqlitePool, report: &mut DamageReporter<'_>) -> Result<()> {
    let sql = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'";
    let indexes: sqlx::Result<Vec<(String, String, String)>> = sqlx::query_as(sql).fetch_all(pool).await;
    for (index, table, sql) in ok_or_report(indexes.map_err(CatalogError::from), "", report)?.unwrap_or_default() {
        let Some((_, condition)) = sql.split_once(" WHERE ") else { continue };
        // The statement is safe: index names and conditions come from the migrations, and the connection is read-only.
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM {table} INDEXED BY {index} WHERE {condition})
                  - (SELECT COUNT(*) FROM {table} NOT INDEXED WHERE {condition})"
        );
        let surplus =
            sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(pool).await.map_err(CatalogError::from);
        if let Some(surplus) = ok_or_report(surplus, format_args!("the index {index}: "), report)?
            && surplus != 0
        {
            report(format!("the index {index} does not match {table}: entry count minus row count is {surplus}"));
        }
    }
    Ok(())
}

/// Checks the indexes of PostgreSQL on a separate connection, without a statement timeout.
async fn check_postgres(pool: &sqlx::PgPool, report: &mut DamageReporter<'_>) -> Result<()> {
    let mut connection = pool.connect_options().as_ref().clone().connect().await?;
    let invalid: Vec<(String,)> = sqlx::query_as(
        "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = current_schema() AND NOT (i.indisvalid AND i.indisready)",
    )
    .fetch_all(&mut connection)
    .await?;
    invalid.into_iter().for_each(|(index,)| report(format!("the index {index} is invalid")));

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
        // The statement is safe: both names come from the system catalogs of PostgreSQL, already quoted.
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
                _ => report(format!("the index {index}: {}", describe_damage(error.into())?)),
            }
        }
    }
    Ok(connection.close().await?)
}

fn check_record<R: FromSqlRow>(row: &SqlRow) -> Result<()> {
    R::from_row(row).map(drop)
}

fn check_user(row: &SqlRow) -> Result<()> {
    let key: String = row.get("email_key")?;
    let user = User::from_row(row)?;
    if key == normalize_email(&user.email) { Ok(()) } else { Err(CatalogError::invalid_value("users.email_key", key)) }
}

fn check_dataset(row: &SqlRow) -> Result<()> {
    let dataset = Dataset::from_row(row)?;
    match dataset.schedule {
        Some(schedule) if schedule.parse::<RefreshSchedule>().is_err() => {
            Err(CatalogError::invalid_value("datasets.schedule", schedule))
        }
        _ => Ok(()),
    }
}

fn is_sha256_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn check_dataset_internal_columns(row: &SqlRow) -> Result<()> {
    let id: i64 = row.get("dataset_id")?;
    let url: Option<&str> = row.get("validated_url")?;
    let etag: Option<&str> = row.get("source_etag")?;
    let last_modified: Option<&str> = row.get("source_last_modified")?;
    let checksum = row.get("validators_checksum")?;
    row.get_optional_time("datasets.next_run_at")?;
    row.get_unsigned("datasets.webhook_registrations")?;
    verify_checks(id, row.get("checks")?, row.get("checks_checksum")?)?;
    validators_checksum(id, url, etag, last_modified).verify(checksum, || validators::validators_record_name(id))?;
    match (url, etag.or(last_modified)) {
        (None, Some(value)) => Err(CatalogError::invalid_value("datasets.source_etag", value)),
        _ => Ok(()),
    }
}

fn check_file(row: &SqlRow) -> Result<()> {
    let hash: String = row.get("content_hash")?;
    row.get_unsigned("files.file_id")?;
    row.get_unsigned("files.size_bytes")?;
    row.get_unsigned("files.entity_count")?;
    row.get_time("files.created_at")?;
    row.get_optional_time("files.unreferenced_since")?;
    if is_sha256_hex(&hash) { Ok(()) } else { Err(CatalogError::invalid_value("files.content_hash", hash)) }
}
