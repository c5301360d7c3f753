//! Schedules row groups: processes several at once and returns their results in order.
//!
//! If everything is cached, as many row groups are processed as there are threads. If the first row group waits for the
//! store, others start, and their waits overlap. Computations share `threads` permits, so the number of busy threads
//! stays the same. The bytes and the number of row groups in progress are limited. If the scan can end early, the
//! number also depends on the number of completed row groups and of the entities that they returned.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Poll, ready};

use futures::Stream;
use futures::stream::{self, FuturesOrdered, StreamExt};
use futures::task::AtomicWaker;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::PollSemaphore;

/// Max row groups of a scan in progress while most of them wait for the store.
const MAX_ROW_GROUPS_IN_PROGRESS: usize = 256;
/// Max bytes of a scan's row groups in progress, not counting the first `threads` row groups.
const MAX_BYTES_IN_PROGRESS: u64 = 16 << 20;

/// The limit of bytes in progress for the scans of all queries in the process.
static PROCESS_BYTE_PERMITS: Semaphore = Semaphore::const_new(256 << 20);

/// If a scan can end early, at most this many row groups are started for each completed one.
const EARLY_END_GROWTH_FACTOR: usize = 4;

static ACTIVE_SCANS: AtomicUsize = AtomicUsize::new(0);

pub(super) struct RowGroupScheduler {
    threads: usize,
    entity_limit: Option<usize>,
    compute_permits: Arc<Semaphore>,
    completed_row_groups: AtomicUsize,
    found_entities: AtomicUsize,
    waker: AtomicWaker,
}

impl RowGroupScheduler {
    pub(super) fn new(threads: usize, entity_limit: Option<usize>) -> Arc<RowGroupScheduler> {
        ACTIVE_SCANS.fetch_add(1, Ordering::Relaxed);
        Arc::new(RowGroupScheduler {
            threads,
            entity_limit,
            compute_permits: Arc::new(Semaphore::new(threads)),
            completed_row_groups: AtomicUsize::new(0),
            found_entities: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
        })
    }

    /// Whether there is a scan for every thread, so that processing a scan's row groups concurrently is no faster.
    pub(super) fn has_scan_per_thread(&self) -> bool {
        ACTIVE_SCANS.load(Ordering::Relaxed) > self.threads
    }

    fn max_row_groups_in_progress(&self) -> usize {
        let Some(limit) = self.entity_limit else { return MAX_ROW_GROUPS_IN_PROGRESS };
        let done = self.completed_row_groups.load(Ordering::Relaxed);
        let found = self.found_entities.load(Ordering::Relaxed);
        let max = done.saturating_mul(EARLY_END_GROWTH_FACTOR);
        let needed = limit.saturating_sub(found).saturating_mul(done).checked_div(found).map(|n| n.saturating_add(1));
        let max = needed.map_or(max, |needed| needed.min(max));
        max.clamp(self.threads, MAX_ROW_GROUPS_IN_PROGRESS.max(self.threads))
    }
}

