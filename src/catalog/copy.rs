//! A consistent copy of the whole catalog as an SQLite file, for a backup.
//!
//! SQLite writes the copy itself (`VACUUM INTO`) without stopping writers. With PostgreSQL, every table is read under
//! one snapshot into a new SQLite file with the same tables. So a backup needs no database server.
//!
//! The copy has no running work, no leases, no due deliveries and no exports, because the original continues.

use std::io;
use std::path::Path;

use futures::TryStreamExt;
use sqlx::postgres::{PgColumn, PgConnection, PgRow};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Connection, Postgres, Row, TypeInfo};

use super::convert::from_time;
use super::engine::{Engine, SNAPSHOT, Transaction, Value};
use super::restore::{TABLES, Target};
use super::{Catalog, CatalogError, CatalogOptions, Result, sqlite};

impl Catalog {
    /// Writes a copy of the catalog, as of one moment, to a new SQLite file. The file is on the disk when this returns;
    /// an incomplete one is removed. Call [`Catalog::hold_files`] before, so that no sweep removes the files that its
    /// records name until they are copied too. Takes as long as reading and writing everything once.
    pub async fn copy_to_sqlite(&self, path: &Path) -> Result<()> {
        self.copy(path, false).await
    }

    /// As [`Catalog::copy_to_sqlite`], of a catalog that does not go on: deliveries that are due stay due.
    pub async fn move_to_sqlite(&self, path: &Path) -> Result<()> {
        self.copy(path, true).await
    }

    async fn copy(&self, path: &Path, keeps_due: bool) -> Result<()> {
        let failed = |source| CatalogError::Copy { path: path.to_owned(), source };
        let name = path.to_str().ok_or_else(|| failed(io::Error::other("the path is not valid UTF-8")))?;
        if tokio::fs::try_exists(path).await.map_err(failed)? {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let copied = async {
            self.write_copy(name, keeps_due).await?;
            sync(path).await.map_err(failed)
        };
        let copied = copied.await;
        if copied.is_err() {
            for left in [path.to_owned(), format!("{name}-wal").into(), format!("{name}-shm").into()] {
                let _ = tokio::fs::remove_file(left).await;
            }
        }
        copied
    }

    async fn write_copy(&self, path: &str, keeps_due: bool) -> Result<()> {
        if let Engine::Sqlite { writer, .. } = &*self.engine {
            // On a connection of its own: the writer would be occupied for as long as this takes.
            let mut connection = writer.pool.connect_options().as_ref().clone().connect().await?;
            sqlx::query("VACUUM INTO $1").bind(path).execute(&mut connection).await?;
            connection.close().await?;
        }
        let copy = sqlite::open(path, &CatalogOptions::default()).await?;
        let mut transaction = copy.begin().await?;
        if let (Engine::Postgres(link), Transaction::Sqlite(lent)) = (&*self.engine, &mut transaction) {
            let mut snapshot = link.begin(SNAPSHOT).await?;
            let (copy, _) = lent.statement()?;
            // The limit of a statement is not for reading everything.
            let (original, _) = snapshot.statement()?;
            export(original, copy).await?;
            snapshot.commit().await?;
        }
        for sql in [
            "DELETE FROM file_reservations",
            "DELETE FROM refresh_leases",
            "DELETE FROM nodes",
            "DELETE FROM file_holds WHERE hold_id > 0",
            "UPDATE scrub_progress SET leased_until = 0",
        ] {
            transaction.execute(sql, &[]).await?;
        }
        let sql = "UPDATE refresh_attempts SET finished_at = $1, ok = (1 = 0), error = $2 WHERE finished_at IS NULL";
        let error = "the refresh was still running when the metadata database was copied";
        transaction.execute(sql, &[from_time(self.now()), Value::Text(Some(error))]).await?;
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
        let mut target = Target::Sqlite(&mut *copy);
        let insert = target.insert(table, &columns);
        // The rows include those that a migration puts into a new table.
        target.execute(format!("DELETE FROM {table}"), &[]).await?;
        // The names come from the migrations, not from outside.
        let select = AssertSqlSafe(format!("SELECT {} FROM {table}", columns.join(", ")));
        let mut rows = sqlx::query::<Postgres>(select).fetch(&mut *snapshot);
        while let Some(row) = rows.try_next().await? {
            target.execute(insert.clone(), &values(&row)?).await?;
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
        Target::Sqlite(&mut *copy).go_on_after(&table, last).await?;
    }
    Ok(())
}

/// The values of a row in the form in which SQLite takes them.
fn values(row: &PgRow) -> Result<Vec<Value<'_>>, sqlx::Error> {
    let value = |column: &PgColumn| {
        Ok(match column.type_info().name() {
            "INT8" => Value::Integer(row.try_get(column.ordinal())?),
            "BOOL" => Value::Boolean(row.try_get(column.ordinal())?),
            _ => Value::Text(row.try_get(column.ordinal())?),
        })
    };
    row.columns().iter().map(value).collect()
}
