//! The job that writes the file of an export.

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

/// How often a job without readers checks whether others wait for what it uses.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumer {
    Client,
    Service,
}

/// Builds an export for a consumer, from the beginning. It is the same bytes each time.
pub(crate) type ExportSource = Arc<dyn Fn(Consumer) -> BoxFuture<'static, Result<ExportBody, ReadError>> + Send + Sync>;

pub(super) type Chunks = BoxStream<'static, Result<Bytes, ReadError>>;

pub(crate) struct ExportBody {
    pub totals: Totals,
    pub bytes: Option<u64>,
    pub chunks: Chunks,
    /// Called with the complete file.
    pub(super) publisher: Option<Publisher>,
}

/// Publishes a complete file. Whether the file may stay.
pub(super) type Publisher = Box<dyn FnOnce(Arc<Exports>, Written) -> BoxFuture<'static, bool> + Send>;

impl ExportBody {
    /// An export of unknown length, which is not published.
    pub(crate) fn new(totals: Totals, chunks: Chunks) -> ExportBody {
        ExportBody { totals, bytes: None, chunks, publisher: None }
    }
}

/// A job that writes an export. If it is dropped early, for example by a panic, it removes the file.
pub(super) struct ExportJob {
    pub(super) exports: Arc<Exports>,
    pub(super) admission: Admission,
    pub(super) key: CacheKey,
    pub(super) path: Arc<Path>,
    pub(super) progress: watch::Sender<Progress>,
    /// Bytes that are reserved: at least as many as are written.
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
    pub(super) async fn run(mut self, source: ExportSource) {
        let exports = self.exports.clone();
        let progress = self.progress.clone();
        let abandoned = abandoned(exports.clone(), self.admission.clone(), self.key, progress.clone(), self.linger);
        let written = tokio::select! {
            written = self.write(source) => Some(written),
            () = abandoned => None,
        };
        let end = match written {
            Some(Ok((written, publisher))) => {
                // It must not be evicted before it is published.
                let _in_use = progress.subscribe();
                self.finish(written.clone());
                if let Some(publisher) = publisher
                    && !publisher(exports.clone(), written.clone()).await
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
            // There are no readers.
            None => Progress::GivenUp,
        };
        self.undo(end);
    }

    /// Writes the file. Readers see a chunk when the next one has arrived, so that the last chunk appears together with
    /// the end, and the length of an export of one chunk is known at once.
    async fn write(&mut self, source: ExportSource) -> Result<(Written, Option<Publisher>), Stopped> {
        let ExportBody { totals, bytes: size_bytes, mut chunks, publisher } = source(Consumer::Service).await?;
        let file = Arc::new(CachedFile { path: self.path.clone(), totals, size_bytes });
        let mut written = Written { file, sums: Sums::default(), is_whole: false };
        self.exports.directory.restore()?;
        // Not on another thread: if the job stopped meanwhile, the file would be created after it was removed.
        let file = Arc::new(File::create_new(&self.path)?);
        while let Some(chunk) = chunks.try_next().await? {
            if self.bytes > 0 {
                self.progress.send_replace(Progress::Written(written.clone()));
            }
            self.take(chunk.len() as u64)?;
            // An attempt overwrites what a failed one may have left.
            while let Err(error) = write(&file, &chunk, written.sums.bytes).await {
                if !self.has_made_room(&error) {
                    return Err(error.into());
                }
            }
            written.sums.update(&chunk);
        }
        written.is_whole = true;
        Ok((written, publisher))
    }

    /// Reserves space for more bytes, and checks the free space of the disk from time to time.
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
        // Keeping the reserve locks the index, too.
        drop(index);
        if is_due && !self.exports.disk.keep() {
            // The next chunk checks again.
            self.exports.index().looks.again();
            return Err(Stopped::NoRoom);
        }
        Ok(())
    }

    /// Whether files were evicted because the disk is full, or over its quota, in spite of the checks.
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
        // Before others reserve its space.
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

/// Writes a chunk at its offset, without a copy.
async fn write(file: &Arc<File>, chunk: &Bytes, at: u64) -> io::Result<()> {
    let file = file.clone();
    let chunk = chunk.clone();
    blocking(move || file.write_all_at(&chunk, at)).await?
}

/// Completes when a job has had no readers for a while, and removes it from the index. Each principal has at most one
/// job that continues without readers.
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
        // New readers must lock the index.
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
    use crate::export_cache::fixture::{HOUR, LATE, chunks, read, sent, setup, setup_on};
    use strata_store::free_space::DiskReserve;

