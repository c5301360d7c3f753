//! The making of a file: as fast as its chunks come, in room that is taken as it grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, TryStreamExt};
use strata_runtime::blocking::{blocking, with_blocking_calls};
use strata_store::free_space::LOOK_BYTES;
use tokio::sync::watch;

use crate::admission::Admission;
use crate::export_cache::checksums::Sums;
use crate::export_cache::index::{Entry, Files};
use crate::export_cache::progress::{Head, MadeFile, Progress, Totals, remove, vanished};
use crate::export_cache::room::Space;
use crate::{CacheKey, Holder, ReadError};

/// How often a making that nobody waits for looks whether it is in anybody's way.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    Client,
    Service,
}

/// Makes an export, from the beginning, for who takes it: the same bytes each time.
pub(crate) type Make = Arc<dyn Fn(Taker) -> BoxFuture<'static, Result<Content, ReadError>> + Send + Sync>;

pub(crate) struct Content {
    pub totals: Totals,
    pub bytes: Option<u64>,
    pub chunks: BoxStream<'static, Result<Bytes, ReadError>>,
    /// Keeps it, too, once it is made.
    pub(super) keep: Option<Keep>,
}

/// What takes a copy of a file that is made. Whether the file may stay.
pub(super) type Keep = Box<dyn FnOnce(Arc<Files>, Arc<MadeFile>) -> BoxFuture<'static, bool> + Send>;

impl Content {
    /// One of so many entities, whose length its end shows.
    pub(crate) fn new(totals: Totals, chunks: BoxStream<'static, Result<Bytes, ReadError>>) -> Content {
        Content { totals, bytes: None, chunks, keep: None }
    }
}

/// A making under way. Dropped before it is over, as by a panic, it leaves nothing behind either.
pub(super) struct Making {
    pub(super) files: Arc<Files>,
    pub(super) admission: Admission,
    pub(super) key: CacheKey,
    pub(super) partial: Arc<Path>,
    pub(super) whole: Arc<Path>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) bytes: u64,
    pub(super) sums: Sums,
    pub(super) linger: Duration,
    pub(super) over: bool,
}

#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("the cache or the disk is full")]
    NoRoom,
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Failed(#[from] ReadError),
}

impl Making {
    pub(super) async fn run(mut self, make: Make) {
        let (files, progress, key) = (self.files.clone(), self.progress.clone(), self.key);
        let (admission, linger) = (self.admission.clone(), self.linger);
        let written = tokio::select! {
            written = self.write(make) => Some(written),
            () = abandoned(&files, &admission, key, &progress, linger) => None,
        };
        let end = match written {
            Some(Ok((totals, keep))) => {
                let made = self.made(totals);
                if let Some(keep) = keep
                    && !keep(files.clone(), made.clone()).await
                {
                    files.index().forget_damaged(&key, &made);
                }
                return;
            }
            Some(Err(Stopped::NoRoom)) => Progress::GivenUp,
            Some(Err(Stopped::Disk(error))) => {
                self.has_made_room(&error);
                tracing::warn!(%error, directory = %self.files.directory.path().display(), "failed to cache export");
                Progress::GivenUp
            }
            Some(Err(Stopped::Failed(error))) => Progress::Failed(error),
            // Nobody is there to be told.
            None => Progress::GivenUp,
        };
        self.unmade(end);
    }

    /// Writes the file, and returns how many entities it is about, and who else keeps it. Each chunk is shown when the
    /// next one is there: so the last comes together with the end, and of an export of one chunk everybody knows the
    /// length.
    async fn write(&mut self, make: Make) -> Result<(Totals, Option<Keep>), Stopped> {
        let Content { totals, bytes, mut chunks, keep } = make(Taker::Service).await?;
        let head = Head { totals, bytes, partial: self.partial.clone(), whole: self.whole.clone() };
        self.files.directory.restore()?;
        // At once: abandoned while another thread creates it, the file would come after it was removed.
        let file = Arc::new(File::create_new(&self.partial)?);
        while let Some(chunk) = chunks.try_next().await? {
            if self.bytes > 0 {
                self.progress.send_replace(Progress::Writing { head: head.clone(), sums: self.sums.clone() });
            }
            let bytes = chunk.len() as u64;
            self.take(bytes)?;
            self.bytes += bytes;
            let mut written = write(&file, &chunk, self.sums.bytes).await;
            while let Err(error) = written {
                if !self.has_made_room(&error) {
                    return Err(error.into());
                }
                // Over what the attempt that failed may have left there.
                written = write(&file, &chunk, self.sums.bytes).await;
            }
            self.sums.update(&chunk);
        }
        with_blocking_calls(tokio::fs::rename(&self.partial, &self.whole)).await??;
        Ok((totals, keep))
    }

