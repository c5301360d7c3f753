//! The two database engines behind one interface: SQL text and values in, rows out. Each statement is written once,
//! with `$1` placeholders, `RETURNING`, and `ON CONFLICT`, which both engines accept. The futures of the drivers are
//! several kilobytes large, so this module boxes them.

use std::collections::HashSet;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Arguments, Column as _, ColumnIndex, Database, Decode, Encode, Postgres, Row as _, SqlStr, Sqlite, Type};

use super::connection_pool::{ConnectionPool, PooledConnection, is_connection_error, with_statement_timeout};
use super::{CatalogError, Result};

pub(super) fn new_migrator(sql: &'static str) -> Migrator {
    let initial = Migration::new(1, "initial".into(), MigrationType::Simple, SqlStr::from_static(sql), false);
    Migrator::with_migrations(vec![initial])
}

pub(super) const BEGIN_SNAPSHOT_SQL: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

#[derive(Debug)]
pub(super) enum DatabaseEngine {
    Sqlite {
        readers: ConnectionPool<Sqlite>,
        /// A pool with a single connection for all writes, because SQLite allows only one writer at a time.
        writer: ConnectionPool<Sqlite>,
    },
    Postgres(ConnectionPool<Postgres>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SqlValue<'a> {
    Integer(Option<i64>),
    Boolean(Option<bool>),
    Text(Option<&'a str>),
}

impl From<u32> for SqlValue<'_> {
    fn from(number: u32) -> Self {
        SqlValue::Integer(Some(number.into()))
    }
}

pub(super) enum SqlRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

pub(super) trait DecodeColumn<'r>:
    Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>
{
}

impl<'r, T> DecodeColumn<'r> for T where T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres> {}

impl SqlRow {
    pub(super) fn get<'r, T, I>(&'r self, column: I) -> Result<T>
    where
        T: DecodeColumn<'r>,
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        Ok(match self {
            SqlRow::Sqlite(row) => row.try_get(column)?,
            SqlRow::Postgres(row) => row.try_get(column)?,
        })
    }

    fn column_name(&self, position: usize) -> Option<&str> {
        match self {
            SqlRow::Sqlite(row) => row.columns().get(position).map(|column| column.name()),
            SqlRow::Postgres(row) => row.columns().get(position).map(|column| column.name()),
        }
    }
}

/// Reads the columns of a row in the order of its statement. `sqlx` needs several times the instructions to find a
/// column by its name, and each request reads forty columns (`benches/instructions`, look-up of a dataset).
pub(super) struct OrderedColumns<'r> {
    row: &'r SqlRow,
    position: usize,
}

impl<'r> OrderedColumns<'r> {
    pub(super) fn new(row: &'r SqlRow) -> OrderedColumns<'r> {
        OrderedColumns { row, position: 0 }
    }

    /// Reads the next column of the row, whose name must be `name`.
    pub(super) fn read_next<T: DecodeColumn<'r>>(&mut self, name: &str) -> Result<T> {
        debug_assert_eq!(self.row.column_name(self.position), Some(name), "the statement selects other columns");
        let value = self.row.get(self.position)?;
        self.position += 1;
        Ok(value)
    }
}

/// A type that can be decoded from a row. Tuples are decoded from the first columns of the row.
pub(super) trait FromSqlRow: Sized + Send + Unpin {
    fn from_row(row: &SqlRow) -> Result<Self>;
}

macro_rules! tuple_records {
    ($(($($index:tt: $type:ident),+)),+) => {$(
        impl<$($type: for<'r> DecodeColumn<'r> + Send + Unpin),+> FromSqlRow for ($($type,)+) {
            fn from_row(row: &SqlRow) -> Result<Self> {
                Ok(($(row.get::<$type, _>($index)?,)+))
            }
        }
    )+};
}
tuple_records!((0: A), (0: A, 1: B), (0: A, 1: B, 2: C), (0: A, 1: B, 2: C, 3: D));

