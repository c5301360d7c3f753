//! Converts between the signed numbers of the database and the types of `model`.

use chrono::{DateTime, Utc};
use strata_types::ids::{AttemptId, DatasetId, FileId, HoldId, UserId};
use strata_types::version::VersionNumber;

use super::engine::{Row, Value};
use super::{CatalogError, Result};

/// A text from outside. PostgreSQL cannot store U+0000, so it is refused with both engines.
pub(super) fn text<'a>(value: &'a str, field: &'static str) -> Result<Value<'a>> {
    if value.contains('\0') { Err(CatalogError::Nul { field }) } else { Ok(Value::Text(Some(value))) }
}

pub(super) fn optional_text<'a>(value: Option<&'a str>, field: &'static str) -> Result<Value<'a>> {
    value.map_or(Ok(Value::Text(None)), |value| text(value, field))
}

/// A time as the database keeps it: microseconds since 1970-01-01T00:00:00Z.
pub(super) fn from_time(time: DateTime<Utc>) -> Value<'static> {
    Value::Integer(Some(time.timestamp_micros()))
}

pub(super) fn to_time(micros: i64, column: &'static str) -> Result<DateTime<Utc>> {
    DateTime::from_timestamp_micros(micros).ok_or_else(|| CatalogError::Corrupt { column, value: micros.to_string() })
}

pub(super) fn from_optional_time(time: Option<DateTime<Utc>>) -> Value<'static> {
    Value::Integer(time.map(|time| time.timestamp_micros()))
}

/// As a signed number, or the greatest one. What the database holds fits.
pub(super) fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The number at which a page begins, or `all`. One that the database cannot hold is greater than all that it holds.
pub(super) fn from_cursor(number: Option<u64>, all: i64) -> Value<'static> {
    Value::Integer(Some(number.map_or(all, saturated)))
}

/// A number to compare with an id or a version number; -1, which no record has, if the database cannot hold it.
fn key(number: u64) -> Value<'static> {
    Value::Integer(Some(i64::try_from(number).unwrap_or(-1)))
}

macro_rules! key {
    ($($id:ty),*) => {
        $(impl From<$id> for Value<'static> {
            fn from(id: $id) -> Self {
                key(id.get())
            }
        })*
    };
}

key!(UserId, DatasetId, FileId, AttemptId, HoldId, VersionNumber);

pub(super) fn from_optional<T>(id: Option<T>) -> Value<'static>
where
    Value<'static>: From<T>,
{
    id.map_or(Value::Integer(None), Value::from)
}

pub(super) fn from_unsigned(value: u64, field: &'static str) -> Result<Value<'static>> {
    let number = i64::try_from(value).map_err(|_| CatalogError::OutOfRange { field, value })?;
    Ok(Value::Integer(Some(number)))
}

pub(super) fn to_unsigned(value: i64, column: &'static str) -> Result<u64> {
    u64::try_from(value).map_err(|_| CatalogError::Corrupt { column, value: value.to_string() })
}

/// The values of columns, which are named with their tables: `users.plan`.
impl Row {
    pub(super) fn unsigned(&self, column: &'static str) -> Result<u64> {
        to_unsigned(self.get(without_table(column))?, column)
    }

    pub(super) fn optional_unsigned(&self, column: &'static str) -> Result<Option<u64>> {
        self.get::<Option<i64>, _>(without_table(column))?.map(|value| to_unsigned(value, column)).transpose()
    }

    pub(super) fn time(&self, column: &'static str) -> Result<DateTime<Utc>> {
        to_time(self.get(without_table(column))?, column)
    }

    pub(super) fn optional_time(&self, column: &'static str) -> Result<Option<DateTime<Utc>>> {
        self.get::<Option<i64>, _>(without_table(column))?.map(|micros| to_time(micros, column)).transpose()
    }

    pub(super) fn named<T: std::str::FromStr>(&self, column: &'static str) -> Result<T> {
        let value: String = self.get(without_table(column))?;
        value.parse().map_err(|_| CatalogError::Corrupt { column, value })
    }
}

fn without_table(column: &'static str) -> &'static str {
    column.split_once('.').map_or(column, |(_, name)| name)
}
