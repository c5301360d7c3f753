//! Bytes of a file that are fetched before they are asked for, so that waits for the store overlap.
//!
//! Bytes are fetched ahead, not parts: a part is verified, decoded and kept when it is asked for, as if it had just
//! been fetched. Ranges that lie close to each other are one request. One that fails says nothing: whoever asks for its
//! bytes fetches them again, and is told. What is under way ends when nobody may ask for it any more.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use crate::fetched_range::FetchedRange;

/// Most bytes of documents that one request fetches ahead.
pub(super) const READ_AHEAD_BYTES: u64 = 4 << 20;

/// Ranges with at most so many bytes between them are one request.
const GAP_BYTES: u64 = 64 << 10;

/// Bytes that one reader holds ahead. Where there are more, the oldest give way.
pub(super) const READER_BYTES: u64 = 32 << 20;

/// Bytes that all readers of the process hold ahead. Where there would be more, nothing is read ahead.
static ALL_BYTES: Semaphore = Semaphore::const_new(256 << 20);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The row groups that are looked at,
    pub row_groups: Range<usize>,
    /// and those of them alone, ascending, where another process looks at the others.
    pub part: Option<Arc<[usize]>>,
    /// The columns of the file that are read of a row group that is not left out.
    pub columns: Vec<usize>,
    /// How many row groups come with the one whose columns are read first: those that are read for sure.
    pub columns_ahead: usize,
    /// The columns whose bloom filters are asked.
    pub bloom_columns: Vec<usize>,
    /// About how many bytes of bloom filters come with the first one: those of the row groups that follow.
    pub bloom_bytes: u64,
}

impl Wanted {
    pub(super) fn includes(&self, row_group: usize) -> bool {
        self.part.as_ref().is_none_or(|part| part.binary_search(&row_group).is_ok())
    }
}

pub(super) struct ReadAhead {
    pub(super) wanted: Wanted,
    requests: Arc<Semaphore>,
    waiting: AtomicUsize,
    fetched: Mutex<Fetched>,
    planned: Mutex<Planned>,
}

#[derive(Default)]
pub(super) struct Planned {
    pub(super) columns: HashSet<usize>,
    /// The row group after the last one whose bloom filters were.
    pub(super) blooms: usize,
}

#[derive(Default)]
struct Fetched {
    runs: BTreeMap<u64, AheadRun>,
    ages: VecDeque<u64>,
    bytes: u64,
}

struct AheadRun {
    end: u64,
    parts: usize,
    bytes: Shared<BoxFuture<'static, Option<Bytes>>>,
    _held: SemaphorePermit<'static>,
}

pub(super) struct Waiting<'a>(&'a ReadAhead);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReadAhead {
    /// Reads ahead what is wanted, with so many requests under way at most.
    pub(super) fn new(wanted: Wanted, requests: usize) -> ReadAhead {
        ReadAhead {
            wanted,
            requests: Arc::new(Semaphore::new(requests)),
            waiting: AtomicUsize::new(0),
            fetched: Mutex::default(),
            planned: Mutex::default(),
        }
    }

    pub(super) fn planned(&self) -> MutexGuard<'_, Planned> {
        // Nothing panics between two changes that belong together.
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetched(&self) -> MutexGuard<'_, Fetched> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(super) fn waits(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// A range that is fetched ahead, when it is there; `None` when it is not fetched, or that failed.
    pub(super) async fn take(&self, range: &Range<u64>) -> Option<Bytes> {
        let (start, bytes) = self.fetched().take(range)?;
        let run = FetchedRange { start, bytes: bytes.await? };
        run.slice(range.clone()).ok()
    }

    /// Begins to fetch ranges, each of which someone may ask for, as far as there is room.
    pub(super) fn start<F>(&self, ranges: Vec<Range<u64>>, fetch: impl Fn(Range<u64>) -> F)
    where
        F: Future<Output = Option<Bytes>> + Send + 'static,
    {
        let mut fetched = self.fetched();
        let ranges = ranges.into_iter().filter(|range| !fetched.covers(range)).collect();
        for (range, parts) in together(ranges) {
            let Range { start, end } = range;
            let length = end - start;
            if length > READER_BYTES || fetched.runs.contains_key(&start) {
                continue;
            }
            fetched.make_room(length);
            // A run has no more bytes than one reader may hold.
            let Ok(held) = ALL_BYTES.try_acquire_many(length as u32) else { return };
            let bytes = fetch(range);
            let requests = self.requests.clone();
            let bytes = tokio::spawn(async move {
                let _permit = requests.acquire_owned().await.ok()?;
                bytes.await
            });
            let bytes = AbortOnDropHandle::new(bytes).map(|fetched| fetched.ok().flatten()).boxed().shared();
            fetched.runs.insert(start, AheadRun { end, parts, bytes, _held: held });
            fetched.ages.push_back(start);
            fetched.bytes += length;
        }
    }
}

impl Fetched {
    fn covers(&self, range: &Range<u64>) -> bool {
        self.runs.range(..=range.start).next_back().is_some_and(|(_, run)| run.end >= range.end)
    }

    /// The run that holds a range; it is forgotten with the last of its parts.
    fn take(&mut self, range: &Range<u64>) -> Option<(u64, Shared<BoxFuture<'static, Option<Bytes>>>)> {
        let (start, run) = self.runs.range_mut(..=range.start).next_back()?;
        if run.end < range.end {
            return None;
        }
        let start = *start;
        let bytes = run.bytes.clone();
        run.parts = run.parts.saturating_sub(1);
        if run.parts == 0 {
            self.forget(start);
        }
        Some((start, bytes))
    }

    fn forget(&mut self, start: u64) {
        if let Some(run) = self.runs.remove(&start) {
            self.bytes = self.bytes.saturating_sub(run.end - start);
        }
        while self.ages.front().is_some_and(|oldest| !self.runs.contains_key(oldest)) {
            self.ages.pop_front();
        }
    }

    fn make_room(&mut self, bytes: u64) {
        while self.bytes + bytes > READER_BYTES
            && let Some(oldest) = self.ages.front().copied()
        {
            self.forget(oldest);
        }
    }
}

/// Ranges that lie close to each other, as one, with how many they were.
fn together(mut ranges: Vec<Range<u64>>) -> Vec<(Range<u64>, usize)> {
    ranges.sort_by_key(|range| range.start);
    let mut runs: Vec<(Range<u64>, usize)> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match runs.last_mut() {
            Some((run, parts))
                if range.start <= run.end.saturating_add(GAP_BYTES)
                    && range.end.max(run.end) - run.start <= READ_AHEAD_BYTES =>
            {
                run.end = run.end.max(range.end);
                *parts += 1;
            }
            _ => runs.push((range, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_lie_close_are_one_request() {
        assert_eq!(together(Vec::new()), []);
        let gap = GAP_BYTES;
        let runs = together(vec![50 + gap..60 + gap, 0..10, 10..50, 61 + 2 * gap..62 + 2 * gap]);
        assert_eq!(runs, [(0..60 + gap, 3), (61 + 2 * gap..62 + 2 * gap, 1)]);
        // Equal and nested ones.
        assert_eq!(together(vec![0..10, 2..5, 0..10]), [(0..10, 3)]);
        // One request is no longer than it may be.
        let most = READ_AHEAD_BYTES;
        assert_eq!(together(vec![0..most, most..most + 1]), [(0..most, 1), (most..most + 1, 1)]);
        assert_eq!(together(std::iter::once(0..2 * most).collect()), [(0..2 * most, 1)]);
    }
}
