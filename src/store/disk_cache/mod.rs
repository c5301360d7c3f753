//! Cache of byte ranges of version files on a local disk. After a restart, the process does not fetch them again from
//! a remote store.
//!
//! - Version files are immutable, so cached ranges do not become stale.
//! - Each range has a checksum, and a reader compares it. A damaged range is fetched again.
//! - The oldest segment is evicted first. Ranges that were used since they were written are appended again.
//! - The cache never fails a read: if the disk fails, the range is fetched from the store.
//!
//! The tests `format::disk_cache` and `service::disk_cache` check these properties.

mod cache_directory;
mod range_index;
mod segment;
mod state;
mod writer;

use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};

use bytes::Bytes;
use parking_lot::Mutex;
use strata_runtime::blocking::run_blocking;
use strata_runtime::metrics::metrics;
use tokio_util::sync::CancellationToken;

pub use self::segment::VersionFileId;
use self::state::{DiskCacheState, InFlightFetch, RangeKey};
use self::writer::WriteJob;
use super::Result;
use super::checksums::crc32;
use super::free_space::DiskReserve;

/// Max ranges that can wait for the writer thread. Further ranges are not cached.
const MAX_QUEUED_WRITES: usize = 1_024;
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// A range is cached only if it is at most this fraction of the capacity.
const MAX_RANGE_CAPACITY_DIVISOR: u64 = 8;

/// Handle of the cache; clones share it. When the last clone is dropped, the writer writes all queued ranges.
#[derive(Clone)]
pub struct DiskCache {
    state: Arc<DiskCacheState>,
    write_queue: Arc<Mutex<Option<SyncSender<WriteJob>>>>,
    writer_stopped: CancellationToken,
}

impl DiskCache {
    /// Opens a cache in `parent`. The writer thread loads the ranges of an earlier process in the background. When
    /// `disk` is short of space, the cache evicts segments.
    pub fn open(parent: PathBuf, capacity_bytes: u64, disk: DiskReserve) -> DiskCache {
        let state = Arc::new(DiskCacheState::new(parent, capacity_bytes, disk.clone()));
        let weak_state = Arc::downgrade(&state);
        disk.add_reclaimer(move |is_enough| {
            let Some(state) = weak_state.upgrade() else { return };
            while !is_enough() {
                let Some((segment, _)) = state.index.lock().pop_oldest_segment() else { return };
                segment.delete_file();
            }
        });
        let (sender, write_queue) = sync_channel(MAX_QUEUED_WRITES);
        let writer_stopped = CancellationToken::new();
        let thread_state = state.clone();
        let stopped_guard = writer_stopped.clone().drop_guard();
        let work = move || {
            let _stopped_guard = stopped_guard;
            writer::run_writer(&thread_state, write_queue);
        };
        if let Err(error) = std::thread::Builder::new().name("disk-cache".to_owned()).spawn(work) {
            tracing::warn!(%error, "failed to start disk cache thread; the disk cache is disabled");
        }
        DiskCache { state, write_queue: Arc::new(Mutex::new(Some(sender))), writer_stopped }
    }

    /// Concurrent calls for a range share one fetch. `acquire_permit` resolves when the disk may be read.
    pub async fn get_or_fetch<P>(
        &self,
        file: VersionFileId,
        range: Range<u64>,
        acquire_permit: impl Future<Output = P>,
        fetch: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        let in_flight = InFlightFetch::join_or_start(&self.state, (file, range));
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
        let (file, range) = key;
        let cached = self.state.index.lock().find(*file, range)?;
        let _permit = acquire_permit.await;
        let segment = cached.segment.clone();
        let offset = cached.offset;
        let length = cached.header.length as usize;
        let expected = cached.header.checksum;
        let read = move || segment.read_at(offset, length).ok().filter(|bytes| crc32(bytes) == expected);
        // Without a thread for the read, nothing is known about the range.
        let Some(bytes) = run_blocking(read).await.ok()? else {
            metrics().disk_cache_damaged.increment(1);
            self.state.index.lock().remove_range(&cached);
            return None;
        };
        let within = |at: u64| usize::try_from(at - cached.header.start).ok();
        let start = within(range.start)?;
        let end = within(range.end)?;
        (end <= bytes.len()).then(|| Bytes::from(bytes).slice(start..end))
    }

    fn enqueue_write(&self, fetch: &Arc<InFlightFetch>, bytes: Bytes, invalidations: u64) {
        let length = bytes.len();
        if length == 0 || length as u64 > self.state.capacity_bytes / MAX_RANGE_CAPACITY_DIVISOR {
            return;
        }
        let waiting = self.state.queued_bytes.fetch_add(length, Ordering::Relaxed);
        let job = WriteJob { fetch: fetch.clone(), bytes, invalidations };
        let sent = waiting + length <= MAX_QUEUED_BYTES
            && self.write_queue.lock().as_ref().is_some_and(|write_queue| write_queue.try_send(job).is_ok());
        if !sent {
            self.state.queued_bytes.fetch_sub(length, Ordering::Relaxed);
        }
    }

    /// Removes all ranges of a file, after a reader has found damage in one of them.
    pub fn invalidate(&self, file: VersionFileId) {
        self.state.index.lock().invalidate_file(file);
        self.state.in_flight.lock().retain(|(fetched_file, _), _| *fetched_file != file);
    }

    pub fn used_bytes(&self) -> u64 {
        self.state.index.lock().total_bytes
    }

    /// Writes all queued ranges and releases the directory to other processes. Later ranges are not cached.
    pub async fn close(&self) {
        drop(self.write_queue.lock().take());
        self.writer_stopped.cancelled().await;
    }
}