    /// Takes room for more bytes, of the cache and now and then of the disk.
    fn take(&mut self, bytes: u64) -> Result<(), Stopped> {
        let holder = self.admission.holder;
        let mut index = self.files.index();
        if !index.take(holder, bytes, 0) {
            if self.bytes + bytes > index.room.most_bytes(holder) {
                index.remember_too_large(self.key);
            }
            return Err(Stopped::NoRoom);
        }
        let is_due = index.looks.is_due(bytes);
        // The disk's keeper takes it, too.
        drop(index);
        if is_due && !self.files.disk.keep() {
            let mut index = self.files.index();
            // The next one looks again.
            index.looks.again();
            index.room.give_back(holder, Space { bytes, files: 0 });
            return Err(Stopped::NoRoom);
        }
        Ok(())
    }

    /// Whether files were dropped for a disk that is full, or over its quota, in spite of the looks at it.
    fn has_made_room(&self, error: &io::Error) -> bool {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        is_full && self.files.index().shrink_by(LOOK_BYTES)
    }

    fn made(mut self, totals: Totals) -> Arc<MadeFile> {
        self.over = true;
        let (path, sums) = (self.whole.clone(), std::mem::take(&mut self.sums));
        let file = Arc::new(MadeFile { path, bytes: self.bytes, totals, sums });
        let mut index = self.files.index();
        index.uses += 1;
        let used = index.uses;
        index.entries.insert(self.key, Entry::Made { file: file.clone(), holder: self.admission.holder, used });
        drop(index);
        self.progress.send_replace(Progress::Made(file.clone()));
        file
    }

    fn unmade(&mut self, end: Progress) {
        self.over = true;
        // Before the room is given to others.
        remove(&self.partial);
        remove(&self.whole);
        let mut index = self.files.index();
        index.room.give_back(self.admission.holder, Space { bytes: self.bytes, files: 1 });
        let own = |progress: &watch::Sender<Progress>| progress.same_channel(&self.progress);
        if matches!(index.entries.get(&self.key), Some(Entry::Making { progress }) if own(progress)) {
            index.entries.remove(&self.key);
        }
        drop(index);
        self.progress.send_replace(end);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.over {
            self.unmade(Progress::Failed(vanished()));
        }
    }
}

/// Writes a chunk where it belongs. It is not copied on its way to the system.
async fn write(file: &Arc<File>, chunk: &Bytes, at: u64) -> io::Result<()> {
    let (file, chunk) = (file.clone(), chunk.clone());
    blocking(move || file.write_all_at(&chunk, at)).await?
}

/// Completes when nobody has followed a making for a while. From then on nobody can.
async fn abandoned(
    files: &Files,
    admission: &Admission,
    key: CacheKey,
    progress: &watch::Sender<Progress>,
    linger: Duration,
) {
    loop {
        progress.closed().await;
        let lingering = Lingering::begin(files, admission.holder);
        let began = Instant::now();
        while lingering.is_some()
            && progress.receiver_count() == 0
            && began.elapsed() < linger
            && !admission.is_contended()
        {
            tokio::time::sleep(LOOK.min(linger)).await;
        }
        drop(lingering);
        let mut index = files.index();
        // New followers come only through the index, which is locked.
        if progress.receiver_count() == 0 {
            index.entries.remove(&key);
            return;
        }
    }
}

/// The one making of a holder that may go on for a while when nobody waits for it.
struct Lingering<'a> {
    files: &'a Files,
    holder: Holder,
}

