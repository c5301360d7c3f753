//! Restores a copy of a metadata database into an empty one, for example from a backup or from SQLite to PostgreSQL.
//! The restore is one transaction. Each table is filled after the tables that it refers to. Datasets and versions refer
//! to each other, so pinned versions are set last.

use std::borrow::Borrow;

use futures::TryStreamExt;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Postgres, Row, Sqlite};

use super::database_engine::{CatalogTransaction, SqlValue, bind_arguments, placeholders};
use super::{Catalog, CatalogError, Result};

/// The table with the identity of the installation, which a restore does not change, because the store refers to it.
const IDENTITY_TABLE: &str = "installation";

/// The column that closes the cycle of foreign keys between datasets and versions.
const DEFERRED_COLUMN: (&str, &str) = ("datasets", "pinned_version");

pub(super) const TABLE_NAMES_SQL: &str = "SELECT name FROM sqlite_master
    WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE '\\_sqlx\\_%' ESCAPE '\\'
    ORDER BY name";

const ANY_RECORD_SQL: &str = "SELECT CAST(1 AS BIGINT) WHERE EXISTS (SELECT 1 FROM users)
    OR EXISTS (SELECT 1 FROM datasets) OR EXISTS (SELECT 1 FROM files)";

impl Catalog {
    pub async fn has_no_records(&self) -> Result<bool> {
        Ok(!self.engine.has_row(ANY_RECORD_SQL, &[]).await?)
    }

    /// Copies all records of `copy` ([`Catalog::copy_to_sqlite`]) into this empty database, which keeps its identity.
    pub async fn restore_from(&self, copy: &Catalog) -> Result<()> {
        let mut snapshot = copy.engine.begin_snapshot().await?;
        let CatalogTransaction::Sqlite(original) = &mut snapshot else {
            let reason = "a backup must be an SQLite file".to_owned();
            return Err(CatalogError::InvalidUrl { url: "postgres://…".to_owned(), reason });
        };
        let (original, _) = original.begin_statement()?;
        let mut transaction = self.engine.begin().await?;
        if let CatalogTransaction::Postgres(_) = &transaction {
            transaction.execute("LOCK TABLE users, datasets, files IN SHARE ROW EXCLUSIVE MODE", &[]).await?;
        }
        if transaction.find::<(i64,)>(ANY_RECORD_SQL, &[]).await?.is_some() {
            return Err(CatalogError::NotEmpty);
        }
        // The statement timeout does not apply to a full restore.
        let mut target = match &mut transaction {
            CatalogTransaction::Sqlite(pooled) => CopyTarget::Sqlite(pooled.begin_statement()?.0),
            CatalogTransaction::Postgres(pooled) => CopyTarget::Postgres(pooled.begin_statement()?.0),
        };
        restore_tables(original, &mut target).await?;
        transaction.commit().await
    }
}

struct CopiedTable {
    name: String,
    columns: Vec<(String, String)>,
    referenced_tables: Vec<String>,
}

pub(super) enum CopyTarget<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

async fn restore_tables(original: &mut SqliteConnection, target: &mut CopyTarget<'_>) -> Result<()> {
    let tables = tables_in_reference_order(original).await?;
    // The migrations have inserted rows into some tables, which the restored rows replace.
    for table in tables.iter().rev() {
        target.execute(format!("DELETE FROM {}", table.name), &[]).await?;
    }
    for table in &tables {
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| &**name).collect();
        let insert = target.insert_sql(&table.name, &names);
        let boolean_columns = target.boolean_columns(&table.name).await?;
        // The statement is safe: the names of tables and columns come from the migrations, not from outside.
        let select = AssertSqlSafe(format!("SELECT {} FROM {}", names.join(", "), table.name));
        let mut rows = sqlx::query::<Sqlite>(select).fetch(&mut *original);
        while let Some(row) = rows.try_next().await? {
            target.execute(insert.clone(), &values_from_sqlite_row(&row, table, &boolean_columns)?).await?;
        }
    }
    let pinned: Vec<(i64, i64)> =
        sqlx::query_as("SELECT dataset_id, pinned_version FROM datasets WHERE pinned_version IS NOT NULL")
            .fetch_all(&mut *original)
            .await?;
    for (dataset, version) in pinned {
        let values = [SqlValue::Integer(Some(version)), SqlValue::Integer(Some(dataset))];
        target.execute("UPDATE datasets SET pinned_version = $1 WHERE dataset_id = $2".to_owned(), &values).await?;
    }
    // IDs of deleted records must not be assigned again, so the last assigned IDs are restored, too.
    let assigned: Vec<(String, i64)> = sqlx::query_as(
        "SELECT name, seq FROM sqlite_sequence WHERE seq > 0 AND name NOT LIKE '\\_sqlx\\_%' ESCAPE '\\'",
    )
    .fetch_all(&mut *original)
    .await?;
    for (table, last) in assigned {
        target.set_last_assigned_id(&table, last).await?;
    }
    Ok(())
}

