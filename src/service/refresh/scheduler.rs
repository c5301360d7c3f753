//! Refreshes by schedule, and the end of those whose process is gone.
//!
//! Several processes may run this on one catalog: each due time is claimed by one of them, and only when it has a place
//! to fetch the source at once; users whose sources dawdle have places of their own. Runs that were missed while no
//! process was there are made up for by one. When in its minute a dataset's turn comes is the schedule's to say
//! (`sources.schedule_spread_s`).
//!
//! A next time that was computed while the clock was ahead would be wrong for as long as the clock was ahead, perhaps
//! for years. So the scheduler computes all future times again when it starts, and when its clock was set back, and
//! stores those that are earlier.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_catalog::{CatalogError, DueSchedule};
use strata_types::dataset::RefreshTrigger;
use strata_types::ids::DatasetId;
use strata_types::schedule::Schedule;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::refresh::clock_watch::ClockWatch;
use crate::refresh::error::RefreshError;
use crate::refresh::{Entities, Refreshes};

/// How often due schedules are looked for: a fraction of the minute in which schedules count.
const POLL: Duration = Duration::from_secs(5);

/// By how much it varies, so that processes that started together do not go on asking together.
const POLL_JITTER_MS: u64 = 1_000;

/// How often refreshes whose lease has expired are looked for.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// Schedules looked at in one round.
const AT_ONCE: u32 = 100;

enum Due {
    Left,
    /// It has another time now; there was nothing to run, or another process runs it.
    Computed,
    Begun,
}

pub struct Schedules {
    pub(crate) refreshes: Arc<Refreshes>,
    /// The clock by which next runs were computed.
    pub(crate) clock_watch: ClockWatch,
}