impl Lingering<'_> {
    fn begin(files: &Files, holder: Holder) -> Option<Lingering<'_>> {
        let first = files.index().lingering.insert(holder);
        first.then_some(Lingering { files, holder })
    }
}

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        self.files.index().lingering.remove(&self.holder);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::export_cache::Exports;
    use crate::export_cache::fixture::{HOUR, LATE, NO_SHARES, boundless, chunks, read, sent, setup, setup_on};
    use crate::maintenance::scratch::Scratch;
    use strata_store::free_space::DiskReserve;

    #[tokio::test]
    async fn requests_for_the_same_export_share_one_making() {
        let setup = setup(1_000, HOUR);
        let (make, made) = chunks(&[b"one ", b"two ", b"three"]);
        let all = futures::future::join_all((0..20).map(|_| setup.read(1, &make))).await;
        assert!(all.iter().all(|read| read.as_deref() == Some(b"one two three")), "{all:?}");
        // One of a single chunk is all there when it begins.
        let (single, _) = chunks(&[b"alone"]);
        let export = setup.get(2, &single).await.expect("no error").expect("an export");
        assert_eq!((export.totals.total, export.known_bytes()), (7, Some(5)));
        assert_eq!(made.load(Ordering::SeqCst), 1);
        assert_eq!((setup.accounted(), setup.files()), ((2, 18), vec![5, 13]));
    }

    #[tokio::test]
    async fn the_share_of_who_has_begun_a_making_is_not_that_of_others() {
        let setup = setup(1_000, HOUR);
        let (begun, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
        let (counted, let_go) = (begun.clone(), asked.clone());
        let failing: Make = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let let_go = let_go.clone();
            Box::pin(async move {
                let_go.acquire().await.expect("open").forget();
                Err(ReadError::OutOfMemory)
            })
        });
        let let_go = async {
            tokio::task::yield_now().await;
            asked.add_permits(1);
        };
        let (first, second, ()) = tokio::join!(setup.get(1, &failing), setup.get(1, &failing), let_go);
        assert!(matches!(first, Err(ReadError::OutOfMemory)));
        // It makes an answer of its own.
        assert!(matches!(second, Ok(None)) && begun.load(Ordering::SeqCst) == 1);
        setup.is_empty().await;

        // In the middle: who reads gets the rest from an answer of its own, too.
        let (first, sender) = sent();
        let (again, made) = chunks(&[b"one", b" two", b" three"]);
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let make: Make = Arc::new(move |taker| match is_first.swap(false, Ordering::SeqCst) {
            true => first(taker),
            false => again(taker),
        });
        let mut export = setup.begun(2, &make, &sender, ["one", " two"].map(Bytes::from)).await;
        sender.send(Err(ReadError::OutOfMemory)).await.expect("sent");
        assert_eq!(export.bytes().await.expect("no error"), None);
        assert_eq!(read(export.whole()).await.expect("a body"), b"one two three");
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_making_that_fails_or_panics_leaves_nothing_behind_and_is_tried_again() {
        let setup = setup(1_000, HOUR);
        let failing: Make = Arc::new(|_| Box::pin(async { Err(LATE) }));
        let panicking: Make = Arc::new(|_| Box::pin(async { panic!("on purpose") }));
        for make in [&failing, &panicking] {
            let all = futures::future::join_all((0..5).map(|_| setup.get(1, make))).await;
            assert!(all.iter().all(Result::is_err));
            setup.is_empty().await;
        }
        // In the middle: who has begun to read gets the error.
        let (make, sender) = sent();
        let export = setup.begun(1, &make, &sender, ["half"; 2].map(Bytes::from)).await;
        let mut waiting = setup.get(1, &make).await.expect("no error").expect("an export");
        sender.send(Err(LATE)).await.expect("sent");
        let body = read(export.whole()).await;
        assert!(matches!(body, Err(ReadError::Timeout { .. })), "{body:?}");
        assert!(matches!(waiting.bytes().await, Err(ReadError::Timeout { .. })));
        drop(waiting);
        setup.is_empty().await;

        let (make, _) = chunks(&[b"all is well"]);
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"all is well"[..]));
    }

    #[tokio::test]
    async fn a_making_that_everyone_has_left_stops_and_leaves_nothing_behind() {
        let setup = setup(1_000, Duration::ZERO);
        let (make, sender) = sent();
        let export = setup.begun(1, &make, &sender, ["half"; 2].map(Bytes::from)).await;
        let other = setup.get(1, &make).await.expect("no error").expect("an export");
        drop(export);
        // The making goes on for the other one.
        while setup.accounted() != (1, 8) {
            tokio::task::yield_now().await;
        }
        drop(other);
        // Its source is dropped, too.
        sender.closed().await;
        setup.is_empty().await;
    }

    #[tokio::test]
    async fn who_comes_back_soon_finds_the_making_going_on() {
        let setup = setup(1_000, HOUR);
        let (make, sender) = sent();
        // Leaves before there is anything.
        assert!(futures::poll!(std::pin::pin!(setup.get(1, &make))).is_pending());
        sender.send(Ok(Bytes::from_static(b"made on"))).await.expect("sent");
        drop(sender);
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"made on"[..]));
    }

    #[tokio::test]
    async fn an_export_that_does_not_fit_is_served_all_the_same() {
        let setup = setup(10, HOUR);
        let (make, made) = chunks(&[b"0123", b"456", b"789abc", b"def"]);
        // The first reader has begun when it turns out.
        let mut export = setup.get(1, &make).await.expect("no error");
        if let Some(export) = &mut export {
            assert_eq!(export.bytes().await.expect("no error"), None);
        }
        if let Some(export) = export {
            assert_eq!(read(export.whole()).await.expect("a body"), b"0123456789abcdef");
        }
        setup.is_empty().await;
        let before = made.load(Ordering::SeqCst);
        // It is not tried again.
        assert!(setup.get(1, &make).await.expect("no error").is_none());
        assert_eq!(made.load(Ordering::SeqCst), before);
    }

    #[tokio::test]
    async fn a_disk_that_is_short_keeps_what_was_used_last_and_no_export_takes_its_reserve() {
        // A disk of 100 bytes, of which 80 are to stay free.
        let free = |directory: &Path| {
            let folders = std::fs::read_dir(directory).expect("a directory").flatten();
            let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).expect("a folder").flatten());
            let files = files.filter(|file| file.file_name() != "lock");
            Some(100 - files.map(|file| file.metadata().map_or(0, |data| data.len())).sum::<u64>())
        };
        let setup = setup_on(|exports| DiskReserve::looking(exports, 80, free), 1_000, HOUR);
        let look_again = || setup.exports.files.index().looks.again();
        let (ten, made) = chunks(&[&[7; 10]]);
        for number in 1..=4 {
            look_again();
            assert_eq!(setup.read(number, &ten).await.map(|body| body.len()), Some(10));
        }
        // Three make it a little too full. The fourth took the place of the first.
        assert_eq!((setup.accounted(), setup.files()), ((3, 30), vec![10; 3]));
        for number in [3, 2, 4] {
            setup.read(number, &ten).await.expect("kept");
        }
        assert_eq!(made.load(Ordering::SeqCst), 4);

        // Where all are read, none is made, and who asks makes an answer of its own.
        let mut held = Vec::new();
        for number in [3, 2, 4] {
            held.push(setup.get(number, &ten).await.expect("no error").expect("an export"));
        }
        look_again();
        assert!(setup.get(5, &ten).await.expect("no error").is_none());
        assert_eq!((setup.accounted(), setup.files()), ((3, 30), vec![10; 3]));
        held.clear();

        // Others that need room of the disk get it.
        let disk = &setup.exports.files.disk;
        assert!(disk.keep());
        assert_eq!(setup.accounted(), (2, 20));
        assert!(setup.exports.state(CacheKey::numbered(3)).is_none());
        // A disk that is full after all: of the rest as much as is asked for, and then nothing.
        let mut index = setup.exports.files.index();
        assert!(index.shrink_by(10) && index.entries.len() == 1);
        assert!(index.shrink_by(20) && index.entries.is_empty());
        assert!(!index.shrink_by(1));
    }

    #[tokio::test]
    async fn processes_side_by_side_leave_each_other_alone_and_clear_what_the_dead_left() {
        let setup = setup(100, HOUR);
        let root = setup.root.path().join("exports");
        let (make, _) = chunks(&[b"bytes"]);
        setup.read(1, &make).await.expect("kept");
        let dead = root.join("process-dead");
        std::fs::create_dir(&dead).expect("created");
        std::fs::write(dead.join("lock"), "").expect("written");
        std::fs::write(dead.join("1.part"), "half").expect("written");

        let other = Exports::new(Scratch::create(&root).expect("a second one"), boundless(), 100, &NO_SHARES);
        assert!(!dead.exists());
        assert_eq!(setup.files(), [5]);
        let own = other.files.directory.path().to_owned();
        assert!(own.exists() && own != setup.exports.files.directory.path());
        drop(other);
        assert!(!own.exists());
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"bytes"[..]));
    }
}
