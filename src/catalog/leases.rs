//! Table `refresh_leases`: ensures that only one attempt at a time refreshes a dataset, across all processes. An
//! attempt holds its lease until it publishes, fails, or lets the lease expire and another attempt takes over. The row,
//! read under the lock of the dataset, decides which attempt can publish. Clocks decide only the time of a takeover.

use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::dataset::{Dataset, RefreshTrigger};

use super::attempts::{self, AttemptOutcome};
use super::clock::saturating_add;
use super::convert::{from_time, to_unsigned};
use super::database_engine::{CatalogTransaction, FromSqlRow, SqlRow, SqlValue};
use super::{Catalog, CatalogError, DatasetId, RefreshAttemptId, Result, files};

const CRASHED_ATTEMPT_ERROR: &str =
    "strata stopped or lost access to the metadata database before the refresh finished";

const MAX_LISTED_LEASES: u32 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshLease {
    pub dataset: Dataset,
    pub attempt: RefreshAttemptId,
    pub path: String,
    pub expires_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    pub node_id: Option<String>,
    pub process_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshLeaseRecord {
    pub dataset: DatasetId,
    pub attempt: RefreshAttemptId,
    /// The process that holds the lease; `None` if its handle had no name ([`Catalog::with_lease_holder`]).
    pub holder: Option<LeaseHolder>,
}

/// Ends the refresh attempt whose lease on the dataset has expired. Returns an error if the lease has not expired.
pub(super) async fn end_expired_lease(
    transaction: &mut CatalogTransaction,
    dataset: DatasetId,
    now: DateTime<Utc>,
) -> Result<()> {
    // This update changes nothing, but locks the lease, so that it cannot be renewed at the same time.
    let sql = "UPDATE refresh_leases SET expires_at = expires_at WHERE dataset_id = $1
               RETURNING attempt_id, expires_at";
    let lease: Option<(i64, i64)> = transaction.find(sql, &[dataset.into()]).await?;
    let Some((attempt, expires_at)) = lease else { return Ok(()) };
    if expires_at > now.timestamp_micros() {
        return Err(CatalogError::RefreshRunning);
    }
    let attempt = RefreshAttemptId::new(to_unsigned(attempt, "refresh_leases.attempt_id")?);
    fail_attempt(transaction, attempt, CRASHED_ATTEMPT_ERROR, now).await
}

impl Catalog {
    /// Acquires the lease for the duration `lease` and records a new attempt. Fails the attempt of an expired lease.
    /// Reserves `path` for the file of the refresh; the reservation is renewed and ends with the lease.
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
        end_expired_lease(&mut transaction, dataset.id, now).await?;
        let attempt = attempts::start_attempt(&mut transaction, dataset.id, trigger, now).await?;
        let expires_at = saturating_add(now, lease);
        let sql = "INSERT INTO refresh_leases (dataset_id, attempt_id, expires_at, holder_node, holder_process)
                   VALUES ($1, $2, $3, $4, $5)";
        let values = &[
            dataset.id.into(),
            attempt.into(),
            from_time(expires_at),
            SqlValue::Text(self.lease_holder.as_ref().and_then(|holder| holder.node_id.as_deref())),
            SqlValue::Text(self.lease_holder.as_ref().map(|holder| &*holder.process_id)),
        ];
        transaction.execute(sql, values).await?;
        files::reserve_path(&mut transaction, path, Some(attempt), expires_at).await?;
        transaction.commit().await?;
        Ok(RefreshLease { dataset, attempt, path: path.to_owned(), expires_at })
    }

    /// Extends the lease and the attempt's file reservations to `lease` from now. Callers should renew after a third of
    /// the lease, and must give up after [`CatalogError::LeaseLost`]. Costs two indexed updates and a commit.
    pub async fn renew_refresh(&self, attempt: RefreshAttemptId, lease: Duration) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let values = &[attempt.into(), from_time(saturating_add(self.now(), lease))];
        let sql = "UPDATE refresh_leases SET expires_at = $2 WHERE attempt_id = $1";
        transaction.execute_or_error(sql, values, CatalogError::LeaseLost).await?;
        transaction.execute("UPDATE file_reservations SET expires_at = $2 WHERE attempt_id = $1", values).await?;
        transaction.commit().await
    }

    /// Records a refresh as failed. Returns [`CatalogError::LeaseLost`] if another attempt has taken over.
    pub async fn fail_refresh(&self, attempt: RefreshAttemptId, error: &str) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        fail_attempt(&mut transaction, attempt, error, self.now()).await?;
        transaction.commit().await
    }

    pub async fn end_expired_refreshes(&self) -> Result<u64> {
        let now = self.now();
        let sql = "SELECT dataset_id, attempt_id, holder_node, holder_process FROM refresh_leases
                   WHERE expires_at <= $1 LIMIT $2";
        let expired = self.engine.list(sql, &[from_time(now), MAX_LISTED_LEASES.into()]).await?;
        self.end_refreshes(expired, now).await
    }

    pub async fn leases_started_before(&self, before: DateTime<Utc>) -> Result<Vec<RefreshLeaseRecord>> {
        let sql = "SELECT l.dataset_id, l.attempt_id, l.holder_node, l.holder_process
                   FROM refresh_leases l JOIN refresh_attempts a ON a.attempt_id = l.attempt_id
                   WHERE a.started_at < $1 LIMIT $2";
        self.engine.list(sql, &[from_time(before), MAX_LISTED_LEASES.into()]).await
    }

    pub async fn refresh_lease(&self, dataset: DatasetId) -> Result<Option<RefreshLeaseRecord>> {
        let sql = "SELECT dataset_id, attempt_id, holder_node, holder_process FROM refresh_leases
                   WHERE dataset_id = $1";
        self.engine.find(sql, &[dataset.into()]).await
    }

    pub async fn leases_of_offline_nodes(&self, seen_before: DateTime<Utc>) -> Result<Vec<RefreshLeaseRecord>> {
        let sql = "SELECT l.dataset_id, l.attempt_id, l.holder_node, l.holder_process
                   FROM refresh_leases l
                   JOIN nodes n ON n.node_id = l.holder_node AND n.process = l.holder_process
                   WHERE n.seen_at < $1 LIMIT $2";
        self.engine.list(sql, &[from_time(seen_before), MAX_LISTED_LEASES.into()]).await
    }

    /// Records attempts of dead processes as failed, regardless of the expiry of their leases. Returns their number.
    pub async fn end_orphaned_refreshes(&self, leases: Vec<RefreshLeaseRecord>) -> Result<u64> {
        self.end_refreshes(leases, DateTime::<Utc>::MAX_UTC).await
    }

    async fn end_refreshes(&self, leases: Vec<RefreshLeaseRecord>, expired_by: DateTime<Utc>) -> Result<u64> {
        let mut ended = 0;
        for RefreshLeaseRecord { dataset, attempt, .. } in leases {
            let (mut transaction, _) = self.lock_dataset(dataset).await?;
            // A lease can be renewed or taken over after it was listed, so this update checks its expiry and locks it.
            let sql = "UPDATE refresh_leases SET expires_at = expires_at
                       WHERE attempt_id = $1 AND expires_at <= $2
                       RETURNING attempt_id";
            let lease: Option<(i64,)> = transaction.find(sql, &[attempt.into(), from_time(expired_by)]).await?;
            if lease.is_some() {
                fail_attempt(&mut transaction, attempt, CRASHED_ATTEMPT_ERROR, self.now()).await?;
                transaction.commit().await?;
                ended += 1;
            }
        }
        Ok(ended)
    }
}

