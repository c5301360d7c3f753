//! The export cache: each Parquet export is built once into a file on disk, so that strata can serve ranges of it, and
//! a client that resumes a download gets the same bytes.
//!
//! 1. The first request for an export starts a job ([`writer`]), which writes a file as fast as batches arrive,
//!    regardless of how fast any client reads. Later requests find the job, or the file.
//! 2. Readers follow the file ([`reader`]): each reads chunks at its own pace, and waits until more is written. So
//!    nothing is buffered for a slow reader, and the first byte does not wait for the last. A request for a range waits
//!    for the end, because only then the length is known.
//! 3. A job reserves space as the file grows, from the quota of the principal that started it ([`quota`]). If there is
//!    none left, the job deletes the file, and readers continue with a response of their own, after what they have
//!    read. The disk must keep its reserve, too ([`strata_store::free_space`]): if it is short, for an export or for
//!    anything else, files without readers are evicted.
//! 4. A job without readers is stopped after a grace period, because a client whose request timed out often tries
//!    again. It is stopped at once if others wait for what it uses, or if the same principal has another job without
//!    readers.
//!
//! For example, `/api/7/x/v1/?format=parquet` becomes `exports/process-…/1.parquet` in the data directory. A second
//! client that requests it after 2 of 5 MiB are written gets these at once, and the rest as it is written.
//!
//! Files are not trusted: each block of 256 KiB has a checksum, which is computed while the block is written and kept
//! in memory, and no block is sent that does not match. A damaged or truncated file is dropped, and readers continue as
//! if there had been no space.
//!
//! Each process has a directory of its own below `exports/` in the data directory ([`crate::maintenance::scratch`]), so
//! nothing is reused from a process that has ended. Servers that share a store share exports there ([`shared`]): one
//! builds an export, and the others fetch it into their directories.
//!
//! `service::shared_exports`, `service::exports_ahead` and `resilience::fair` fail without it.

mod checksums;
mod file;
#[cfg(test)]
mod fixture;
mod index;
pub(crate) mod popularity;
mod quota;
mod reader;
mod shared;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Semaphore, watch};

pub(crate) use self::file::Totals;
pub use self::reader::Export;
pub(crate) use self::shared::SharedExports;
pub(crate) use self::shared::object::surplus;
pub(crate) use self::writer::{Consumer, ExportBody, ExportSource};
use strata_config as config;

use crate::admission::capacity::Capacity;
use crate::export_cache::checksums::BLOCK_BYTES;
use crate::export_cache::file::{Progress, aborted};
use crate::export_cache::index::Index;
use crate::export_cache::quota::ExportQuota;
use crate::export_cache::writer::ExportJob;
use strata_store::free_space::DiskReserve;

use crate::maintenance::scratch::Scratch;
use crate::{CacheKey, ReadError, locked};

/// Files in the cache, and exports in the store, regardless of their size.
const MAX_FILES: usize = 4_096;

/// How long a job continues without readers: longer than clients wait before they try again.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Blocks that are read at the same time, for all readers. Each read takes a thread, and an idle thread keeps freed
/// memory for a while.
const CONCURRENT_READS: usize = 8;

pub(crate) struct Exports {
    index: Mutex<Index>,
    disk: DiskReserve,
    linger: Duration,
    reads: Arc<Semaphore>,
    /// The last field, so that files are removed before it is.
    directory: Scratch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    Made,
    BeingMade,
    TooLarge,
}

/// The outcome of a job for an export that was not requested.
pub(crate) enum PrewarmOutcome {
    Built,
    NoSpace,
    /// Other work needed what the job used.
    Yielded,
    Failed(ReadError),
}

impl Exports {
    pub(crate) fn new(directory: Scratch, disk: DiskReserve, capacity_bytes: u64, fair: &config::Fair) -> Arc<Exports> {
        Exports::lingering(directory, disk, ExportQuota::new(capacity_bytes, MAX_FILES, fair), GRACE_PERIOD)
    }

    fn lingering(directory: Scratch, disk: DiskReserve, quota: ExportQuota, linger: Duration) -> Arc<Exports> {
        let index = Mutex::new(Index::new(quota));
        let reads = Arc::new(Semaphore::new(CONCURRENT_READS));
        let exports = Arc::new(Exports { index, disk, linger, reads, directory });
        let weak = Arc::downgrade(&exports);
        exports.disk.on_shortage(move |is_enough| {
            if let Some(exports) = weak.upgrade() {
                exports.index().shrink(is_enough);
            }
        });
        exports
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        locked(&self.index)
    }

    pub(crate) fn disk(&self) -> &DiskReserve {
        &self.disk
    }

