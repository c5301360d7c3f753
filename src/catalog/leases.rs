//! Table `refresh_leases`: who may refresh a dataset at the moment. One at a time, across processes.
//!
//! An attempt holds a lease until it publishes, fails, or does not renew the lease in time and another takes over. The
//! row decides, under the lock of the dataset's row: an attempt that finds it changed has lost. Clocks decide only when
//! another may take over, never who may publish.

use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::dataset::{Dataset, RefreshTrigger};

use super::attempts::{self, AttemptOutcome};
use super::clock::after;
use super::convert::{from_time, to_unsigned};
use super::engine::{Record, Row, Transaction, Value};
use super::{AttemptId, Catalog, CatalogError, DatasetId, Result, files};

const CRASHED: &str = "strata stopped or lost access to the metadata database before the refresh finished";

const LISTED_AT_ONCE: u32 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshLease {
    pub dataset: Dataset,
    pub attempt: AttemptId,
    pub path: String,
    pub expires_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    pub node: Option<String>,
    pub process: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRefresh {
    pub dataset: DatasetId,
    pub attempt: AttemptId,
    /// The process that holds it; `None` if its handle on the catalog had no name ([`Catalog::held_by`]).
    pub holder: Option<LeaseHolder>,
}

/// Ends the attempt that holds the dataset, if its lease has expired.
pub(super) async fn give_up_lease(transaction: &mut Transaction, dataset: DatasetId, now: DateTime<Utc>) -> Result<()> {
    // Changes nothing, but lets no renewal in between.
    let sql = "UPDATE refresh_leases SET expires_at = expires_at WHERE dataset_id = $1
               RETURNING attempt_id, expires_at";
    let held: Option<(i64, i64)> = transaction.find(sql, &[dataset.into()]).await?;
    let Some((attempt, expires_at)) = held else { return Ok(()) };
    if expires_at > now.timestamp_micros() {
        return Err(CatalogError::Busy);
    }
    let attempt = AttemptId::new(to_unsigned(attempt, "refresh_leases.attempt_id")?);
    fail(transaction, attempt, CRASHED, now).await
}

impl Catalog {
    /// Begins a refresh that holds the dataset alone for `lease`. [`Catalog::renew_refresh`] renews it. An expired
    /// lease is taken over, and the attempt that held it is recorded as failed. The same commit reserves `path` for the
    /// file of the refresh, for as long as it holds the dataset.
    pub async fn acquire_refresh(
        &self,
        dataset: DatasetId,
        trigger: RefreshTrigger,
        path: &str,
        lease: Duration,
    ) -> Result<RefreshLease> {
        let (mut transaction, dataset) = self.lock_dataset(dataset).await?;
        if dataset.frozen {
            return Err(CatalogError::Frozen);
        }
        let now = self.now();
        give_up_lease(&mut transaction, dataset.id, now).await?;
        let attempt = attempts::start(&mut transaction, dataset.id, trigger, now).await?;
        let expires_at = after(now, lease);
        let sql = "INSERT INTO refresh_leases (dataset_id, attempt_id, expires_at, holder_node, holder_process)
                   VALUES ($1, $2, $3, $4, $5)";
        let values = &[
            dataset.id.into(),
            attempt.into(),
            from_time(expires_at),
            Value::Text(self.holder.as_ref().and_then(|holder| holder.node.as_deref())),
            Value::Text(self.holder.as_ref().map(|holder| &*holder.process)),
        ];
        transaction.execute(sql, values).await?;
        files::reserve(&mut transaction, path, Some(attempt), expires_at).await?;
        transaction.commit().await?;
        Ok(RefreshLease { dataset, attempt, path: path.to_owned(), expires_at })
    }

    /// Extends the attempt's hold on its dataset, and on the files that it has reserved, to `lease` from now. Two
    /// statements by index and a commit. A third of the lease is a good interval. After [`CatalogError::LeaseLost`] the
    /// attempt should give up.
    pub async fn renew_refresh(&self, attempt: AttemptId, lease: Duration) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let values = &[attempt.into(), from_time(after(self.now(), lease))];
        let sql = "UPDATE refresh_leases SET expires_at = $2 WHERE attempt_id = $1";
        transaction.execute_or(sql, values, CatalogError::LeaseLost).await?;
        transaction.execute("UPDATE file_reservations SET expires_at = $2 WHERE attempt_id = $1", values).await?;
        transaction.commit().await
    }

    /// Ends a refresh that failed, unless another one took over ([`CatalogError::LeaseLost`]).
    pub async fn fail_refresh(&self, attempt: AttemptId, error: &str) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        fail(&mut transaction, attempt, error, self.now()).await?;
        transaction.commit().await
    }

    /// Records every attempt whose lease has expired as failed, and returns their number.
    pub async fn end_expired_refreshes(&self) -> Result<u64> {
        let now = self.now();
        let sql = "SELECT dataset_id, attempt_id, holder_node, holder_process FROM refresh_leases
                   WHERE expires_at <= $1 LIMIT $2";
        let expired = self.engine.list(sql, &[from_time(now), LISTED_AT_ONCE.into()]).await?;
        self.end_refreshes(expired, now).await
    }

    /// The refreshes of any process that began before and hold their datasets, at most 1,000.
    pub async fn held_refreshes(&self, before: DateTime<Utc>) -> Result<Vec<HeldRefresh>> {
        let sql = "SELECT l.dataset_id, l.attempt_id, l.holder_node, l.holder_process
                   FROM refresh_leases l JOIN refresh_attempts a ON a.attempt_id = l.attempt_id
                   WHERE a.started_at < $1 LIMIT $2";
        self.engine.list(sql, &[from_time(before), LISTED_AT_ONCE.into()]).await
    }

    pub async fn held_refresh(&self, dataset: DatasetId) -> Result<Option<HeldRefresh>> {
        let sql = "SELECT dataset_id, attempt_id, holder_node, holder_process FROM refresh_leases
                   WHERE dataset_id = $1";
        self.engine.find(sql, &[dataset.into()]).await
    }

    /// The refreshes of servers whose last heartbeat is older, at most 1,000.
    pub async fn refreshes_of_lost_nodes(&self, seen_before: DateTime<Utc>) -> Result<Vec<HeldRefresh>> {
        let sql = "SELECT l.dataset_id, l.attempt_id, l.holder_node, l.holder_process
                   FROM refresh_leases l
                   JOIN nodes n ON n.node_id = l.holder_node AND n.process = l.holder_process
                   WHERE n.seen_at < $1 LIMIT $2";
        self.engine.list(sql, &[from_time(seen_before), LISTED_AT_ONCE.into()]).await
    }

    /// As [`Catalog::end_expired_refreshes`], for refreshes of an ended process, which need not have expired.
    pub async fn end_dead_refreshes(&self, held: Vec<HeldRefresh>) -> Result<u64> {
        self.end_refreshes(held, DateTime::<Utc>::MAX_UTC).await
    }

    async fn end_refreshes(&self, held: Vec<HeldRefresh>, by: DateTime<Utc>) -> Result<u64> {
        let mut ended = 0;
        for HeldRefresh { dataset, attempt, .. } in held {
            let (mut transaction, _) = self.lock_dataset(dataset).await?;
            // It may have been renewed or taken over since it was listed; from here on it cannot.
            let sql = "UPDATE refresh_leases SET expires_at = expires_at
                       WHERE attempt_id = $1 AND expires_at <= $2
                       RETURNING attempt_id";
            let still: Option<(i64,)> = transaction.find(sql, &[attempt.into(), from_time(by)]).await?;
            if still.is_some() {
                fail(&mut transaction, attempt, CRASHED, self.now()).await?;
                transaction.commit().await?;
                ended += 1;
            }
        }
        Ok(ended)
    }
}

