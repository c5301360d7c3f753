//! The times at which datasets are due by their schedules. Each due time is given to one of the processes that ask. The
//! caller interprets cron expressions; here the next time is a number that is set by compare-and-swap.

use chrono::{DateTime, Utc};

use super::convert::{from_optional_time, from_time};
use super::engine::{Record, Row, Value};
use super::{Catalog, DatasetId, Result, UserId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueSchedule {
    pub dataset: DatasetId,
    pub owner: UserId,
    /// Its schedule: a cron expression in UTC.
    pub schedule: String,
    /// The due time. `None`: no time was computed yet. Then nothing is to be run, only the next time to be computed.
    pub due_at: Option<DateTime<Utc>>,
}

impl Record for DueSchedule {
    fn from_row(row: &Row) -> Result<DueSchedule> {
        let next_run_at = row.time("datasets.next_run_at")?;
        Ok(DueSchedule {
            dataset: DatasetId::new(row.unsigned("datasets.dataset_id")?),
            owner: UserId::new(row.unsigned("datasets.owner_id")?),
            schedule: row.get("schedule")?,
            due_at: (next_run_at != DateTime::UNIX_EPOCH).then_some(next_run_at),
        })
    }
}

impl Catalog {
    /// The schedules that are due, one of each owner, then a second one of each, and so on; of each the longest due
    /// first, those yet to be computed before all; at most `limit`. A dataset that is frozen or has nothing to fetch is
    /// never due. One range of an index that holds only the scheduled datasets.
    pub async fn due_schedules(&self, limit: u32) -> Result<Vec<DueSchedule>> {
        let sql = "SELECT dataset_id, owner_id, schedule, next_run_at
                   FROM (SELECT dataset_id, owner_id, schedule, next_run_at,
                                ROW_NUMBER() OVER (PARTITION BY owner_id ORDER BY next_run_at, dataset_id) AS turn
                         FROM datasets WHERE next_run_at <= $1 AND schedule IS NOT NULL AND NOT frozen) AS due
                   ORDER BY turn, next_run_at, dataset_id LIMIT $2";
        self.engine.list(sql, &[from_time(self.now()), limit.into()]).await
    }

    /// The schedules whose next run, perhaps by a clock that was ahead, is in the future; by id, after `last`.
    pub async fn future_schedules(&self, last: DatasetId, limit: u32) -> Result<Vec<DueSchedule>> {
        let sql = "SELECT dataset_id, owner_id, schedule, next_run_at FROM datasets
                   WHERE next_run_at > $1 AND schedule IS NOT NULL AND NOT frozen AND dataset_id > $2
                   ORDER BY dataset_id LIMIT $3";
        self.engine.list(sql, &[from_time(self.now()), last.into(), limit.into()]).await
    }

    /// Sets the next time of a schedule. `None` is never, until the schedule changes. Returns `true` to exactly one
    /// caller, who then runs the refresh if the schedule was due. Returns `false` if the schedule has changed or the
    /// dataset was frozen meanwhile. If a process dies before the refresh, that one run is left out.
    pub async fn claim_schedule(&self, due: &DueSchedule, next: Option<DateTime<Utc>>) -> Result<bool> {
        let sql = "UPDATE datasets SET next_run_at = $4
                   WHERE dataset_id = $1 AND schedule = $2 AND next_run_at = $3 AND NOT frozen";
        let due_at = due.due_at.map_or(Value::Integer(Some(0)), from_time);
        let values = &[due.dataset.into(), Value::Text(Some(&due.schedule)), due_at, from_optional_time(next)];
        Ok(self.engine.write(sql, values).await? > 0)
    }
}
