//! The two database engines behind one interface: SQL text and values in, rows out.
//!
//! A statement is written once, with `$1` placeholders, `RETURNING` and `ON CONFLICT`, which both engines
//! take. Its values are a list of [`Value`], its rows any type that derives `sqlx::FromRow`.
//!
//! The drivers' futures take kilobytes each, so they are boxed here. The futures around them stay small.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Arguments, Database, Encode, FromRow, Postgres, Sqlite, Type};

use super::link::{Lent, Link, is_broken, within};
use super::{CatalogError, Result};

/// Begins a PostgreSQL transaction that only reads, all as of one moment.
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

#[derive(Clone, Debug)]
pub(super) enum Engine {
    Sqlite {
        readers: Link<Sqlite>,
        /// The one connection that writes. Each writer waits for it.
        writer: Link<Sqlite>,
    },
    Postgres(Link<Postgres>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Integer(i64),
    OptionalInteger(Option<i64>),
    Boolean(bool),
    OptionalBoolean(Option<bool>),
    Text(&'a str),
    OptionalText(Option<&'a str>),
}

/// A type that rows of either engine convert to.
pub(super) trait Row: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

/// What a row stands for.
pub(super) trait Record: Sized {
    type Row: Row;

    fn from_row(row: Self::Row) -> Result<Self>;
}

/// The statement that selects the columns of a macro from tables, with conditions.
macro_rules! select {
    ($columns:ident, $from:literal) => {
        concat!("SELECT ", $columns!(), " FROM ", $from)
    };
}
pub(super) use select;

/// Runs one statement on the connection of a transaction, whichever engine it is of.
macro_rules! run {
    ($transaction:expr, $query:ident($sql:expr, $values:expr).$fetch:ident() $(.map($then:expr))?) => {
        match $transaction {
            Transaction::Sqlite(lent) => run!(lent, Sqlite, $query($sql, $values).$fetch() $(.map($then))?),
            Transaction::Postgres(lent) => run!(lent, Postgres, $query($sql, $values).$fetch() $(.map($then))?),
        }
    };
    ($lent:expr, $engine:ident, $query:ident($sql:expr, $values:expr).$fetch:ident() $(.map($then:expr))?) => {{
        let query = sqlx::$query($sql, arguments::<$engine>($values)?);
        let (connection, limit) = $lent.statement()?;
        let outcome = Box::pin(within(limit, query.$fetch(connection))).await;
        $lent.judge(outcome)$(.map($then))?
    }};
}

impl Engine {
    /// The first row that `sql`, which only reads, yields.
    pub(super) async fn fetch_optional<T: Row>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<T>> {
        let mut connection = self.read().await?;
        match connection.first_row(sql, values).await {
            Err(error) if connection.is_worth_another(&error) => self.read().await?.fetch_optional(sql, values).await,
            outcome => Ok(outcome?),
        }
    }

    /// All rows that `sql`, which only reads, yields. The statement, or the data, must bound the number of rows.
    pub(super) async fn fetch_all<T: Row>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>> {
        let mut connection = self.read().await?;
        match connection.all_rows(sql, values).await {
            Err(error) if connection.is_worth_another(&error) => self.read().await?.fetch_all(sql, values).await,
            outcome => Ok(outcome?),
        }
    }

    /// As [`Engine::fetch_optional`], as what the row stands for.
    pub(super) async fn find<T: Record>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<T>> {
        self.fetch_optional(sql, values).await?.map(T::from_row).transpose()
    }

    /// As [`Engine::fetch_all`], as what the rows stand for.
    pub(super) async fn list<T: Record>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>> {
        self.fetch_all(sql, values).await?.into_iter().map(T::from_row).collect()
    }

    async fn read(&self) -> Result<Transaction, sqlx::Error> {
        Ok(match self {
            Engine::Sqlite { readers, .. } => Transaction::Sqlite(Box::pin(readers.lend()).await?),
            Engine::Postgres(link) => Transaction::Postgres(Box::pin(link.lend()).await?),
        })
    }

    /// Begins a transaction that writes. Under SQLite it holds the file's one write lock from here on.
    pub(super) async fn begin(&self) -> Result<Transaction> {
        Ok(match self {
            Engine::Sqlite { writer, .. } => Transaction::Sqlite(Box::pin(writer.begin("BEGIN IMMEDIATE")).await?),
            Engine::Postgres(link) => Transaction::Postgres(Box::pin(link.begin("BEGIN")).await?),
        })
    }

    /// Begins a transaction that only reads; all its statements see one moment.
    pub(super) async fn begin_snapshot(&self) -> Result<Transaction> {
        Ok(match self {
            Engine::Sqlite { readers, .. } => Transaction::Sqlite(Box::pin(readers.begin("BEGIN")).await?),
            Engine::Postgres(link) => Transaction::Postgres(Box::pin(link.begin(SNAPSHOT)).await?),
        })
    }

    pub(super) async fn close(self) {
        match self {
            Engine::Sqlite { readers, writer } => {
                readers.pool().close().await;
                writer.pool().close().await;
            }
            Engine::Postgres(link) => link.pool().close().await,
        }
    }

    /// Runs `sql`, which writes, as a transaction of its own and tells how many rows it changed.
    pub(super) async fn write(&self, sql: &'static str, values: &[Value<'_>]) -> Result<u64> {
        let mut transaction = self.begin().await?;
        let changed = transaction.execute(sql, values).await?;
        transaction.commit().await?;
        Ok(changed)
    }

    /// As [`Engine::write`]; if it changes no row, the outcome is `none`.
    pub(super) async fn write_or(&self, sql: &'static str, values: &[Value<'_>], none: CatalogError) -> Result<()> {
        if self.write(sql, values).await? == 0 { Err(none) } else { Ok(()) }
    }

    /// Whether `sql`, which only reads, yields a row; of one integer.
    pub(super) async fn has_row(&self, sql: &'static str, values: &[Value<'_>]) -> Result<bool> {
        Ok(self.fetch_optional::<(i64,)>(sql, values).await?.is_some())
    }
}

