//! Connects to a PostgreSQL database.

use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use super::engine::{Engine, migrator};
use super::error::of_connection;
use super::link::{Link, Server};
use super::outage::Outage;
use super::{CatalogError, CatalogOptions, Result, Unavailability};

const SCHEMA: &str = include_str!("../../sql/postgres/0001_initial.sql");

const CONNECTIONS: u32 = 16;

/// How long a connection may be idle and be used without a test, whose round trip would double the cost of a read.
const TRUSTED_IDLE: Duration = Duration::from_secs(10);

/// Longest wait for the first connection: an operator who starts the service should soon learn that there is no server.
const OPENING: Duration = Duration::from_secs(5);

/// Connects and runs the migrations that the database has not seen, under an advisory lock.
pub(super) async fn open(url: &str, options: &CatalogOptions) -> Result<Engine> {
    let CatalogOptions { wait, statement } = *options;
    let connect = PgConnectOptions::from_str(url)
        .map_err(|error| CatalogError::InvalidUrl { url: "postgres://…".to_owned(), reason: error.to_string() })?
        .application_name("strata");
    let server = match connect.get_socket() {
        Some(directory) => format!("the database server at {}", directory.display()),
        None => format!("the database server at {}:{}", connect.get_host(), connect.get_port()),
    };
    let named = |error: sqlx::Error| match error {
        // One of the system has a number, by which it is told from a server that is away.
        sqlx::Error::Io(error) if of_connection(&error) == Unavailability::Unreachable => {
            sqlx::Error::Io(io::Error::new(error.kind(), format!("{server}: {error}")))
        }
        other => other,
    };
    let no_answer = || Err(io::Error::new(io::ErrorKind::TimedOut, "the connection attempt timed out").into());
    let within = wait.min(OPENING);
    let connecting = tokio::time::timeout(within, connect.connect()).await.unwrap_or_else(|_| no_answer());
    let mut migrating = connecting.map_err(named)?;
    // `run`, which is the same, makes futures that the compiler cannot prove to be `Send`.
    migrator(SCHEMA).run_direct(None, &mut migrating, false).await?;
    migrating.close().await?;

    let outage = Arc::new(Outage::none());
    let suspect = outage.clone();
    // The wait for a row that another process has locked is as long as that for a connection.
    let waits = format!("SET lock_timeout = {}", wait.as_millis());
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(wait)
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            let waits = AssertSqlSafe(waits.clone());
            Box::pin(async move { connection.execute(waits).await.map(drop) })
        })
        .before_acquire(move |connection, state| {
            let test = state.idle_for >= TRUSTED_IDLE || suspect.is_suspect(state.age);
            Box::pin(async move {
                if test {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(connect);
    Ok(Engine::Postgres(Link { pool, server: Some(Server { wait, statement, outage }), file: None, writes: true }))
}
