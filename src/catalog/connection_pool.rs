//! A connection pool that discards connections in an unknown state. A connection is discarded after every failure
//! except a constraint violation. For example, when the disk is full, SQLite rolls back the transaction. The driver
//! does not notice this and would reject every later transaction on the connection. The release hook in `sqlite.rs`
//! handles connections of canceled calls. Server connections with an interrupted `BEGIN` never return to the pool.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::ErrorKind;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, Database, Pool, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

use super::circuit_breaker::{BreakerPermit, DatabaseCircuitBreaker};

/// The time that a call waits for a pooled connection before it tests whether the server accepts new connections.
const PROBE_INTERVAL: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct ConnectionPool<DB: Database> {
    pub(super) pool: Pool<DB>,
    /// The timeouts and the circuit breaker of the PostgreSQL server; `None` for SQLite, which has no server.
    pub(super) server: Option<DatabaseServer>,
    pub(super) file: Option<Arc<DatabaseFile>>,
    pub(super) is_writable: bool,
}

/// The identity of the opened SQLite file. SQLite would continue to write to a deleted file, and lose those writes.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the metadata database file was deleted or replaced")]
pub(super) struct FileReplacedError;

impl DatabaseFile {
    pub(super) fn from_path(path: &Path) -> io::Result<DatabaseFile> {
        let metadata = std::fs::metadata(path)?;
        Ok(DatabaseFile { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }

    /// Returns an error if the path no longer leads to the opened SQLite file. Costs one system call.
    pub(super) fn check_not_replaced(&self) -> Result<(), sqlx::Error> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == (self.device, self.inode) => Ok(()),
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
            _ => Err(io::Error::other(FileReplacedError).into()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct DatabaseServer {
    pub acquire_timeout: Duration,
    pub statement_timeout: Duration,
    pub circuit_breaker: Arc<DatabaseCircuitBreaker>,
}

/// A connection in use. A transaction that is open on it is rolled back on drop unless it was committed.
pub(super) struct PooledConnection<DB: Database> {
    connection: Option<PoolConnection<DB>>,
    server: Option<DatabaseServer>,
    file: Option<Arc<DatabaseFile>>,
    in_transaction: bool,
    is_statement_running: bool,
}

impl<DB: Database> ConnectionPool<DB> {
    fn writable_file(&self) -> Option<&Arc<DatabaseFile>> {
        self.file.as_ref().filter(|_| self.is_writable)
    }

    /// Acquires a connection to the database file. After a move of the file, only already open connections work.
    async fn acquire_file_connection(&self) -> Result<PoolConnection<DB>, sqlx::Error> {
        match self.pool.acquire().await {
            // SQLite does not report a missing file, and the pool reports only a timeout if the file was replaced.
            Err(error) => self.file.as_ref().map_or(Ok(()), |file| file.check_not_replaced()).and(Err(error)),
            acquired => acquired,
        }
    }

    pub(super) async fn acquire(&self) -> Result<PooledConnection<DB>, sqlx::Error> {
        let connection = match &self.server {
            None => self.acquire_file_connection().await?,
            Some(DatabaseServer { acquire_timeout, circuit_breaker, .. }) => {
                let Some(permit) = circuit_breaker.try_acquire() else { return Err(not_responding_error()) };
                let acquired = tokio::select! {
                    biased;
                    acquired = self.pool.acquire() => acquired,
                    error = self.probe_until_refused(circuit_breaker, &permit) => Err(error),
                };
                match acquired {
                    Ok(connection) => {
                        circuit_breaker.record_success();
                        connection
                    }
                    Err(sqlx::Error::PoolTimedOut) if circuit_breaker.trip_if_no_success_within(*acquire_timeout) => {
                        return Err(not_responding_error());
                    }
                    Err(error) => {
                        if is_connection_error(&error) {
                            circuit_breaker.trip();
                        }
                        return Err(error);
                    }
                }
            }
        };
        Ok(PooledConnection {
            connection: Some(connection),
            server: self.server.clone(),
            file: self.writable_file().cloned(),
            in_transaction: false,
            is_statement_running: false,
        })
    }

    /// Completes with an error when the server rejects new connections. The pool itself would retry until its timeout.
    /// Only one call at a time probes, and only while no other call shows that the server responds.
    async fn probe_until_refused(&self, breaker: &DatabaseCircuitBreaker, permit: &BreakerPermit<'_>) -> sqlx::Error {
        let mut delay = if permit.is_probe() { Duration::ZERO } else { PROBE_INTERVAL };
        loop {
            tokio::time::sleep(std::mem::replace(&mut delay, PROBE_INTERVAL)).await;
            if breaker.is_open() && !permit.is_probe() {
                return not_responding_error();
            }
            if breaker.has_succeeded_within(PROBE_INTERVAL) {
                continue;
            }
            let Ok(guard) = breaker.connect_lock.try_lock() else { continue };
            match DB::Connection::connect_with(&self.pool.connect_options()).await {
                Ok(_) => breaker.record_success(),
                Err(error @ sqlx::Error::Io(_)) => return error,
                Err(_) => {}
            }
            drop(guard);
        }
    }

    pub(super) async fn begin(&self, statement: &'static str) -> Result<PooledConnection<DB>, sqlx::Error> {
        if let Some(file) = self.writable_file() {
            file.check_not_replaced()?;
        }
        let mut pooled = self.acquire().await?;
        match pooled.begin(statement).await {
            // A failed BEGIN has changed nothing, so a retry is safe if an idle connection turns out to be broken.
            Err(error) if pooled.is_discarded() && self.server.is_some() && is_connection_error(&error) => {
                pooled = self.acquire().await?;
                pooled.begin(statement).await?;
            }
            begun => begun?,
        }
        Ok(pooled)
    }
}

impl<DB: Database> PooledConnection<DB> {
    /// Returns the connection on which the caller can run a statement, and the timeout of the statement. Afterward, the
    /// caller must call [`PooledConnection::finish_statement`].
    pub(super) fn begin_statement(&mut self) -> Result<(&mut DB::Connection, Option<Duration>), sqlx::Error> {
        let timeout = self.server.as_ref().map(|server| server.statement_timeout);
        let discarded = || io::Error::new(io::ErrorKind::NotConnected, "the connection has already failed");
        let connection = self.connection.as_mut().ok_or_else(discarded)?;
        self.is_statement_running = true;
        Ok((&mut **connection, timeout))
    }

    /// Discards the connection if the failure of the statement might have left it in an unknown state.
    pub(super) fn finish_statement<T>(&mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.finish_or_discard(outcome.as_ref().err().is_none_or(leaves_connection_usable), outcome)
    }

    fn finish_or_discard<T>(&mut self, is_usable: bool, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.is_statement_running = false;
        match (&outcome, &self.server) {
            (Err(error), _) if !is_usable => self.discard(error),
            (_, Some(server)) => server.circuit_breaker.record_success(),
            _ => {}
        }
        outcome
    }

    pub(super) fn is_discarded(&self) -> bool {
        self.connection.is_none()
    }

    async fn begin(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        self.in_transaction = true;
        let (connection, timeout) = self.begin_statement()?;
        let begun =
            with_statement_timeout(timeout, DB::TransactionManager::begin(connection, Some(statement.into_sql_str())))
                .await;
        // After a failed BEGIN or COMMIT, the state of the connection is always unknown.
        self.finish_or_discard(begun.is_ok(), begun)
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let (connection, timeout) = self.begin_statement()?;
        let committed = with_statement_timeout(timeout, DB::TransactionManager::commit(connection)).await;
        let committed = self.finish_or_discard(committed.is_ok(), committed);
        self.in_transaction = false;
        committed.and(self.file.as_ref().map_or(Ok(()), |file| file.check_not_replaced()))
    }

    fn discard(&mut self, error: &sqlx::Error) {
        if let Some(server) = &self.server
            && is_connection_error(error)
        {
            server.circuit_breaker.record_connection_failure();
        }
        if let Some(connection) = self.connection.take() {
            // The connection is dropped without a proper close, which would wait for a server that might hang.
            drop(connection.detach());
        }
    }
}

impl<DB: Database> Drop for PooledConnection<DB> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.in_transaction
            && self.is_statement_running
            && self.server.is_some()
            && DB::TransactionManager::get_transaction_depth(&connection) == 0
        {
            // The driver counts a transaction only after the server's response, and does not roll back an uncounted
            // one. The next user of the connection would then read inside this transaction.
            drop(connection.detach());
            return;
        }
        if self.in_transaction {
            DB::TransactionManager::start_rollback(&mut connection);
        }
        let Some(server) = self.server.as_ref().filter(|_| self.is_statement_running) else { return };
        // The caller was canceled in the middle of a statement. Releasing the connection waits for the end of the
        // statement, which never comes if the server hangs. Therefore the wait has a timeout.
        let timeout = server.statement_timeout;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if !matches!(tokio::time::timeout(timeout, connection.ping()).await, Ok(Ok(()))) {
                    drop(connection.detach());
                }
            });
        }
    }
}

pub(super) async fn with_statement_timeout<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match timeout {
        None => work.await,
        Some(timeout) => tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the statement timed out").into())),
    }
}

/// Returns whether the error is a constraint violation or a decoding error, after which the connection is usable.
fn leaves_connection_usable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => !matches!(error.kind(), ErrorKind::Other),
        sqlx::Error::RowNotFound
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::Encode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => true,
        _ => false,
    }
}

/// Returns whether the connection broke, as opposed to a statement that the server rejected.
pub(super) fn is_connection_error(error: &sqlx::Error) -> bool {
    match error {
        // SQLSTATE codes 57P*: the server is terminating sessions or is not ready. Codes 08*: the connection failed.
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
        }
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}

fn not_responding_error() -> sqlx::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the database server is not responding").into()
}
