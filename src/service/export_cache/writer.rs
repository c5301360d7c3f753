//! The writing of a file: as fast as its chunks arrive, in space that is taken as it grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, TryStreamExt};
use strata_runtime::blocking::blocking;
use strata_store::free_space::LOOK_BYTES;
use tokio::sync::watch;

use crate::admission::Admission;
use crate::export_cache::Exports;
use crate::export_cache::checksums::Sums;
use crate::export_cache::file::{CachedFile, Progress, Totals, Written, aborted, remove};
use crate::export_cache::quota::Space;
use crate::{CacheKey, ReadError};

/// How often a job that no one waits for checks whether it is in the way of others.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    Client,
    Service,
}

/// Builds an export, from the beginning, for who takes it: the same bytes each time.
pub(crate) type Make = Arc<dyn Fn(Taker) -> BoxFuture<'static, Result<Content, ReadError>> + Send + Sync>;

pub(super) type Chunks = BoxStream<'static, Result<Bytes, ReadError>>;

pub(crate) struct Content {
    pub totals: Totals,
    pub bytes: Option<u64>,
    pub chunks: Chunks,
    /// Puts it into the store, too, once it is whole.
    pub(super) publish: Option<Publish>,
}

/// Publishes a whole file. Whether the file may stay.
pub(super) type Publish = Box<dyn FnOnce(Arc<Exports>, Written) -> BoxFuture<'static, bool> + Send>;

impl Content {
    /// An export of known totals and unknown length.
    pub(crate) fn new(totals: Totals, chunks: Chunks) -> Content {
        Content { totals, bytes: None, chunks, publish: None }
    }
}

/// A job that writes an export. Dropped before it is over, as by a panic, it leaves nothing behind either.
pub(super) struct ExportJob {
    pub(super) exports: Arc<Exports>,
    pub(super) admission: Admission,
    pub(super) key: CacheKey,
    pub(super) path: Arc<Path>,
    pub(super) progress: watch::Sender<Progress>,
    /// Bytes that the file takes from the quota: at least as many as are written.
    pub(super) bytes: u64,
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

impl ExportJob {
    pub(super) async fn run(mut self, make: Make) {
        let exports = self.exports.clone();
        let progress = self.progress.clone();
        let abandoned = abandoned(exports.clone(), self.admission.clone(), self.key, progress.clone(), self.linger);
        let written = tokio::select! {
            written = self.write(make) => Some(written),
            () = abandoned => None,
        };
        let end = match written {
            Some(Ok((written, publish))) => {
                // It is in use until it is published.
                let _in_use = progress.subscribe();
                self.finish(written.clone());
                if let Some(publish) = publish
                    && !publish(exports.clone(), written.clone()).await
                {
                    exports.index().forget_damaged(&self.key, &written.file);
                }
                return;
            }
            Some(Err(Stopped::NoRoom)) => Progress::GivenUp,
            Some(Err(Stopped::Disk(error))) => {
                self.has_made_room(&error);
                tracing::warn!(%error, directory = %exports.directory.path().display(), "failed to cache export");
                Progress::GivenUp
            }
            Some(Err(Stopped::Failed(error))) => Progress::Failed(error),
            // No one follows it.
            None => Progress::GivenUp,
        };
        self.undo(end);
    }

    /// Writes the file. Each chunk is shown when the next one is there: so the last comes together with the end, and of
    /// an export of one chunk everyone knows the length.
    async fn write(&mut self, make: Make) -> Result<(Written, Option<Publish>), Stopped> {
        let Content { totals, bytes: size_bytes, mut chunks, publish } = make(Taker::Service).await?;
        let file = Arc::new(CachedFile { path: self.path.clone(), totals, size_bytes });
        let mut written = Written { file, sums: Sums::default(), is_whole: false };
        self.exports.directory.restore()?;
        // At once: abandoned while another thread creates it, the file would come after it was removed.
        let file = Arc::new(File::create_new(&self.path)?);
        while let Some(chunk) = chunks.try_next().await? {
            if self.bytes > 0 {
                self.progress.send_replace(Progress::Written(written.clone()));
            }
            self.take(chunk.len() as u64)?;
            // Over what an attempt that failed may have left there.
            while let Err(error) = write(&file, &chunk, written.sums.bytes).await {
                if !self.has_made_room(&error) {
                    return Err(error.into());
                }
            }
            written.sums.update(&chunk);
        }
        written.is_whole = true;
        Ok((written, publish))
    }

