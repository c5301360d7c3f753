//! The records of a copy of a catalog, put into an empty one of either engine: the way back from a backup, and from
//! SQLite to PostgreSQL.
//!
//! All of it is one transaction. Tables are filled after those that they refer to. Datasets and versions refer to each
//! other, so pinned versions come last.

use std::borrow::Borrow;

use futures::TryStreamExt;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Postgres, Row, Sqlite};

use super::engine::{Transaction, Value, arguments, placeholders};
use super::{Catalog, CatalogError, Result};

/// The table of the identity, which each catalog keeps: a store belongs to one.
const IDENTITY: &str = "installation";

/// The column that refers to a table which refers to its own.
const PINNED: (&str, &str) = ("datasets", "pinned_version");

/// The names of the tables of an SQLite file, but for those of SQLite and of its migrations.
pub(super) const TABLES: &str = "SELECT name FROM sqlite_master
    WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE '\\_sqlx\\_%' ESCAPE '\\'
    ORDER BY name";

const ANY_RECORD: &str = "SELECT CAST(1 AS BIGINT) WHERE EXISTS (SELECT 1 FROM users)
    OR EXISTS (SELECT 1 FROM datasets) OR EXISTS (SELECT 1 FROM files)";

impl Catalog {
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(!self.engine.has_row(ANY_RECORD, &[]).await?)
    }

    /// Puts every record of a copy ([`Catalog::copy_to_sqlite`]) into this empty catalog, which keeps its identity.
    pub async fn restore_from(&self, copy: &Catalog) -> Result<()> {
        let mut snapshot = copy.engine.begin_snapshot().await?;
        let Transaction::Sqlite(original) = &mut snapshot else {
            let reason = "a backup must be an SQLite file".to_owned();
            return Err(CatalogError::InvalidUrl { url: "postgres://…".to_owned(), reason });
        };
        let (original, _) = original.statement()?;
        let mut transaction = self.engine.begin().await?;
        if let Transaction::Postgres(_) = &transaction {
            transaction.execute("LOCK TABLE users, datasets, files IN SHARE ROW EXCLUSIVE MODE", &[]).await?;
        }
        if transaction.find::<(i64,)>(ANY_RECORD, &[]).await?.is_some() {
            return Err(CatalogError::NotEmpty);
        }
        // The limit of a statement is not for writing everything.
        let mut target = match &mut transaction {
            Transaction::Sqlite(lent) => Target::Sqlite(lent.statement()?.0),
            Transaction::Postgres(lent) => Target::Postgres(lent.statement()?.0),
        };
        fill(original, &mut target).await?;
        transaction.commit().await
    }
}

struct Table {
    name: String,
    columns: Vec<(String, String)>,
    refers_to: Vec<String>,
}

pub(super) enum Target<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

async fn fill(original: &mut SqliteConnection, target: &mut Target<'_>) -> Result<()> {
    let tables = tables(original).await?;
    // Some begin with rows that a migration made.
    for table in tables.iter().rev() {
        target.execute(format!("DELETE FROM {}", table.name), &[]).await?;
    }
    for table in &tables {
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| &**name).collect();
        let insert = target.insert(&table.name, &names);
        let booleans = target.booleans(&table.name).await?;
        // The names come from the migrations, not from outside.
        let select = AssertSqlSafe(format!("SELECT {} FROM {}", names.join(", "), table.name));
        let mut rows = sqlx::query::<Sqlite>(select).fetch(&mut *original);
        while let Some(row) = rows.try_next().await? {
            target.execute(insert.clone(), &values(&row, table, &booleans)?).await?;
        }
    }
    let pinned: Vec<(i64, i64)> =
        sqlx::query_as("SELECT dataset_id, pinned_version FROM datasets WHERE pinned_version IS NOT NULL")
            .fetch_all(&mut *original)
            .await?;
    for (dataset, version) in pinned {
        let values = [Value::Integer(Some(version)), Value::Integer(Some(dataset))];
        target.execute("UPDATE datasets SET pinned_version = $1 WHERE dataset_id = $2".to_owned(), &values).await?;
    }
    // Ids of deleted records must not be assigned again.
    let assigned: Vec<(String, i64)> = sqlx::query_as(
        "SELECT name, seq FROM sqlite_sequence WHERE seq > 0 AND name NOT LIKE '\\_sqlx\\_%' ESCAPE '\\'",
    )
    .fetch_all(&mut *original)
    .await?;
    for (table, last) in assigned {
        target.go_on_after(&table, last).await?;
    }
    Ok(())
}

