//! The metadata database, beside the service that uses it. What takes a [`TestService`] needs one on SQLite.

use std::net::SocketAddr;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use strata_catalog::{Catalog, NewNode};

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

/// What the full check of a metadata database finds, or why there is none. Closes the database afterward.
pub async fn integrity(url: &str) -> Vec<String> {
    let mut findings = Vec::new();
    match Catalog::open(url).await {
        Ok(catalog) => {
            let checked = catalog.check_integrity(false, &mut |reason| findings.push(reason)).await;
            findings.extend(checked.err().map(|error| format!("{error:?}")));
            catalog.close().await;
        }
        Err(error) => findings.push(error.to_string()),
    }
    findings
}

/// The metadata database at a URL.
pub async fn open(url: &str) -> Catalog {
    Catalog::open(url).await.expect("the metadata database opens")
}

/// Registers a server of a cluster or gives its next heartbeat. Other servers take the address for its internal one.
pub async fn register_node(catalog: &Catalog, name: &str, version: &str, address: SocketAddr) {
    let node = NewNode {
        id: name.to_owned(),
        process: name.to_owned(),
        version: version.to_owned(),
        roles: "http,query".to_owned(),
        internal_address: Some(address.to_string()),
    };
    catalog.register_node(&node).await.expect("registered");
}
