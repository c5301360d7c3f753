//! Tables `dataset_usage` and `usage_writers`: how much each dataset is read, by day.
//!
//! Each process adds what it has counted, in batches. A batch has a number: if a process does not learn of its commit,
//! it sends the same batch again, and nothing is added twice.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use strata_types::ids::UserId;

use super::convert::{from_time, saturated};
use super::engine::{Row, Value};
use super::{Catalog, CatalogError, DatasetId, Result};

const SWEPT_AT_ONCE: i64 = 10_000;

/// How long a process is remembered that adds nothing.
const WRITER_REMEMBERED: TimeDelta = TimeDelta::days(7);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounts {
    pub requests: u64,
    pub not_modified: u64,
    pub rate_limited: u64,
    /// Of the bodies as they were sent.
    pub bytes: u64,
}

impl UsageCounts {
    pub fn add(&mut self, other: UsageCounts) {
        self.requests = self.requests.saturating_add(other.requests);
        self.not_modified = self.not_modified.saturating_add(other.not_modified);
        self.rate_limited = self.rate_limited.saturating_add(other.rate_limited);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    pub fn is_zero(&self) -> bool {
        *self == UsageCounts::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedUsage {
    pub dataset: DatasetId,
    /// The slug that it must have, where that was not looked up when it was counted; with another it is left out.
    pub name_slug: Option<Box<str>>,
    /// The day, in days since 1970-01-01 in UTC.
    pub day: u32,
    pub counts: UsageCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayUsage {
    /// The day, in days since 1970-01-01 in UTC.
    pub day: u32,
    pub counts: UsageCounts,
}

impl DayUsage {
    pub fn day_of(time: DateTime<Utc>) -> u32 {
        u32::try_from(time.timestamp().div_euclid(86_400)).unwrap_or(0)
    }

    pub fn date(&self) -> NaiveDate {
        let days = TimeDelta::try_days(self.day.into()).unwrap_or_default();
        NaiveDate::default().checked_add_signed(days).unwrap_or(NaiveDate::MAX)
    }
}

impl Catalog {
    /// Adds a batch of counts, each batch of a writer once: as one transaction, with one statement for each row. The
    /// rows must be in the order of their datasets and days, so that processes do not wait for each other in a circle.
    pub async fn add_usage(&self, writer: &str, batch: u64, rows: &[CountedUsage]) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = "INSERT INTO usage_writers (writer, batch, written_at) VALUES ($1, $2, $3)
                   ON CONFLICT (writer) DO UPDATE SET batch = EXCLUDED.batch, written_at = EXCLUDED.written_at
                   WHERE usage_writers.batch < EXCLUDED.batch";
        let values = &[Value::Text(Some(writer)), Value::Integer(Some(saturated(batch))), from_time(self.now())];
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
        for CountedUsage { dataset, name_slug, day, counts } in rows {
            let values = &[
                (*dataset).into(),
                Value::Integer(Some((*day).into())),
                Value::Integer(Some(saturated(counts.requests))),
                Value::Integer(Some(saturated(counts.not_modified))),
                Value::Integer(Some(saturated(counts.rate_limited))),
                Value::Integer(Some(saturated(counts.bytes))),
                Value::Text(name_slug.as_deref()),
            ];
            transaction.execute(sql, values).await?;
        }
        transaction.commit().await
    }

    /// How much a dataset was read from a day on, newest first; no days without a read. One range of the primary key.
    pub async fn usage(&self, dataset: DatasetId, first: u32) -> Result<Vec<DayUsage>> {
        let sql = "SELECT day, requests, not_modified, rate_limited, bytes FROM dataset_usage
                   WHERE dataset_id = $1 AND day >= $2 ORDER BY day DESC";
        let values = &[dataset.into(), Value::Integer(Some(first.into()))];
        let usage = |row: &Row| {
            let day: i64 = row.get("day")?;
            let corrupt = |_| CatalogError::Corrupt { column: "dataset_usage.day", value: day.to_string() };
            Ok(DayUsage { day: u32::try_from(day).map_err(corrupt)?, counts: counts(row)? })
        };
        self.engine.list_with(sql, values, usage).await
    }

    /// How much each dataset of an owner was read from a day on. Rows are summed here, so that no sum overflows a
    /// column.
    pub async fn owned_usage(&self, owner: UserId, first: u32) -> Result<HashMap<DatasetId, UsageCounts>> {
        let sql = "SELECT dataset_id, requests, not_modified, rate_limited, bytes
                   FROM datasets JOIN dataset_usage USING (dataset_id) WHERE owner_id = $1 AND day >= $2";
        let values = &[owner.into(), Value::Integer(Some(first.into()))];
        let usage = |row: &Row| Ok((DatasetId::new(row.unsigned("dataset_usage.dataset_id")?), counts(row)?));
        let mut sums: HashMap<DatasetId, UsageCounts> = HashMap::new();
        for (dataset, counts) in self.engine.list_with(sql, values, usage).await? {
            sums.entry(dataset).or_default().add(counts);
        }
        Ok(sums)
    }

    /// Forgets days before one, and processes that have added nothing for long, in bounded transactions.
    pub async fn sweep_usage(&self, first: u32) -> Result<()> {
        let sql = "DELETE FROM dataset_usage WHERE (dataset_id, day) IN (
                       SELECT dataset_id, day FROM dataset_usage WHERE day < $1 ORDER BY day LIMIT $2)";
        while self.engine.write(sql, &[Value::Integer(Some(first.into())), Value::Integer(Some(SWEPT_AT_ONCE))]).await?
            > 0
        {}
        let before = from_time(self.now().checked_sub_signed(WRITER_REMEMBERED).unwrap_or(DateTime::UNIX_EPOCH));
        self.engine.write("DELETE FROM usage_writers WHERE written_at < $1", &[before]).await.map(drop)
    }
}

pub(super) fn counts(row: &Row) -> Result<UsageCounts> {
    Ok(UsageCounts {
        requests: row.unsigned("dataset_usage.requests")?,
        not_modified: row.unsigned("dataset_usage.not_modified")?,
        rate_limited: row.unsigned("dataset_usage.rate_limited")?,
        bytes: row.unsigned("dataset_usage.bytes")?,
    })
}
