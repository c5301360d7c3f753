//! Direct access to the metadata database of a service. Functions with a [`TestService`] parameter require SQLite.

use std::net::SocketAddr;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use strata_catalog::{Catalog, CatalogCheckDepth, NodeRegistration};

use crate::service::TestService;

/// Opens a connection, as another process would.
pub async fn connect(service: &TestService) -> SqliteConnection {
    connect_in(service.directory()).await
}

async fn connect_in(data: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", data.join("catalog.sqlite").display());
    SqliteConnection::connect(&url).await.expect("failed to connect")
}

/// Executes SQL statements on the catalog of a service without notifying the service.
pub async fn execute(service: &TestService, sql: &str) {
    execute_in(service.directory(), sql).await;
}

/// Executes SQL statements on the catalog in a data directory.
pub async fn execute_in(data: &Path, sql: &str) {
    let mut connection = connect_in(data).await;
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect(sql);
    connection.close().await.expect("failed to close connection");
}

/// Begins a transaction that has the write lock of the service's catalog.
pub async fn lock(service: &TestService) -> SqliteConnection {
    let mut connection = connect(service).await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.expect("failed to lock catalog");
    connection
}

/// Returns the findings of a full check of a metadata database, or the error of opening it. Closes the database.
pub async fn integrity(url: &str) -> Vec<String> {
    let mut findings = Vec::new();
    match Catalog::open(url).await {
        Ok(catalog) => {
            let checked = catalog.check_integrity(CatalogCheckDepth::Full, &mut |reason| findings.push(reason)).await;
            findings.extend(checked.err().map(|error| format!("{error:?}")));
            catalog.close().await;
        }
        Err(error) => findings.push(error.to_string()),
    }
    findings
}

pub async fn open(url: &str) -> Catalog {
    Catalog::open(url).await.expect("failed to open metadata database")
}

/// Registers a node of a cluster, or sends its next heartbeat. Other nodes use `address` as its internal address.
pub async fn register_node(catalog: &Catalog, name: &str, version: &str, address: SocketAddr) {
    let node = NodeRegistration {
        id: name.to_owned(),
        process_id: name.to_owned(),
        version: version.to_owned(),
        roles: "http,query".to_owned(),
        internal_address: Some(address.to_string()),
    };
    catalog.register_node(&node).await.expect("failed to register node");
}