    #[tokio::test]
    async fn equal_requests_share_one_job() {
        let setup = setup(1_000, HOUR);
        let (source, made) = chunks(&[b"one ", b"two ", b"three"]);
        let all = futures::future::join_all((0..20).map(|_| setup.read(1, &source))).await;
        assert!(all.iter().all(|read| read.as_deref() == Some(b"one two three")), "{all:?}");
        // One of a single chunk is all there when it begins.
        let (single, _) = chunks(&[b"alone"]);
        let export = setup.get(2, &single).await.expect("no error").expect("an export");
        assert_eq!((export.totals.total, export.known_bytes()), (7, Some(5)));
        assert_eq!(made.load(Ordering::SeqCst), 1);
        assert_eq!((setup.accounted(), setup.files()), ((2, 18), vec![5, 13]));
    }

    #[tokio::test]
    async fn refusal_of_one_principal_is_not_shared() {
        let setup = setup(1_000, HOUR);
        let begun = Arc::new(AtomicUsize::new(0));
        let asked = Arc::new(tokio::sync::Semaphore::new(0));
        let counted = begun.clone();
        let let_go = asked.clone();
        let failing: ExportSource = Arc::new(move |_| {
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
        let source: ExportSource = Arc::new(move |consumer| match is_first.swap(false, Ordering::SeqCst) {
            true => first(consumer),
            false => again(consumer),
        });
        let mut export = setup.begun(2, &source, &sender, ["one", " two"].map(Bytes::from)).await;
        sender.send(Err(ReadError::OutOfMemory)).await.expect("sent");
        assert_eq!(export.bytes().await.expect("no error"), None);
        assert_eq!(read(export.whole()).await.expect("a body"), b"one two three");
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn failed_job_leaves_nothing_and_is_tried_again() {
        let setup = setup(1_000, HOUR);
        let failing: ExportSource = Arc::new(|_| Box::pin(async { Err(LATE) }));
        let panicking: ExportSource = Arc::new(|_| Box::pin(async { panic!("on purpose") }));
        for source in [&failing, &panicking] {
            let all = futures::future::join_all((0..5).map(|_| setup.get(1, source))).await;
            assert!(all.iter().all(Result::is_err));
            setup.is_empty().await;
        }
        // In the middle: who has begun to read gets the error.
        let (source, sender) = sent();
        let export = setup.begun(1, &source, &sender, ["half"; 2].map(Bytes::from)).await;
        let mut waiting = setup.get(1, &source).await.expect("no error").expect("an export");
        sender.send(Err(LATE)).await.expect("sent");
        let body = read(export.whole()).await;
        assert!(matches!(body, Err(ReadError::Timeout { .. })), "{body:?}");
        assert!(matches!(waiting.bytes().await, Err(ReadError::Timeout { .. })));
        drop(waiting);
        setup.is_empty().await;

        let (source, _) = chunks(&[b"all is well"]);
        assert_eq!(setup.read(1, &source).await.as_deref(), Some(&b"all is well"[..]));
    }

    #[tokio::test]
    async fn job_without_readers_stops_and_leaves_nothing() {
        let setup = setup(1_000, Duration::ZERO);
        let (source, sender) = sent();
        let export = setup.begun(1, &source, &sender, ["half"; 2].map(Bytes::from)).await;
        let other = setup.get(1, &source).await.expect("no error").expect("an export");
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
    async fn job_continues_for_a_returning_reader() {
        let setup = setup(1_000, HOUR);
        let (source, sender) = sent();
        // Leaves before there is anything.
        assert!(futures::poll!(std::pin::pin!(setup.get(1, &source))).is_pending());
        sender.send(Ok(Bytes::from_static(b"made on"))).await.expect("sent");
        drop(sender);
        assert_eq!(setup.read(1, &source).await.as_deref(), Some(&b"made on"[..]));
    }

    #[tokio::test]
    async fn export_that_does_not_fit_is_served() {
        let setup = setup(10, HOUR);
        let (source, made) = chunks(&[b"0123", b"456", b"789abc", b"def"]);
        // The first reader has begun when it turns out.
        let mut export = setup.get(1, &source).await.expect("no error");
        if let Some(export) = &mut export {
            assert_eq!(export.bytes().await.expect("no error"), None);
        }
        if let Some(export) = export {
            assert_eq!(read(export.whole()).await.expect("a body"), b"0123456789abcdef");
        }
        setup.is_empty().await;
        let before = made.load(Ordering::SeqCst);
        // It is not tried again.
        assert!(setup.get(1, &source).await.expect("no error").is_none());
        assert_eq!(made.load(Ordering::SeqCst), before);
    }

    #[tokio::test]
    async fn short_disk_evicts_files_and_keeps_its_reserve() {
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
}
