//! Macro and databases for tests that run on SQLite and on PostgreSQL.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, SqliteConnection, SqlitePool};
use strata_catalog::Catalog;
use tempfile::TempDir;

use crate::postgres::Postgres;

/// Generates two tests for each case: `on_both_databases! { Fixture: case … }`. The type `Fixture` must be in scope and
/// have the constructors `sqlite` and `postgres`.
#[macro_export]
macro_rules! on_both_databases {
    ($fixture:ident: $($case:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::$fixture::sqlite().await).await;
            })*
        }
        mod postgresql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::$fixture::postgres().await).await;
            })*
        }
    };
}
pub use on_both_databases;

/// Executes SQL statements on a metadata database of either engine.
pub async fn execute(url: &str, sql: &str) {
    let statements = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    if url.starts_with("postgres") {
        let mut connection = PgConnection::connect(url).await.expect("failed to connect");
        statements.execute(&mut connection).await.expect(sql);
    } else {
        let mut connection = SqliteConnection::connect(url).await.expect("failed to connect");
        statements.execute(&mut connection).await.expect(sql);
    }
}

/// A new, empty database. Tests use raw SQL for states that the catalog's methods cannot create, and to inspect the
/// tables.
pub struct Database {
    pub url: String,
    pub raw: Raw,
}

pub enum Raw {
    Sqlite { pool: SqlitePool, _directory: TempDir },
    Postgres { pool: PgPool, _server: Arc<Postgres> },
}

impl Database {
    pub async fn sqlite() -> Database {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/new/catalog.db", directory.path().display());
        let pool = SqlitePool::connect_lazy(&url).unwrap();
        Database { url, raw: Raw::Sqlite { pool, _directory: directory } }
    }

    pub async fn postgres() -> Database {
        let server = Postgres::shared();
        let url = server.create_database().await;
        let pool = PgPool::connect_lazy(&url).unwrap();
        Database { url, raw: Raw::Postgres { pool, _server: server } }
    }

    pub async fn open(&self) -> Catalog {
        Catalog::open(&self.url).await.unwrap()
    }

    pub async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match &self.raw {
            Raw::Sqlite { pool, .. } => drop(sqlx::raw_sql(sql).execute(pool).await.unwrap()),
            Raw::Postgres { pool, .. } => drop(sqlx::raw_sql(sql).execute(pool).await.unwrap()),
        }
    }

    /// Returns the rows of a query with one text column.
    pub async fn texts(&self, sql: &str) -> Vec<Option<String>> {
        let sql = AssertSqlSafe(sql.to_owned());
        match &self.raw {
            Raw::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
            Raw::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
        }
    }

    /// Returns the result of a query for a single number.
    pub async fn number(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        match &self.raw {
            Raw::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
            Raw::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        }
    }
}
