//! Connects to a PostgreSQL database.

use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use super::circuit_breaker::DatabaseCircuitBreaker;
use super::connection_pool::{ConnectionPool, DatabaseServer};
use super::database_engine::{DatabaseEngine, new_migrator};
use super::error::classify_io_error;
use super::{CatalogError, CatalogOptions, Result, UnavailableReason};

const SCHEMA_SQL: &str = include_str!("../../sql/postgres/0001_initial.sql");
const MAX_CONNECTIONS: u32 = 16;

/// The idle time after which a connection is tested before its use. A test costs a round trip, as much as a lookup.
const MAX_UNTESTED_IDLE: Duration = Duration::from_secs(10);

/// The maximum wait for the first connection. An operator should learn soon after the start if the server is offline.
const MAX_OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the database and runs pending migrations under an advisory lock.
pub(super) async fn open(url: &str, options: &CatalogOptions) -> Result<DatabaseEngine> {
    let CatalogOptions { wait_timeout: acquire_timeout, statement_timeout } = *options;
    let connect = PgConnectOptions::from_str(url)
        .map_err(|error| CatalogError::InvalidUrl { url: "postgres://…".to_owned(), reason: error.to_string() })?
        .application_name("strata");
    let server = match connect.get_socket() {
        Some(directory) => format!("the database server at {}", directory.display()),
        None => format!("the database server at {}:{}", connect.get_host(), connect.get_port()),
    };
    let with_server = |error: sqlx::Error| match error {
        // Only an error about an unreachable server gets the server's address. Other errors keep their operating system
        // number, which shows that a resource is exhausted.
        sqlx::Error::Io(error) if classify_io_error(&error) == UnavailableReason::Unreachable => {
            sqlx::Error::Io(io::Error::new(error.kind(), format!("{server}: {error}")))
        }
        other => other,
    };
    let timed_out = || Err(io::Error::new(io::ErrorKind::TimedOut, "the connection attempt timed out").into());
    let timeout = acquire_timeout.min(MAX_OPEN_TIMEOUT);
    let connected = tokio::time::timeout(timeout, connect.connect()).await.unwrap_or_else(|_| timed_out());
    let mut migrating = connected.map_err(with_server)?;
    // `Migrator::run` does the same, but the compiler cannot prove that its future is `Send`.
    new_migrator(SCHEMA_SQL).run_direct(None, &mut migrating, false).await?;
    migrating.close().await?;

    let circuit_breaker = Arc::new(DatabaseCircuitBreaker::new());
    let breaker = circuit_breaker.clone();
    // The wait for a row that another transaction has locked has the same limit as the wait for a connection.
    let set_lock_timeout = format!("SET lock_timeout = {}", acquire_timeout.as_millis());
    let pool = PgPoolOptions::new()
        .max_connections(MAX_CONNECTIONS)
        .acquire_timeout(acquire_timeout)
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            let set_lock_timeout = AssertSqlSafe(set_lock_timeout.clone());
            Box::pin(async move { connection.execute(set_lock_timeout).await.map(drop) })
        })
        .before_acquire(move |connection, state| {
            let test = state.idle_for >= MAX_UNTESTED_IDLE || breaker.has_failed_within(state.age);
            Box::pin(async move {
                if test {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(connect);
    Ok(DatabaseEngine::Postgres(ConnectionPool {
        pool,
        server: Some(DatabaseServer { acquire_timeout, statement_timeout, circuit_breaker }),
        file: None,
        is_writable: true,
    }))
}
