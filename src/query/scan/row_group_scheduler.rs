//! The scheduler of row groups: processes several at once and returns their results in order.
//!
//! If everything is cached, as many row groups are processed as there are threads. If the first one waits for the
//! store, others begin, and their waits overlap. Computations take turns, so that they use no more threads than before.
//! The bytes and the number of row groups in progress are limited. If the scan can end early, the number also depends
//! on how many row groups are done and how many entities they returned.
//!
//! `query::cold` counts the round trips.

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

/// Row groups in progress while most of them wait for the store.
const MAX_ROW_GROUPS: usize = 256;

/// Bytes of the row groups in progress, without the first `threads` ones.
const MAX_BYTES: u64 = 16 << 20;

/// The same limit for all scans of the process.
static ALL_BYTES: Semaphore = Semaphore::const_new(256 << 20);

/// If the scan can end early, this many times as many row groups begin as are done.
const GROWTH: usize = 4;

static SCANS: AtomicUsize = AtomicUsize::new(0);

pub(super) struct Shared {
    /// Row groups that are computed at once.
    threads: usize,
    /// The number of entities after which the scan ends.
    wanted: Option<usize>,
    turns: Arc<Semaphore>,
    /// Row groups that are done, and the entities that they returned.
    done: AtomicUsize,
    found: AtomicUsize,
    waker: AtomicWaker,
}

impl Shared {
    pub(super) fn new(threads: usize, wanted: Option<usize>) -> Arc<Shared> {
        SCANS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Shared {
            threads,
            wanted,
            turns: Arc::new(Semaphore::new(threads)),
            done: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
        })
    }

    /// Whether every thread has a scan, so that processing several row groups of a scan at once is no faster.
    pub(super) fn are_threads_taken(&self) -> bool {
        SCANS.load(Ordering::Relaxed) > self.threads
    }

    /// The maximum number of row groups in progress.
    fn max_row_groups(&self) -> usize {
        let Some(wanted) = self.wanted else { return MAX_ROW_GROUPS };
        let done = self.done.load(Ordering::Relaxed);
        let found = self.found.load(Ordering::Relaxed);
        let max = done.saturating_mul(GROWTH);
        let needed =
            wanted.saturating_sub(found).saturating_mul(done).checked_div(found).map(|more| more.saturating_add(1));
        let max = needed.map_or(max, |needed| needed.min(max));
        max.clamp(self.threads, MAX_ROW_GROUPS.max(self.threads))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        SCANS.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct Progress {
    shared: Arc<Shared>,
    state: AtomicU8,
}

/// The states of [`Progress`]: computing without a wait so far, waiting or after a wait, done.
const BUSY: u8 = 0;
const LATE: u8 = 1;
const DONE: u8 = 2;

impl Progress {
    /// Runs the work, in turns with other row groups. `waits` is whether it waits for the store.
    pub(super) async fn run<F: Future>(&self, waits: impl Fn() -> bool, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut turns = PollSemaphore::new(self.shared.turns.clone());
        let outcome = std::future::poll_fn(|context| {
            // The semaphore is never closed.
            let turn = ready!(turns.poll_acquire(context));
            let polled = work.as_mut().poll(context);
            drop(turn);
            if polled.is_pending() && self.is(BUSY) && waits() {
                self.state.store(LATE, Ordering::Relaxed);
                self.shared.waker.wake();
            }
            polled
        });
        let outcome = outcome.await;
        self.state.store(DONE, Ordering::Relaxed);
        self.shared.done.fetch_add(1, Ordering::Relaxed);
        self.shared.waker.wake();
        outcome
    }

    pub(super) fn found(&self, entities: usize) {
        self.shared.found.fetch_add(entities, Ordering::Relaxed);
    }

    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Relaxed) == state
    }
}

