//! Scheduled refreshes, and the end of refreshes whose process was killed.
//!
//! Several processes can run this on one catalog. One of them claims each due time, and only when it has a slot to
//! fetch the source at once; users have separate slots, so that slow sources do not delay other users. One run makes up
//! for all runs that were missed while no process was running. The schedule decides when in its minute a dataset is due
//! (`sources.schedule_spread_s`).
//!
//! A next time that was computed while the clock was ahead would be wrong for as long as the clock was ahead, perhaps
//! for years. So the scheduler computes all future times again at the start and every hour, and stores those that are
//! earlier.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_catalog::{CatalogError, DueSchedule};
use strata_types::dataset::RefreshTrigger;
use strata_types::ids::DatasetId;
use strata_types::schedule::Schedule;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::refresh::error::RefreshError;
use crate::refresh::{Entities, Refreshes};

/// How often the scheduler looks for due schedules: several times in a minute, the unit of schedules.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The variation of that interval, so that processes that started together do not continue to poll together.
const POLL_JITTER_MS: u64 = 1_000;

/// How often the scheduler looks for refreshes whose lease has expired.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(60);

/// How often the scheduler computes future times again.
const ADVANCE_INTERVAL: Duration = Duration::from_secs(3_600);

/// Schedules of one catalog query.
const PAGE: u32 = 100;

enum ScheduleOutcome {
    /// The schedule stays due, because its owner has no free slot.
    NoSlot,
    /// The schedule has a new time. There was nothing to run, or another process runs it.
    Rescheduled,
    Started,
}

impl Refreshes {
    /// Ends the refreshes of killed processes that began before this call, if the data directory shows that their
    /// process has ended. The leases of others expire. Call it before this process begins a refresh.
    pub(crate) fn end_refreshes_of_the_dead(self: Arc<Self>) -> impl Future<Output = ()> {
        let began = self.catalog.now();
        async move {
            match self.attempts.former.end_refreshes(began).await {
                Ok(0) => {}
                Ok(ended) => tracing::info!(ended, "ended refreshes of exited processes"),
                Err(error) => {
                    tracing::warn!(%error, "failed to end refreshes of exited processes; their leases will expire")
                }
            }
        }
    }

    /// Ends the refreshes and the file reservations of killed processes, so that a sweep removes their files at once.
    /// Call it only in a process that creates no versions. If strata cannot tell whether a process lives, its refreshes
    /// and reservations expire within minutes.
    pub async fn end_writes_of_the_dead(&self) -> Result<(), CatalogError> {
        let refreshes = self.attempts.former.end_refreshes(self.catalog.now()).await?;
        let reservations = self.attempts.former.end_reservations().await?;
        if refreshes > 0 || reservations > 0 {
            tracing::info!(refreshes, reservations, "ended writes of killed processes");
        }
        Ok(())
    }

