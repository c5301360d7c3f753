//! Ranges of version files on local disk, so that a process that starts again need not fetch them from a remote store.
//!
//! Version files are never rewritten, so nothing in it goes stale. Each range has a checksum, compared when it is read;
//! one that is damaged is fetched again. What was written first goes first, and what was asked for since is written
//! anew. Nothing here fails a read: where the disk refuses, the store is asked.
//!
//! `storage::disk_cache` and `service::disk_cache` protect these properties.

mod folder;
mod index;
mod segment;
mod writing;

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use strata_runtime::blocking::blocking;
use strata_runtime::metrics::metrics;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use self::index::Index;
use self::writing::Job;
use super::Result;
use super::checksums::checksum;
use super::free_space::DiskReserve;

/// Ranges that wait to be written; more are not kept.
const WAITING: usize = 1_024;

const WAITING_BYTES: usize = 64 << 20;

/// Files that the cache has when it is full.
const SEGMENTS: u64 = 32;

/// A range takes at most one part in so many of the cache.
const LARGE_SHARE: u64 = 8;

/// Which version file: its path and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId([u8; 16]);

impl FileId {
    pub fn new(path: &str, size_bytes: u64) -> FileId {
        let digest = Sha256::new().chain_update(size_bytes.to_le_bytes()).chain_update(path).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        FileId(id)
    }
}

/// The cache. Clones share everything. What waits is written when the last one is gone, unless the process ends first.
#[derive(Clone)]
pub struct DiskCache {
    shared: Arc<Shared>,
    jobs: Arc<Mutex<Option<SyncSender<Job>>>>,
    ended: CancellationToken,
}

struct Shared {
    parent: PathBuf,
    capacity_bytes: u64,
    disk: DiskReserve,
    index: Mutex<Index>,
    /// What is fetched or waits to be written.
    flights: Mutex<HashMap<Key, Weak<Flight>>>,
    waiting_bytes: AtomicUsize,
}

type Key = (FileId, Range<u64>);

/// Nothing panics while one of these is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A range that is being fetched, once for all who want it now.
struct Flight {
    shared: Arc<Shared>,
    key: Key,
    bytes: OnceCell<Bytes>,
}

impl Flight {
    fn join(shared: &Arc<Shared>, key: Key) -> Arc<Flight> {
        let mut flights = lock(&shared.flights);
        let others = flights.entry(key.clone()).or_default();
        others.upgrade().unwrap_or_else(|| {
            let flight = Arc::new(Flight { shared: shared.clone(), key, bytes: OnceCell::new() });
            *others = Arc::downgrade(&flight);
            flight
        })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = lock(&self.shared.flights);
        // Another one for the same may have begun.
        if flights.get(&self.key).is_some_and(|flight| flight.strong_count() == 0) {
            flights.remove(&self.key);
        }
    }
}

impl DiskCache {
    /// A cache of at most so many bytes in a folder that is made when missing; what an earlier process left there is
    /// found in the background. It gives room back where the disk is short.
    pub fn open(parent: PathBuf, capacity_bytes: u64, disk: DiskReserve) -> DiskCache {
        let shared = Arc::new(Shared {
            parent,
            capacity_bytes,
            disk: disk.clone(),
            index: Mutex::default(),
            flights: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
        });
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
        let (of_thread, at_end) = (shared.clone(), ended.clone().drop_guard());
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
        let (segment, offset, length) = (found.segment.clone(), found.offset, found.header.length as usize);
        let expected = found.header.checksum;
        let read = move || segment.read(offset, length).ok().filter(|bytes| checksum(bytes) == expected);
        // Where there is no thread for it, nothing is known of the range.
        let Some(bytes) = blocking(read).await.ok()? else {
            metrics().disk_cache_damaged.increment(1);
            lock(&self.shared.index).drop_place(&found);
            return None;
        };
        let within = |at: u64| usize::try_from(at - found.header.start).ok();
        let (start, end) = (within(range.start)?, within(range.end)?);
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