/// The results of work on row groups, in order. The iterator returns the memory of each row group in bytes.
pub(super) fn in_order<R, F: Future>(
    shared: Arc<Shared>,
    mut row_groups: impl Iterator<Item = (R, u64)>,
    mut work: impl FnMut(R, Arc<Progress>) -> F,
) -> impl Stream<Item = F::Output> {
    let mut queue = Queue { shared, begun: VecDeque::new(), bytes: 0 };
    let mut working = FuturesOrdered::new();
    let mut next = None;
    stream::poll_fn(move |context| {
        queue.shared.waker.register(context.waker());
        loop {
            let mut has_begun = false;
            while let Some((row_group, bytes)) = next.take().or_else(|| row_groups.next()) {
                let Some(held) = queue.try_begin(bytes) else {
                    next = Some((row_group, bytes));
                    break;
                };
                has_begun = true;
                let progress = Arc::new(Progress { shared: queue.shared.clone(), state: AtomicU8::new(BUSY) });
                working.push_back(work(row_group, progress.clone()));
                queue.begun.push_back(Begun { progress, bytes, _held: held });
                queue.bytes += bytes;
            }
            match working.poll_next_unpin(context) {
                Poll::Ready(result) => {
                    queue.bytes -= queue.begun.pop_front().map_or(0, |begun| begun.bytes);
                    return Poll::Ready(result);
                }
                // New work may already wait, so that more can begin.
                Poll::Pending if has_begun && next.is_some() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
}

/// Work in progress.
struct Queue {
    shared: Arc<Shared>,
    begun: VecDeque<Begun>,
    bytes: u64,
}

struct Begun {
    progress: Arc<Progress>,
    bytes: u64,
    /// Of [`ALL_BYTES`].
    _held: Option<SemaphorePermit<'static>>,
}

impl Queue {
    /// The permit to begin work with this much memory, if it is necessary. `None` if the work cannot begin now.
    fn try_begin(&self, bytes: u64) -> Option<Option<SemaphorePermit<'static>>> {
        let threads = self.shared.threads;
        if self.begun.len() < threads {
            return Some(None);
        }
        let has_room = self.begun.front().is_some_and(|first| first.progress.is(LATE))
            && self.begun.len() < self.shared.max_row_groups()
            && self.bytes.saturating_add(bytes) <= MAX_BYTES
            && self.begun.iter().filter(|begun| begun.progress.is(BUSY)).count() < threads;
        ALL_BYTES.try_acquire_many(u32::try_from(bytes).ok().filter(|_| has_room)?).ok().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The first `wanted` results of row groups, and how many row groups have begun.
    async fn run(
        row_groups: usize,
        bytes: u64,
        shared: Arc<Shared>,
        waits: bool,
        wanted: usize,
    ) -> (Vec<usize>, usize) {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = begun.clone();
        let results = in_order(shared, (0..row_groups).map(|number| (number, bytes)), |number, progress| {
            let begun = counted.clone();
            async move {
                let work = async {
                    begun.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(if number % 3 == 0 { 20 } else { 5 })).await;
                    number
                };
                progress.run(|| waits, work).await
            }
        });
        let results = results.take(wanted).collect().await;
        (results, begun.load(Ordering::Relaxed))
    }

    fn shared(threads: usize, may_end_early: bool) -> Arc<Shared> {
        Shared::new(threads, may_end_early.then_some(1_000))
    }

    #[test]
    fn max_row_groups_follows_matches_found() {
        for (wanted, done, found, max) in [
            (1_000, 0, 0, 2),
            (1_000, 1, 0, 4),
            (1_000, 10, 0, 40),
            (1_000, 1_000, 0, MAX_ROW_GROUPS),
            (1_000, 1, 990, 2),
            (1_000, 5, 500, 6),
            (1_000, 20, 10, 80),
            (1_000, 20, 2_000, 2),
            (1_000, 10, 500, 11),
            (usize::MAX, 3, 1, 12),
            (usize::MAX, 1_000, 1, MAX_ROW_GROUPS),
        ] {
            let shared = Shared::new(2, Some(wanted));
            shared.done.store(done, Ordering::Relaxed);
            shared.found.store(found, Ordering::Relaxed);
            assert_eq!(shared.max_row_groups(), max, "{wanted} wanted, {done} done, {found} found");
        }
    }

    #[tokio::test]
    async fn results_are_ordered_and_work_is_limited() {
        let all: Vec<usize> = (0..100).collect();
        for (shared, waits) in [(shared(1, false), true), (shared(2, true), true), (shared(3, false), false)] {
            assert_eq!(run(100, 1, shared, waits, 100).await, (all.clone(), 100));
        }
        // Without waits, row groups begin one after the other.
        assert_eq!(run(100, 1, shared(2, false), false, 1).await, (vec![0], 2));
        // Waiting row groups overlap: all of them, within the memory limit, or few if that may be enough.
        assert_eq!(run(100, 1, shared(2, false), true, 1).await, (vec![0], 100));
        assert_eq!(run(100, MAX_BYTES / 10, shared(2, false), true, 1).await, (vec![0], 10));
        assert_eq!(run(100, 2 * MAX_BYTES, shared(2, false), true, 1).await, (vec![0], 2));
        let (results, begun) = run(100, 1, shared(2, true), true, 1).await;
        assert_eq!(results, [0]);
        assert!((2..60).contains(&begun), "{begun}");
    }
}
