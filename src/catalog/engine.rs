//! The two database engines behind one interface: SQL text and values in, rows out.
//!
//! A statement is written once, with `$1` placeholders, `RETURNING` and `ON CONFLICT`, which both engines take. The
//! drivers' futures take kilobytes each, so they are boxed here.

use std::collections::HashSet;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Arguments, ColumnIndex, Database, Decode, Encode, Postgres, Row as _, SqlStr, Sqlite, Type};

use super::link::{Lent, Link, is_broken, within};
use super::{CatalogError, Result};

pub(super) fn migrator(sql: &'static str) -> Migrator {
    let initial = Migration::new(1, "initial".into(), MigrationType::Simple, SqlStr::from_static(sql), false);
    Migrator::with_migrations(vec![initial])
}

/// Begins a PostgreSQL transaction that only reads, all as of one moment.
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

#[derive(Debug)]
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
    Integer(Option<i64>),
    Boolean(Option<bool>),
    Text(Option<&'a str>),
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Value::Integer(Some(number.into()))
    }
}

pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

pub(super) trait Cell<'r>: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres> {}

impl<'r, T> Cell<'r> for T where T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres> {}

impl Row {
    pub(super) fn get<'r, T, I>(&'r self, column: I) -> Result<T>
    where
        T: Cell<'r>,
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        Ok(match self {
            Row::Sqlite(row) => row.try_get(column)?,
            Row::Postgres(row) => row.try_get(column)?,
        })
    }
}

/// What a row stands for, or a tuple of its first columns.
pub(super) trait Record: Sized + Send + Unpin {
    fn from_row(row: &Row) -> Result<Self>;
}

macro_rules! tuple_records {
    ($(($($place:tt: $type:ident),+)),+) => {$(
        impl<$($type: for<'r> Cell<'r> + Send + Unpin),+> Record for ($($type,)+) {
            fn from_row(row: &Row) -> Result<Self> {
                Ok(($(row.get::<$type, _>($place)?,)+))
            }
        }
    )+};
}
tuple_records!((0: A), (0: A, 1: B), (0: A, 1: B, 2: C), (0: A, 1: B, 2: C, 3: D));

/// The columns that a record of a table is read from. They are named, because a newer version of the service may add
/// others while this one runs. Those of `datasets` are qualified, because SQLite does not take an alias in `RETURNING`.
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
        concat!("SELECT ", $crate::engine::columns!($table), " FROM ", stringify!($table), " ", $conditions)
    };
}
pub(super) use select;

/// Runs one statement on the connection of a transaction, whichever engine it is of.
macro_rules! run {
    ($transaction:expr, query($($query:expr),+).$fetch:ident() $(.map($then:expr))?) => {
        match $transaction {
            Transaction::Sqlite(lent) => run!(lent, Sqlite, query($($query),+).$fetch() $(.map($then))?),
            Transaction::Postgres(lent) => run!(lent, Postgres, query($($query),+).$fetch() $(.map($then))?),
        }
    };
    ($lent:expr, $engine:ident, query($sql:expr, $values:expr $(, $read:expr)?).$fetch:ident()
     $(.map($then:expr))?) => {{
        let query = sqlx::query_with::<$engine, _>($sql, arguments::<$engine>($values)?);
        $(let query = query.map(|row| $read(&Row::$engine(row)));)?
        let (connection, limit) = $lent.statement()?;
        let outcome = Box::pin(within(limit, query.$fetch(connection))).await;
        $lent.judge(outcome)$(.map($then))?
    }};
}

impl Engine {
    pub(super) async fn find<T: Record>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<T>> {
        Ok(self.list(sql, values).await?.into_iter().next())
    }

    /// All records that `sql`, which only reads, yields. The statement, or the data, must bound their number.
    pub(super) async fn list<T: Record>(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>> {
        self.list_with(sql, values, T::from_row).await
    }

    /// As [`Engine::list`], of what `read` makes of each row.
    pub(super) async fn list_with<T: Send + Unpin>(
        &self,
        sql: &'static str,
        values: &[Value<'_>],
        read: impl Fn(&Row) -> Result<T> + Send + Sync,
    ) -> Result<Vec<T>> {
        let mut connection = self.read().await?;
        let rows = match connection.all_rows(sql, values, &read).await {
            Err(error) if connection.is_worth_another(&error) => self.read().await?.all_rows(sql, values, &read).await,
            rows => rows,
        };
        rows?.into_iter().collect()
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

    pub(super) async fn close(&self) {
        match self {
            Engine::Sqlite { readers, writer } => {
                readers.pool.close().await;
                writer.pool.close().await;
            }
            Engine::Postgres(link) => link.pool.close().await,
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
        Ok(self.find::<(i64,)>(sql, values).await?.is_some())
    }
}

/// A transaction. Dropped without [`Transaction::commit`], it leaves no trace.
pub(super) enum Transaction {
    Sqlite(Lent<Sqlite>),
    /// Under PostgreSQL; one that writes is `READ COMMITTED`.
    Postgres(Lent<Postgres>),
}

impl Transaction {
    pub(super) async fn find<T: Record>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<T>> {
        Ok(self.list(sql, values).await?.into_iter().next())
    }

    pub(super) async fn list<T: Record>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<T>> {
        self.all_rows(sql, values, T::from_row).await?.into_iter().collect()
    }

    /// As [`Transaction::find`], of a statement that always yields a row.
    pub(super) async fn one<T: Record>(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<T> {
        Ok(self.find(sql, values).await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    async fn all_rows<T: Send + Unpin>(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
        read: impl Fn(&Row) -> Result<T> + Send + Sync,
    ) -> Result<Vec<Result<T>>, sqlx::Error> {
        run!(self, query(sql, values, read).fetch_all())
    }

    pub(super) async fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64> {
        Ok(run!(self, query(sql, values).execute().map(|done| done.rows_affected()))?)
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
        let is_timeout = matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
        matches!(self, Transaction::Postgres(lent) if lent.is_discarded()) && is_broken(error) && !is_timeout
    }
}

pub(super) fn arguments<'q, DB: Database>(values: &[Value<'q>]) -> Result<DB::Arguments, sqlx::Error>
where
    Option<bool>: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    Option<&'q str>: Encode<'q, DB> + Type<DB>,
{
    let mut arguments = DB::Arguments::default();
    for value in values {
        match *value {
            Value::Integer(value) => arguments.add(value),
            Value::Boolean(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// The number of values in a list of a statement, which is filled up with nulls, so that there is one statement.
pub(super) const AT_ONCE: usize = 100;

pub(super) fn placeholders(count: usize) -> String {
    (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

/// The texts among these that a statement yields in its first column.
pub(super) async fn texts_found(engine: &Engine, sql: &'static str, texts: &[&str]) -> Result<HashSet<String>> {
    let mut found = HashSet::new();
    for chunk in texts.chunks(AT_ONCE) {
        let text = |number| chunk.get(number).copied().filter(|text: &&str| !text.contains('\0'));
        let values: Vec<Value<'_>> = (0..AT_ONCE).map(|number| Value::Text(text(number))).collect();
        found.extend(engine.list_with(sql, &values, |row| row.get::<String, _>(0)).await?);
    }
    Ok(found)
}