    pub(crate) async fn run_schedules(self: Arc<Self>, stop: CancellationToken) {
        let mut advanced_at: Option<Instant> = None;
        let mut cleaned_up_at: Option<Instant> = None;
        loop {
            if advanced_at.is_none_or(|at| at.elapsed() >= ADVANCE_INTERVAL) {
                match self.advance_late_runs(&stop).await {
                    Ok(advanced) => {
                        advanced_at = Some(Instant::now());
                        if advanced > 0 {
                            tracing::warn!(advanced, "rescheduled runs that were stored while a clock was ahead");
                        }
                    }
                    Err(error) => tracing::warn!(%error, "failed to check the times of scheduled runs"),
                }
            }
            if cleaned_up_at.is_none_or(|at| at.elapsed() >= CLEAN_UP_INTERVAL) {
                match self.catalog.end_expired_refreshes().await {
                    Ok(0) => {}
                    Ok(ended) => tracing::warn!(ended, "recorded refreshes of exited processes as failed"),
                    Err(error) => tracing::warn!(%error, "failed to find refreshes of exited processes"),
                }
                cleaned_up_at = Some(Instant::now());
            }
            // A claim is never dropped: `run_due` checks `stop` itself.
            if let Err(error) = self.run_due(&stop).await {
                tracing::warn!(%error, "failed to run due schedules");
            }
            let pause = POLL_INTERVAL + Duration::from_millis(rand::random_range(0..POLL_JITTER_MS));
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Starts the due refreshes, waits for none of them, and returns their number. On an error the others stay due.
    pub async fn run_due(self: &Arc<Self>, stop: &CancellationToken) -> Result<u64, CatalogError> {
        let mut started = 0;
        loop {
            let due = self.catalog.due_schedules(PAGE).await?;
            let is_last_page = u32::try_from(due.len()).is_ok_and(|count| count < PAGE);
            let mut has_progressed = false;
            for due in due {
                if stop.is_cancelled() {
                    return Ok(started);
                }
                match self.run_schedule(&due).await? {
                    ScheduleOutcome::NoSlot => {}
                    ScheduleOutcome::Rescheduled => has_progressed = true,
                    ScheduleOutcome::Started => {
                        has_progressed = true;
                        started += 1;
                    }
                }
            }
            // The next round tries schedules again that cannot be claimed now.
            if is_last_page || !has_progressed {
                return Ok(started);
            }
        }
    }

    /// Computes the next run of every schedule from the present time, and stores those that are earlier than the
    /// stored ones. Returns how many. On an error the other times stay as they are.
    pub async fn advance_late_runs(&self, stop: &CancellationToken) -> Result<u64, CatalogError> {
        let mut advanced = 0;
        let mut last = DatasetId::new(0);
        while !stop.is_cancelled() {
            let schedules = self.catalog.future_schedules(last, PAGE).await?;
            let Some(end) = schedules.last() else { break };
            last = end.dataset;
            for stored in schedules {
                // An invalid schedule has no next run: `run_schedule` logs it.
                let Ok(schedule) = stored.schedule.parse::<Schedule>() else { continue };
                let next = self.due_after(&schedule, self.catalog.now(), stored.dataset);
                if next.is_some_and(|next| Some(next) < stored.due_at)
                    && self.catalog.claim_schedule(&stored, next).await?
                {
                    advanced += 1;
                }
            }
        }
        Ok(advanced)
    }

    fn due_after(&self, schedule: &Schedule, after: DateTime<Utc>, dataset: DatasetId) -> Option<DateTime<Utc>> {
        schedule.due_after(after, dataset, Duration::from_secs(self.ingest.config.sources.schedule_spread_s))
    }

    /// The next `count` times at which a dataset with this schedule is due.
    pub fn due_times(&self, schedule: &Schedule, dataset: DatasetId, count: usize) -> Vec<DateTime<Utc>> {
        let first = self.due_after(schedule, self.catalog.now(), dataset);
        std::iter::successors(first, |due| self.due_after(schedule, *due, dataset)).take(count).collect()
    }

    /// Computes the next time of a schedule and, if this process claims it, starts the refresh.
    async fn run_schedule(self: &Arc<Self>, due: &DueSchedule) -> Result<ScheduleOutcome, CatalogError> {
        let dataset = due.dataset;
        let next = match due.schedule.parse::<Schedule>() {
            Ok(schedule) => self.due_after(&schedule, self.catalog.now(), dataset),
            Err(error) => {
                tracing::error!(
                    dataset_id = dataset.get(),
                    %error,
                    "failed to parse schedule; disabled scheduled refreshes"
                );
                None
            }
        };
        if due.due_at.is_none() {
            self.catalog.claim_schedule(due, next).await?;
            return Ok(ScheduleOutcome::Rescheduled);
        }
        let Some(slot) = self.ingest.try_slot(due.owner) else { return Ok(ScheduleOutcome::NoSlot) };
        if !self.catalog.claim_schedule(due, next).await? {
            return Ok(ScheduleOutcome::Rescheduled);
        }
        let refreshes = self.clone();
        self.tasks.begin(async move {
            let entities = Entities::Fetched(Some(slot));
            match refreshes.make_version(dataset, RefreshTrigger::Schedule, entities, &Arc::default()).await {
                // The running refresh creates the version of this moment.
                Err(RefreshError::Busy) => {
                    tracing::info!(dataset_id = dataset.get(), "skipped scheduled refresh; another refresh is running");
                }
                // The dataset was frozen or got another source after the claim.
                Err(RefreshError::Frozen | RefreshError::NothingToFetch) | Ok(_) => {}
                Err(error) => tracing::warn!(dataset_id = dataset.get(), %error, "failed to run scheduled refresh"),
            }
        });
        Ok(ScheduleOutcome::Started)
    }
}