impl Record for HeldRefresh {
    fn from_row(row: &Row) -> Result<HeldRefresh> {
        let node = row.get("holder_node")?;
        let process: Option<String> = row.get("holder_process")?;
        Ok(HeldRefresh {
            dataset: DatasetId::new(row.unsigned("refresh_leases.dataset_id")?),
            attempt: AttemptId::new(row.unsigned("refresh_leases.attempt_id")?),
            holder: process.map(|process| LeaseHolder { node, process }),
        })
    }
}

async fn fail(transaction: &mut Transaction, attempt: AttemptId, error: &str, now: DateTime<Utc>) -> Result<()> {
    give_back(transaction, attempt).await?;
    attempts::finish(transaction, attempt.into(), &AttemptOutcome::Failed { error: error.to_owned() }, now).await
}

/// Ends the attempt's lease and what it has reserved, as a part of `transaction`.
pub(super) async fn give_back(transaction: &mut Transaction, attempt: AttemptId) -> Result<()> {
    let sql = "DELETE FROM refresh_leases WHERE attempt_id = $1";
    transaction.execute_or(sql, &[attempt.into()], CatalogError::LeaseLost).await?;
    transaction.execute("DELETE FROM file_reservations WHERE attempt_id = $1", &[attempt.into()]).await.map(drop)
}
