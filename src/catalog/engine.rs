//! The two database engines behind one face: SQL text and values in, rows out.
//!
//! A statement is written once, with `$1` placeholders, `RETURNING` and `ON CONFLICT`, which both engines
//! take. Its values are a list of [`Value`], its rows any type that derives `sqlx::FromRow`.

use sqlx::postgres::{PgPool, PgRow};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Arguments, Database, Encode, FromRow, Postgres, Sqlite, Type};

/// The connections to one database.
#[derive(Clone, Debug)]
pub(super) enum Engine {
    /// An SQLite file.
    Sqlite {
        /// Several connections that can only read.
        readers: SqlitePool,
        /// The one connection that writes; who wants to write waits for it.
        writer: SqlitePool,
    },
    /// A PostgreSQL database.
    Postgres(PgPool),
}

/// A value for a placeholder.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// An integer.
    Integer(i64),
    /// An integer or null.
    OptionalInteger(Option<i64>),
    /// A truth value.
    Boolean(bool),
    /// A text.
    Text(&'a str),
    /// A text or null.
    OptionalText(Option<&'a str>),
}

/// A type that rows of either engine convert to.
pub(super) trait Row: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl Engine {
    /// The first row that `sql`, which only reads, yields.
    pub async fn fetch_optional<T: Row>(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<T>, sqlx::Error> {
        match self {
            Engine::Sqlite { readers, .. } => {
                sqlx::query_as_with(sql, arguments::<Sqlite>(values)?).fetch_optional(readers).await
            }
            Engine::Postgres(pool) => {
                sqlx::query_as_with(sql, arguments::<Postgres>(values)?).fetch_optional(pool).await
            }
        }
    }

    /// All rows that `sql`, which only reads, yields. What it reads must be bounded by it or by its nature.
    pub async fn fetch_all<T: Row>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>, sqlx::Error> {
        match self {
            Engine::Sqlite { readers, .. } => {
                sqlx::query_as_with(sql, arguments::<Sqlite>(values)?).fetch_all(readers).await
            }
            Engine::Postgres(pool) => sqlx::query_as_with(sql, arguments::<Postgres>(values)?).fetch_all(pool).await,
        }
    }

    /// Runs `sql`, which only reads, for its success alone.
    pub async fn execute(&self, sql: &'static str, values: &[Value<'_>]) -> Result<(), sqlx::Error> {
        match self {
            Engine::Sqlite { readers, .. } => {
                sqlx::query_with(sql, arguments::<Sqlite>(values)?).execute(readers).await?;
            }
            Engine::Postgres(pool) => {
                sqlx::query_with(sql, arguments::<Postgres>(values)?).execute(pool).await?;
            }
        }
        Ok(())
    }

    /// Begins a transaction that writes. Under SQLite it holds the file's one write lock from here on.
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        Ok(match self {
            Engine::Sqlite { writer, .. } => Transaction::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await?),
            Engine::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
        })
    }

    /// Begins a transaction that only reads; all its statements see one moment.
    pub async fn begin_snapshot(&self) -> Result<Transaction, sqlx::Error> {
        Ok(match self {
            Engine::Sqlite { readers, .. } => Transaction::Sqlite(readers.begin().await?),
            Engine::Postgres(pool) => {
                Transaction::Postgres(pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?)
            }
        })
    }

    /// Closes all connections. An SQLite file is whole afterwards, without a log beside it.
    pub async fn close(self) {
        match self {
            Engine::Sqlite { readers, writer } => {
                readers.close().await;
                writer.close().await;
            }
            Engine::Postgres(pool) => pool.close().await,
        }
    }

    /// Runs `sql`, which writes, as a transaction of its own and tells how many rows it changed.
    pub async fn write(&self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        let mut transaction = self.begin().await?;
        let changed = transaction.execute(sql, values).await?;
        transaction.commit().await?;
        Ok(changed)
    }
}

/// A transaction. Dropped without [`Transaction::commit`], it leaves no trace.
pub(super) enum Transaction {
    /// Under SQLite.
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    /// Under PostgreSQL; one that writes is `READ COMMITTED`.
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Transaction {
    /// The first row that `sql` yields.
    pub async fn fetch_optional<T: Row>(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<T>, sqlx::Error> {
        match self {
            Transaction::Sqlite(transaction) => {
                sqlx::query_as_with(sql, arguments::<Sqlite>(values)?).fetch_optional(&mut **transaction).await
            }
            Transaction::Postgres(transaction) => {
                sqlx::query_as_with(sql, arguments::<Postgres>(values)?).fetch_optional(&mut **transaction).await
            }
        }
    }

    /// All rows that `sql` yields. What it reads must be bounded by it or by its nature.
    pub async fn fetch_all<T: Row>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>, sqlx::Error> {
        match self {
            Transaction::Sqlite(transaction) => {
                sqlx::query_as_with(sql, arguments::<Sqlite>(values)?).fetch_all(&mut **transaction).await
            }
            Transaction::Postgres(transaction) => {
                sqlx::query_as_with(sql, arguments::<Postgres>(values)?).fetch_all(&mut **transaction).await
            }
        }
    }

    /// The one row that `sql` yields.
    pub async fn fetch_one<T: Row>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<T, sqlx::Error> {
        self.fetch_optional(sql, values).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// Runs `sql` and tells how many rows it changed.
    pub async fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        Ok(match self {
            Transaction::Sqlite(transaction) => {
                sqlx::query_with(sql, arguments::<Sqlite>(values)?).execute(&mut **transaction).await?.rows_affected()
            }
            Transaction::Postgres(transaction) => {
                sqlx::query_with(sql, arguments::<Postgres>(values)?).execute(&mut **transaction).await?.rows_affected()
            }
        })
    }

    /// Makes everything done in it permanent and visible, all at once.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Transaction::Sqlite(transaction) => transaction.commit().await,
            Transaction::Postgres(transaction) => transaction.commit().await,
        }
    }
}

/// The values in the form in which the engine's driver takes them.
fn arguments<'q, DB: Database>(values: &[Value<'q>]) -> Result<DB::Arguments, sqlx::Error>
where
    bool: Encode<'q, DB> + Type<DB>,
    i64: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    &'q str: Encode<'q, DB> + Type<DB>,
    Option<&'q str>: Encode<'q, DB> + Type<DB>,
{
    let mut arguments = DB::Arguments::default();
    for value in values {
        match *value {
            Value::Integer(value) => arguments.add(value),
            Value::OptionalInteger(value) => arguments.add(value),
            Value::Boolean(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value),
            Value::OptionalText(value) => arguments.add(value),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}
