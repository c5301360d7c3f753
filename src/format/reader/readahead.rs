//! Readahead: fetches bytes of a file before readers request them, so that the latencies of the store overlap.
//!
//! - Only bytes are fetched. Parts are verified, decoded, and cached when a reader requests them.
//! - Ranges that are close to each other share one request.
//! - A failed request is not reported, because a reader that needs its bytes fetches them again.
//! - Requests are canceled when no reader can use their bytes.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use crate::fetched_range::FetchedRange;

pub(super) const MAX_REQUEST_BYTES: u64 = 4 << 20;
const MAX_COALESCE_GAP_BYTES: u64 = 64 << 10;
/// Max bytes that one reader buffers. Above this limit, the oldest ranges are dropped.
pub(super) const MAX_READER_BYTES: u64 = 32 << 20;
/// Max bytes that all readers of the process buffer. Above this limit, no reader prefetches.
static PROCESS_READAHEAD_BYTES: Semaphore = Semaphore::const_new(256 << 20);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefetchPlan {
    pub row_groups: Range<usize>,
    /// The row groups in `row_groups` that this process scans, in their order, if not all of them in ascending order.
    pub scan_order: Option<Arc<[usize]>>,
    pub columns: Vec<usize>,
    /// Number of row groups whose columns are certainly needed and fetched together with the first row group.
    pub row_groups_ahead: usize,
}

pub(super) struct FileReadahead {
    pub(super) plan: PrefetchPlan,
    request_permits: Arc<Semaphore>,
    waiter_count: AtomicUsize,
    buffer: Mutex<ReadaheadBuffer>,
    pub(super) prefetched_row_groups: Mutex<HashSet<usize>>,
}

#[derive(Default)]
struct ReadaheadBuffer {
    ranges: BTreeMap<u64, PrefetchedRange>,
    insertion_order: VecDeque<u64>,
    bytes: u64,
}

struct PrefetchedRange {
    end: u64,
    remaining_parts: usize,
    bytes: Shared<BoxFuture<'static, Option<Bytes>>>,
    _permit: SemaphorePermit<'static>,
}

pub(super) struct ReadaheadWaiter<'a>(&'a FileReadahead);

impl Drop for ReadaheadWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiter_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FileReadahead {
    pub(super) fn new(plan: PrefetchPlan, max_requests: usize) -> FileReadahead {
        FileReadahead {
            plan,
            request_permits: Arc::new(Semaphore::new(max_requests)),
            waiter_count: AtomicUsize::new(0),
            buffer: Mutex::default(),
            prefetched_row_groups: Mutex::default(),
        }
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.waiter_count.load(Ordering::Relaxed) > 0
    }

    pub(super) fn register_waiter(&self) -> ReadaheadWaiter<'_> {
        self.waiter_count.fetch_add(1, Ordering::Relaxed);
        ReadaheadWaiter(self)
    }

    /// Waits for a prefetched range. Returns `None` if the range is not prefetched, or if the request failed.
    pub(super) async fn take_range(&self, range: &Range<u64>) -> Option<Bytes> {
        let (start, bytes) = self.buffer.lock().take_range(range)?;
        let fetched = FetchedRange { start, bytes: bytes.await? };
        fetched.slice(range.clone()).ok()
    }

    pub(super) fn start_fetches<F>(&self, ranges: Vec<Range<u64>>, fetch: impl Fn(Range<u64>) -> F)
    where
        F: Future<Output = Option<Bytes>> + Send + 'static,
    {
        let mut buffer = self.buffer.lock();
        let ranges = ranges.into_iter().filter(|range| !buffer.contains(range)).collect();
        for (range, remaining_parts) in coalesce_ranges(ranges) {
            let Range { start, end } = range;
            let length = end - start;
            if length > MAX_READER_BYTES || buffer.ranges.contains_key(&start) {
                continue;
            }
            buffer.evict_for(length);
            // The length fits into a `u32`, because it is at most `MAX_READER_BYTES`.
            let Ok(permit) = PROCESS_READAHEAD_BYTES.try_acquire_many(length as u32) else { return };
            let bytes = fetch(range);
            let request_permits = self.request_permits.clone();
            let bytes = tokio::spawn(async move {
                let _permit = request_permits.acquire_owned().await.ok()?;
                bytes.await
            });
            let bytes = AbortOnDropHandle::new(bytes).map(|fetched| fetched.ok().flatten()).boxed().shared();
            buffer.ranges.insert(start, PrefetchedRange { end, remaining_parts, bytes, _permit: permit });
            buffer.insertion_order.push_back(start);
            buffer.bytes += length;
        }
    }
}

impl ReadaheadBuffer {
    fn contains(&self, range: &Range<u64>) -> bool {
        self.ranges.range(..=range.start).next_back().is_some_and(|(_, prefetched)| prefetched.end >= range.end)
    }

    /// Returns the prefetched range that contains `range`, and removes it after its last part was taken.
    fn take_range(&mut self, range: &Range<u64>) -> Option<(u64, Shared<BoxFuture<'static, Option<Bytes>>>)> {
        let (start, prefetched) = self.ranges.range_mut(..=range.start).next_back()?;
        if prefetched.end < range.end {
            return None;
        }
        let start = *start;
        let bytes = prefetched.bytes.clone();
        prefetched.remaining_parts = prefetched.remaining_parts.saturating_sub(1);
        if prefetched.remaining_parts == 0 {
            self.remove(start);
        }
        Some((start, bytes))
    }

    fn remove(&mut self, start: u64) {
        if let Some(removed) = self.ranges.remove(&start) {
            self.bytes = self.bytes.saturating_sub(removed.end - start);
        }
        while self.insertion_order.front().is_some_and(|oldest| !self.ranges.contains_key(oldest)) {
            self.insertion_order.pop_front();
        }
    }

    fn evict_for(&mut self, bytes: u64) {
        while self.bytes + bytes > MAX_READER_BYTES
            && let Some(oldest) = self.insertion_order.front().copied()
        {
            self.remove(oldest);
        }
    }
}

fn coalesce_ranges(mut ranges: Vec<Range<u64>>) -> Vec<(Range<u64>, usize)> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<(Range<u64>, usize)> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some((last, parts))
                if range.start <= last.end.saturating_add(MAX_COALESCE_GAP_BYTES)
                    && range.end.max(last.end) - last.start <= MAX_REQUEST_BYTES =>
            {
                last.end = last.end.max(range.end);
                *parts += 1;
            }
            _ => merged.push((range, 1)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_ranges_are_coalesced() {
        assert_eq!(coalesce_ranges(Vec::new()), []);
        let gap = MAX_COALESCE_GAP_BYTES;
        let coalesced = coalesce_ranges(vec![50 + gap..60 + gap, 0..10, 10..50, 61 + 2 * gap..62 + 2 * gap]);
        assert_eq!(coalesced, [(0..60 + gap, 3), (61 + 2 * gap..62 + 2 * gap, 1)]);
        assert_eq!(coalesce_ranges(vec![0..10, 2..5, 0..10]), [(0..10, 3)]);
        let max_bytes = MAX_REQUEST_BYTES;
        assert_eq!(
            coalesce_ranges(vec![0..max_bytes, max_bytes..max_bytes + 1]),
            [(0..max_bytes, 1), (max_bytes..max_bytes + 1, 1)]
        );
        assert_eq!(coalesce_ranges(std::iter::once(0..2 * max_bytes).collect()), [(0..2 * max_bytes, 1)]);
    }
}
