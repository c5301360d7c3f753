//! Opens an SQLite file.
//!
//! 1. One connection switches the file to write-ahead logging and runs the migrations, all in one `BEGIN IMMEDIATE`
//!    transaction: of several processes that open a new file at once, one creates the tables and the others find them.
//! 2. The writer and the readers connect while that connection is still open, so that none of them meets
//!    the moment in which the last connection to close removes the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};
use strata_store::durable;
use tokio::time::{Instant, sleep};

use super::engine::{Engine, migrator};
use super::link::{Link, OpenedFile};
use super::{CatalogError, CatalogOptions, Result};

const SCHEMA: &str = include_str!("../../sql/sqlite/0001_initial.sql");

/// Connections that read at once: each a thread and a page cache of 2 MB. A look-up takes tens of microseconds.
const READERS: u32 = 4;

/// Opens the file at `path`, making it and its directory if they are missing.
///
/// `options.wait` bounds the wait for other calls of this process, and the wait for a transaction of another process.
/// Transactions here take milliseconds.
pub(super) async fn open(path: &str, options: &CatalogOptions) -> Result<Engine> {
    let wait = options.wait;
    if path.is_empty() || path == ":memory:" {
        return Err(CatalogError::InvalidUrl {
            url: format!("sqlite:{path}"),
            reason: "the URL must contain a file path".to_owned(),
        });
    }
    // SQLite takes a name that begins with `file:` for a URL of its own. `./` before the name prevents that.
    let file: PathBuf = match Path::new(path) {
        absolute if absolute.is_absolute() => absolute.to_owned(),
        relative => Path::new(".").join(relative),
    };
    if let Some(directory) = file.parent() {
        durable::create_directory(directory)
            .map_err(|source| CatalogError::Directory { path: path.to_owned(), source })?;
    }
    // SQLite has no words for a directory, nor for a pipe.
    if std::fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
        let reason = "it is not a regular file".to_owned();
        return Err(CatalogError::InvalidUrl { url: format!("sqlite:{path}"), reason });
    }

    let options = SqliteConnectOptions::new()
        .filename(&file)
        .busy_timeout(wait)
        // SQLite then notices a page whose cells overlap before it uses the page. Costs little.
        .pragma("cell_size_check", "ON")
        // A commit is on the disk before it is answered: the claim of a webhook delivery must last.
        .synchronous(SqliteSynchronous::Full);
    let named = |error: CatalogError| error.of_file(path, &file);
    if is_of_another_program(&options, &file).await {
        return Err(CatalogError::Foreign { path: path.to_owned() });
    }
    let mut migrating = connect_first(&options, wait).await.map_err(|error| named(error.into()))?;
    migrate(&mut migrating).await.map_err(named)?;
    let opened =
        OpenedFile::named(&file).map_err(|source| CatalogError::Directory { path: path.to_owned(), source })?;
    let opened = Arc::new(opened);
    let writer = pool(options.clone(), 1, wait, &opened).await?;
    let readers = pool(options.pragma("query_only", "ON"), READERS, wait, &opened).await?;
    migrating.close().await?;
    Ok(Engine::Sqlite {
        readers: Link { pool: readers, server: None, file: Some(opened.clone()), writes: false },
        writer: Link { pool: writer, server: None, file: Some(opened), writes: true },
    })
}

/// The connection that makes the file and switches it to write-ahead logging, for good. The switch does not wait for a
/// lock, so it is tried until it succeeds.
async fn connect_first(options: &SqliteConnectOptions, wait: Duration) -> Result<SqliteConnection, sqlx::Error> {
    let options = options.clone().create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let deadline = Instant::now() + wait;
    loop {
        match options.connect().await {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                sleep(Duration::from_millis(10)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Whether a file has tables, none of which is of a catalog. `false` where reading fails: opening it then says why.
async fn is_of_another_program(options: &SqliteConnectOptions, file: &Path) -> bool {
    if std::fs::metadata(file).is_ok_and(|found| found.len() == 0) {
        return false;
    }
    let Ok(mut reading) = options.clone().read_only(true).connect().await else { return false };
    let sql = "SELECT COUNT(*), COALESCE(SUM(name = 'datasets'), 0) FROM sqlite_master
               WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'";
    let tables = sqlx::query_as::<_, (i64, i64)>(sql).fetch_one(&mut reading).await;
    let _ = reading.close().await;
    tables.is_ok_and(|(all, of_catalog)| all > 0 && of_catalog == 0)
}

async fn migrate(connection: &mut SqliteConnection) -> Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // `run`, which is the same, makes futures that the compiler cannot prove to be `Send`.
    migrator(SCHEMA).run_direct(None, &mut *transaction, false).await?;
    transaction.commit().await?;
    Ok(())
}

/// Connections that stay open. All are to the file that was opened first, not to a later file of the same name. All are
/// made now, so that reads continue when the file is moved.
///
/// A connection that is released in a transaction is closed: its call was dropped, and SQLite ended the transaction by
/// itself. The driver takes the transaction to be open, and would refuse to begin another.
async fn pool(
    options: SqliteConnectOptions,
    size: u32,
    wait: Duration,
    opened: &Arc<OpenedFile>,
) -> Result<SqlitePool, sqlx::Error> {
    let opened = opened.clone();
    let pool = SqlitePoolOptions::new()
        .max_connections(size)
        .acquire_timeout(wait)
        .after_connect(move |_, _| {
            let outcome = opened.check();
            Box::pin(async move { outcome })
        })
        .after_release(|connection, _| {
            Box::pin(async move {
                // Earlier work of its thread, above all the rollback, is done first.
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await?;
    let mut all = Vec::new();
    for _ in 0..size {
        all.push(pool.acquire().await?);
    }
    drop(all);
    Ok(pool)
}

fn is_busy(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: i32 = 5;
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

#[cfg(test)]
mod tests {
    use super::super::engine::Transaction;
    use super::*;

    #[tokio::test]
    async fn transaction_ended_by_sqlite_ends_its_connection() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("catalog.sqlite");
        let engine = open(path.to_str().expect("UTF-8"), &CatalogOptions::default()).await.expect("it opens");
        let large_insert = "INSERT INTO sessions (session_hash, data, created_at, expires_at)
                            VALUES (hex(randomblob(20)), hex(zeroblob(100000)), 1, 1)";
        // Whether the caller learns of the failure, or was cancelled before.
        for learns in [true, false, false, true] {
            let Ok(Transaction::Sqlite(mut lent)) = engine.begin().await else { panic!("no transaction of SQLite") };
            for (sql, fails) in [
                ("PRAGMA max_page_count = 1", false),
                ("INSERT INTO write_probes VALUES (1, 1)", false),
                (large_insert, true),
            ] {
                let (connection, _) = lent.statement().expect("a connection");
                let outcome = sqlx::query(sql).execute(connection).await;
                assert_eq!(outcome.is_err(), fails, "{outcome:?}");
                if learns && fails {
                    assert!(lent.judge(outcome).is_err() && lent.is_discarded());
                }
            }
            drop(lent);
            // The next one meets no trace of it, nor its limit.
            assert_eq!(engine.write(large_insert, &[]).await.expect("written"), 1);
            let probes: Vec<(i64,)> = engine.list("SELECT probe_id FROM write_probes", &[]).await.expect("read");
            assert_eq!(probes, [], "what it had written is not there");
        }
        engine.close().await;
    }
}
