//! Scheduled refreshes. Each due run is claimed by exactly one process, with a compare-and-swap of `next_run_at`. The
//! caller interprets the cron expressions.

use chrono::{DateTime, Utc};

use super::convert::{from_optional_time, from_time};
use super::database_engine::{FromSqlRow, SqlRow, SqlValue};
use super::{Catalog, DatasetId, Result, UserId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledRun {
    pub dataset: DatasetId,
    pub owner: UserId,
    /// A cron expression in UTC.
    pub schedule: String,
    /// The time at which the run is due; `None` if no run is due, and only the time of the next run must be computed.
    pub due_at: Option<DateTime<Utc>>,
}

impl FromSqlRow for ScheduledRun {
    fn from_row(row: &SqlRow) -> Result<ScheduledRun> {
        let next_run_at = row.get_time("datasets.next_run_at")?;
        Ok(ScheduledRun {
            dataset: DatasetId::new(row.get_unsigned("datasets.dataset_id")?),
            owner: UserId::new(row.get_unsigned("datasets.owner_id")?),
            schedule: row.get("schedule")?,
            due_at: (next_run_at != DateTime::UNIX_EPOCH).then_some(next_run_at),
        })
    }
}

impl Catalog {
    /// Returns due schedules, at most `limit`: first the oldest of each owner, then the second oldest of each, and so
    /// on. Schedules whose next run is not computed yet count as the oldest. Frozen datasets and datasets without a
    /// source to fetch are never due. Costs a range scan of a partial index.
    pub async fn due_schedules(&self, limit: u32) -> Result<Vec<ScheduledRun>> {
        let sql = "SELECT dataset_id, owner_id, schedule, next_run_at
                   FROM (SELECT dataset_id, owner_id, schedule, next_run_at,
                                ROW_NUMBER() OVER (PARTITION BY owner_id ORDER BY next_run_at, dataset_id) AS turn
                         FROM datasets WHERE next_run_at <= $1 AND schedule IS NOT NULL AND NOT frozen) AS due
                   ORDER BY turn, next_run_at, dataset_id LIMIT $2";
        self.engine.list(sql, &[from_time(self.now()), limit.into()]).await
    }

    /// Returns schedules whose next run is in the future, by id, after the dataset `after`.
    pub async fn future_schedules(&self, after: DatasetId, limit: u32) -> Result<Vec<ScheduledRun>> {
        let sql = "SELECT dataset_id, owner_id, schedule, next_run_at FROM datasets
                   WHERE next_run_at > $1 AND schedule IS NOT NULL AND NOT frozen AND dataset_id > $2
                   ORDER BY dataset_id LIMIT $3";
        self.engine.list(sql, &[from_time(self.now()), after.into(), limit.into()]).await
    }

    /// Sets the next run of a schedule; `None` means never. Returns `true` to exactly one caller, which must run the
    /// refresh if it was due. Returns `false` if the schedule has changed or the dataset is frozen. If the process dies
    /// before the refresh, this run is skipped.
    pub async fn claim_schedule(&self, due: &ScheduledRun, next: Option<DateTime<Utc>>) -> Result<bool> {
        let sql = "UPDATE datasets SET next_run_at = $4
                   WHERE dataset_id = $1 AND schedule = $2 AND next_run_at = $3 AND NOT frozen";
        let due_at = due.due_at.map_or(SqlValue::Integer(Some(0)), from_time);
        let values = &[due.dataset.into(), SqlValue::Text(Some(&due.schedule)), due_at, from_optional_time(next)];
        Ok(self.engine.write(sql, values).await? > 0)
    }
}
