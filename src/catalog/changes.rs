//! What processes tell each other of changes that a read can see, by `NOTIFY` of PostgreSQL.
//!
//! A transaction that makes such a change tells of it, and PostgreSQL passes that on when it commits. The notification
//! is empty: something has changed, and whoever hears it looks again. It is a hint. Who is not connected hears nothing,
//! and has to look again by itself, as with SQLite, where nobody tells.
//!
//! `NOTIFY` takes a lock of the whole server until the commit, so only rare transactions send it.

use std::io;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};

use super::engine::{Engine, Transaction};
use super::{Catalog, Result};

const CHANNEL: &str = "strata_changes";

/// How long nothing may be heard before the server is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a connection, or an answer to that question, may take.
const ANSWER: Duration = Duration::from_secs(5);

pub struct Changes {
    listener: PgListener,
}

impl Catalog {
    /// Begins to hear of changes by any process, by a connection of its own; `None` with SQLite.
    pub async fn changes(&self) -> Result<Option<Changes>> {
        let Engine::Postgres(link) = &*self.engine else { return Ok(None) };
        let options = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = options.acquire_timeout(ANSWER).connect_lazy_with(link.pool.connect_options().as_ref().clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // A connection that is lost is reported as such, whatever the way in which it was.
        listener.eager_reconnect(true);
        listener.listen(CHANNEL).await?;
        Ok(Some(Changes { listener }))
    }
}

impl Changes {
    /// Waits for a change, or for a new connection in place of a lost one: there may have been changes meanwhile.
    pub async fn next(&mut self) -> Result<()> {
        loop {
            match tokio::time::timeout(SILENCE, self.listener.try_recv()).await {
                // `None` is a new connection, which `recv` would not tell.
                Ok(heard) => break drop(heard?),
                Err(_) => self.ask().await?,
            }
        }
        while self.listener.next_buffered().is_some() {}
        Ok(())
    }

    /// Asks whether the server is still there: the other end of a connection may be gone without a word.
    async fn ask(&mut self) -> Result<(), sqlx::Error> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the database server is not responding").into();
        let asked = tokio::time::timeout(ANSWER, sqlx::query("SELECT 1").execute(&mut self.listener)).await;
        asked.map_err(late).flatten().map(drop)
    }
}

impl Transaction {
    /// Tells all processes of a change that a read can see, when this commits.
    pub(super) async fn tell(&mut self) -> Result<()> {
        match self {
            Transaction::Sqlite(_) => Ok(()),
            Transaction::Postgres(_) => self.execute("NOTIFY strata_changes", &[]).await.map(drop),
        }
    }
}
