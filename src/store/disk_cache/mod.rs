//! Ranges of version files on local disk, so that a process that starts again need not fetch them from a remote store.
//!
//! Version files are never rewritten, so nothing in it goes stale. Each range has a checksum, compared when it is read;
//! one that is damaged is fetched again. What was written first goes first, and what was asked for since is written
//! anew. Nothing here fails a read: where the disk refuses, the store is asked.
//!
//! `format::disk_cache` and `service::disk_cache` protect these properties.

mod folder;
mod index;
mod segment;
mod shared;
mod writing;

use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use strata_runtime::blocking::blocking;
use strata_runtime::metrics::metrics;
use tokio_util::sync::CancellationToken;

pub use self::segment::FileId;
use self::shared::{Flight, Key, Shared, lock};
use self::writing::Job;
use super::Result;
use super::checksums::checksum;
use super::free_space::DiskReserve;

/// Ranges that wait to be written; more are not kept.
const WAITING: usize = 1_024;

const WAITING_BYTES: usize = 64 << 20;

/// A range takes at most one part in so many of the cache.
const LARGE_SHARE: u64 = 8;

/// The cache. Clones share everything. What waits is written when the last one is gone, unless the process ends first.
#[derive(Clone)]
pub struct DiskCache {
    shared: Arc<Shared>,
    jobs: Arc<Mutex<Option<SyncSender<Job>>>>,
    ended: CancellationToken,
}

impl DiskCache {
    /// A cache of at most so many bytes in a folder that is made when missing; what an earlier process left there is
    /// found in the background. It gives room back where the disk is short.
    pub fn open(parent: PathBuf, capacity_bytes: u64, disk: DiskReserve) -> DiskCache {
        let shared = Arc::new(Shared::new(parent, capacity_bytes, disk.clone()));
        let given = Arc::downgrade(&shared);
        disk.on_shortage(move |is_enough| {
            let Some(shared) = given.upgrade() else { return };
            while !is_enough() {
                let Some((segment, _)) = lock(&shared.index).take_oldest() else { return };
                segment.remove();
            }
        });
        let (sender, jobs) = sync_channel(WAITING);
        let ended = CancellationToken::new();
        let of_thread = shared.clone();
        let at_end = ended.clone().drop_guard();
        let work = move || {
            let _at_end = at_end;
            writing::run(&of_thread, jobs);
        };
        if let Err(error) = std::thread::Builder::new().name("disk-cache".to_owned()).spawn(work) {
            tracing::warn!(%error, "failed to start disk cache thread; the disk cache is disabled");
        }
        DiskCache { shared, jobs: Arc::new(Mutex::new(Some(sender))), ended }
    }

    /// A range of a version file: from the disk, or fetched and then kept. Those who want the same at the same time
    /// wait for one fetch. `place` waits until a file may be read here, and holds the place.
    pub async fn get_or_fetch<P>(
        &self,
        file: FileId,
        range: Range<u64>,
        place: impl Future<Output = P>,
        fetch: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        let flight = Flight::join(&self.shared, (file, range));
        let load = async {
            if let Some(bytes) = self.look(&flight.key, place).await {
                metrics().disk_cache_hits.increment(1);
                return Ok(bytes);
            }
            metrics().disk_cache_misses.increment(1);
            let forgotten = lock(&self.shared.index).forgotten;
            let bytes = fetch.await?;
            self.keep(&flight, bytes.clone(), forgotten);
            Ok(bytes)
        };
        flight.bytes.get_or_try_init(|| load).await.cloned()
    }

    async fn look<P>(&self, key: &Key, place: impl Future<Output = P>) -> Option<Bytes> {
        let (file, range) = key;
        let found = lock(&self.shared.index).find(*file, range)?;
        let _place = place.await;
        let segment = found.segment.clone();
        let offset = found.offset;
        let length = found.header.length as usize;
        let expected = found.header.checksum;
        let read = move || segment.read(offset, length).ok().filter(|bytes| checksum(bytes) == expected);
        // Where there is no thread for it, nothing is known of the range.
        let Some(bytes) = blocking(read).await.ok()? else {
            metrics().disk_cache_damaged.increment(1);
            lock(&self.shared.index).drop_place(&found);
            return None;
        };
        let within = |at: u64| usize::try_from(at - found.header.start).ok();
        let start = within(range.start)?;
        let end = within(range.end)?;
        (end <= bytes.len()).then(|| Bytes::from(bytes).slice(start..end))
    }

    /// Has bytes written, unless too many wait already.
    fn keep(&self, flight: &Arc<Flight>, bytes: Bytes, forgotten: u64) {
        let length = bytes.len();
        if length == 0 || length as u64 > self.shared.capacity_bytes / LARGE_SHARE {
            return;
        }
        let waiting = self.shared.waiting_bytes.fetch_add(length, Ordering::Relaxed);
        let job = Job { flight: flight.clone(), bytes, forgotten };
        let sent = waiting + length <= WAITING_BYTES
            && lock(&self.jobs).as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok());
        if !sent {
            self.shared.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
        }
    }

    /// Leaves out all of a file: what was fetched of it is damaged, and may be fetched again.
    pub fn forget(&self, file: FileId) {
        lock(&self.shared.index).forget(file);
        lock(&self.shared.flights).retain(|(of, _), _| *of != file);
    }

    pub fn bytes(&self) -> u64 {
        lock(&self.shared.index).bytes
    }

    /// Waits until all that waits is written, and lets another process take over. Nothing is written afterwards.
    pub async fn close(&self) {
        drop(lock(&self.jobs).take());
        self.ended.cancelled().await;
    }
}
