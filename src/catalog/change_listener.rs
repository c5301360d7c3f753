//! Notifies processes of changes that reads can see, with `NOTIFY` and `LISTEN` of PostgreSQL. A transaction with such
//! a change sends an empty notification, which PostgreSQL delivers at the commit. The notification is only a hint to
//! look again: a process without a connection does not receive it, and SQLite has no such mechanism, so all processes
//! must poll, too. `NOTIFY` takes a server-wide lock until the commit, so only rare transactions send a notification.

use std::io;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};

use super::database_engine::{CatalogTransaction, DatabaseEngine};
use super::{Catalog, Result};

const NOTIFY_CHANNEL: &str = "strata_changes";

/// The time without notifications after which the listener tests its connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// The maximum time to open the listener's connection, and to receive the response to a connection test.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

pub struct ChangeListener {
    listener: PgListener,
}

impl Catalog {
    /// Starts to listen for changes on a separate connection. Returns `None` with SQLite.
    pub async fn listen_for_changes(&self) -> Result<Option<ChangeListener>> {
        let DatabaseEngine::Postgres(pool) = &*self.engine else { return Ok(None) };
        let options = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool =
            options.acquire_timeout(RESPONSE_TIMEOUT).connect_lazy_with(pool.pool.connect_options().as_ref().clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // With eager reconnection, the listener reports each lost connection, regardless of the cause.
        listener.eager_reconnect(true);
        listener.listen(NOTIFY_CHANNEL).await?;
        Ok(Some(ChangeListener { listener }))
    }
}

impl ChangeListener {
    /// Waits for a notification of a change or for a reconnection, because listeners miss changes during interruptions.
    pub async fn wait_for_change(&mut self) -> Result<()> {
        loop {
            match tokio::time::timeout(KEEPALIVE_INTERVAL, self.listener.try_recv()).await {
                // `try_recv` returns `None` after a reconnection, which `recv` would hide.
                Ok(notification) => break drop(notification?),
                Err(_) => self.check_connection().await?,
            }
        }
        while self.listener.next_buffered().is_some() {}
        Ok(())
    }

    /// Tests the connection to the database server, because a server that has crashed might not have closed it.
    async fn check_connection(&mut self) -> Result<(), sqlx::Error> {
        let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "the database server is not responding").into();
        let response =
            tokio::time::timeout(RESPONSE_TIMEOUT, sqlx::query("SELECT 1").execute(&mut self.listener)).await;
        response.map_err(timed_out).flatten().map(drop)
    }
}

impl CatalogTransaction {
    pub(super) async fn notify_change(&mut self) -> Result<()> {
        match self {
            CatalogTransaction::Sqlite(_) => Ok(()),
            CatalogTransaction::Postgres(_) => self.execute("NOTIFY strata_changes", &[]).await.map(drop),
        }
    }
}