/// Returns the tables in an order in which each table comes after the tables that it refers to.
async fn tables_in_reference_order(original: &mut SqliteConnection) -> Result<Vec<CopiedTable>, sqlx::Error> {
    let names: Vec<String> = sqlx::query_scalar(TABLE_NAMES_SQL).fetch_all(&mut *original).await?;
    let mut remaining = Vec::with_capacity(names.len());
    for name in names {
        let columns: Vec<(String, String)> = sqlx::query_as("SELECT name, type FROM pragma_table_info($1)")
            .bind(&name)
            .fetch_all(&mut *original)
            .await?;
        let mut referenced_tables: Vec<String> =
            sqlx::query_scalar("SELECT \"table\" FROM pragma_foreign_key_list($1) WHERE \"from\" <> $2")
                .bind(&name)
                .bind(if name == DEFERRED_COLUMN.0 { DEFERRED_COLUMN.1 } else { "" })
                .fetch_all(&mut *original)
                .await?;
        // SQLite lists a two-column foreign key once per column, so the filter in SQL does not remove it completely.
        referenced_tables.retain(|other| *other != name && !(name == DEFERRED_COLUMN.0 && other == "versions"));
        remaining.push(CopiedTable { name, columns, referenced_tables });
    }
    remaining.retain(|table| table.name != IDENTITY_TABLE);
    let mut ordered: Vec<CopiedTable> = Vec::with_capacity(remaining.len());
    while !remaining.is_empty() {
        let is_next = |table: &CopiedTable| {
            table.referenced_tables.iter().all(|other| ordered.iter().any(|earlier| earlier.name == *other))
        };
        // If no table can be next, any remaining one is inserted, and the database reports the violated foreign key.
        let next = remaining.iter().position(is_next).unwrap_or_default();
        ordered.push(remaining.remove(next));
    }
    Ok(ordered)
}

fn values_from_sqlite_row<'r>(
    row: &'r SqliteRow,
    table: &CopiedTable,
    boolean_columns: &[String],
) -> Result<Vec<SqlValue<'r>>, sqlx::Error> {
    let value = |(index, (name, declared)): (usize, &(String, String))| {
        Ok(match &**declared {
            "INTEGER" if (&*table.name, &**name) == DEFERRED_COLUMN => SqlValue::Integer(None),
            "INTEGER" if boolean_columns.contains(name) => SqlValue::Boolean(row.try_get(index)?),
            "INTEGER" => SqlValue::Integer(row.try_get(index)?),
            _ => SqlValue::Text(row.try_get(index)?),
        })
    };
    table.columns.iter().enumerate().map(value).collect()
}

impl CopyTarget<'_> {
    pub(super) fn insert_sql(&self, table: &str, columns: &[impl Borrow<str>]) -> String {
        let overriding = if matches!(self, CopyTarget::Postgres(_)) { "OVERRIDING SYSTEM VALUE " } else { "" };
        format!("INSERT INTO {table} ({}) {overriding}VALUES ({})", columns.join(", "), placeholders(columns.len()))
    }

    async fn boolean_columns(&mut self, table: &str) -> Result<Vec<String>, sqlx::Error> {
        let CopyTarget::Postgres(connection) = self else { return Ok(Vec::new()) };
        let sql = "SELECT column_name::text FROM information_schema.columns
                   WHERE table_name::text = $1 AND data_type = 'boolean' AND table_schema = current_schema()";
        sqlx::query_scalar::<Postgres, String>(sql).bind(table).fetch_all(&mut **connection).await
    }

    pub(super) async fn set_last_assigned_id(&mut self, table: &str, last: i64) -> Result<(), sqlx::Error> {
        let values = [SqlValue::Text(Some(table)), SqlValue::Integer(Some(last))];
        match self {
            CopyTarget::Sqlite(_) => {
                self.execute("DELETE FROM sqlite_sequence WHERE name = $1".to_owned(), &values[..1]).await?;
                self.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)".to_owned(), &values).await
            }
            CopyTarget::Postgres(_) => {
                let sql = "SELECT setval(pg_get_serial_sequence(quote_ident(c.table_name), c.column_name), $2)
                           FROM information_schema.columns c
                           WHERE c.table_name::text = $1 AND c.is_identity = 'YES'
                             AND c.table_schema = current_schema()";
                self.execute(sql.to_owned(), &values).await
            }
        }
    }

    pub(super) async fn execute(&mut self, sql: String, values: &[SqlValue<'_>]) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql);
        match self {
            CopyTarget::Sqlite(connection) => {
                let query = sqlx::query_with::<Sqlite, _>(sql, bind_arguments::<Sqlite>(values)?);
                query.execute(&mut **connection).await.map(drop)
            }
            CopyTarget::Postgres(connection) => {
                let query = sqlx::query_with::<Postgres, _>(sql, bind_arguments::<Postgres>(values)?);
                query.execute(&mut **connection).await.map(drop)
            }
        }
    }
}
