//! The database of a catalog, beside the service.

use sqlx::{Connection, SqliteConnection};

use crate::support::TestService;

/// A transaction that holds the write lock of the service's catalog.
pub async fn lock(service: &TestService) -> SqliteConnection {
    let url = format!("sqlite://{}", service.directory().join("catalog.sqlite").display());
    let mut connection = SqliteConnection::connect(&url).await.expect("a connection");
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.expect("the lock");
    connection
}
