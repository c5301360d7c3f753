//! The job that builds an export and writes it to a file of the cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, TryStreamExt};
use sha2::{Digest, Sha256};
use strata_runtime::blocking::run_blocking;
use strata_store::free_space::CHECK_INTERVAL_BYTES;
use tokio::sync::watch;

use crate::admission::AdmissionControl;
use crate::export_cache::ExportCache;
use crate::export_cache::checksums::BlockChecksums;
use crate::export_cache::file::{
    CachedExportFile, ExportProgress, ExportTotals, WrittenExport, export_job_error, remove_file,
};
use crate::export_cache::quota::ExportSpace;
use crate::{CacheKey, ReadError};

const CHECK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportConsumer {
    Client,
    Service,
}

/// Builds an export for a consumer, from the beginning. Each call must return the same bytes.
pub(crate) type ExportSource =
    Arc<dyn Fn(ExportConsumer) -> BoxFuture<'static, Result<ExportBody, ReadError>> + Send + Sync>;

pub(super) type ExportChunks = BoxStream<'static, Result<Bytes, ReadError>>;

pub(crate) struct ExportBody {
    pub totals: ExportTotals,
    pub size_bytes: Option<u64>,
    pub chunks: ExportChunks,
    pub(super) publisher: Option<ExportPublisher>,
}

pub(super) type ExportPublisher = Box<dyn FnOnce(Arc<ExportCache>, WrittenExport) -> BoxFuture<'static, bool> + Send>;

impl ExportBody {
    pub(crate) fn new(totals: ExportTotals, chunks: ExportChunks) -> ExportBody {
        ExportBody { totals, size_bytes: None, chunks, publisher: None }
    }
}

/// A job that writes an export. Dropping an unfinished job, for example by a panic, removes the file.
pub(super) struct ExportJob {
    pub(super) exports: Arc<ExportCache>,
    pub(super) admission: AdmissionControl,
    pub(super) key: CacheKey,
    pub(super) path: Arc<Path>,
    pub(super) progress: watch::Sender<ExportProgress>,
    pub(super) reserved_bytes: u64,
    pub(super) grace_period: Duration,
    pub(super) is_finished: bool,
}

#[derive(Debug, thiserror::Error)]
enum ExportWriteError {
    #[error("the cache or the disk is full")]
    NoSpace,
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error(transparent)]
    Failed(#[from] ReadError),
}

impl ExportJob {
    pub(super) async fn run(mut self, source: ExportSource) {
        let exports = self.exports.clone();
        let progress = self.progress.clone();
        let admission = self.admission.clone();
        let abandoned = wait_until_abandoned(exports.clone(), admission, self.key, progress.clone(), self.grace_period);
        let written = tokio::select! {
            written = self.write_file(source) => Some(written),
            () = abandoned => None,
        };
        let end = match written {
            Some(Ok((written, publisher))) => {
                // The job counts as a reader, so that the file is not evicted before it is published.
                let _reader = progress.subscribe();
                self.complete_export(written.clone());
                if let Some(publisher) = publisher
                    && !publisher(exports.clone(), written.clone()).await
                {
                    exports.lock_index().remove_damaged(&self.key, &written.file);
                }
                return;
            }
            Some(Err(ExportWriteError::NoSpace)) => ExportProgress::Abandoned,
            Some(Err(ExportWriteError::Disk(error))) => {
                self.evict_if_full(&error);
                tracing::warn!(%error, directory = %exports.directory.path().display(), "failed to cache export");
                ExportProgress::Abandoned
            }
            Some(Err(ExportWriteError::Failed(error))) => ExportProgress::Failed(error),
            None => ExportProgress::Abandoned,
        };
        self.abort_export(end);
    }

