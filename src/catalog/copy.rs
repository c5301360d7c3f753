//! A consistent copy of the whole catalog as an SQLite file, for a backup.
//!
//! SQLite writes the copy itself (`VACUUM INTO`), as of one moment and without stopping writers. With PostgreSQL, every
//! table is read under one snapshot into a new SQLite file with the same tables. So a backup needs no database server.
//!
//! The original goes on, so the copy has no running work. Nobody holds a dataset or a file in it. No delivery is due in
//! it, because the original sends it. It names no export in the store: a copy has none.

use std::io;
use std::path::Path;

use futures::TryStreamExt;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, Column, ConnectOptions, Connection, Postgres, Row, Sqlite, TypeInfo};

use super::convert::from_time;
use super::engine::{Engine, SNAPSHOT, Transaction, Value, placeholders};
use super::restore::TABLES;
use super::{Catalog, CatalogError, CatalogOptions, Result, sqlite};

impl Catalog {
    /// Writes a copy of the catalog, as of one moment, to a new SQLite file. The file is on the disk when this returns.
    /// Call [`Catalog::hold_files`] before, so that no sweep removes the files that its records name until they are
    /// copied too. Takes as long as reading and writing everything once.
    ///
    /// # Errors
    /// [`CatalogError::Copy`] if there is a file of that name or it cannot be written; [`CatalogError::Database`]. An
    /// incomplete copy is then removed.
    pub async fn copy_to_sqlite(&self, path: &Path) -> Result<()> {
        self.copy(path, false).await
    }

    /// As [`Catalog::copy_to_sqlite`], of a catalog that does not go on: deliveries that are due stay due.
    pub async fn move_to_sqlite(&self, path: &Path) -> Result<()> {
        self.copy(path, true).await
    }

    async fn copy(&self, path: &Path, keeps_due: bool) -> Result<()> {
        let failed = |source| CatalogError::Copy { path: path.to_owned(), source };
        let name = path.to_str().ok_or_else(|| failed(io::Error::other("its path is not UTF-8")))?;
        if tokio::fs::try_exists(path).await.map_err(failed)? {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let copied = self.write_copy(name, keeps_due).await;
        let synced = match copied {
            Ok(()) => sync(path).await.map_err(failed),
            Err(error) => Err(error),
        };
        if synced.is_err() {
            for left in [path.to_owned(), format!("{name}-wal").into(), format!("{name}-shm").into()] {
                // The first error is the one that matters, and not all of them are there.
                let _ = tokio::fs::remove_file(left).await;
            }
        }
        synced
    }

    async fn write_copy(&self, path: &str, keeps_due: bool) -> Result<()> {
        if let Engine::Sqlite { writer, .. } = &self.engine {
            // On a connection of its own: the writer would be occupied for as long as this takes.
            let mut connection = writer.pool().connect_options().as_ref().clone().connect().await?;
            sqlx::query("VACUUM INTO $1").bind(path).execute(&mut connection).await?;
            connection.close().await?;
        }
        let copy = sqlite::open(path, &CatalogOptions::default()).await?;
        let mut transaction = copy.begin().await?;
        if let (Engine::Postgres(link), Transaction::Sqlite(lent)) = (&self.engine, &mut transaction) {
            let mut snapshot = link.begin(SNAPSHOT).await?;
            let (copy, _) = lent.statement()?;
            // The limit of a statement is not for reading everything.
            let (original, _) = snapshot.statement()?;
            export(original, copy).await?;
            snapshot.commit().await?;
        }
        for (sql, values) in [
            ("DELETE FROM file_reservations", vec![]),
            ("DELETE FROM refresh_leases", vec![]),
            ("DELETE FROM nodes", vec![]),
            ("DELETE FROM shared_exports", vec![]),
            ("DELETE FROM file_holds WHERE hold_id > 0", vec![]),
            ("UPDATE scrub_progress SET leased_until = 0", vec![]),
            (
                "UPDATE refresh_attempts SET finished_at = $1, ok = $2, error = $3 WHERE finished_at IS NULL",
                vec![
                    from_time(self.now()),
                    Value::Boolean(false),
                    Value::Text("it was under way when this copy of the catalog was made"),
                ],
            ),
        ] {
            transaction.execute(sql, &values).await?;
        }
        if !keeps_due {
            transaction.execute("DELETE FROM webhook_deliveries WHERE claimed_at IS NULL", &[]).await?;
        }
        transaction.commit().await?;
        copy.close().await;
        Ok(())
    }
}

async fn sync(path: &Path) -> io::Result<()> {
    tokio::fs::File::open(path).await?.sync_all().await?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tokio::fs::File::open(directory).await?.sync_all().await
}

/// Copies every row that a snapshot of the PostgreSQL database holds into empty tables of the same names and columns.
async fn export(snapshot: &mut PgConnection, copy: &mut SqliteConnection) -> Result<()> {
    // Datasets and versions refer to each other.
    sqlx::query("PRAGMA defer_foreign_keys = ON").execute(&mut *copy).await?;
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut *copy).await?;
    for table in &tables {
        let columns: Vec<String> =
            sqlx::query_scalar("SELECT name FROM pragma_table_info($1)").bind(table).fetch_all(&mut *copy).await?;
        let (columns, placeholders) = (columns.join(", "), placeholders(columns.len()));
        let insert = format!("INSERT INTO {table} ({columns}) VALUES ({placeholders})");
        // The rows include those that a migration puts into a new table.
        sqlx::query(AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&mut *copy).await?;
        // The names come from the migrations, not from outside.
        let mut rows =
            sqlx::query::<Postgres>(AssertSqlSafe(format!("SELECT {columns} FROM {table}"))).fetch(&mut *snapshot);
        while let Some(row) = rows.try_next().await? {
            let arguments = arguments(&row)?;
            sqlx::query_with::<Sqlite, _>(AssertSqlSafe(insert.clone()), arguments).execute(&mut *copy).await?;
        }
    }
    // Ids of deleted records must not be assigned again.
    let assigned: Vec<(String, i64)> = sqlx::query_as(
        "SELECT c.table_name::text, s.last_value
         FROM information_schema.columns c
         JOIN pg_sequences s
           ON pg_get_serial_sequence(quote_ident(c.table_name), c.column_name)
              = format('%I.%I', s.schemaname, s.sequencename)
         WHERE c.is_identity = 'YES' AND c.table_schema = current_schema() AND s.last_value IS NOT NULL",
    )
    .fetch_all(&mut *snapshot)
    .await?;
    for (table, last) in assigned {
        sqlx::query("DELETE FROM sqlite_sequence WHERE name = $1").bind(&table).execute(&mut *copy).await?;
        sqlx::query("INSERT INTO sqlite_sequence (name, seq) VALUES ($1, $2)")
            .bind(&table)
            .bind(last)
            .execute(&mut *copy)
            .await?;
    }
    Ok(())
}

/// The values of a row in the form in which SQLite takes them.
fn arguments(row: &PgRow) -> Result<SqliteArguments, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    for column in row.columns() {
        let index = column.ordinal();
        match column.type_info().name() {
            "INT8" => arguments.add(row.try_get::<Option<i64>, _>(index)?),
            "BOOL" => arguments.add(row.try_get::<Option<bool>, _>(index)?),
            _ => arguments.add(row.try_get::<Option<String>, _>(index)?),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}