impl Drop for RowGroupScheduler {
    fn drop(&mut self) {
        ACTIVE_SCANS.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct RowGroupProgress {
    scheduler: Arc<RowGroupScheduler>,
    state: AtomicU8,
}

/// The states of [`RowGroupProgress`]: computing and has never waited for the store; waiting, or has waited; done.
const STATE_COMPUTING: u8 = 0;
const STATE_WAITED: u8 = 1;
const STATE_DONE: u8 = 2;

impl RowGroupProgress {
    /// Runs work on a row group, with a compute permit for each poll. `is_waiting`: whether it waits for the store.
    pub(super) async fn run_with_permits<F: Future>(&self, is_waiting: impl Fn() -> bool, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut permits = PollSemaphore::new(self.scheduler.compute_permits.clone());
        let outcome = std::future::poll_fn(|context| {
            // The semaphore of compute permits is never closed.
            let permit = ready!(permits.poll_acquire(context));
            let polled = work.as_mut().poll(context);
            drop(permit);
            if polled.is_pending() && self.is_in_state(STATE_COMPUTING) && is_waiting() {
                self.state.store(STATE_WAITED, Ordering::Relaxed);
                self.scheduler.waker.wake();
            }
            polled
        });
        let outcome = outcome.await;
        self.state.store(STATE_DONE, Ordering::Relaxed);
        self.scheduler.completed_row_groups.fetch_add(1, Ordering::Relaxed);
        self.scheduler.waker.wake();
        outcome
    }

    pub(super) fn add_found_entities(&self, entities: usize) {
        self.scheduler.found_entities.fetch_add(entities, Ordering::Relaxed);
    }

    fn is_in_state(&self, state: u8) -> bool {
        self.state.load(Ordering::Relaxed) == state
    }
}

/// Returns the results of work on row groups, in order. `row_groups` yields each row group with its memory in bytes.
pub(super) fn run_in_order<R, F: Future>(
    scheduler: Arc<RowGroupScheduler>,
    mut row_groups: impl Iterator<Item = (R, u64)>,
    mut work: impl FnMut(R, Arc<RowGroupProgress>) -> F,
) -> impl Stream<Item = F::Output> {
    let mut queue = RowGroupQueue { scheduler, started: VecDeque::new(), bytes: 0 };
    let mut working = FuturesOrdered::new();
    let mut next = None;
    stream::poll_fn(move |context| {
        queue.scheduler.waker.register(context.waker());
        loop {
            let mut has_started = false;
            while let Some((row_group, bytes)) = next.take().or_else(|| row_groups.next()) {
                let Some(permit) = queue.try_acquire_start_permit(bytes) else {
                    next = Some((row_group, bytes));
                    break;
                };
                has_started = true;
                let state = AtomicU8::new(STATE_COMPUTING);
                let progress = Arc::new(RowGroupProgress { scheduler: queue.scheduler.clone(), state });
                working.push_back(work(row_group, progress.clone()));
                queue.started.push_back(StartedRowGroup { progress, bytes, _permit: permit });
                queue.bytes += bytes;
            }
            match working.poll_next_unpin(context) {
                Poll::Ready(result) => {
                    queue.bytes -= queue.started.pop_front().map_or(0, |started| started.bytes);
                    return Poll::Ready(result);
                }
                Poll::Pending if has_started && next.is_some() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
}

struct RowGroupQueue {
    scheduler: Arc<RowGroupScheduler>,
    started: VecDeque<StartedRowGroup>,
    bytes: u64,
}

struct StartedRowGroup {
    progress: Arc<RowGroupProgress>,
    bytes: u64,
    _permit: Option<SemaphorePermit<'static>>,
}

impl RowGroupQueue {
    /// Returns a permit to work on a row group: `None` if work cannot start now, `Some(None)` if it needs no permit.
    fn try_acquire_start_permit(&self, bytes: u64) -> Option<Option<SemaphorePermit<'static>>> {
        let threads = self.scheduler.threads;
        if self.started.len() < threads {
            return Some(None);
        }
        let has_room = self.started.front().is_some_and(|first| first.progress.is_in_state(STATE_WAITED))
            && self.started.len() < self.scheduler.max_row_groups_in_progress()
            && self.bytes.saturating_add(bytes) <= MAX_BYTES_IN_PROGRESS
            && self.started.iter().filter(|started| started.progress.is_in_state(STATE_COMPUTING)).count() < threads;
        PROCESS_BYTE_PERMITS.try_acquire_many(u32::try_from(bytes).ok().filter(|_| has_room)?).ok().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the first `wanted` results of row groups, and the number of row groups that were started.
    async fn run(
        row_groups: usize,
        bytes: u64,
        scheduler: Arc<RowGroupScheduler>,
        waits: bool,
        wanted: usize,
    ) -> (Vec<usize>, usize) {
        let started = Arc::new(AtomicUsize::new(0));
        let counted = started.clone();
        let results = run_in_order(scheduler, (0..row_groups).map(|number| (number, bytes)), |number, progress| {
            let started = counted.clone();
            async move {
                let work = async {
                    started.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(if number % 3 == 0 { 20 } else { 5 })).await;
                    number
                };
                progress.run_with_permits(|| waits, work).await
            }
        });
        let results = results.take(wanted).collect().await;
        (results, started.load(Ordering::Relaxed))
    }

    fn scheduler(threads: usize, may_end_early: bool) -> Arc<RowGroupScheduler> {
        RowGroupScheduler::new(threads, may_end_early.then_some(1_000))
    }

    #[test]
    fn max_row_groups_follows_matches_found() {
        for (wanted, done, found, max) in [
            (1_000, 0, 0, 2),
            (1_000, 1, 0, 4),
            (1_000, 10, 0, 40),
            (1_000, 1_000, 0, MAX_ROW_GROUPS_IN_PROGRESS),
            (1_000, 1, 990, 2),
            (1_000, 5, 500, 6),
            (1_000, 20, 10, 80),
            (1_000, 20, 2_000, 2),
            (1_000, 10, 500, 11),
            (usize::MAX, 3, 1, 12),
            (usize::MAX, 1_000, 1, MAX_ROW_GROUPS_IN_PROGRESS),
        ] {
            let scheduler = RowGroupScheduler::new(2, Some(wanted));
            scheduler.completed_row_groups.store(done, Ordering::Relaxed);
            scheduler.found_entities.store(found, Ordering::Relaxed);
            assert_eq!(scheduler.max_row_groups_in_progress(), max, "{wanted} wanted, {done} done, {found} found");
        }
    }

    #[tokio::test]
    async fn results_are_ordered_and_work_is_limited() {
        let all: Vec<usize> = (0..100).collect();
        for (scheduler, waits) in
            [(scheduler(1, false), true), (scheduler(2, true), true), (scheduler(3, false), false)]
        {
            assert_eq!(run(100, 1, scheduler, waits, 100).await, (all.clone(), 100));
        }
        // If no work waits for the store, row groups start one after the other.
        assert_eq!(run(100, 1, scheduler(2, false), false, 1).await, (vec![0], 2));
        // If the work waits for the store, row groups overlap: all of them, as many as the memory limit allows, or few
        // if those may be sufficient.
        assert_eq!(run(100, 1, scheduler(2, false), true, 1).await, (vec![0], 100));
        assert_eq!(run(100, MAX_BYTES_IN_PROGRESS / 10, scheduler(2, false), true, 1).await, (vec![0], 10));
        assert_eq!(run(100, 2 * MAX_BYTES_IN_PROGRESS, scheduler(2, false), true, 1).await, (vec![0], 2));
        let (results, started) = run(100, 1, scheduler(2, true), true, 1).await;
        assert_eq!(results, [0]);
        assert!((2..60).contains(&started), "{started}");
    }
}