    /// Writes the file in chunks. Readers see each when the next arrives, so they know the length of one-chunk exports.
    async fn write_file(
        &mut self,
        source: ExportSource,
    ) -> Result<(WrittenExport, Option<ExportPublisher>), ExportWriteError> {
        let ExportBody { totals, size_bytes, mut chunks, publisher } = source(ExportConsumer::Service).await?;
        let file = Arc::new(CachedExportFile { path: self.path.clone(), totals, size_bytes });
        let checksums = BlockChecksums::default();
        let mut written = WrittenExport { file, checksums, is_complete: false, sha256: None };
        let mut hasher = Sha256::new();
        self.exports.directory.ensure_exists()?;
        // The file is not created on another thread, which could create it after its removal if the job was dropped.
        let file = Arc::new(File::create_new(&self.path)?);
        while let Some(chunk) = chunks.try_next().await? {
            if self.reserved_bytes > 0 {
                self.progress.send_replace(ExportProgress::Written(written.clone()));
            }
            self.reserve_disk_space(chunk.len() as u64)?;
            while let Err(error) = write_chunk(&file, &chunk, written.checksums.size_bytes).await {
                if !self.evict_if_full(&error) {
                    return Err(error.into());
                }
            }
            written.checksums.update(&chunk);
            hasher = run_blocking(move || hasher.chain_update(&chunk)).await?;
        }
        written.is_complete = true;
        written.sha256 = Some(hasher.finalize().into());
        Ok((written, publisher))
    }

    fn reserve_disk_space(&mut self, bytes: u64) -> Result<(), ExportWriteError> {
        let principal = self.admission.principal;
        let mut index = self.exports.lock_index();
        if !index.try_reserve(principal, bytes, 0) {
            if self.reserved_bytes + bytes > index.quota.max_bytes(principal) {
                index.mark_too_large(self.key);
            }
            return Err(ExportWriteError::NoSpace);
        }
        self.reserved_bytes += bytes;
        let is_due = index.disk_checks.advance_and_check_due(bytes);
        // The lock is released, because `ensure_free` locks the index, too.
        drop(index);
        if is_due && !self.exports.disk.ensure_free() {
            // After the reset, the next chunk of any job checks the free disk space again.
            self.exports.lock_index().disk_checks.reset();
            return Err(ExportWriteError::NoSpace);
        }
        Ok(())
    }

    fn evict_if_full(&self, error: &io::Error) -> bool {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        is_full && self.exports.lock_index().evict_bytes(CHECK_INTERVAL_BYTES)
    }

    fn complete_export(&mut self, written: WrittenExport) {
        self.is_finished = true;
        let mut index = self.exports.lock_index();
        index.touch(&self.key);
        self.progress.send_replace(ExportProgress::Written(written));
    }

    fn abort_export(&mut self, end: ExportProgress) {
        self.is_finished = true;
        remove_file(&self.path);
        let mut index = self.exports.lock_index();
        index.quota.release(self.admission.principal, ExportSpace { bytes: self.reserved_bytes, files: 1 });
        if index.entries.get(&self.key).is_some_and(|entry| entry.progress.same_channel(&self.progress)) {
            index.entries.remove(&self.key);
        }
        drop(index);
        self.progress.send_replace(end);
    }
}

impl Drop for ExportJob {
    fn drop(&mut self) {
        if !self.is_finished {
            self.abort_export(ExportProgress::Failed(export_job_error()));
        }
    }
}

async fn write_chunk(file: &Arc<File>, chunk: &Bytes, offset: u64) -> io::Result<()> {
    let file = file.clone();
    let chunk = chunk.clone();
    run_blocking(move || file.write_all_at(&chunk, offset)).await?
}

