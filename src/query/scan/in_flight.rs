//! Work on row groups, on several at once, its outcomes in order.
//!
//! While all that a scan reads is in the cache, as many row groups are worked on as there are threads. Where the first
//! one waits for the store, no thread need be idle: others are begun, and their waits overlap. Threads work on no more
//! than before: those whose bytes have come take turns. What is begun is bounded in bytes and in number; where the scan
//! may end early, by what is done, too, and what that gave.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{FuturesOrdered, StreamExt};
use futures::task::AtomicWaker;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::PollSemaphore;

/// Row groups that are worked on at once, where most of them wait for the store.
const ROW_GROUPS: usize = 256;

/// Bytes of them in memory, besides those of as many as there are threads.
const BYTES: u64 = 16 << 20;

/// The same bytes of all scans of the process.
static ALL_BYTES: Semaphore = Semaphore::const_new(256 << 20);

/// Where the scan may end early, so many times as many are begun as are done.
const GROWTH: usize = 4;

static SCANS: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone)]
pub(super) struct Bounds {
    /// Row groups that are worked on, besides those that wait for the store.
    pub(super) threads: usize,
    /// How many entities are wanted, where the scan ends with them.
    pub(super) wanted: Option<usize>,
}

pub(super) struct Shared {
    bounds: Bounds,
    turns: Arc<Semaphore>,
    /// Row groups that are done, and the entities that they gave.
    done: AtomicUsize,
    found: AtomicUsize,
    waker: AtomicWaker,
}

impl Shared {
    pub(super) fn new(bounds: Bounds) -> Arc<Shared> {
        let turns = Arc::new(Semaphore::new(bounds.threads));
        SCANS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Shared {
            bounds,
            turns,
            done: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
        })
    }

    /// Whether every thread has a scan to work on, so that one gains nothing by working on several row groups.
    pub(super) fn are_threads_taken(&self) -> bool {
        SCANS.load(Ordering::Relaxed) > self.bounds.threads
    }

    /// Most row groups at once. Where the scan may end early, no more than are likely to be needed.
    fn most(&self) -> usize {
        let Some(wanted) = self.bounds.wanted else { return ROW_GROUPS };
        let (done, found) = (self.done.load(Ordering::Relaxed), self.found.load(Ordering::Relaxed));
        let most = done.saturating_mul(GROWTH);
        let needed =
            wanted.saturating_sub(found).saturating_mul(done).checked_div(found).map(|more| more.saturating_add(1));
        let most = needed.map_or(most, |needed| needed.min(most));
        most.clamp(self.bounds.threads, ROW_GROUPS.max(self.bounds.threads))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        SCANS.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct Progress {
    shared: Arc<Shared>,
    has_waited: AtomicBool,
    is_done: AtomicBool,
}

impl Progress {
    /// Runs the work, taking turns with that on other row groups. `waits` says whether someone waits for the store.
    pub(super) async fn run<F: Future>(&self, waits: impl Fn() -> bool, work: F) -> F::Output {
        let mut work = pin!(work);
        let mut turns = PollSemaphore::new(self.shared.turns.clone());
        let outcome = std::future::poll_fn(|context| {
            // It is never closed.
            let turn = ready!(turns.poll_acquire(context));
            let polled = work.as_mut().poll(context);
            drop(turn);
            if polled.is_pending() && waits() && !self.has_waited.swap(true, Ordering::Relaxed) {
                self.shared.waker.wake();
            }
            polled
        });
        let outcome = outcome.await;
        self.is_done.store(true, Ordering::Relaxed);
        self.shared.done.fetch_add(1, Ordering::Relaxed);
        self.shared.waker.wake();
        outcome
    }

    pub(super) fn found(&self, entities: usize) {
        self.shared.found.fetch_add(entities, Ordering::Relaxed);
    }

    /// Whether it waits for the store, or did and takes its turns now.
    fn is_late(&self) -> bool {
        self.has_waited.load(Ordering::Relaxed) && !self.is_done.load(Ordering::Relaxed)
    }

    /// Whether it has not had to wait so far.
    fn is_busy(&self) -> bool {
        !self.has_waited.load(Ordering::Relaxed) && !self.is_done.load(Ordering::Relaxed)
    }
}

/// The outcomes of work on row groups, in their order. Each comes with the bytes that it takes.
pub(super) fn in_order<I, R, W, F>(shared: Arc<Shared>, row_groups: I, work: W) -> InOrder<I, R, W, F>
where
    I: Iterator<Item = (R, u64)>,
    W: FnMut(R, Arc<Progress>) -> F,
    F: Future,
{
    InOrder { shared, next: None, row_groups, work, begun: VecDeque::new(), bytes: 0, working: FuturesOrdered::new() }
}

/// The stream that [`in_order`] makes.
pub(super) struct InOrder<I, R, W, F: Future> {
    shared: Arc<Shared>,
    next: Option<(R, u64)>,
    row_groups: I,
    work: W,
    /// What was begun and not yet given.
    begun: VecDeque<Begun>,
    bytes: u64,
    working: FuturesOrdered<F>,
}

struct Begun {
    progress: Arc<Progress>,
    bytes: u64,
    /// Of [`ALL_BYTES`], where it is more than there are threads for.
    _held: Option<SemaphorePermit<'static>>,
}

impl<I, R, W, F: Future> InOrder<I, R, W, F> {
    /// Whether work that takes so many bytes is begun now, and what it holds of the bytes of all scans.
    fn room(&self, bytes: u64) -> Option<Option<SemaphorePermit<'static>>> {
        let threads = self.shared.bounds.threads;
        if self.begun.len() < threads {
            return Some(None);
        }
        // Those behind one that is not late are begun when it is given.
        let has_room = self.begun.front().is_some_and(|first| first.progress.is_late())
            && self.begun.len() < self.shared.most()
            && self.bytes.saturating_add(bytes) <= BYTES
            && self.begun.iter().filter(|begun| begun.progress.is_busy()).count() < threads;
        ALL_BYTES.try_acquire_many(u32::try_from(bytes).ok().filter(|_| has_room)?).ok().map(Some)
    }
}