/// A transaction. Dropped without [`Transaction::commit`], it leaves no trace.
pub(super) enum Transaction {
    Sqlite(Lent<Sqlite>),
    /// Under PostgreSQL; one that writes is `READ COMMITTED`.
    Postgres(Lent<Postgres>),
}

impl Transaction {
    pub(super) async fn fetch_optional<T: Row>(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Option<T>> {
        Ok(self.first_row(sql, values).await?)
    }

    /// As [`Transaction::fetch_optional`], as what the row stands for.
    pub(super) async fn find<T: Record>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<T>> {
        self.fetch_optional(sql, values).await?.map(T::from_row).transpose()
    }

    pub(super) async fn fetch_all<T: Row>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>> {
        Ok(self.all_rows(sql, values).await?)
    }

    pub(super) async fn fetch_one<T: Row>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<T> {
        Ok(self.first_row(sql, values).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    async fn first_row<T: Row>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<T>, sqlx::Error> {
        run!(self, query_as_with(sql, values).fetch_optional())
    }

    async fn all_rows<T: Row>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>, sqlx::Error> {
        run!(self, query_as_with(sql, values).fetch_all())
    }

    pub(super) async fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64> {
        Ok(run!(self, query_with(sql, values).execute().map(|done| done.rows_affected()))?)
    }

    /// Runs `sql`; if it changes no row, the outcome is `none`.
    pub(super) async fn execute_or(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
        none: CatalogError,
    ) -> Result<()> {
        if self.execute(sql, values).await? == 0 { Err(none) } else { Ok(()) }
    }

    pub(super) async fn commit(self) -> Result<()> {
        match self {
            Transaction::Sqlite(lent) => Box::pin(lent.commit()).await?,
            Transaction::Postgres(lent) => Box::pin(lent.commit()).await?,
        }
        Ok(())
    }

    /// Whether what failed so may succeed on another connection: this one broke, perhaps long ago, while it was idle.
    fn is_worth_another(&self, error: &sqlx::Error) -> bool {
        match self {
            Transaction::Sqlite(_) => false,
            Transaction::Postgres(lent) => lent.is_discarded() && is_broken(error) && !is_timeout(error),
        }
    }
}

fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut)
}

pub(super) fn arguments<'q, DB: Database>(values: &[Value<'q>]) -> Result<DB::Arguments, sqlx::Error>
where
    bool: Encode<'q, DB> + Type<DB>,
    Option<bool>: Encode<'q, DB> + Type<DB>,
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
            Value::OptionalBoolean(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value),
            Value::OptionalText(value) => arguments.add(value),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// How many values a statement asks for that asks for many: always for as many, so that there is one statement. A page
/// of them is filled up with nulls, which are never found.
pub(super) const AT_ONCE: usize = 100;

/// `$1, $2` and so on.
pub(super) fn placeholders(count: usize) -> String {
    (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

/// What a statement yields for these texts, a hundred at a time. One that the catalog cannot hold is never found.
pub(super) async fn rows_of_texts<T: Row>(engine: &Engine, sql: &'static str, texts: &[&str]) -> Result<Vec<T>> {
    let mut rows = Vec::new();
    for chunk in texts.chunks(AT_ONCE) {
        let text = |number| chunk.get(number).copied().filter(|text: &&str| !text.contains('\0'));
        let values: Vec<Value<'_>> = (0..AT_ONCE).map(|number| Value::OptionalText(text(number))).collect();
        rows.extend(engine.fetch_all::<T>(sql, &values).await?);
    }
    Ok(rows)
}
