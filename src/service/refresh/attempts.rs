//! Attempts to refresh a dataset: their leases, and the records of their outcomes.
//!
//! If the catalog rejects an outcome, the process records it later. Until then the lease holds the dataset, and the
//! next attempt of this process records the outcome first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strata_catalog::{AttemptOutcome, Catalog, CatalogError, RefreshLease, VersionRecord};
use strata_types::dataset::RefreshTrigger;
use strata_types::ids::{AttemptId, DatasetId};
use tokio::time::Instant;

use crate::refresh::error::RefreshError;
use crate::refresh::former::FormerProcesses;
use crate::refresh::tasks::RefreshTasks;
use crate::refresh::version_file::WrittenFile;
use crate::version_path::new_path;
use crate::{Deliveries, Lookups, locked};

const LEASE: Duration = Duration::from_secs(60);

const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// The first and the longest delay before an outcome is recorded again.
const RETRY_DELAYS: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_secs(1);

/// The maximum number of unrecorded outcomes.
const MAX_UNRECORDED: usize = 1_000;

/// The newest attempts of a dataset, which include one that has just ended.
const NEWEST_ATTEMPTS: u32 = 50;

pub(crate) struct Attempts {
    pub(crate) catalog: Catalog,
    pub(crate) former: FormerProcesses,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) tasks: Arc<RefreshTasks>,
    /// Ended attempts that still hold their datasets, with the reasons that the catalog rejected.
    pub(crate) unrecorded: Mutex<HashMap<DatasetId, (AttemptId, String)>>,
}

impl Attempts {
    /// Notifies reads and webhooks of the end of an attempt.
    pub(super) fn show(&self) {
        self.lookups.catalog_changed();
        self.deliveries.wake();
    }

    fn forget(&self, dataset: DatasetId, attempt: AttemptId) {
        let mut unrecorded = locked(&self.unrecorded);
        if unrecorded.get(&dataset).is_some_and(|(unrecorded, _)| *unrecorded == attempt) {
            unrecorded.remove(&dataset);
        }
    }

    /// Acquires the dataset, also if an ended attempt of this process, or an exited process, still holds it.
    pub(super) async fn acquire(
        &self,
        dataset: DatasetId,
        trigger: RefreshTrigger,
    ) -> Result<RefreshLease, RefreshError> {
        let unrecorded = locked(&self.unrecorded).get(&dataset).map(|(attempt, _)| *attempt);
        if let Some(attempt) = unrecorded {
            self.record_end(dataset, attempt).await?;
        }
        let acquire = || async { self.catalog.acquire_refresh(dataset, trigger, new_path().as_ref(), LEASE).await };
        match acquire().await {
            Err(CatalogError::Busy) if self.former.end_refresh_of(dataset).await? => Ok(acquire().await?),
            outcome => Ok(outcome?),
        }
    }

    /// Retries to record the end of an attempt until the lease has expired.
    fn record_end_later(self: &Arc<Self>, lease: &RefreshLease, reason: String) {
        let dataset = lease.dataset.id;
        let attempt = lease.attempt;
        let mut unrecorded = locked(&self.unrecorded);
        if unrecorded.len() >= MAX_UNRECORDED {
            return;
        }
        unrecorded.insert(dataset, (attempt, reason));
        drop(unrecorded);
        let attempts = self.clone();
        self.tasks.begin_aftermath(async move {
            let expiry = Instant::now() + LEASE;
            let mut pause = RETRY_DELAYS.start;
            while attempts.record_end(dataset, attempt).await.is_err() && Instant::now() < expiry {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = attempts.tasks.stopped() => break,
                }
                pause = (pause * 2).min(RETRY_DELAYS.end);
            }
            attempts.forget(dataset, attempt);
        });
    }

    /// Records the end of an unrecorded attempt, which releases its dataset.
    async fn record_end(&self, dataset: DatasetId, attempt: AttemptId) -> Result<(), CatalogError> {
        let reason = match locked(&self.unrecorded).get(&dataset) {
            Some((unrecorded, reason)) if *unrecorded == attempt => reason.clone(),
            // It was recorded in the meantime.
            _ => return Ok(()),
        };
        match self.catalog.fail_refresh(attempt, &reason).await {
            // It had ended before, with a version or because another attempt took over.
            Ok(()) | Err(CatalogError::LeaseLost) => {
                self.forget(dataset, attempt);
                self.show();
                tracing::info!(dataset_id = dataset.get(), "recorded refresh outcome");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Renews the lease until it is lost, or can be lost because the catalog does not respond.
    pub(super) async fn hold(&self, attempt: AttemptId) {
        let mut held_until = Instant::now() + LEASE;
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            let asked = Instant::now();
            match tokio::time::timeout_at(held_until, self.catalog.renew_refresh(attempt, LEASE)).await {
                Ok(Ok(())) => held_until = asked + LEASE,
                Ok(Err(CatalogError::LeaseLost)) | Err(_) => return,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "failed to renew refresh lease");
                    if Instant::now() >= held_until {
                        return;
                    }
                }
            }
        }
    }

    /// Ends a failed attempt: records why, which releases the dataset, and then removes the file. If the commit
    /// succeeded despite the error, returns the version.
    pub(super) async fn fail(
        self: &Arc<Self>,
        lease: &RefreshLease,
        error: RefreshError,
        file: Option<WrittenFile>,
    ) -> Result<VersionRecord, RefreshError> {
        let reason = error.for_the_owner();
        let published = match self.catalog.fail_refresh(lease.attempt, &reason).await {
            Ok(()) => Ok(None),
            // It had ended before, with a version or because another attempt took over.
            Err(CatalogError::LeaseLost) => self.published_by(lease).await,
            Err(error) => Err(error),
        };
        match (&published, file) {
            (Ok(None), Some(file)) => file.abandon().await,
            // A record can name the file. Otherwise the sweep removes it.
            (Ok(Some(_)) | Err(_), Some(file)) => file.leave(),
            (_, None) => {}
        }
        match published {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(error),
            Err(failed) => {
                tracing::warn!(error = %failed, "failed to record refresh outcome; retrying");
                self.record_end_later(lease, reason);
                Err(error)
            }
        }
    }

    async fn published_by(&self, lease: &RefreshLease) -> Result<Option<VersionRecord>, CatalogError> {
        let attempts = self.catalog.attempts(lease.dataset.id, None, NEWEST_ATTEMPTS).await?;
        let outcome =
            attempts.into_iter().find(|attempt| attempt.id == lease.attempt).and_then(|attempt| attempt.outcome);
        match outcome {
            Some(AttemptOutcome::Published(number)) => Ok(Some(self.catalog.version(lease.dataset.id, number).await?)),
            Some(AttemptOutcome::Failed { .. }) | None => Ok(None),
        }
    }
}
