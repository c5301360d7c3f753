//! Converts between database values and the types of `strata_types`.

use chrono::{DateTime, Utc};
use strata_types::ids::{DatasetId, FileHoldId, RefreshAttemptId, UserId, VersionFileId};
use strata_types::version::VersionNumber;

use super::database_engine::{SqlRow, SqlValue};
use super::{CatalogError, Result};

/// Converts a string from outside. U+0000 is an error, because PostgreSQL cannot store it.
pub(super) fn from_text<'a>(value: &'a str, field: &'static str) -> Result<SqlValue<'a>> {
    if value.contains('\0') { Err(CatalogError::NulCharacter { field }) } else { Ok(SqlValue::Text(Some(value))) }
}

pub(super) fn from_optional_text<'a>(value: Option<&'a str>, field: &'static str) -> Result<SqlValue<'a>> {
    value.map_or(Ok(SqlValue::Text(None)), |value| from_text(value, field))
}

/// Converts a time to its stored form: microseconds since the Unix epoch.
pub(super) fn from_time(time: DateTime<Utc>) -> SqlValue<'static> {
    SqlValue::Integer(Some(time.timestamp_micros()))
}

pub(super) fn to_time(micros: i64, column: &'static str) -> Result<DateTime<Utc>> {
    DateTime::from_timestamp_micros(micros).ok_or_else(|| CatalogError::invalid_value(column, micros))
}

pub(super) fn from_optional_time(time: Option<DateTime<Utc>>) -> SqlValue<'static> {
    SqlValue::Integer(time.map(|time| time.timestamp_micros()))
}

/// Converts an unsigned number to the signed type of database columns. The conversion is exact for all stored numbers.
pub(super) fn to_saturating_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts the cursor of a page of records; `None` becomes `first_page`. Cursors beyond `i64` sort last.
pub(super) fn from_cursor(cursor: Option<u64>, first_page: i64) -> SqlValue<'static> {
    SqlValue::Integer(Some(cursor.map_or(first_page, to_saturating_i64)))
}

/// Converts IDs for comparison with stored IDs. An ID too large for the database becomes -1, which no record has.
macro_rules! key {
    ($($id:ty),*) => {
        $(impl From<$id> for SqlValue<'static> {
            fn from(id: $id) -> Self {
                SqlValue::Integer(Some(i64::try_from(id.get()).unwrap_or(-1)))
            }
        })*
    };
}

key!(UserId, DatasetId, VersionFileId, RefreshAttemptId, FileHoldId, VersionNumber);

pub(super) fn from_optional_id<T>(id: Option<T>) -> SqlValue<'static>
where
    SqlValue<'static>: From<T>,
{
    id.map_or(SqlValue::Integer(None), SqlValue::from)
}

pub(super) fn from_unsigned(value: u64, field: &'static str) -> Result<SqlValue<'static>> {
    let number = i64::try_from(value).map_err(|_| CatalogError::OutOfRange { field, value })?;
    Ok(SqlValue::Integer(Some(number)))
}

pub(super) fn to_unsigned(value: i64, column: &'static str) -> Result<u64> {
    u64::try_from(value).map_err(|_| CatalogError::invalid_value(column, value))
}

pub(super) fn to_parsed<T: std::str::FromStr>(value: String, column: &'static str) -> Result<T> {
    value.parse().map_err(|_| CatalogError::InvalidColumnValue { column, value })
}

/// Decodes columns by their qualified names, for example `users.plan`, so that errors contain the name of the table.
impl SqlRow {
    pub(super) fn get_unsigned(&self, column: &'static str) -> Result<u64> {
        to_unsigned(self.get(strip_table_name(column))?, column)
    }

    pub(super) fn get_optional_unsigned(&self, column: &'static str) -> Result<Option<u64>> {
        self.get::<Option<i64>, _>(strip_table_name(column))?.map(|value| to_unsigned(value, column)).transpose()
    }

    pub(super) fn get_time(&self, column: &'static str) -> Result<DateTime<Utc>> {
        to_time(self.get(strip_table_name(column))?, column)
    }

    pub(super) fn get_optional_time(&self, column: &'static str) -> Result<Option<DateTime<Utc>>> {
        self.get::<Option<i64>, _>(strip_table_name(column))?.map(|micros| to_time(micros, column)).transpose()
    }

    pub(super) fn get_parsed<T: std::str::FromStr>(&self, column: &'static str) -> Result<T> {
        to_parsed(self.get(strip_table_name(column))?, column)
    }
}

fn strip_table_name(column: &'static str) -> &'static str {
    column.split_once('.').map_or(column, |(_, name)| name)
}
