//! The SQLite database of a service's catalog, beside the service.

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::service::TestService;

/// A connection of another process's, as it were.
pub async fn connect(service: &TestService) -> SqliteConnection {
    connect_in(service.directory()).await
}

async fn connect_in(data: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", data.join("catalog.sqlite").display());
    SqliteConnection::connect(&url).await.expect("a connection")
}

/// Changes the catalog behind the service's back, by one statement or several.
pub async fn execute(service: &TestService, sql: &str) {
    execute_in(service.directory(), sql).await;
}

/// The same of a data directory.
pub async fn execute_in(data: &Path, sql: &str) {
    let mut connection = connect_in(data).await;
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect(sql);
    connection.close().await.expect("closed");
}

/// A transaction that holds the write lock of the service's catalog.
pub async fn lock(service: &TestService) -> SqliteConnection {
    let mut connection = connect(service).await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.expect("the lock");
    connection
}
