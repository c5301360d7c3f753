//! Opens an SQLite file.
//!
//! 1. One connection switches the file to write-ahead logging and runs the migrations in one `BEGIN IMMEDIATE`
//!    transaction. If several processes open a new file at once, one creates the tables and the others find them.
//! 2. The writer and the readers connect while the first connection is still open, because closing the last connection
//!    removes the write-ahead log, which must not happen while another one connects.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};
use strata_store::fsync;
use tokio::time::{Instant, sleep};

use super::connection_pool::{ConnectionPool, DatabaseFile};
use super::database_engine::{DatabaseEngine, new_migrator};
use super::{CatalogError, CatalogOptions, Result};

const SCHEMA_SQL: &str = include_str!("../../sql/sqlite/0001_initial.sql");

/// The number of concurrent readers. Each has a thread and a page cache of 2 MB; a lookup takes tens of microseconds.
const READER_CONNECTIONS: u32 = 4;

/// Opens the file at `path`, and creates it and its directory if necessary. `options.wait_timeout` limits the wait for
/// other calls of this process and for transactions of other processes.
pub(super) async fn open(path: &str, options: &CatalogOptions) -> Result<DatabaseEngine> {
    let wait = options.wait_timeout;
    let invalid = |reason: &str| CatalogError::InvalidUrl { url: format!("sqlite:{path}"), reason: reason.to_owned() };
    if path.is_empty() || path == ":memory:" {
        return Err(invalid("the URL must contain a file path"));
    }
    // SQLite interprets a name that starts with `file:` as a URL, unless `./` precedes it.
    let file: PathBuf = match Path::new(path) {
        absolute if absolute.is_absolute() => absolute.to_owned(),
        relative => Path::new(".").join(relative),
    };
    if let Some(directory) = file.parent() {
        fsync::create_dir_synced(directory)
            .map_err(|source| CatalogError::CreateDirectory { path: path.to_owned(), source })?;
    }
    // SQLite has no specific error for directories and pipes, so this check precedes the open.
    if std::fs::metadata(&file).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(invalid("it is not a regular file"));
    }

    let options = SqliteConnectOptions::new()
        .filename(&file)
        .busy_timeout(wait)
        // With `cell_size_check`, SQLite detects a page with overlapping cells before it uses the page, at little cost.
        .pragma("cell_size_check", "ON")
        // A commit must be durable before the call returns. Otherwise a claimed webhook could be sent twice.
        .synchronous(SqliteSynchronous::Full);
    let with_path = |error: CatalogError| error.with_file_context(path, &file);
    if is_foreign_database(&options, &file).await {
        return Err(CatalogError::ForeignDatabase { path: path.to_owned() });
    }
    let mut migrating = connect_with_wal(&options, wait).await.map_err(|error| with_path(error.into()))?;
    migrate(&mut migrating).await.map_err(with_path)?;
    let opened = DatabaseFile::from_path(&file)
        .map_err(|source| CatalogError::CreateDirectory { path: path.to_owned(), source })?;
    let opened = Arc::new(opened);
    let writer = open_pool(options.clone(), 1, wait, &opened).await?;
    let readers = open_pool(options.pragma("query_only", "ON"), READER_CONNECTIONS, wait, &opened).await?;
    migrating.close().await?;
    Ok(DatabaseEngine::Sqlite {
        readers: ConnectionPool { pool: readers, server: None, file: Some(opened.clone()), is_writable: false },
        writer: ConnectionPool { pool: writer, server: None, file: Some(opened), is_writable: true },
    })
}

