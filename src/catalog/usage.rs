//! Tables `dataset_usage` and `usage_writers`: the requests to each dataset, by day. Each process adds its counts in
//! numbered batches. If it does not learn whether a commit succeeded, it sends the same batch again, and the number
//! prevents that the counts are added twice.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use strata_types::ids::UserId;

use super::convert::{from_time, to_saturating_i64};
use super::database_engine::{SqlRow, SqlValue};
use super::{Catalog, CatalogError, DatasetId, Result};

const DELETE_BATCH_ROWS: i64 = 10_000;

/// The time after which the record of a process without new batches is deleted.
const WRITER_RETENTION: TimeDelta = TimeDelta::days(7);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounts {
    pub requests: u64,
    pub not_modified: u64,
    pub rate_limited: u64,
    /// The size of the sent response bodies, after compression.
    pub sent_bytes: u64,
}

impl UsageCounts {
    pub fn add(&mut self, other: UsageCounts) {
        self.requests = self.requests.saturating_add(other.requests);
        self.not_modified = self.not_modified.saturating_add(other.not_modified);
        self.rate_limited = self.rate_limited.saturating_add(other.rate_limited);
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
    }

    pub fn is_zero(&self) -> bool {
        *self == UsageCounts::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageIncrement {
    pub dataset: DatasetId,
    /// The slug in the counted requests if it is unverified. The counts are added only if the dataset has this slug.
    pub name_slug: Option<Box<str>>,
    /// The day of the requests, as days since 1970-01-01 in UTC.
    pub day: u32,
    pub counts: UsageCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyUsage {
    /// The day of the requests, as days since 1970-01-01 in UTC.
    pub day: u32,
    pub counts: UsageCounts,
}

impl DailyUsage {
    pub fn day_number(time: DateTime<Utc>) -> u32 {
        u32::try_from(time.timestamp().div_euclid(86_400)).unwrap_or(0)
    }

    pub fn date(&self) -> NaiveDate {
        let days = TimeDelta::try_days(self.day.into()).unwrap_or_default();
        NaiveDate::default().checked_add_signed(days).unwrap_or(NaiveDate::MAX)
    }
}

impl Catalog {
    /// Adds the usage in `rows` in one transaction, unless this or a later batch of the writer has been added. The rows
    /// must be sorted by dataset and day, so that concurrent calls cannot deadlock.
    pub async fn add_usage(&self, writer: &str, batch: u64, rows: &[UsageIncrement]) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = "INSERT INTO usage_writers (writer, batch, written_at) VALUES ($1, $2, $3)
                   ON CONFLICT (writer) DO UPDATE SET batch = EXCLUDED.batch, written_at = EXCLUDED.written_at
                   WHERE usage_writers.batch < EXCLUDED.batch";
        let values =
            &[SqlValue::Text(Some(writer)), SqlValue::Integer(Some(to_saturating_i64(batch))), from_time(self.now())];
        if transaction.execute(sql, values).await? == 0 {
            return Ok(());
        }
        let sql = "INSERT INTO dataset_usage (dataset_id, day, requests, not_modified, rate_limited, bytes)
                   SELECT dataset_id, $2, $3, $4, $5, $6 FROM datasets
                   WHERE dataset_id = $1 AND ($7 IS NULL OR name_slug = $7)
                   ON CONFLICT (dataset_id, day) DO UPDATE
                   SET requests = dataset_usage.requests + EXCLUDED.requests,
                       not_modified = dataset_usage.not_modified + EXCLUDED.not_modified,
                       rate_limited = dataset_usage.rate_limited + EXCLUDED.rate_limited,
                       bytes = dataset_usage.bytes + EXCLUDED.bytes";
        for UsageIncrement { dataset, name_slug, day, counts } in rows {
            let values = &[
                (*dataset).into(),
                SqlValue::Integer(Some((*day).into())),
                SqlValue::Integer(Some(to_saturating_i64(counts.requests))),
                SqlValue::Integer(Some(to_saturating_i64(counts.not_modified))),
                SqlValue::Integer(Some(to_saturating_i64(counts.rate_limited))),
                SqlValue::Integer(Some(to_saturating_i64(counts.sent_bytes))),
                SqlValue::Text(name_slug.as_deref()),
            ];
            transaction.execute(sql, values).await?;
        }
        transaction.commit().await
    }

    /// Returns the usage of a dataset since `first_day`, newest first. Days without requests are omitted.
    pub async fn daily_usage(&self, dataset: DatasetId, first_day: u32) -> Result<Vec<DailyUsage>> {
        let sql = "SELECT day, requests, not_modified, rate_limited, bytes FROM dataset_usage
                   WHERE dataset_id = $1 AND day >= $2 ORDER BY day DESC";
        let values = &[dataset.into(), SqlValue::Integer(Some(first_day.into()))];
        let usage = |row: &SqlRow| {
            let day: i64 = row.get("day")?;
            let corrupt = |_| CatalogError::InvalidColumnValue { column: "dataset_usage.day", value: day.to_string() };
            Ok(DailyUsage { day: u32::try_from(day).map_err(corrupt)?, counts: counts_from_row(row)? })
        };
        self.engine.list_with(sql, values, usage).await
    }

    /// Returns the usage of each dataset of an owner since `first_day`. The sums saturate.
    pub async fn usage_by_owner(&self, owner: UserId, first_day: u32) -> Result<HashMap<DatasetId, UsageCounts>> {
        let sql = "SELECT dataset_id, requests, not_modified, rate_limited, bytes
                   FROM datasets JOIN dataset_usage USING (dataset_id) WHERE owner_id = $1 AND day >= $2";
        let values = &[owner.into(), SqlValue::Integer(Some(first_day.into()))];
        let usage =
            |row: &SqlRow| Ok((DatasetId::new(row.get_unsigned("dataset_usage.dataset_id")?), counts_from_row(row)?));
        let mut sums: HashMap<DatasetId, UsageCounts> = HashMap::new();
        for (dataset, counts) in self.engine.list_with(sql, values, usage).await? {
            sums.entry(dataset).or_default().add(counts);
        }
        Ok(sums)
    }

    /// Deletes the usage before `first_day`, and inactive writers, in transactions of limited size.
    pub async fn delete_usage_before(&self, first_day: u32) -> Result<()> {
        let sql = "DELETE FROM dataset_usage WHERE (dataset_id, day) IN (
                       SELECT dataset_id, day FROM dataset_usage WHERE day < $1 ORDER BY day LIMIT $2)";
        let values = &[SqlValue::Integer(Some(first_day.into())), SqlValue::Integer(Some(DELETE_BATCH_ROWS))];
        while self.engine.write(sql, values).await? > 0 {}
        let before = from_time(self.now().checked_sub_signed(WRITER_RETENTION).unwrap_or(DateTime::UNIX_EPOCH));
        self.engine.write("DELETE FROM usage_writers WHERE written_at < $1", &[before]).await.map(drop)
    }
}

pub(super) fn counts_from_row(row: &SqlRow) -> Result<UsageCounts> {
    Ok(UsageCounts {
        requests: row.get_unsigned("dataset_usage.requests")?,
        not_modified: row.get_unsigned("dataset_usage.not_modified")?,
        rate_limited: row.get_unsigned("dataset_usage.rate_limited")?,
        sent_bytes: row.get_unsigned("dataset_usage.bytes")?,
    })
}
