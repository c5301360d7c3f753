//! How a PostgreSQL database is connected to.

use std::str::FromStr;
use std::time::Duration;

use sqlx::Connection;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::CatalogError;
use super::engine::Engine;

static MIGRATIONS: Migrator = sqlx::migrate!("sql/postgres");

/// How many connections one process opens at most.
const CONNECTIONS: u32 = 16;

/// How long a connection may have been idle and still be used without asking whether it is alive. The
/// question costs a round trip, which would double the cost of a read.
const TRUSTED_IDLE: Duration = Duration::from_secs(10);

/// Whether this is a PostgreSQL URL.
pub(super) fn is_url(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Connects and runs the migrations that the database has not seen, under an advisory lock that makes
/// other processes wait meanwhile.
pub(super) async fn open(url: &str) -> Result<Engine, CatalogError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| CatalogError::InvalidUrl { url: "postgres://…".to_owned(), reason: error.to_string() })?;
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .test_before_acquire(false)
        .before_acquire(|connection, state| {
            Box::pin(async move {
                if state.idle_for >= TRUSTED_IDLE {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_with(options.application_name("strata"))
        .await?;
    // `run`, which is the same, makes futures that the compiler cannot prove to be `Send`.
    MIGRATIONS.run_direct(None, &mut *pool.acquire().await?, false).await?;
    Ok(Engine::Postgres(pool))
}
