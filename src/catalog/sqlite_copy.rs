//! Writes a consistent copy of the metadata database to an SQLite file, for a backup. SQLite writes the copy itself
//! (`VACUUM INTO`) without blocking writers. With PostgreSQL, this module reads all tables in one snapshot and writes
//! them to a new SQLite file, so that a backup does not need a database server. The original continues to run, so the
//! copy contains no leases, file reservations, file holds, nodes, or due webhook deliveries.

use std::io;
use std::path::Path;

use futures::TryStreamExt;
use sqlx::postgres::{PgColumn, PgConnection, PgRow};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Connection, Postgres, Row, TypeInfo};

use super::convert::from_time;
use super::database_engine::{BEGIN_SNAPSHOT_SQL, CatalogTransaction, DatabaseEngine, SqlValue};
use super::restore::{CopyTarget, TABLE_NAMES_SQL};
use super::{Catalog, CatalogError, CatalogOptions, Result, sqlite};

#[derive(Clone, Copy, PartialEq, Eq)]
enum DueWebhookDeliveries {
    Keep,
    Remove,
}

impl Catalog {
    /// Writes a snapshot of the metadata database to a new SQLite file, which is durable on return. If the call fails,
    /// it removes the file. Call [`Catalog::acquire_file_hold`] first, so that no sweep removes the files of these
    /// records before they are copied, too. The cost is one read and one write of all records.
    pub async fn copy_to_sqlite(&self, path: &Path) -> Result<()> {
        self.copy_to_new_file(path, DueWebhookDeliveries::Remove).await
    }

    /// Like [`Catalog::copy_to_sqlite`], but keeps due webhook deliveries, for a database that is about to be replaced.
    pub async fn move_to_sqlite(&self, path: &Path) -> Result<()> {
        self.copy_to_new_file(path, DueWebhookDeliveries::Keep).await
    }

    async fn copy_to_new_file(&self, path: &Path, due_deliveries: DueWebhookDeliveries) -> Result<()> {
        let failed = |source| CatalogError::WriteCopy { path: path.to_owned(), source };
        let name = path.to_str().ok_or_else(|| failed(io::Error::other("the path is not valid UTF-8")))?;
        if tokio::fs::try_exists(path).await.map_err(failed)? {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let copied = async {
            self.write_sqlite_copy(name, due_deliveries).await?;
            sync_file_and_dir(path).await.map_err(failed)
        };
        let copied = copied.await;
        if copied.is_err() {
            for file in [path.to_owned(), format!("{name}-wal").into(), format!("{name}-shm").into()] {
                let _ = tokio::fs::remove_file(file).await;
            }
        }
        copied
    }

    async fn write_sqlite_copy(&self, path: &str, due_deliveries: DueWebhookDeliveries) -> Result<()> {
        if let DatabaseEngine::Sqlite { writer, .. } = &*self.engine {
            // The copy has its own connection, because it would occupy the only connection for writes.
            let mut connection = writer.pool.connect_options().as_ref().clone().connect().await?;
            sqlx::query("VACUUM INTO $1").bind(path).execute(&mut connection).await?;
            connection.close().await?;
        }
        let copy = sqlite::open(path, &CatalogOptions::default()).await?;
        let mut transaction = copy.begin().await?;
        if let (DatabaseEngine::Postgres(pool), CatalogTransaction::Sqlite(pooled)) = (&*self.engine, &mut transaction)
        {
            let mut snapshot = pool.begin(BEGIN_SNAPSHOT_SQL).await?;
            let (copy, _) = pooled.begin_statement()?;
            // The statement timeout does not apply to a full copy.
            let (original, _) = snapshot.begin_statement()?;
            copy_tables(original, copy).await?;
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
        transaction.execute(sql, &[from_time(self.now()), SqlValue::Text(Some(error))]).await?;
        if due_deliveries == DueWebhookDeliveries::Remove {
            transaction.execute("DELETE FROM webhook_deliveries WHERE claimed_at IS NULL", &[]).await?;
        }
        transaction.commit().await?;
        copy.close().await;
        Ok(())
    }
}

async fn sync_file_and_dir(path: &Path) -> io::Result<()> {
    tokio::fs::File::open(path).await?.sync_all().await?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tokio::fs::File::open(directory).await?.sync_all().await
}

/// Copies all rows of the PostgreSQL snapshot to empty tables with the same names and columns.
async fn copy_tables(snapshot: &mut PgConnection, copy: &mut SqliteConnection) -> Result<()> {
    // The foreign keys of datasets and versions form a cycle, so they are checked at the commit.
    sqlx::query("PRAGMA defer_foreign_keys = ON").execute(&mut *copy).await?;
    let tables: Vec<String> = sqlx::query_scalar(TABLE_NAMES_SQL).fetch_all(&mut *copy).await?;
    for table in &tables {
        let columns: Vec<String> =
            sqlx::query_scalar("SELECT name FROM pragma_table_info($1)").bind(table).fetch_all(&mut *copy).await?;
        let mut target = CopyTarget::Sqlite(&mut *copy);
        let insert = target.insert_sql(table, &columns);
        // The migrations have inserted rows into some new tables, which the copied rows replace.
        target.execute(format!("DELETE FROM {table}"), &[]).await?;
        // The statement is safe: the names of tables and columns come from the migrations, not from outside.
        let select = AssertSqlSafe(format!("SELECT {} FROM {table}", columns.join(", ")));
        let mut rows = sqlx::query::<Postgres>(select).fetch(&mut *snapshot);
        while let Some(row) = rows.try_next().await? {
            target.execute(insert.clone(), &values_from_pg_row(&row)?).await?;
        }
    }
    // IDs of deleted records must not be assigned again, so the last assigned IDs are copied, too.
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
        CopyTarget::Sqlite(&mut *copy).set_last_assigned_id(&table, last).await?;
    }
    Ok(())
}

/// Returns the values of a PostgreSQL row in the types of the SQLite copy.
fn values_from_pg_row(row: &PgRow) -> Result<Vec<SqlValue<'_>>, sqlx::Error> {
    let value = |column: &PgColumn| {
        Ok(match column.type_info().name() {
            "INT8" => SqlValue::Integer(row.try_get(column.ordinal())?),
            "BOOL" => SqlValue::Boolean(row.try_get(column.ordinal())?),
            _ => SqlValue::Text(row.try_get(column.ordinal())?),
        })
    };
    row.columns().iter().map(value).collect()
}
