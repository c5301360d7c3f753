//! How an SQLite file is opened.
//!
//! 1. One connection, without foreign keys, switches the file to write-ahead logging and runs the
//!    migrations, all in one `BEGIN IMMEDIATE` transaction: of several processes that open a new file at
//!    once, one makes the tables and the others find them.
//! 2. The writer and the readers connect while that connection is still open, so that none of them meets
//!    the moment in which the last connection to close removes the log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection};
use tokio::time::{Instant, sleep};

use super::CatalogError;
use super::engine::Engine;

static MIGRATIONS: Migrator = sqlx::migrate!("sql/sqlite");

/// How long a connection waits for another process's transaction. Transactions here take milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How many connections read at once. Each has a thread and a page cache of 2 MB; a look-up takes tens
/// of microseconds, so a few serve any number of requests.
const READERS: u32 = 4;

/// The path of an SQLite URL, as it stands there; `None` if the URL is no SQLite URL.
pub(super) fn path_of(url: &str) -> Option<&str> {
    url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"))
}

/// Opens the file at `path`, making it and its directory if they are missing.
pub(super) async fn open(path: &str) -> Result<Engine, CatalogError> {
    if path.is_empty() || path == ":memory:" {
        return Err(CatalogError::InvalidUrl {
            url: format!("sqlite:{path}"),
            reason: "it must name a file".to_owned(),
        });
    }
    // SQLite takes a name that begins with `file:` for a URL of its own; with `./` before it, it does not.
    let file: PathBuf = match Path::new(path) {
        absolute if absolute.is_absolute() => absolute.to_owned(),
        relative => Path::new(".").join(relative),
    };
    if let Some(directory) = file.parent() {
        tokio::fs::create_dir_all(directory)
            .await
            .map_err(|source| CatalogError::Directory { path: path.to_owned(), source })?;
    }

    let options = SqliteConnectOptions::new()
        .filename(&file)
        .busy_timeout(BUSY_TIMEOUT)
        // A commit is on the disk before it is answered: what a webhook delivery claimed must stay so.
        .synchronous(SqliteSynchronous::Full);
    let mut migrating = connect_first(&options).await?;
    migrate(&mut migrating).await?;
    let writer = pool(options.clone(), 1).await?;
    let readers = pool(options.pragma("query_only", "ON"), READERS).await?;
    migrating.close().await?;
    Ok(Engine::Sqlite { readers, writer })
}

/// The connection that makes the file and switches it to write-ahead logging, which lasts.
///
/// The switch does not wait for a lock as everything else does, so it is tried until it succeeds.
async fn connect_first(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let options = options
        .clone()
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // A migration that rebuilds a table drops the one that others refer to.
        .foreign_keys(false);
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match options.connect().await {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                sleep(Duration::from_millis(10)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Runs the migrations that the file has not seen, all of them or none.
async fn migrate(connection: &mut SqliteConnection) -> Result<(), CatalogError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    // `run`, which is the same, makes futures that the compiler cannot prove to be `Send`.
    MIGRATIONS.run_direct(None, &mut *transaction, false).await?;
    transaction.commit().await?;
    Ok(())
}

/// Connections that stay open: to a file there is no reason to renew or test them.
async fn pool(options: SqliteConnectOptions, size: u32) -> Result<SqlitePool, sqlx::Error> {
    SqlitePoolOptions::new()
        .max_connections(size)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await
}

/// Whether the error is `SQLITE_BUSY` or an extended form of it.
fn is_busy(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: i32 = 5;
    error
        .as_database_error()
        .and_then(|error| error.code()?.parse::<i32>().ok())
        .is_some_and(|code| code & 0xff == SQLITE_BUSY)
}