/// The tables, each behind those that it refers to.
async fn tables(original: &mut SqliteConnection) -> Result<Vec<Table>, sqlx::Error> {
    let names: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut *original).await?;
    let mut left = Vec::with_capacity(names.len());
    for name in names {
        let columns: Vec<(String, String)> = sqlx::query_as("SELECT name, type FROM pragma_table_info($1)")
            .bind(&name)
            .fetch_all(&mut *original)
            .await?;
        let mut refers_to: Vec<String> =
            sqlx::query_scalar("SELECT \"table\" FROM pragma_foreign_key_list($1) WHERE \"from\" <> $2")
                .bind(&name)
                .bind(if name == PINNED.0 { PINNED.1 } else { "" })
                .fetch_all(&mut *original)
                .await?;
        // A key of two columns has a row for each.
        refers_to.retain(|other| *other != name && !(name == PINNED.0 && other == "versions"));
        left.push(Table { name, columns, refers_to });
    }
    left.retain(|table| table.name != IDENTITY);
    let mut ordered: Vec<Table> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_next =
            |table: &Table| table.refers_to.iter().all(|other| ordered.iter().any(|done| done.name == *other));
        // If none is, the database says which one refers to what is not there.
        let next = left.iter().position(is_next).unwrap_or_default();
        ordered.push(left.remove(next));
    }
    Ok(ordered)
}

fn values<'r>(row: &'r SqliteRow, table: &Table, booleans: &[String]) -> Result<Vec<Value<'r>>, sqlx::Error> {
    let value = |(place, (name, declared)): (usize, &(String, String))| {
        Ok(match &**declared {
            "INTEGER" if (&*table.name, &**name) == PINNED => Value::Integer(None),
            "INTEGER" if booleans.contains(name) => Value::Boolean(row.try_get(place)?),
            "INTEGER" => Value::Integer(row.try_get(place)?),
            _ => Value::Text(row.try_get(place)?),
        })
    };
    table.columns.iter().enumerate().map(value).collect()
}

impl Target<'_> {
    pub(super) fn insert(&self, table: &str, columns: &[impl Borrow<str>]) -> String {
        let own_ids = if matches!(self, Target::Postgres(_)) { "OVERRIDING SYSTEM VALUE " } else { "" };
        format!("INSERT INTO {table} ({}) {own_ids}VALUES ({})", columns.join(", "), placeholders(columns.len()))
    }

    /// The columns of a table that hold truth values here. SQLite has integers in their place.
    async fn booleans(&mut self, table: &str) -> Result<Vec<String>, sqlx::Error> {
        let Target::Postgres(connection) = self else { return Ok(Vec::new()) };
        let sql = "SELECT column_name::text FROM information_schema.columns
                   WHERE table_name::text = $1 AND data_type = 'boolean' AND table_schema = current_schema()";
        sqlx::query_scalar::<Postgres, String>(sql).bind(table).fetch_all(&mut **connection).await
    }

    pub(super) async fn go_on_after(&mut self, table: &str, last: i64) -> Result<(), sqlx::Error> {
        let values = [Value::Text(Some(table)), Value::Integer(Some(last))];
        match self {
            Target::Sqlite(_) => {
                self.execute("DELETE FROM sqlite_sequence WHERE name = $1".to_owned(), &values[..1]).await?;
                self.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)".to_owned(), &values).await
            }
            Target::Postgres(_) => {
                let sql = "SELECT setval(pg_get_serial_sequence(quote_ident(c.table_name), c.column_name), $2)
                           FROM information_schema.columns c
                           WHERE c.table_name::text = $1 AND c.is_identity = 'YES'
                             AND c.table_schema = current_schema()";
                self.execute(sql.to_owned(), &values).await
            }
        }
    }

    pub(super) async fn execute(&mut self, sql: String, values: &[Value<'_>]) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql);
        match self {
            Target::Sqlite(connection) => {
                sqlx::query_with::<Sqlite, _>(sql, arguments::<Sqlite>(values)?).execute(&mut **connection).await?;
            }
            Target::Postgres(connection) => {
                sqlx::query_with::<Postgres, _>(sql, arguments::<Postgres>(values)?).execute(&mut **connection).await?;
            }
        }
        Ok(())
    }
}