/// Creates the SQLite file if necessary and enables write-ahead logging. Retries while the file is busy, because the
/// busy timeout of SQLite does not apply to this change.
async fn connect_with_wal(options: &SqliteConnectOptions, wait: Duration) -> Result<SqliteConnection, sqlx::Error> {
    let options = options.clone().create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let deadline = Instant::now() + wait;
    loop {
        match options.connect().await {
            Err(error) if is_busy_error(&error) && Instant::now() < deadline => {
                sleep(Duration::from_millis(10)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Returns whether the SQLite file has tables, but none of strata's; `false` if the file cannot be read.
async fn is_foreign_database(options: &SqliteConnectOptions, file: &Path) -> bool {
    if std::fs::metadata(file).is_ok_and(|metadata| metadata.len() == 0) {
        return false;
    }
    let Ok(mut connection) = options.clone().read_only(true).connect().await else { return false };
    let sql = "SELECT COUNT(*), COALESCE(SUM(name = 'datasets'), 0) FROM sqlite_master
               WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'";
    let tables = sqlx::query_as::<_, (i64, i64)>(sql).fetch_one(&mut connection).await;
    let _ = connection.close().await;
    tables.is_ok_and(|(all, of_catalog)| all > 0 && of_catalog == 0)
}

async fn migrate(connection: &mut SqliteConnection) -> Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // `Migrator::run` does the same, but the compiler cannot prove that its future is `Send`.
    new_migrator(SCHEMA_SQL).run_direct(None, &mut *transaction, false).await?;
    transaction.commit().await?;
    Ok(())
}

/// Opens `size` permanent connections to the file, so that reads continue after the file is moved. A connection to a
/// later file of the same name is an error. A connection that is released inside a transaction is closed: its call was
/// canceled, or SQLite rolled back by itself, and the driver would reject a new transaction.
async fn open_pool(
    options: SqliteConnectOptions,
    size: u32,
    wait: Duration,
    opened: &Arc<DatabaseFile>,
) -> Result<SqlitePool, sqlx::Error> {
    let opened = opened.clone();
    let pool = SqlitePoolOptions::new()
        .max_connections(size)
        .acquire_timeout(wait)
        .after_connect(move |_, _| {
            let outcome = opened.check_not_replaced();
            Box::pin(async move { outcome })
        })
        .after_release(|connection, _| {
            Box::pin(async move {
                // The ping waits until the connection's thread has done its earlier work, above all a rollback.
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await?;
    let mut connections = Vec::new();
    for _ in 0..size {
        connections.push(pool.acquire().await?);
    }
    drop(connections);
    Ok(pool)
}

fn is_busy_error(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: i32 = 5;
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

#[cfg(test)]
mod tests {
    use super::super::database_engine::CatalogTransaction;
    use super::*;

    #[tokio::test]
    async fn transaction_ended_by_sqlite_ends_its_connection() {
        let directory = tempfile::tempdir().expect("failed to create directory");
        let path = directory.path().join("catalog.sqlite");
        let engine = open(path.to_str().expect("the path is not UTF-8"), &CatalogOptions::default())
            .await
            .expect("failed to open database");
        let large_insert = "INSERT INTO sessions (session_hash, data, created_at, expires_at)
                            VALUES (hex(randomblob(20)), hex(zeroblob(100000)), 1, 1)";
        for caller_observes_failure in [true, false, false, true] {
            let Ok(CatalogTransaction::Sqlite(mut pooled)) = engine.begin().await else {
                panic!("failed to begin an SQLite transaction")
            };
            for (sql, fails) in [
                ("PRAGMA max_page_count = 1", false),
                ("INSERT INTO write_probes VALUES (1, 1)", false),
                (large_insert, true),
            ] {
                let (connection, _) = pooled.begin_statement().expect("the connection was discarded");
                let outcome = sqlx::query(sql).execute(connection).await;
                assert_eq!(outcome.is_err(), fails, "{outcome:?}");
                if caller_observes_failure && fails {
                    assert!(pooled.finish_statement(outcome).is_err() && pooled.is_discarded());
                }
            }
            drop(pooled);
            // The next transaction sees neither the rows nor the `max_page_count` of the failed transaction.
            assert_eq!(engine.write(large_insert, &[]).await.expect("failed to write"), 1);
            let probes: Vec<(i64,)> =
                engine.list("SELECT probe_id FROM write_probes", &[]).await.expect("failed to read");
            assert_eq!(probes, [], "the rows of the failed transaction are visible");
        }
        engine.close().await;
    }
}