    /// Takes space for more bytes, of the cache and now and then of the disk.
    fn take(&mut self, bytes: u64) -> Result<(), Stopped> {
        let holder = self.admission.principal;
        let mut index = self.exports.index();
        if !index.take(holder, bytes, 0) {
            if self.bytes + bytes > index.quota.max_bytes(holder) {
                index.remember_too_large(self.key);
            }
            return Err(Stopped::NoRoom);
        }
        self.bytes += bytes;
        let is_due = index.looks.is_due(bytes);
        // The disk's keeper takes it, too.
        drop(index);
        if is_due && !self.exports.disk.keep() {
            // The next one looks again.
            self.exports.index().looks.again();
            return Err(Stopped::NoRoom);
        }
        Ok(())
    }

    /// Whether files were dropped for a disk that is full, or over its quota, in spite of the checks.
    fn has_made_room(&self, error: &io::Error) -> bool {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        is_full && self.exports.index().shrink_by(LOOK_BYTES)
    }

    fn finish(&mut self, written: Written) {
        self.over = true;
        let mut index = self.exports.index();
        index.touch(&self.key);
        self.progress.send_replace(Progress::Written(written));
    }

    fn undo(&mut self, end: Progress) {
        self.over = true;
        // Before the space is given to others.
        remove(&self.path);
        let mut index = self.exports.index();
        index.quota.release(self.admission.principal, Space { bytes: self.bytes, files: 1 });
        if index.entries.get(&self.key).is_some_and(|entry| entry.progress.same_channel(&self.progress)) {
            index.entries.remove(&self.key);
        }
        drop(index);
        self.progress.send_replace(end);
    }
}

impl Drop for ExportJob {
    fn drop(&mut self) {
        if !self.over {
            self.undo(Progress::Failed(aborted()));
        }
    }
}

/// Writes a chunk where it belongs. It is not copied on its way to the system.
async fn write(file: &Arc<File>, chunk: &Bytes, at: u64) -> io::Result<()> {
    let (file, chunk) = (file.clone(), chunk.clone());
    blocking(move || file.write_all_at(&chunk, at)).await?
}

/// Completes when no one has followed a job for a while. From then on no one can. Each holder has one job that
/// continues for a while when no one waits for it.
async fn abandoned(
    exports: Arc<Exports>,
    admission: Admission,
    key: CacheKey,
    progress: watch::Sender<Progress>,
    linger: Duration,
) {
    loop {
        progress.closed().await;
        let lingering = exports.index().linger(admission.principal);
        let began = Instant::now();
        while lingering.is_some()
            && progress.receiver_count() == 0
            && began.elapsed() < linger
            && !admission.is_contended()
        {
            tokio::time::sleep(CHECK_INTERVAL.min(linger)).await;
        }
        let mut index = exports.index();
        // New followers come only through the index, which is locked.
        if progress.receiver_count() == 0 {
            index.entries.remove(&key);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
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
        let look_again = || setup.exports.index().looks.again();
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
        let disk = &setup.exports.disk;
        assert!(disk.keep());
        assert_eq!(setup.accounted(), (2, 20));
        assert!(setup.exports.state(CacheKey::numbered(3)).is_none());
        // A disk that is full after all: of the rest as much as is asked for, and then nothing.
        let mut index = setup.exports.index();
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
        let own = other.directory.path().to_owned();
        assert!(own.exists() && own != setup.exports.directory.path());
        drop(other);
        assert!(!own.exists());
        assert_eq!(setup.read(1, &make).await.as_deref(), Some(&b"bytes"[..]));
    }
}
