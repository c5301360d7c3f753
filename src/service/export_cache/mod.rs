//! Parquet exports: each made once into a bounded cache on disk, so that parts of it can be served, and a reader that
//! comes back for another part gets the same bytes.
//!
//! 1. The first request for an export starts its making, in a task of its own: it writes a file as fast as batches
//!    come, whoever reads how fast. Later requests find the making, or what it made.
//! 2. Readers follow the file: each reads at its own pace what is written, in chunks, and waits for more. So nothing is
//!    buffered for a slow one, and the first byte need not wait for the last. Who wants a part waits for the end, since
//!    only then the length is known.
//! 3. Room is taken as the file grows, for whom it is made ([`crate::export_cache::room`]). Where there is
//!    none left, the file is given up, and readers go on with an answer of their own, after what they have read of it.
//!    The disk has to keep its reserve, too ([`strata_store::free_space`]): where it is short, for an export or for
//!    anything else, files that nobody reads are dropped.
//! 4. A making that nobody waits for is stopped, but not at once: who has run out of patience may ask again. It is at
//!    once where others wait for what it takes, or where it would be another one of the same client.
//!
//! Files are not trusted: each block has a checksum, taken while it is made and kept in memory, and nothing is sent
//! that does not verify. A file that does not, or is shorter than it was, is dropped, and readers go on as where one is
//! given up.
//!
//! Each process has a directory of its own below `exports/` in the data directory
//! ([`crate::maintenance::scratch`]): nothing is taken over from one that has ended. Servers that share a
//! store share exports there ([`shared`]): one makes an export, and the others fetch it into their directories.
//!
//! `service::shared_exports`, `service::exports_ahead` and `resilience::fair` protect it.

pub(crate) mod asked;
mod checksums;
#[cfg(test)]
mod fixture;
mod index;
mod making;
mod progress;
mod room;
mod serving;
mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;

pub(crate) use self::making::{Content, Make, Taker};
pub use self::serving::Export;
pub(crate) use self::shared::SharedExports;
use strata_config as config;

use crate::admission::capacity::Capacity;
use crate::export_cache::checksums::{BLOCK_BYTES, Sums};
use crate::export_cache::index::{Entry, Files};
use crate::export_cache::making::Making;
pub(crate) use crate::export_cache::progress::Totals;
use strata_store::free_space::DiskReserve;

use crate::export_cache::progress::{Progress, vanished};
use crate::export_cache::room::Room;
use crate::maintenance::scratch::Scratch;
use crate::{CacheKey, ReadError};

/// Files in the cache, however small: what a directory holds well.
const MOST_FILES: usize = 4_096;

/// How long a making goes on when nobody waits for it any more: longer than clients wait before they try again.
const LINGER: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct Exports {
    files: Arc<Files>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    Made,
    BeingMade,
    TooLarge,
}

/// What became of the making of an export that nobody had asked for yet.
pub(crate) enum MadeAhead {
    Made,
    NoRoom,
    GaveWay,
    Failed(ReadError),
}

impl Exports {
    pub(crate) fn new(directory: Scratch, disk: DiskReserve, capacity_bytes: u64, fair: &config::Fair) -> Exports {
        Exports::lingering(directory, disk, Room::new(capacity_bytes, MOST_FILES, fair), LINGER)
    }

    fn lingering(directory: Scratch, disk: DiskReserve, room: Room, linger: Duration) -> Exports {
        let files = Arc::new(Files::new(directory, disk.clone(), room, linger));
        let weak = Arc::downgrade(&files);
        disk.on_shortage(move |is_enough| {
            if let Some(files) = weak.upgrade() {
                files.index().shrink(is_enough);
            }
        });
        Exports { files }
    }

    pub(crate) fn disk(&self) -> &DiskReserve {
        &self.files.disk
    }

