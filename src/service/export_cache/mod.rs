//! Parquet exports: each is built once into a bounded cache on disk, so that strata can serve ranges of it, and a
//! client that returns for another range gets the same bytes.
//!
//! 1. The first request for an export starts a job ([`writer`]), which writes a file as fast as batches arrive, however
//!    fast anyone reads. Later requests find the job, or the file.
//! 2. Readers follow the file ([`reader`]): each reads at its own pace, in chunks, and waits for more to be written.
//!    So nothing is buffered for a slow one, and the first byte need not wait for the last. A request for a range waits
//!    for the end, because only then the length is known.
//! 3. A job takes space as the file grows, from the quota of the holder that started it ([`quota`]). If there is none
//!    left, the job gives up the file, and readers continue with a response of their own, after what they have read of
//!    it. The disk has to keep its reserve, too ([`strata_store::free_space`]): if it is short, for an export or for
//!    anything else, files that no one reads are dropped.
//! 4. A job that no one waits for is stopped, but not at once: a client whose patience ended may ask again. It is
//!    stopped at once if others wait for what it takes, or if it would be another one of the same client.
//!
//! Files are not trusted: each block has a checksum, taken while it is written and kept in memory, and nothing is sent
//! that does not verify. A file that does not, or is shorter than it was, is dropped, and readers continue as if it was
//! given up.
//!
//! Each process has a directory of its own below `exports/` in the data directory
//! ([`crate::maintenance::scratch`]): nothing is taken over from one that has ended. Servers that share a
//! store share exports there ([`shared`]): one builds an export, and the others fetch it into their directories.
//!
//! `service::shared_exports`, `service::exports_ahead` and `resilience::fair` protect it.

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
pub(crate) use self::writer::{Content, Make, Taker};
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

/// Files in the cache, however small: what a directory holds well.
const MOST_FILES: usize = 4_096;

/// How long a job continues when no one waits for it any more: longer than clients wait before they try again.
const LINGER: Duration = Duration::from_secs(30);

/// Reads of blocks at once, for all readers. Each takes a thread, and an idle thread keeps freed memory for a while.
const READS: usize = 8;

pub(crate) struct Exports {
    index: Mutex<Index>,
    disk: DiskReserve,
    linger: Duration,
    reads: Arc<Semaphore>,
    /// Last, so that the files go before it does.
    directory: Scratch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    Made,
    BeingMade,
    TooLarge,
}

/// The outcome of a job for an export that no one had requested yet.
pub(crate) enum MadeAhead {
    Made,
    NoRoom,
    GaveWay,
    Failed(ReadError),
}

impl Exports {
    pub(crate) fn new(directory: Scratch, disk: DiskReserve, capacity_bytes: u64, fair: &config::Fair) -> Arc<Exports> {
        Exports::lingering(directory, disk, ExportQuota::new(capacity_bytes, MOST_FILES, fair), LINGER)
    }

    fn lingering(directory: Scratch, disk: DiskReserve, quota: ExportQuota, linger: Duration) -> Arc<Exports> {
        let index = Mutex::new(Index::new(quota));
        let reads = Arc::new(Semaphore::new(READS));
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

    /// The export of this key, built by `make` on the engine's threads unless it is there or being built. Waits until
    /// its first bytes are there. `None` if it does not fit. The error is what `make` fails with before the first byte.
    pub(crate) async fn get(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        make: Make,
    ) -> Result<Option<Export>, ReadError> {
        let Some((progress, begun)) = self.follow(capacity, key, &make, self.linger) else { return Ok(None) };
        let since = Instant::now();
        let mut export = match Export::begun(self.clone(), key, progress, make).await {
            // One who has begun it, and may have asked for much, was refused: that says nothing of others.
            // An answer of its own is made in its own share, which whoever begins this next does not use up either.
            Err(error) if !begun && error.is_anothers(since) => return Ok(None),
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(export)) => export,
        };
        // One chunk is read at once, and done with.
        if export.known_bytes().is_none_or(|bytes| bytes > BLOCK_BYTES) {
            export.place = Some(capacity.admission.stream().await?);
        }
        Ok(Some(export))
    }