/// The columns of a table that its row type needs. They are listed by name, because a newer version of strata might
/// add columns while this one runs. A dataset reads its columns in this order. The columns of `datasets` and `users`
/// are qualified for joins; SQLite does not accept an alias in `RETURNING`.
macro_rules! columns {
    (datasets) => {
        "datasets.dataset_id, datasets.owner_id, datasets.name, datasets.name_slug, datasets.private_key, \
         datasets.source, datasets.format, datasets.records_path, datasets.publish_query, datasets.schedule, \
         datasets.index_paths, datasets.ping_token, datasets.latest_version, datasets.pinned_version, \
         datasets.frozen, datasets.created_at, datasets.description, datasets.licence, datasets.listed, \
         datasets.infer_types, datasets.record_checksum"
    };
    (files) => {
        "file_id, path, size_bytes, entity_count, content_hash, unreferenced_since"
    };
    (nodes) => {
        "node_id, process, version, roles, internal_address, started_at, seen_at"
    };
    (sessions) => {
        "session_hash, user_id, data, created_at, expires_at, last_used_at, record_checksum"
    };
    (users) => {
        "users.user_id, users.email, users.email_key, users.password_hash, users.plan, users.created_at"
    };
    (webhooks) => {
        "url, secret, is_active, last_fired_at, last_status, created_at"
    };
}
pub(super) use columns;

macro_rules! select {
    ($table:ident, $conditions:literal) => {
        concat!("SELECT ", $crate::database_engine::columns!($table), " FROM ", stringify!($table), " ", $conditions)
    };
}
pub(super) use select;

/// Runs one statement in a transaction of either database engine.
macro_rules! run {
    ($transaction:expr, query($($query:expr),+).$fetch:ident() $(.map($then:expr))?) => {
        match $transaction {
            CatalogTransaction::Sqlite(pooled) => run!(pooled, Sqlite, query($($query),+).$fetch() $(.map($then))?),
            CatalogTransaction::Postgres(pooled) => run!(pooled, Postgres, query($($query),+).$fetch() $(.map($then))?),
        }
    };
    ($pooled:expr, $engine:ident, query($sql:expr, $values:expr $(, $read:expr)?).$fetch:ident()
     $(.map($then:expr))?) => {{
        let query = sqlx::query_with::<$engine, _>($sql, bind_arguments::<$engine>($values)?);
        $(let query = query.map(|row| $read(&SqlRow::$engine(row)));)?
        let (connection, limit) = $pooled.begin_statement()?;
        let outcome = Box::pin(with_statement_timeout(limit, query.$fetch(connection))).await;
        $pooled.finish_statement(outcome)$(.map($then))?
    }};
}