    /// The export of this key, built by `source` on the engine's threads unless there is a file or a job. Waits for its
    /// first bytes. `None` if there is no space for it.
    ///
    /// # Errors
    /// The errors of `source` before the first byte.
    pub(crate) async fn get(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        source: ExportSource,
    ) -> Result<Option<Export>, ReadError> {
        let Some((progress, begun)) = self.follow(capacity, key, &source, self.linger) else { return Ok(None) };
        let since = Instant::now();
        let mut export = match Export::begun(self.clone(), key, progress, source).await {
            // The principal that started the job was refused, which says nothing about this one. It gets a response of
            // its own, in its own share.
            Err(error) if !begun && error.is_anothers(since) => return Ok(None),
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(export)) => export,
        };
        // A single chunk is read at once.
        if export.known_bytes().is_none_or(|bytes| bytes > BLOCK_BYTES) {
            export.place = Some(capacity.admission.stream().await?);
        }
        Ok(Some(export))
    }

    /// Builds the export of this key before it is requested, unless there is a file or a job. When `give_way` completes
    /// first, or the future is dropped, the job stops, unless a client has requested the export meanwhile.
    pub(crate) async fn prewarm(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        source: ExportSource,
        give_way: impl Future<Output = ()>,
    ) -> PrewarmOutcome {
        let Some((mut progress, _)) = self.follow(capacity, key, &source, Duration::ZERO) else {
            return PrewarmOutcome::NoSpace;
        };
        tokio::select! {
            ended = progress.wait_for(Progress::is_over) => match ended.as_deref() {
                Ok(Progress::Written(_)) => PrewarmOutcome::Built,
                Ok(Progress::Failed(error)) => PrewarmOutcome::Failed(error.clone()),
                Ok(Progress::Started | Progress::GivenUp) => PrewarmOutcome::NoSpace,
                Err(_) => PrewarmOutcome::Failed(aborted()),
            },
            () = give_way => PrewarmOutcome::Yielded,
        }
    }

    /// What the cache has of the export of this key. This does not count as a use.
    pub(crate) fn state(&self, key: CacheKey) -> Option<ExportState> {
        let index = self.index();
        match index.entries.get(&key) {
            Some(entry) if entry.is_being_written() => Some(ExportState::BeingMade),
            Some(entry) if entry.whole_bytes().is_some() => Some(ExportState::Made),
            _ => index.too_large.contains(&key).then_some(ExportState::TooLarge),
        }
    }

    pub(crate) fn made_bytes(&self, key: CacheKey) -> Option<u64> {
        self.index().entries.get(&key)?.whole_bytes()
    }

    /// The progress of an export, and whether this call started it; `None` if it would not fit.
    fn follow(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        source: &ExportSource,
        linger: Duration,
    ) -> Option<(watch::Receiver<Progress>, bool)> {
        let holder = capacity.admission.principal;
        let mut index = self.index();
        if let Some(entry) = index.touch(&key) {
            if entry.is_being_written() || entry.whole_bytes().is_some() {
                return Some((entry.progress.subscribe(), false));
            }
            index.forget(&key);
        }
        if index.too_large.contains(&key) || !index.take(holder, 0, 1) {
            return None;
        }
        index.files += 1;
        let path = self.directory.path().join(format!("{}.parquet", index.files)).into();
        let (progress, followed) = watch::channel(Progress::Started);
        index.insert(key, holder, progress.clone());
        drop(index);
        let admission = capacity.admission.clone();
        let exports = self.clone();
        let job = ExportJob { exports, admission, key, path, progress, bytes: 0, linger, over: false };
        // The job ends when the file is complete, or when it has no readers.
        drop(capacity.engine.spawn(job.run(source.clone())).detach());
        Some((followed, true))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::fixture::{HOUR, LATE, Setup, chunks, read, sent, setup};
    use super::*;

    impl Setup {
        /// Makes an export before anybody asks for it, unless this completes first.
        async fn prewarm(
            &self,
            number: usize,
            source: &ExportSource,
            give_way: impl Future<Output = ()>,
        ) -> PrewarmOutcome {
            self.exports.prewarm(&self.capacity, CacheKey::numbered(number), source.clone(), give_way).await
        }
    }

    #[tokio::test]
    async fn prewarmed_export_is_read_from_file() {
        let setup = setup(1_000, HOUR);
        let (source, made) = chunks(&[b"one ", b"two"]);
        for _ in 0..2 {
            assert!(matches!(setup.prewarm(1, &source, std::future::pending()).await, PrewarmOutcome::Built));
        }
        assert_eq!(setup.exports.made_bytes(CacheKey::numbered(1)), Some(7));
        assert_eq!(setup.read(1, &source).await.as_deref(), Some(&b"one two"[..]));
        assert_eq!(made.load(Ordering::SeqCst), 1);
        // One that there is not, and one that does not fit.
        let failing: ExportSource = Arc::new(|_| Box::pin(async { Err(LATE) }));
        assert!(matches!(setup.prewarm(2, &failing, std::future::pending()).await, PrewarmOutcome::Failed(_)));
        assert_eq!(setup.accounted(), (1, 7));
        let (large, _) = chunks(&[&[1; 600], &[2; 600]]);
        assert!(matches!(setup.prewarm(3, &large, std::future::pending()).await, PrewarmOutcome::NoSpace));
        assert_eq!(setup.exports.state(CacheKey::numbered(3)), Some(ExportState::TooLarge));
    }

    #[tokio::test]
    async fn yielding_prewarm_leaves_nothing() {
        let setup = setup(1_000, HOUR);
        let (source, sender) = sent();
        let begun = async {
            sender.send(Ok("half".into())).await.expect("sent");
        };
        assert!(matches!(setup.prewarm(1, &source, begun).await, PrewarmOutcome::Yielded));
        // Its source is dropped, begun or not, though clients' makings linger for an hour.
        drop(source);
        sender.closed().await;
        setup.is_empty().await;
    }

    #[tokio::test]
    async fn prewarm_continues_for_a_reader() {
        let setup = setup(1_000, HOUR);
        let (source, sender) = sent();
        let asked = tokio::sync::Notify::new();
        let gave_way = tokio::sync::Notify::new();
        let ahead = async {
            assert!(matches!(setup.prewarm(1, &source, asked.notified()).await, PrewarmOutcome::Yielded));
            gave_way.notify_one();
        };
        let client = async {
            for chunk in ["all", " of"] {
                sender.send(Ok(chunk.into())).await.expect("sent");
            }
            let export = setup.get(1, &source).await.expect("no error").expect("an export");
            asked.notify_one();
            gave_way.notified().await;
            sender.send(Ok(" it".into())).await.expect("sent");
            drop(sender);
            assert_eq!(read(export.whole()).await.expect("a body"), b"all of it");
        };
        tokio::join!(ahead, client);
    }
}