    /// Builds the export of this key, unless it is there or being built, before anyone requests it. When `give_way`
    /// completes first, or this is dropped, the job stops, unless someone has requested the export meanwhile.
    pub(crate) async fn make_ahead(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        make: Make,
        give_way: impl Future<Output = ()>,
    ) -> MadeAhead {
        let Some((mut progress, _)) = self.follow(capacity, key, &make, Duration::ZERO) else {
            return MadeAhead::NoRoom;
        };
        tokio::select! {
            ended = progress.wait_for(Progress::is_over) => match ended.as_deref() {
                Ok(Progress::Written(_)) => MadeAhead::Made,
                Ok(Progress::Failed(error)) => MadeAhead::Failed(error.clone()),
                Ok(Progress::Started | Progress::GivenUp) => MadeAhead::NoRoom,
                Err(_) => MadeAhead::Failed(aborted()),
            },
            () = give_way => MadeAhead::GaveWay,
        }
    }

    /// What the cache has of the export of this key. No use of it.
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
        make: &Make,
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
        // It ends by itself: when it is over, or abandoned.
        drop(capacity.engine.spawn(job.run(make.clone())).detach());
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
        async fn make_ahead(&self, number: usize, make: &Make, give_way: impl Future<Output = ()>) -> MadeAhead {
            self.exports.make_ahead(&self.capacity, CacheKey::numbered(number), make.clone(), give_way).await
        }
    }

    #[tokio::test]
    async fn what_was_made_ahead_is_there_for_who_asks() {
        let setup = setup(1_000, HOUR);
        let (make, made) = chunks(&[b"one ", b"two"]);
        for _ in 0..2 {
            assert!(matches!(setup.make_ahead(1, &make, std::future::pending()).await, MadeAhead::Made));
        }
        assert_eq!(setup.exports.made_bytes(CacheKey::numbered(1)), Some(7));
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"one two"[..]));
        assert_eq!(made.load(Ordering::SeqCst), 1);
        // One that there is not, and one that does not fit.
        let failing: Make = Arc::new(|_| Box::pin(async { Err(LATE) }));
        assert!(matches!(setup.make_ahead(2, &failing, std::future::pending()).await, MadeAhead::Failed(_)));
        assert_eq!(setup.accounted(), (1, 7));
        let (large, _) = chunks(&[&[1; 600], &[2; 600]]);
        assert!(matches!(setup.make_ahead(3, &large, std::future::pending()).await, MadeAhead::NoRoom));
        assert_eq!(setup.exports.state(CacheKey::numbered(3)), Some(ExportState::TooLarge));
    }

    #[tokio::test]
    async fn a_making_that_gives_way_leaves_nothing_behind_at_once() {
        let setup = setup(1_000, HOUR);
        let (make, sender) = sent();
        let begun = async {
            sender.send(Ok("half".into())).await.expect("sent");
        };
        assert!(matches!(setup.make_ahead(1, &make, begun).await, MadeAhead::GaveWay));
        // Its source is dropped, begun or not, though clients' makings linger for an hour.
        drop(make);
        sender.closed().await;
        setup.is_empty().await;
    }

    #[tokio::test]
    async fn who_asks_meanwhile_keeps_the_making_going() {
        let setup = setup(1_000, HOUR);
        let (make, sender) = sent();
        let (asked, gave_way) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let ahead = async {
            assert!(matches!(setup.make_ahead(1, &make, asked.notified()).await, MadeAhead::GaveWay));
            gave_way.notify_one();
        };
        let client = async {
            for chunk in ["all", " of"] {
                sender.send(Ok(chunk.into())).await.expect("sent");
            }
            let export = setup.get(1, &make).await.expect("no error").expect("an export");
            asked.notify_one();
            gave_way.notified().await;
            sender.send(Ok(" it".into())).await.expect("sent");
            drop(sender);
            assert_eq!(read(export.whole()).await.expect("a body"), b"all of it");
        };
        tokio::join!(ahead, client);
    }
}