impl<I, R, W, F> Stream for InOrder<I, R, W, F>
where
    I: Iterator<Item = (R, u64)> + Unpin,
    R: Unpin,
    W: FnMut(R, Arc<Progress>) -> F + Unpin,
    F: Future,
{
    type Item = F::Output;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = &mut *self;
        this.shared.waker.register(context.waker());
        loop {
            let mut has_begun = false;
            while let Some((row_group, bytes)) = this.next.take().or_else(|| this.row_groups.next()) {
                let Some(held) = this.room(bytes) else {
                    this.next = Some((row_group, bytes));
                    break;
                };
                has_begun = true;
                let (has_waited, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
                let progress = Arc::new(Progress { shared: this.shared.clone(), has_waited, is_done });
                this.working.push_back((this.work)(row_group, progress.clone()));
                this.begun.push_back(Begun { progress, bytes, _held: held });
                this.bytes += bytes;
            }
            match this.working.poll_next_unpin(context) {
                Poll::Ready(Some(outcome)) => {
                    if let Some(begun) = this.begun.pop_front() {
                        this.bytes -= begun.bytes;
                    }
                    return Poll::Ready(Some(outcome));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                // What has just begun may wait already, so that there is room for more.
                Poll::Pending if has_begun && this.next.is_some() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Works on row groups until so many outcomes are there: their numbers, and how many were begun.
    async fn run(row_groups: usize, bytes: u64, bounds: Bounds, waits: bool, wanted: usize) -> (Vec<usize>, usize) {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = begun.clone();
        let outcomes =
            in_order(Shared::new(bounds), (0..row_groups).map(|number| (number, bytes)), |number, progress| {
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
        let outcomes = outcomes.take(wanted).collect().await;
        (outcomes, begun.load(Ordering::Relaxed))
    }

    fn bounds(threads: usize, may_end_early: bool) -> Bounds {
        Bounds { threads, wanted: may_end_early.then_some(1_000) }
    }

    #[test]
    fn as_many_are_begun_as_are_likely_to_be_needed() {
        for (wanted, done, found, most) in [
            (1_000, 0, 0, 2),
            (1_000, 1, 0, 4),
            (1_000, 3, 0, 12),
            (1_000, 10, 0, 40),
            (1_000, 1_000, 0, ROW_GROUPS),
            (1_000, 1, 990, 2),
            (1_000, 5, 500, 6),
            (1_000, 20, 10, 80),
            (1_000, 20, 2_000, 2),
            (1_000, 10, 500, 11),
            (1_000, 10, 1_000, 2),
            (usize::MAX, 3, 1, 12),
            (usize::MAX, 1_000, 1, ROW_GROUPS),
        ] {
            let shared = Shared::new(Bounds { threads: 2, wanted: Some(wanted) });
            shared.done.store(done, Ordering::Relaxed);
            shared.found.store(found, Ordering::Relaxed);
            assert_eq!(shared.most(), most, "{wanted} wanted, {done} done, {found} found");
        }
    }

    #[tokio::test]
    async fn outcomes_come_in_order_and_as_few_are_begun_as_should_be() {
        let all: Vec<usize> = (0..100).collect();
        for (bounds, waits) in [(bounds(1, false), true), (bounds(2, true), true), (bounds(3, false), false)] {
            assert_eq!(run(100, 1, bounds, waits, 100).await, (all.clone(), 100));
        }
        // What is not waited for is begun in turn.
        assert_eq!(run(100, 1, bounds(2, false), false, 1).await, (vec![0], 2));
        // What waits is begun together: all of it, what memory there is for, or little if that may be enough.
        assert_eq!(run(100, 1, bounds(2, false), true, 1).await, (vec![0], 100));
        assert_eq!(run(100, BYTES / 10, bounds(2, false), true, 1).await, (vec![0], 10));
        assert_eq!(run(100, 2 * BYTES, bounds(2, false), true, 1).await, (vec![0], 2));
        let (outcomes, begun) = run(100, 1, bounds(2, true), true, 1).await;
        assert_eq!(outcomes, [0]);
        assert!((2..60).contains(&begun), "{begun}");
    }
}