impl FromSqlRow for RefreshLeaseRecord {
    fn from_row(row: &SqlRow) -> Result<RefreshLeaseRecord> {
        let node_id = row.get("holder_node")?;
        let process_id: Option<String> = row.get("holder_process")?;
        Ok(RefreshLeaseRecord {
            dataset: DatasetId::new(row.get_unsigned("refresh_leases.dataset_id")?),
            attempt: RefreshAttemptId::new(row.get_unsigned("refresh_leases.attempt_id")?),
            holder: process_id.map(|process_id| LeaseHolder { node_id, process_id }),
        })
    }
}

async fn fail_attempt(
    transaction: &mut CatalogTransaction,
    attempt: RefreshAttemptId,
    error: &str,
    now: DateTime<Utc>,
) -> Result<()> {
    release_lease(transaction, attempt).await?;
    attempts::finish_attempt(transaction, attempt.into(), &AttemptOutcome::Failed { error: error.to_owned() }, now)
        .await
}

pub(super) async fn release_lease(transaction: &mut CatalogTransaction, attempt: RefreshAttemptId) -> Result<()> {
    let sql = "DELETE FROM refresh_leases WHERE attempt_id = $1";
    transaction.execute_or_error(sql, &[attempt.into()], CatalogError::LeaseLost).await?;
    transaction.execute("DELETE FROM file_reservations WHERE attempt_id = $1", &[attempt.into()]).await.map(drop)
}
