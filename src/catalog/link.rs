//! Lends connections, and discards those that are no longer sound.
//!
//! A connection is discarded after any failure other than a rule of the tables. For example, after a full disk SQLite
//! has ended the transaction by itself. The driver does not know this and would refuse every later transaction. The
//! release of a connection shows what a cancelled call has left (`sqlite.rs`). A connection to a server whose `BEGIN`
//! was cut is not given back at all.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::ErrorKind;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, Database, Pool, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

use super::outage::{Attempt, Outage};

/// How long a call waits for a connection before it tries whether one can be made.
const LOOK: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) struct Link<DB: Database> {
    pub(super) pool: Pool<DB>,
    /// How long a statement may take, and whether the server is down; `None` where there is no server.
    pub(super) server: Option<Server>,
    pub(super) file: Option<Arc<OpenedFile>>,
    pub(super) writes: bool,
}

/// The SQLite file that was opened. SQLite would also write to it, for nothing, when it has lost its name.
#[derive(Debug)]
pub(super) struct OpenedFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the metadata database file was deleted or replaced")]
pub(super) struct Replaced;

impl OpenedFile {
    pub(super) fn named(path: &Path) -> io::Result<OpenedFile> {
        let metadata = std::fs::metadata(path)?;
        Ok(OpenedFile { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }

    /// Whether the file still has its name. One system call.
    pub(super) fn check(&self) -> Result<(), sqlx::Error> {
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
            _ => Err(io::Error::other(Replaced).into()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    pub wait: Duration,
    pub statement: Duration,
    pub outage: Arc<Outage>,
}

/// A connection in use, perhaps with an open transaction. The transaction leaves no trace unless it is committed.
pub(super) struct Lent<DB: Database> {
    connection: Option<PoolConnection<DB>>,
    server: Option<Server>,
    file: Option<Arc<OpenedFile>>,
    open: bool,
    running: bool,
}

impl<DB: Database> Link<DB> {
    fn written(&self) -> Option<&Arc<OpenedFile>> {
        self.file.as_ref().filter(|_| self.writes)
    }

    /// A connection to a file. While the file has another place, there are only those that were made before.
    async fn local(&self) -> Result<PoolConnection<DB>, sqlx::Error> {
        match self.pool.acquire().await {
            // SQLite says of a file that is not there that it cannot be opened; of another one the pool waits in vain.
            Err(error) => self.file.as_ref().map_or(Ok(()), |file| file.check()).and(Err(error)),
            acquired => acquired,
        }
    }

    pub(super) async fn lend(&self) -> Result<Lent<DB>, sqlx::Error> {
        let connection = match &self.server {
            None => self.local().await?,
            Some(Server { wait, outage, .. }) => {
                let Some(attempt) = outage.attempt() else { return Err(no_answer()) };
                let acquired = tokio::select! {
                    biased;
                    acquired = self.pool.acquire() => acquired,
                    error = self.refused(outage, &attempt) => Err(error),
                };
                match acquired {
                    Ok(connection) => {
                        outage.succeeded();
                        connection
                    }
                    Err(sqlx::Error::PoolTimedOut) if outage.waited_in_vain(*wait) => return Err(no_answer()),
                    Err(error) => {
                        if is_broken(&error) {
                            outage.refused();
                        }
                        return Err(error);
                    }
                }
            }
        };
        Ok(Lent {
            connection: Some(connection),
            server: self.server.clone(),
            file: self.written().cloned(),
            open: false,
            running: false,
        })
    }

    /// Completes with the reason when no connection can be made. The pool itself would try for as long as it waits for
    /// one of its own connections. One call at a time tries, and only while nothing else shows that the server answers.
    async fn refused(&self, outage: &Outage, attempt: &Attempt<'_>) -> sqlx::Error {
        let mut pause = if attempt.probes() { Duration::ZERO } else { LOOK };
        loop {
            tokio::time::sleep(std::mem::replace(&mut pause, LOOK)).await;
            if outage.is_down() && !attempt.probes() {
                return no_answer();
            }
            if outage.succeeded_within(LOOK) {
                continue;
            }
            let Some(look) = outage.look() else { continue };
            match DB::Connection::connect_with(&self.pool.connect_options()).await {
                Ok(_) => outage.succeeded(),
                Err(error @ sqlx::Error::Io(_)) => return error,
                Err(_) => {}
            }
            drop(look);
        }
    }

    pub(super) async fn begin(&self, statement: &'static str) -> Result<Lent<DB>, sqlx::Error> {
        if let Some(file) = self.written() {
            file.check()?;
        }
        let mut lent = self.lend().await?;
        match lent.begin(statement).await {
            // Nothing is done yet, so after a connection that broke while it was idle one more try is safe.
            Err(error) if lent.is_discarded() && self.server.is_some() && is_broken(&error) => {
                lent = self.lend().await?;
                lent.begin(statement).await?;
            }
            begun => begun?,
        }
        Ok(lent)
    }
}

impl<DB: Database> Lent<DB> {
    /// The connection, for one statement, and how long that may take. [`Lent::judge`] takes its outcome.
    pub(super) fn statement(&mut self) -> Result<(&mut DB::Connection, Option<Duration>), sqlx::Error> {
        let timeout = self.server.as_ref().map(|server| server.statement);
        let discarded = || io::Error::new(io::ErrorKind::NotConnected, "the connection has already failed");
        let connection = self.connection.as_mut().ok_or_else(discarded)?;
        self.running = true;
        Ok((&mut **connection, timeout))
    }

    /// Discards the connection if the statement's failure may have left it in a state that the driver does not know.
    pub(super) fn judge<T>(&mut self, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        let is_sound = outcome.as_ref().err().is_none_or(leaves_sound);
        self.judge_as(is_sound, outcome)
    }

    fn judge_as<T>(&mut self, is_sound: bool, outcome: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.running = false;
        match (&outcome, &self.server) {
            (Err(error), _) if !is_sound => self.discard(error),
            (_, Some(server)) => server.outage.succeeded(),
            _ => {}
        }
        outcome
    }

    pub(super) fn is_discarded(&self) -> bool {
        self.connection.is_none()
    }

    async fn begin(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        self.open = true;
        let (connection, timeout) = self.statement()?;
        let begun = within(timeout, DB::TransactionManager::begin(connection, Some(statement.into_sql_str()))).await;
        // No failure of a begin or a commit leaves the connection sound.
        self.judge_as(begun.is_ok(), begun)
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let (connection, timeout) = self.statement()?;
        let committed = within(timeout, DB::TransactionManager::commit(connection)).await;
        let committed = self.judge_as(committed.is_ok(), committed);
        self.open = false;
        committed.and(self.file.as_ref().map_or(Ok(()), |file| file.check()))
    }

    fn discard(&mut self, error: &sqlx::Error) {
        if let Some(server) = &self.server
            && is_broken(error)
        {
            server.outage.connection_failed();
        }
        if let Some(connection) = self.connection.take() {
            // The connection is closed without a goodbye, because a server that hangs would not answer it.
            drop(connection.detach());
        }
    }
}

impl<DB: Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.open
            && self.running
            && self.server.is_some()
            && DB::TransactionManager::get_transaction_depth(&connection) == 0
        {
            // The driver counts a transaction only after the server's answer, and would not end one that it has not
            // counted. The next borrower of the connection would then read in this transaction.
            drop(connection.detach());
            return;
        }
        if self.open {
            DB::TransactionManager::start_rollback(&mut connection);
        }
        let Some(server) = self.server.as_ref().filter(|_| self.running) else { return };
        // The caller left in the middle of a statement. A release of the connection would wait for the statement's end,
        // for ever if the server hangs.
        let limit = server.statement;
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if !matches!(tokio::time::timeout(limit, connection.ping()).await, Ok(Ok(()))) {
                    drop(connection.detach());
                }
            });
        }
    }
}

pub(super) async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match limit {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the statement timed out").into())),
    }
}

/// Whether the statement failed by a rule of the tables, or only its row could not be read.
fn leaves_sound(error: &sqlx::Error) -> bool {
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

/// Whether the connection broke, rather than that the server refused a statement.
pub(super) fn is_broken(error: &sqlx::Error) -> bool {
    match error {
        // The server ends all sessions, or is not there yet.
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
        }
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}

fn no_answer() -> sqlx::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the database server is not responding").into()
}