impl Schedules {
    /// Ends the refreshes of processes that were killed, which began before this one, which has begun none yet: those
    /// that the data directory shows to be gone. The leases of others expire.
    pub(crate) fn end_refreshes_of_the_dead(self: Arc<Self>) -> impl Future<Output = ()> {
        let began = self.refreshes.catalog.now();
        async move {
            match self.refreshes.attempts.former.end_refreshes(began).await {
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
        let refreshes = self.refreshes.attempts.former.end_refreshes(self.refreshes.catalog.now()).await?;
        let reservations = self.refreshes.attempts.former.end_reservations().await?;
        if refreshes > 0 || reservations > 0 {
            tracing::info!(refreshes, reservations, "ended writes of killed processes");
        }
        Ok(())
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut cleaned_up: Option<Instant> = None;
        // Times that other processes stored, perhaps with another clock.
        let mut may_be_late = true;
        loop {
            may_be_late |= self.clock_watch.was_set_back(self.refreshes.catalog.now(), Instant::now());
            if may_be_late {
                match self.advance_late_runs(&stop).await {
                    Ok(0) => may_be_late = false,
                    Ok(advanced) => {
                        may_be_late = false;
                        tracing::warn!(advanced, "rescheduled runs that were stored while a clock was ahead");
                    }
                    Err(error) => tracing::warn!(%error, "failed to check the times of scheduled runs"),
                }
            }
            if cleaned_up.is_none_or(|at| at.elapsed() >= CLEAN_UP) {
                match self.refreshes.catalog.end_expired_refreshes().await {
                    Ok(0) => {}
                    Ok(ended) => tracing::warn!(ended, "recorded refreshes of exited processes as failed"),
                    Err(error) => tracing::warn!(%error, "failed to find refreshes of exited processes"),
                }
                cleaned_up = Some(Instant::now());
            }
            // A claim is never dropped: the round notices the end by itself.
            if let Err(error) = self.run_due(&stop).await {
                tracing::warn!(%error, "failed to run due schedules");
            }
            let pause = POLL + Duration::from_millis(rand::random_range(0..POLL_JITTER_MS));
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Begins the refreshes that are due, waits for none, and returns how many. On an error the rest stays due.
    pub async fn run_due(&self, stop: &CancellationToken) -> Result<u64, CatalogError> {
        let mut claimed = 0;
        loop {
            let due = self.refreshes.catalog.due_schedules(AT_ONCE).await?;
            let is_last_round = u32::try_from(due.len()).is_ok_and(|count| count < AT_ONCE);
            let mut has_progressed = false;
            for due in due {
                if stop.is_cancelled() {
                    return Ok(claimed);
                }
                match self.run_schedule(&due).await? {
                    Due::Left => {}
                    Due::Computed => has_progressed = true,
                    Due::Begun => (has_progressed, claimed) = (true, claimed + 1),
                }
            }
            // What cannot be claimed now stays due.
            if is_last_round || !has_progressed {
                return Ok(claimed);
            }
        }
    }

    /// Computes the next run of every schedule from the present time, and stores those that are earlier than the
    /// stored ones. Returns how many. On an error the other times stay as they are.
    pub async fn advance_late_runs(&self, stop: &CancellationToken) -> Result<u64, CatalogError> {
        let mut advanced = 0;
        let mut last = DatasetId::new(0);
        while !stop.is_cancelled() {
            let schedules = self.refreshes.catalog.future_schedules(last, AT_ONCE).await?;
            let Some(end) = schedules.last() else { break };
            last = end.dataset;
            for stored in schedules {
                // A schedule that is not understood has no next run: `run_schedule` logs it.
                let Ok(schedule) = stored.schedule.parse::<Schedule>() else { continue };
                let next = self.due_after(&schedule, self.refreshes.catalog.now(), stored.dataset);
                if next.is_some_and(|next| Some(next) < stored.due_at)
                    && self.refreshes.catalog.claim_schedule(&stored, next).await?
                {
                    advanced += 1;
                }
            }
        }
        Ok(advanced)
    }

    fn due_after(&self, schedule: &Schedule, after: DateTime<Utc>, dataset: DatasetId) -> Option<DateTime<Utc>> {
        schedule.due_after(after, dataset, Duration::from_secs(self.refreshes.ingest.config.sources.schedule_spread_s))
    }

    /// The next times at which a dataset of this schedule is due, so many, as they are scheduled.
    pub fn due_times(&self, schedule: &Schedule, dataset: DatasetId, count: usize) -> Vec<DateTime<Utc>> {
        let first = self.due_after(schedule, self.refreshes.catalog.now(), dataset);
        std::iter::successors(first, |due| self.due_after(schedule, *due, dataset)).take(count).collect()
    }

    /// Computes the next time of one schedule and, if this process is the one to claim it, begins its refresh.
    async fn run_schedule(&self, due: &DueSchedule) -> Result<Due, CatalogError> {
        let now = self.refreshes.catalog.now();
        let next = match due.schedule.parse::<Schedule>() {
            Ok(schedule) => self.due_after(&schedule, now, due.dataset),
            Err(error) => {
                tracing::error!(
                    dataset_id = due.dataset.get(),
                    %error,
                    "failed to parse schedule; disabled scheduled refreshes"
                );
                None
            }
        };
        self.clock_watch.note(now, Instant::now());
        if due.due_at.is_none() {
            self.refreshes.catalog.claim_schedule(due, next).await?;
            return Ok(Due::Computed);
        }
        // Where its owner has as many as there may be, the next round tries again; others do not wait for that.
        let Some(place) = self.refreshes.ingest.try_place(due.owner) else { return Ok(Due::Left) };
        if !self.refreshes.catalog.claim_schedule(due, next).await? {
            return Ok(Due::Computed);
        }
        let (refreshes, dataset) = (self.refreshes.clone(), due.dataset);
        self.refreshes.tasks.begin(async move {
            let entities = Entities::Fetched(Some(place));
            match refreshes.make_version(dataset, RefreshTrigger::Schedule, entities, &Arc::default()).await {
                // The running refresh makes the version of this moment.
                Err(RefreshError::Busy) => {
                    tracing::info!(dataset_id = dataset.get(), "skipped scheduled refresh; another refresh is running");
                }
                // Frozen, or given another source, since it was claimed.
                Err(RefreshError::Frozen | RefreshError::NothingToFetch) | Ok(_) => {}
                Err(error) => tracing::warn!(dataset_id = dataset.get(), %error, "failed to run scheduled refresh"),
            }
        });
        Ok(Due::Begun)
    }
}
