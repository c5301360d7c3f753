//! Starts scheduled refreshes, and ends refreshes of killed processes.
//!
//! Several processes can schedule the refreshes of a catalog. Exactly one of them claims each run, when it has a
//! receive slot of the owner; users have separate slots, so that slow sources do not delay other users. Several missed
//! runs are made up for by a single run. `sources.schedule_spread_s` spreads the runs within their minute.
//!
//! If a clock was ahead when the next run was computed, the stored time can be years late. Therefore, the scheduler
//! computes the next runs again at its start and every hour, and stores earlier times.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_catalog::{CatalogError, ScheduledRun};
use strata_types::dataset::RefreshTrigger;
use strata_types::ids::DatasetId;
use strata_types::schedule::RefreshSchedule;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::refresh::error::RefreshError;
use crate::refresh::{RefreshInput, RefreshService};

/// Interval between checks for due scheduled runs: several times per minute, which is the resolution of schedules.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Random addition to `POLL_INTERVAL`, so that processes that started together do not poll together.
const POLL_JITTER_MS: u64 = 1_000;

/// Interval between checks for refreshes with expired leases.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(60);

/// Interval at which the next runs of all schedules are computed again.
const ADVANCE_INTERVAL: Duration = Duration::from_secs(3_600);

const SCHEDULES_PER_QUERY: u32 = 100;

enum ScheduleOutcome {
    /// The owner of the dataset has no free slot to receive a source, so the scheduled run is still due.
    NoSlot,
    /// The scheduled run has a new time, or another process claimed it.
    Rescheduled,
    Started,
}

impl RefreshService {
    /// Ends refreshes of exited processes that began before the call. Must precede all refreshes of this process.
    pub(crate) fn recover_leases(self: Arc<Self>) -> impl Future<Output = ()> {
        let began_before = self.catalog.now();
        async move {
            match self.attempts.lease_recovery.end_exited_refreshes(began_before).await {
                Ok(0) => {}
                Ok(ended) => tracing::info!(ended, "ended refreshes of exited processes"),
                Err(error) => {
                    tracing::warn!(%error, "failed to end refreshes of exited processes; their leases will expire")
                }
            }
        }
    }

    /// Ends refreshes and file reservations of exited processes. Only for processes that create no versions.
    pub async fn end_writes_of_exited_processes(&self) -> Result<(), CatalogError> {
        let refreshes = self.attempts.lease_recovery.end_exited_refreshes(self.catalog.now()).await?;
        let reservations = self.attempts.lease_recovery.end_exited_reservations().await?;
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
                match self.move_scheduled_runs_earlier(&stop).await {
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
            // The call is not cancelled by `stop`, but checks it between claims, because a claimed run must be started.
            if let Err(error) = self.run_due_schedules(&stop).await {
                tracing::warn!(%error, "failed to run due schedules");
            }
            let delay = POLL_INTERVAL + Duration::from_millis(rand::random_range(0..POLL_JITTER_MS));
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return;
            }
        }
    }

    /// Starts the due scheduled refreshes without waiting, and returns their number. After an error, the rest stay due.
    pub async fn run_due_schedules(self: &Arc<Self>, stop: &CancellationToken) -> Result<u64, CatalogError> {
        let mut started = 0;
        loop {
            let due = self.catalog.due_schedules(SCHEDULES_PER_QUERY).await?;
            let is_last_page = u32::try_from(due.len()).is_ok_and(|count| count < SCHEDULES_PER_QUERY);
            let mut has_progressed = false;
            for due in due {
                if stop.is_cancelled() {
                    return Ok(started);
                }
                match self.claim_and_start(&due).await? {
                    ScheduleOutcome::NoSlot => {}
                    ScheduleOutcome::Rescheduled => has_progressed = true,
                    ScheduleOutcome::Started => {
                        has_progressed = true;
                        started += 1;
                    }
                }
            }
            // Scheduled runs without a free slot to receive their source remain due until the next poll.
            if is_last_page || !has_progressed {
                return Ok(started);
            }
        }
    }

    /// Computes every schedule's next run and stores it if earlier than the stored time. Returns the number of changes.
    pub async fn move_scheduled_runs_earlier(&self, stop: &CancellationToken) -> Result<u64, CatalogError> {
        let mut advanced = 0;
        let mut last = DatasetId::new(0);
        while !stop.is_cancelled() {
            let schedules = self.catalog.future_schedules(last, SCHEDULES_PER_QUERY).await?;
            let Some(end) = schedules.last() else { break };
            last = end.dataset;
            for stored in schedules {
                // Invalid schedules are skipped here, because `claim_and_start` logs them.
                let Ok(schedule) = stored.schedule.parse::<RefreshSchedule>() else { continue };
                let next = self.next_due_at(&schedule, self.catalog.now(), stored.dataset);
                if next.is_some_and(|next| Some(next) < stored.due_at)
                    && self.catalog.claim_schedule(&stored, next).await?
                {
                    advanced += 1;
                }
            }
        }
        Ok(advanced)
    }

    fn next_due_at(&self, schedule: &RefreshSchedule, after: DateTime<Utc>, id: DatasetId) -> Option<DateTime<Utc>> {
        schedule.next_due_time(after, id, Duration::from_secs(self.ingest.config.sources.schedule_spread_s))
    }

    /// Returns the next `count` runs of a dataset with this schedule.
    pub fn next_due_times(&self, schedule: &RefreshSchedule, dataset: DatasetId, count: usize) -> Vec<DateTime<Utc>> {
        let first = self.next_due_at(schedule, self.catalog.now(), dataset);
        std::iter::successors(first, |due| self.next_due_at(schedule, *due, dataset)).take(count).collect()
    }

    /// Computes the next run of a schedule, and starts the refresh if this process can claim the due run.
    async fn claim_and_start(self: &Arc<Self>, due: &ScheduledRun) -> Result<ScheduleOutcome, CatalogError> {
        let dataset = due.dataset;
        let next = match due.schedule.parse::<RefreshSchedule>() {
            Ok(schedule) => self.next_due_at(&schedule, self.catalog.now(), dataset),
            Err(error) => {
                let dataset_id = dataset.get();
                tracing::error!(dataset_id, %error, "failed to parse schedule; disabled scheduled refreshes");
                None
            }
        };
        if due.due_at.is_none() {
            self.catalog.claim_schedule(due, next).await?;
            return Ok(ScheduleOutcome::Rescheduled);
        }
        let Some(slot) = self.ingest.try_acquire_receive_slot(due.owner) else { return Ok(ScheduleOutcome::NoSlot) };
        if !self.catalog.claim_schedule(due, next).await? {
            return Ok(ScheduleOutcome::Rescheduled);
        }
        let refreshes = self.clone();
        self.tasks.spawn_refresh(async move {
            let input = RefreshInput::Fetched(Some(slot));
            match refreshes.create_version(dataset, RefreshTrigger::Schedule, input, &Arc::default()).await {
                Err(RefreshError::RefreshRunning) => {
                    tracing::info!(dataset_id = dataset.get(), "skipped scheduled refresh; another refresh is running");
                }
                // The dataset was frozen, or its source became `push`, after the run was claimed.
                Err(RefreshError::Frozen | RefreshError::NothingToFetch) | Ok(_) => {}
                Err(error) => tracing::warn!(dataset_id = dataset.get(), %error, "failed to run scheduled refresh"),
            }
        });
        Ok(ScheduleOutcome::Started)
    }
}
