//! Cache of byte ranges of version files on a local disk.
//!
//! Problem: a request to a remote store takes many times as long as a read from a local disk, and a process that was
//! restarted would have to fetch all ranges again. Therefore, one thread (`writer`) appends fetched ranges to segment
//! files (`segment`). An index in memory (`range_index`) contains the position of each range.
//!
//! - Version files are immutable, so cached ranges do not become stale.
//! - Each range has a checksum. A damaged range is fetched again.
//! - The oldest segment is evicted first. Ranges that were used since they were written are appended again.
//! - The cache never fails a read: if the disk fails, the range is fetched from the store.
//! - A write never delays a read: if too many ranges wait for the writer, further ranges are not cached.

mod cache_directory;
mod range_index;
mod segment;
mod state;
mod writer;

use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use bytes::Bytes;
use parking_lot::Mutex;
use strata_runtime::blocking::run_blocking;
use strata_runtime::metrics::metrics;
use tokio_util::sync::CancellationToken;

use self::range_index::{CachedRange, InvalidationCount};
pub use self::segment::VersionFileId;
use self::state::{DiskCacheState, InFlightFetch, RangeKey};
use self::writer::CacheWriteJob;
use super::Result;
use super::free_space::DiskReserve;

/// Max ranges, and max bytes of them, that can wait for the writer thread. Further ranges are not cached.
const MAX_QUEUED_WRITES: usize = 1_024;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// A range is cached only if it is at most this fraction of the cache's capacity.
const MAX_RANGE_CAPACITY_DIVISOR: u64 = 8;

/// Handle of the disk cache, shared by clones. When the last clone is dropped, the writer writes all queued ranges.
#[derive(Clone)]
pub struct DiskCache {
    state: Arc<DiskCacheState>,
    write_queue: Arc<Mutex<Option<SyncSender<CacheWriteJob>>>>,
    writer_stopped: CancellationToken,
}

impl DiskCache {
    /// Opens a cache in a directory below `parent`, which the process does not share with other processes. The writer
    /// thread loads the ranges of an earlier process in the background. When `disk` is short of space, the cache evicts
    /// segments.
    pub fn open(parent: PathBuf, capacity_bytes: u64, disk: DiskReserve) -> DiskCache {
        let state = Arc::new(DiskCacheState {
            parent_directory: parent,
            capacity_bytes,
            disk_reserve: disk.clone(),
            index: Mutex::default(),
            in_flight: Mutex::default(),
            queued_bytes: AtomicUsize::new(0),
        });
        let weak_state = Arc::downgrade(&state);
        disk.add_reclaimer(move |is_enough| {
            let Some(state) = weak_state.upgrade() else { return };
            while !is_enough() {
                let Some(evicted) = state.index.lock().pop_oldest_segment() else { return };
                evicted.segment.delete_file();
            }
        });
        let (sender, write_queue) = sync_channel(MAX_QUEUED_WRITES);
        let writer_stopped = CancellationToken::new();
        let thread_state = state.clone();
        let stopped_guard = writer_stopped.clone().drop_guard();
        let work = move || {
            let _stopped_guard = stopped_guard;
            writer::run_cache_writer(&thread_state, write_queue);
        };
        if let Err(error) = std::thread::Builder::new().name("disk-cache".to_owned()).spawn(work) {
            tracing::warn!(%error, "failed to start disk cache thread; the disk cache is disabled");
        }
        DiskCache { state, write_queue: Arc::new(Mutex::new(Some(sender))), writer_stopped }
    }

    /// Returns the bytes of a range from the disk, or from `fetch`. Concurrent calls for a range share one fetch.
    /// `acquire_permit` resolves when the disk may be read; its permit is released after the read. All errors are from
    /// `fetch`, and they are not cached.
    pub async fn get_or_fetch<P>(
        &self,
        file: VersionFileId,
        range: Range<u64>,
        acquire_permit: impl Future<Output = P>,
        fetch: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        let in_flight = InFlightFetch::join_or_start(&self.state, RangeKey { file, range });
        let load = async {
            if let Some(bytes) = self.read_cached(&in_flight.key, acquire_permit).await {
                metrics().disk_cache_hits.increment(1);
                return Ok(bytes);
            }
            metrics().disk_cache_misses.increment(1);
            let invalidations = self.state.index.lock().invalidations;
            let bytes = fetch.await?;
            self.enqueue_write(&in_flight, bytes.clone(), invalidations);
            Ok(bytes)
        };
        in_flight.bytes.get_or_try_init(|| load).await.cloned()
    }

    async fn read_cached<P>(&self, key: &RangeKey, acquire_permit: impl Future<Output = P>) -> Option<Bytes> {
        let RangeKey { file, range } = key;
        let cached = self.state.index.lock().find_and_mark_used(*file, range)?;
        let _permit = acquire_permit.await;
        let cached_start = cached.record.header.start;
        let read = {
            let CachedRange { segment, record } = cached.clone();
            move || segment.read_record(&record)
        };
        // If no thread could run the read, the cached range may be intact and is retained.
        let Some(bytes) = run_blocking(read).await.ok()? else {
            metrics().disk_cache_damaged.increment(1);
            self.state.index.lock().remove_range(&cached);
            return None;
        };
        let within = |at: u64| usize::try_from(at - cached_start).ok();
        let start = within(range.start)?;
        let end = within(range.end)?;
        (end <= bytes.len()).then(|| Bytes::from(bytes).slice(start..end))
    }

    fn enqueue_write(&self, fetch: &Arc<InFlightFetch>, bytes: Bytes, invalidations: InvalidationCount) {
        let length = bytes.len();
        if length == 0 || length as u64 > self.state.capacity_bytes / MAX_RANGE_CAPACITY_DIVISOR {
            return;
        }
        let waiting = self.state.queued_bytes.fetch_add(length, Ordering::Relaxed);
        let job = CacheWriteJob { fetch: fetch.clone(), bytes, invalidations };
        let sent = waiting + length <= MAX_QUEUED_BYTES
            && self.write_queue.lock().as_ref().is_some_and(|write_queue| write_queue.try_send(job).is_ok());
        if !sent {
            self.state.queued_bytes.fetch_sub(length, Ordering::Relaxed);
        }
    }

    /// Removes all ranges of a version file from the cache, after a reader has found damage in one of them.
    pub fn invalidate(&self, file: VersionFileId) {
        self.state.index.lock().invalidate_file(file);
        self.state.in_flight.lock().retain(|key, _| key.file != file);
    }

    /// Size of all segments in bytes, including records of invalidated and damaged ranges.
    pub fn used_bytes(&self) -> u64 {
        self.state.index.lock().total_bytes
    }

    /// Writes all queued ranges and releases the cache directory to other processes. Later ranges are not cached.
    pub async fn close(&self) {
        drop(self.write_queue.lock().take());
        self.writer_stopped.cancelled().await;
    }
}