/// Removes the job of an export from the index after a grace period without readers, or at once if another job of the
/// same principal has a grace period.
async fn wait_until_abandoned(
    exports: Arc<ExportCache>,
    admission: AdmissionControl,
    key: CacheKey,
    progress: watch::Sender<ExportProgress>,
    grace_period: Duration,
) {
    loop {
        progress.closed().await;
        let grace_token = exports.lock_index().try_start_grace_period(admission.principal);
        let start = Instant::now();
        while grace_token.is_some()
            && progress.receiver_count() == 0
            && start.elapsed() < grace_period
            && !admission.is_contended()
        {
            tokio::time::sleep(CHECK_INTERVAL.min(grace_period)).await;
        }
        let mut index = exports.lock_index();
        // While the index is locked, no reader can be added.
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
    use crate::export_cache::fixture::{
        ONE_HOUR, TIMEOUT_ERROR, channel_source, counting_source, new_fixture, new_fixture_with_disk, read_all,
    };
    use strata_store::free_space::DiskReserve;

    #[tokio::test]
    async fn equal_requests_share_one_job() {
        let setup = new_fixture(1_000, ONE_HOUR);
        let (source, build_count) = counting_source(&[b"one ", b"two ", b"three"]);
        let all = futures::future::join_all((0..20).map(|_| setup.read(1, &source))).await;
        assert!(all.iter().all(|read| read.as_deref() == Some(b"one two three")), "{all:?}");
        let (single, _) = counting_source(&[b"alone"]);
        let export = setup.get(2, &single).await.expect("no error").expect("an export");
        assert_eq!((export.totals.total, export.known_size_bytes()), (7, Some(5)));
        assert_eq!(build_count.load(Ordering::SeqCst), 1);
        assert_eq!((setup.files_and_bytes(), setup.file_sizes()), ((2, 18), vec![5, 13]));
    }

    #[tokio::test]
    async fn refusal_of_one_principal_is_not_shared() {
        let setup = new_fixture(1_000, ONE_HOUR);
        let build_count = Arc::new(AtomicUsize::new(0));
        let permits = Arc::new(tokio::sync::Semaphore::new(0));
        let counter = build_count.clone();
        let source_permits = permits.clone();
        let failing: ExportSource = Arc::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            let permits = source_permits.clone();
            Box::pin(async move {
                permits.acquire().await.expect("open").forget();
                Err(ReadError::OutOfMemory)
            })
        });
        let release = async {
            tokio::task::yield_now().await;
            permits.add_permits(1);
        };
        let (first, second, ()) = tokio::join!(setup.get(1, &failing), setup.get(1, &failing), release);
        assert!(matches!(first, Err(ReadError::OutOfMemory)));
        assert!(matches!(second, Ok(None)) && build_count.load(Ordering::SeqCst) == 1);
        setup.wait_until_empty().await;

        // The job exceeds a quota of its principal after the first chunks, so the reader builds the rest itself.
        let (first, sender) = channel_source();
        let (again, build_count) = counting_source(&[b"one", b" two", b" three"]);
        let is_first = std::sync::atomic::AtomicBool::new(true);
        let source: ExportSource = Arc::new(move |consumer| match is_first.swap(false, Ordering::SeqCst) {
            true => first(consumer),
            false => again(consumer),
        });
        let mut export = setup.start_export(2, &source, &sender, ["one", " two"].map(Bytes::from)).await;
        sender.send(Err(ReadError::OutOfMemory)).await.expect("sent");
        assert_eq!(export.wait_for_size_bytes().await.expect("no error"), None);
        assert_eq!(read_all(export.into_chunks()).await.expect("a body"), b"one two three");
        assert_eq!(build_count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn failed_job_leaves_nothing_and_is_tried_again() {
        let setup = new_fixture(1_000, ONE_HOUR);
        let failing: ExportSource = Arc::new(|_| Box::pin(async { Err(TIMEOUT_ERROR) }));
        let panicking: ExportSource = Arc::new(|_| Box::pin(async { panic!("on purpose") }));
        for source in [&failing, &panicking] {
            let all = futures::future::join_all((0..5).map(|_| setup.get(1, source))).await;
            assert!(all.iter().all(Result::is_err));
            setup.wait_until_empty().await;
        }
        // If the job fails with a timeout after the first chunks, its readers get the error.
        let (source, sender) = channel_source();
        let export = setup.start_export(1, &source, &sender, ["half"; 2].map(Bytes::from)).await;
        let mut waiting = setup.get(1, &source).await.expect("no error").expect("an export");
        sender.send(Err(TIMEOUT_ERROR)).await.expect("sent");
        let body = read_all(export.into_chunks()).await;
        assert!(matches!(body, Err(ReadError::Timeout { .. })), "{body:?}");
        assert!(matches!(waiting.wait_for_size_bytes().await, Err(ReadError::Timeout { .. })));
        drop(waiting);
        setup.wait_until_empty().await;

        let (source, _) = counting_source(&[b"all is well"]);
        assert_eq!(setup.read(1, &source).await.as_deref(), Some(&b"all is well"[..]));
    }

    #[tokio::test]
    async fn job_without_readers_stops_and_leaves_nothing() {
        let setup = new_fixture(1_000, Duration::ZERO);
        let (source, sender) = channel_source();
        let export = setup.start_export(1, &source, &sender, ["half"; 2].map(Bytes::from)).await;
        let other = setup.get(1, &source).await.expect("no error").expect("an export");
        drop(export);
        while setup.files_and_bytes() != (1, 8) {
            tokio::task::yield_now().await;
        }
        drop(other);
        sender.closed().await;
        setup.wait_until_empty().await;
    }

    #[tokio::test]
    async fn job_continues_for_a_returning_reader() {
        let setup = new_fixture(1_000, ONE_HOUR);
        let (source, sender) = channel_source();
        assert!(futures::poll!(std::pin::pin!(setup.get(1, &source))).is_pending());
        sender.send(Ok(Bytes::from_static(b"continued"))).await.expect("sent");
        drop(sender);
        assert_eq!(setup.read(1, &source).await.as_deref(), Some(&b"continued"[..]));
    }

    #[tokio::test]
    async fn export_that_does_not_fit_is_served() {
        let setup = new_fixture(10, ONE_HOUR);
        let (source, build_count) = counting_source(&[b"0123", b"456", b"789abc", b"def"]);
        // The first reader waits when the job finds out that the export does not fit in the cache.
        let mut export = setup.get(1, &source).await.expect("no error");
        if let Some(export) = &mut export {
            assert_eq!(export.wait_for_size_bytes().await.expect("no error"), None);
        }
        if let Some(export) = export {
            assert_eq!(read_all(export.into_chunks()).await.expect("a body"), b"0123456789abcdef");
        }
        setup.wait_until_empty().await;
        let before = build_count.load(Ordering::SeqCst);
        assert!(setup.get(1, &source).await.expect("no error").is_none());
        assert_eq!(build_count.load(Ordering::SeqCst), before);
    }

    #[tokio::test]
    async fn short_disk_evicts_files_and_keeps_its_reserve() {
        // The simulated disk has 100 bytes, of which 80 must stay free.
        let free = |directory: &Path| {
            let folders = std::fs::read_dir(directory).expect("a directory").flatten();
            let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).expect("a folder").flatten());
            let files = files.filter(|file| file.file_name() != "lock");
            Some(100 - files.map(|file| file.metadata().map_or(0, |data| data.len())).sum::<u64>())
        };
        let setup = new_fixture_with_disk(|exports| DiskReserve::with_probe(exports, 80, free), 1_000, ONE_HOUR);
        let check_disk_again = || setup.exports.lock_index().disk_checks.reset();
        let (source, build_count) = counting_source(&[&[7; 10]]);
        for number in 1..=4 {
            check_disk_again();
            assert_eq!(setup.read(number, &source).await.map(|body| body.len()), Some(10));
        }
        // Two files fit on the disk, and the third exceeds the reserve a little. The fourth replaced the first.
        assert_eq!((setup.files_and_bytes(), setup.file_sizes()), ((3, 30), vec![10; 3]));
        for number in [3, 2, 4] {
            setup.read(number, &source).await.expect("export is cached");
        }
        assert_eq!(build_count.load(Ordering::SeqCst), 4);

        // If all files have readers, no export is built, and a client gets its own response.
        let mut readers = Vec::new();
        for number in [3, 2, 4] {
            readers.push(setup.get(number, &source).await.expect("no error").expect("an export"));
        }
        check_disk_again();
        assert!(setup.get(5, &source).await.expect("no error").is_none());
        assert_eq!((setup.files_and_bytes(), setup.file_sizes()), ((3, 30), vec![10; 3]));
        readers.clear();

        let disk = &setup.exports.disk;
        assert!(disk.ensure_free());
        assert_eq!(setup.files_and_bytes(), (2, 20));
        assert!(setup.exports.state(CacheKey::from_test_number(3)).is_none());
        // If a write fails because the disk is full, files are evicted until the requested bytes are free.
        let mut index = setup.exports.lock_index();
        assert!(index.evict_bytes(10) && index.entries.len() == 1);
        assert!(index.evict_bytes(20) && index.entries.is_empty());
        assert!(!index.evict_bytes(1));
    }
}