    /// The export of this key, made by `make` on the engine's threads unless it is there or being made. Waits
    /// until its first bytes are there. `None` if it does not fit.
    /// The error is what `make` fails with before the first byte.
    pub(crate) async fn get(
        &self,
        capacity: &Capacity,
        key: CacheKey,
        make: Make,
    ) -> Result<Option<Export>, ReadError> {
        let linger = self.files.linger;
        let Some((progress, begun)) = self.follow(capacity, key, &make, linger) else { return Ok(None) };
        let since = Instant::now();
        let mut export = match Export::begun(self.files.clone(), key, progress, make).await {
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

    /// Makes the export of this key, unless it is there or being made, before anybody asks for it. When `give_way`
    /// completes first, or this is dropped, the making stops, unless somebody has asked for it meanwhile.
    pub(crate) async fn make_ahead(
        &self,
        capacity: &Capacity,
        key: CacheKey,
        make: Make,
        give_way: impl Future<Output = ()>,
    ) -> MadeAhead {
        let Some((mut progress, _)) = self.follow(capacity, key, &make, Duration::ZERO) else {
            return MadeAhead::NoRoom;
        };
        let over = |progress: &Progress| !matches!(progress, Progress::Started | Progress::Writing { .. });
        tokio::select! {
            ended = progress.wait_for(over) => match ended.as_deref() {
                Ok(Progress::Made(_)) => MadeAhead::Made,
                Ok(Progress::Failed(error)) => MadeAhead::Failed(error.clone()),
                Ok(Progress::Started | Progress::Writing { .. } | Progress::GivenUp) => MadeAhead::NoRoom,
                Err(_) => MadeAhead::Failed(vanished()),
            },
            () = give_way => MadeAhead::GaveWay,
        }
    }

    /// What the cache has of the export of this key. No use of it.
    pub(crate) fn state(&self, key: CacheKey) -> Option<ExportState> {
        let index = self.files.index();
        match index.entries.get(&key) {
            Some(Entry::Made { file, .. }) if file.path.exists() => Some(ExportState::Made),
            Some(Entry::Making { .. }) => Some(ExportState::BeingMade),
            Some(Entry::Made { .. }) | None => index.too_large.contains(&key).then_some(ExportState::TooLarge),
        }
    }

    pub(crate) fn made_bytes(&self, key: CacheKey) -> Option<u64> {
        match self.files.index().entries.get(&key) {
            Some(Entry::Made { file, .. }) if file.path.exists() => Some(file.bytes),
            Some(Entry::Made { .. } | Entry::Making { .. }) | None => None,
        }
    }

    /// The progress of an export, and whether this call started it; `None` if it would not fit.
    fn follow(
        &self,
        capacity: &Capacity,
        key: CacheKey,
        make: &Make,
        linger: Duration,
    ) -> Option<(watch::Receiver<Progress>, bool)> {
        let admission = &capacity.admission;
        let holder = admission.holder;
        let mut index = self.files.index();
        index.uses += 1;
        let uses = index.uses;
        match index.entries.get_mut(&key) {
            Some(Entry::Making { progress }) => return Some((progress.subscribe(), false)),
            // Somebody else may have removed the file.
            Some(Entry::Made { file, used, .. }) if file.path.exists() => {
                *used = uses;
                return Some((watch::channel(Progress::Made(file.clone())).1, false));
            }
            Some(Entry::Made { .. }) => index.forget(&key),
            None => {}
        }
        if index.too_large.contains(&key) || !index.take(holder, 0, 1) {
            return None;
        }
        index.files += 1;
        let name = |extension| self.files.directory.path().join(format!("{}.{extension}", index.files)).into();
        let (progress, followed) = watch::channel(Progress::Started);
        let making = Making {
            files: self.files.clone(),
            admission: admission.clone(),
            key,
            partial: name("part"),
            whole: name("parquet"),
            progress: progress.clone(),
            bytes: 0,
            sums: Sums::default(),
            linger,
            over: false,
        };
        index.entries.insert(key, Entry::Making { progress });
        drop(index);
        // It ends by itself: when it is over, or abandoned.
        drop(capacity.engine.spawn(making.run(make.clone())).detach());
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
