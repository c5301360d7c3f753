//! Leases and recorded outcomes of refresh attempts.
//!
//! If the catalog rejects an outcome, a background task retries. Until then, the lease still blocks the dataset, and
//! the next attempt of this process records the outcome first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use strata_catalog::{AttemptOutcome, Catalog, CatalogError, RefreshLease, VersionStatus};
use strata_types::dataset::RefreshTrigger;
use strata_types::ids::{DatasetId, RefreshAttemptId};
use tokio::time::Instant;

use crate::refresh::error::{RefreshError, Result};
use crate::refresh::lease_recovery::LeaseRecovery;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::WrittenFile;
use crate::version_path::new_version_path;
use crate::{LookupService, WebhookDispatcher};

const REFRESH_LEASE: Duration = Duration::from_secs(60);
const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// The first and the maximum delay between retries to record the outcome of a refresh attempt.
const RETRY_DELAYS: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_secs(1);

const MAX_UNRECORDED_OUTCOMES: usize = 1_000;

/// Number of newest attempts of a dataset that are searched for an attempt that has just ended.
const MAX_RECENT_ATTEMPTS: u32 = 50;

pub(crate) struct RefreshAttempts {
    pub(crate) catalog: Catalog,
    pub(crate) lease_recovery: LeaseRecovery,
    pub(crate) lookups: Arc<LookupService>,
    pub(crate) deliveries: Arc<WebhookDispatcher>,
    pub(crate) tasks: Arc<RefreshTasks>,
    /// Ended attempts whose leases still block their datasets, with the error messages to record.
    pub(crate) unrecorded_outcomes: Mutex<HashMap<DatasetId, (RefreshAttemptId, String)>>,
}

impl RefreshAttempts {
    /// Announces the end of an attempt: invalidates the lookup cache and wakes the webhook dispatcher.
    pub(super) fn notify_attempt_end(&self) {
        self.lookups.notify_catalog_change();
        self.deliveries.wake();
    }

    fn remove_unrecorded_outcome(&self, dataset: DatasetId, attempt: RefreshAttemptId) {
        let mut outcomes = self.unrecorded_outcomes.lock();
        if outcomes.get(&dataset).is_some_and(|(unrecorded, _)| *unrecorded == attempt) {
            outcomes.remove(&dataset);
        }
    }

    /// Acquires a dataset's refresh lease, even if an ended attempt of this process or an exited process still has it.
    pub(super) async fn acquire_lease(&self, dataset: DatasetId, trigger: RefreshTrigger) -> Result<RefreshLease> {
        let unrecorded = self.unrecorded_outcomes.lock().get(&dataset).map(|(attempt, _)| *attempt);
        if let Some(attempt) = unrecorded {
            self.record_pending_failure(dataset, attempt).await?;
        }
        let acquire = || async {
            self.catalog.acquire_refresh(dataset, trigger, new_version_path().as_ref(), REFRESH_LEASE).await
        };
        match acquire().await {
            Err(CatalogError::RefreshRunning) if self.lease_recovery.end_refresh_if_exited(dataset).await? => {
                Ok(acquire().await?)
            }
            result => Ok(result?),
        }
    }

    /// Retries to record the end of a refresh attempt until its lease has expired.
    fn retry_recording_failure(self: &Arc<Self>, lease: &RefreshLease, reason: String) {
        let dataset = lease.dataset.id;
        let attempt = lease.attempt;
        let mut outcomes = self.unrecorded_outcomes.lock();
        if outcomes.len() >= MAX_UNRECORDED_OUTCOMES {
            return;
        }
        outcomes.insert(dataset, (attempt, reason));
        drop(outcomes);
        let attempts = self.clone();
        // The task starts even if the process is stopping.
        self.tasks.tasks.spawn(async move {
            let expiry = Instant::now() + REFRESH_LEASE;
            let mut delay = RETRY_DELAYS.start;
            while attempts.record_pending_failure(dataset, attempt).await.is_err() && Instant::now() < expiry {
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    () = attempts.tasks.wait_for_stop() => break,
                }
                delay = (delay * 2).min(RETRY_DELAYS.end);
            }
            attempts.remove_unrecorded_outcome(dataset, attempt);
        });
    }

    /// Records the outcome of an ended refresh attempt, which releases its lease.
    async fn record_pending_failure(&self, dataset: DatasetId, attempt: RefreshAttemptId) -> Result<(), CatalogError> {
        let reason = match self.unrecorded_outcomes.lock().get(&dataset) {
            Some((unrecorded, reason)) if *unrecorded == attempt => reason.clone(),
            // Another task recorded the outcome in the meantime.
            _ => return Ok(()),
        };
        match self.catalog.fail_refresh(attempt, &reason).await {
            // `LeaseLost`: the attempt published a version, or another attempt took over. There is nothing to record.
            Ok(()) | Err(CatalogError::LeaseLost) => {
                self.remove_unrecorded_outcome(dataset, attempt);
                self.notify_attempt_end();
                tracing::info!(dataset_id = dataset.get(), "recorded refresh outcome");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Renews the lease of a refresh until the lease is lost, or has expired because the catalog did not respond.
    pub(super) async fn renew_lease_until_lost(&self, attempt: RefreshAttemptId) {
        let mut expires_at = Instant::now() + REFRESH_LEASE;
        loop {
            tokio::time::sleep(LEASE_RENEW_INTERVAL).await;
            let renewed_at = Instant::now();
            match tokio::time::timeout_at(expires_at, self.catalog.renew_refresh(attempt, REFRESH_LEASE)).await {
                Ok(Ok(())) => expires_at = renewed_at + REFRESH_LEASE,
                Ok(Err(CatalogError::LeaseLost)) | Err(_) => return,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "failed to renew refresh lease");
                    if Instant::now() >= expires_at {
                        return;
                    }
                }
            }
        }
    }

    /// Records the error of a refresh attempt and removes its file. Returns the version if the commit still succeeded.
    pub(super) async fn record_failure(
        self: &Arc<Self>,
        lease: &RefreshLease,
        error: RefreshError,
        file: Option<WrittenFile>,
    ) -> Result<VersionStatus> {
        let reason = error.owner_message();
        let published = match self.catalog.fail_refresh(lease.attempt, &reason).await {
            Ok(()) => Ok(None),
            // `LeaseLost`: the attempt published a version, or another attempt took over.
            Err(CatalogError::LeaseLost) => self.find_published_version(lease).await,
            Err(error) => Err(error),
        };
        match (&published, file) {
            (Ok(None), Some(file)) => file.abandon().await,
            // The catalog might contain a record of the file. If not, a sweep of unrecorded files removes it.
            (Ok(Some(_)) | Err(_), Some(file)) => file.leave_in_store(),
            (_, None) => {}
        }
        match published {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(error),
            Err(catalog_error) => {
                tracing::warn!(error = %catalog_error, "failed to record refresh outcome; retrying");
                self.retry_recording_failure(lease, reason);
                Err(error)
            }
        }
    }

    async fn find_published_version(&self, lease: &RefreshLease) -> Result<Option<VersionStatus>, CatalogError> {
        let attempts = self.catalog.attempts(lease.dataset.id, None, MAX_RECENT_ATTEMPTS).await?;
        let outcome =
            attempts.into_iter().find(|attempt| attempt.id == lease.attempt).and_then(|attempt| attempt.outcome);
        match outcome {
            Some(AttemptOutcome::Published(number)) => Ok(Some(self.catalog.version(lease.dataset.id, number).await?)),
            Some(AttemptOutcome::Failed { .. }) | None => Ok(None),
        }
    }
}
