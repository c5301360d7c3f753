//! Attempts to refresh a dataset: holding it, and recording how that ended.
//!
//! An end that the catalog does not take is remembered, and recorded as soon as it can be: until then its dataset is
//! held, and the next attempt of this process records it first.

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

/// How long an attempt holds its dataset without a sign of life.
const LEASE: Duration = Duration::from_secs(60);

const HEARTBEAT: Duration = Duration::from_secs(20);

/// How often the end of an attempt is tried again to be recorded, at first and at most.
const RECORD_AGAIN: std::ops::Range<Duration> = Duration::from_millis(50)..Duration::from_secs(1);

/// How many attempts whose end is not recorded are remembered.
const UNRECORDED: usize = 1_000;

/// How many attempts of a dataset are looked through for one that has just ended.
const ATTEMPTS: u32 = 50;

pub(crate) struct Attempts {
    pub(crate) catalog: Catalog,
    pub(crate) former: FormerProcesses,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) tasks: Arc<RefreshTasks>,
    /// Attempts that have ended, with the reason, and hold their datasets all the same: the catalog did not take it.
    pub(crate) unrecorded: Mutex<HashMap<DatasetId, (AttemptId, String)>>,
}

impl Attempts {
    /// Makes the end of an attempt seen: by reads, and by whoever sends webhooks.
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

    /// Holds the dataset, also if an ended attempt of this process, or a process that is gone, still does.
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

    /// Tries to record the end of an attempt until the catalog takes it, or the lease has expired.
    fn record_end_later(self: &Arc<Self>, lease: &RefreshLease, reason: String) {
        let (dataset, attempt) = (lease.dataset.id, lease.attempt);
        let mut unrecorded = locked(&self.unrecorded);
        if unrecorded.len() >= UNRECORDED {
            return;
        }
        unrecorded.insert(dataset, (attempt, reason));
        drop(unrecorded);
        let attempts = self.clone();
        self.tasks.begin_aftermath(async move {
            let (expired, mut pause) = (Instant::now() + LEASE, RECORD_AGAIN.start);
            while attempts.record_end(dataset, attempt).await.is_err() && Instant::now() < expired {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = attempts.tasks.stopped() => break,
                }
                pause = (pause * 2).min(RECORD_AGAIN.end);
            }
            attempts.forget(dataset, attempt);
        });
    }

    /// Records the end of an attempt that is remembered, and gives its dataset back.
    async fn record_end(&self, dataset: DatasetId, attempt: AttemptId) -> Result<(), CatalogError> {
        let reason = match locked(&self.unrecorded).get(&dataset) {
            Some((unrecorded, reason)) if *unrecorded == attempt => reason.clone(),
            // Recorded meanwhile.
            _ => return Ok(()),
        };
        match self.catalog.fail_refresh(attempt, &reason).await {
            // It had ended before: with a version, or because another took over.
            Ok(()) | Err(CatalogError::LeaseLost) => {
                self.forget(dataset, attempt);
                self.show();
                tracing::info!(dataset_id = dataset.get(), "recorded refresh outcome");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives signs of life; ends when the lease is lost, or must be taken for lost.
    pub(super) async fn hold(&self, attempt: AttemptId) {
        let mut held_until = Instant::now() + LEASE;
        loop {
            tokio::time::sleep(HEARTBEAT).await;
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

    /// Ends an attempt that failed: records why, gives the dataset back, and only then removes the file. Where an error
    /// hid a commit that took place after all, gives the version.
    pub(super) async fn fail(
        self: &Arc<Self>,
        lease: &RefreshLease,
        error: RefreshError,
        file: Option<WrittenFile>,
    ) -> Result<VersionRecord, RefreshError> {
        let reason = error.for_the_owner();
        let published = match self.catalog.fail_refresh(lease.attempt, &reason).await {
            Ok(()) => Ok(None),
            // It has ended before: with a version, or because another took over.
            Err(CatalogError::LeaseLost) => self.published_by(lease).await,
            Err(error) => Err(error),
        };
        match (&published, file) {
            (Ok(None), Some(file)) => file.abandon().await,
            // A record names it; or whether one does is not known, and the sweep will find out.
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
        let attempts = self.catalog.attempts(lease.dataset.id, None, ATTEMPTS).await?;
        let outcome =
            attempts.into_iter().find(|attempt| attempt.id == lease.attempt).and_then(|attempt| attempt.outcome);
        match outcome {
            Some(AttemptOutcome::Published(number)) => Ok(Some(self.catalog.version(lease.dataset.id, number).await?)),
            Some(AttemptOutcome::Failed { .. }) | None => Ok(None),
        }
    }
}