impl DatabaseEngine {
    pub(super) async fn find<T: FromSqlRow>(&self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Option<T>> {
        Ok(self.list(sql, values).await?.into_iter().next())
    }

    /// Returns all rows of the statement `sql`, which must not write, and must not return an unlimited number of rows.
    pub(super) async fn list<T: FromSqlRow>(&self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<T>> {
        self.list_with(sql, values, T::from_row).await
    }

    /// Like [`DatabaseEngine::list`], but decodes each row with `read`.
    pub(super) async fn list_with<T: Send + Unpin>(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        read: impl Fn(&SqlRow) -> Result<T> + Send + Sync,
    ) -> Result<Vec<T>> {
        let mut connection = self.acquire_reader().await?;
        let rows = match connection.fetch_rows(sql, values, &read).await {
            Err(error) if connection.can_retry(&error) => {
                self.acquire_reader().await?.fetch_rows(sql, values, &read).await
            }
            rows => rows,
        };
        rows?.into_iter().collect()
    }

    async fn acquire_reader(&self) -> Result<CatalogTransaction, sqlx::Error> {
        Ok(match self {
            DatabaseEngine::Sqlite { readers, .. } => CatalogTransaction::Sqlite(Box::pin(readers.acquire()).await?),
            DatabaseEngine::Postgres(pool) => CatalogTransaction::Postgres(Box::pin(pool.acquire()).await?),
        })
    }

    /// Begins a read-write transaction. Under SQLite, it holds the write lock of the file until its end.
    pub(super) async fn begin(&self) -> Result<CatalogTransaction> {
        Ok(match self {
            DatabaseEngine::Sqlite { writer, .. } => {
                CatalogTransaction::Sqlite(Box::pin(writer.begin("BEGIN IMMEDIATE")).await?)
            }
            DatabaseEngine::Postgres(pool) => CatalogTransaction::Postgres(Box::pin(pool.begin("BEGIN")).await?),
        })
    }

    /// Begins a read-only transaction whose statements all see the same snapshot.
    pub(super) async fn begin_snapshot(&self) -> Result<CatalogTransaction> {
        Ok(match self {
            DatabaseEngine::Sqlite { readers, .. } => {
                CatalogTransaction::Sqlite(Box::pin(readers.begin("BEGIN")).await?)
            }
            DatabaseEngine::Postgres(pool) => {
                CatalogTransaction::Postgres(Box::pin(pool.begin(BEGIN_SNAPSHOT_SQL)).await?)
            }
        })
    }

    pub(super) async fn close(&self) {
        match self {
            DatabaseEngine::Sqlite { readers, writer } => {
                readers.pool.close().await;
                writer.pool.close().await;
            }
            DatabaseEngine::Postgres(pool) => pool.pool.close().await,
        }
    }

    pub(super) async fn write(&self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let changed = transaction.execute(sql, values).await?;
        transaction.commit().await?;
        Ok(changed)
    }

    /// Like [`DatabaseEngine::write`], but returns the error `if_no_rows` if the statement has changed no row.
    pub(super) async fn write_or_error(
        &self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        if_no_rows: CatalogError,
    ) -> Result<()> {
        if self.write(sql, values).await? == 0 { Err(if_no_rows) } else { Ok(()) }
    }

    /// Returns whether `sql`, which must select one integer column, returns a row.
    pub(super) async fn has_row(&self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<bool> {
        Ok(self.find::<(i64,)>(sql, values).await?.is_some())
    }
}

/// A transaction. It is rolled back unless [`CatalogTransaction::commit`] is called.
pub(super) enum CatalogTransaction {
    Sqlite(PooledConnection<Sqlite>),
    /// The isolation level is `READ COMMITTED` if the transaction writes.
    Postgres(PooledConnection<Postgres>),
}

impl CatalogTransaction {
    pub(super) async fn find<T: FromSqlRow>(&mut self, sql: &'static str, args: &[SqlValue<'_>]) -> Result<Option<T>> {
        Ok(self.list(sql, args).await?.into_iter().next())
    }

    pub(super) async fn list<T: FromSqlRow>(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<T>> {
        self.fetch_rows(sql, values, T::from_row).await?.into_iter().collect()
    }

    /// Like [`CatalogTransaction::find`], for a statement that always returns a row.
    pub(super) async fn fetch_one<T: FromSqlRow>(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<T> {
        Ok(self.find(sql, values).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    async fn fetch_rows<T: Send + Unpin>(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        read: impl Fn(&SqlRow) -> Result<T> + Send + Sync,
    ) -> Result<Vec<Result<T>>, sqlx::Error> {
        run!(self, query(sql, values, read).fetch_all())
    }

    pub(super) async fn execute(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<u64> {
        Ok(run!(self, query(sql, values).execute().map(|result| result.rows_affected()))?)
    }

    pub(super) async fn execute_or_error(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        if_no_rows: CatalogError,
    ) -> Result<()> {
        if self.execute(sql, values).await? == 0 { Err(if_no_rows) } else { Ok(()) }
    }

    pub(super) async fn commit(self) -> Result<()> {
        match self {
            CatalogTransaction::Sqlite(pooled) => Box::pin(pooled.commit()).await?,
            CatalogTransaction::Postgres(pooled) => Box::pin(pooled.commit()).await?,
        }
        Ok(())
    }

    /// Returns whether a failed read can be repeated on another connection. This is the case if its connection broke,
    /// perhaps while it was idle.
    fn can_retry(&self, error: &sqlx::Error) -> bool {
        let is_timeout = matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
        matches!(self, CatalogTransaction::Postgres(pooled) if pooled.is_discarded())
            && is_connection_error(error)
            && !is_timeout
    }
}

pub(super) fn bind_arguments<'q, DB: Database>(values: &[SqlValue<'q>]) -> Result<DB::Arguments, sqlx::Error>
where
    Option<bool>: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    Option<&'q str>: Encode<'q, DB> + Type<DB>,
{
    let mut arguments = DB::Arguments::default();
    for value in values {
        match *value {
            SqlValue::Integer(value) => arguments.add(value),
            SqlValue::Boolean(value) => arguments.add(value),
            SqlValue::Text(value) => arguments.add(value),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// The number of placeholders in an SQL list, as in `IN ($1, $2)`. Unused placeholders are null, so that one prepared
/// statement serves lists of all lengths.
pub(super) const LIST_PLACEHOLDERS: usize = 100;

pub(super) fn placeholders(count: usize) -> String {
    (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

/// Returns the strings in `texts` that `sql` returns in its first column.
pub(super) async fn find_texts(engine: &DatabaseEngine, sql: &'static str, texts: &[&str]) -> Result<HashSet<String>> {
    let mut found = HashSet::new();
    for chunk in texts.chunks(LIST_PLACEHOLDERS) {
        let text = |number| chunk.get(number).copied().filter(|text: &&str| !text.contains('\0'));
        let values: Vec<SqlValue<'_>> = (0..LIST_PLACEHOLDERS).map(|number| SqlValue::Text(text(number))).collect();
        found.extend(engine.list_with(sql, &values, |row| row.get::<String, _>(0)).await?);
    }
    Ok(found)
}
