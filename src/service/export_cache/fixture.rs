//! Shared fixtures for the tests of the export cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use strata_config as config;
use strata_store::free_space::DiskReserve;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::admission::AdmissionControl;
use crate::admission::principal_hasher::PrincipalHasher;
use crate::admission::resource_context::{ResourceContext, test_engine};
use crate::export_cache::quota::ExportQuota;
use crate::export_cache::{CachedExport, ExportBody, ExportCache, ExportSource, ExportTotals, MAX_EXPORT_FILES};
use crate::maintenance::temp_dir::ProcessTempDir;
use crate::{CacheKey, ReadError};

pub(super) const ONE_HOUR: Duration = Duration::from_secs(3_600);

pub(super) struct ExportFixture {
    pub(super) root: TempDir,
    pub(super) resources: ResourceContext,
    pub(super) exports: Arc<ExportCache>,
}

pub(super) const SEVEN_ENTITIES: ExportTotals = ExportTotals { total: 7, matches: None };
pub(super) const TIMEOUT_ERROR: ReadError = ReadError::Timeout { seconds: 1 };

pub(super) const UNSHARED: config::FairShareConfig =
    config::FairShareConfig { share_percent: 100, user_percent: 0, space_percent: 100 };

pub(super) fn unlimited_disk() -> DiskReserve {
    DiskReserve::with_probe(Path::new("/"), 0, |_| None)
}

pub(super) fn new_fixture(capacity_bytes: u64, grace_period: Duration) -> ExportFixture {
    new_fixture_with_disk(|_| unlimited_disk(), capacity_bytes, grace_period)
}

pub(super) fn new_fixture_with_disk(
    disk: impl FnOnce(&Path) -> DiskReserve,
    capacity_bytes: u64,
    grace_period: Duration,
) -> ExportFixture {
    let root = tempfile::tempdir().expect("a directory");
    let spill_directory = root.path().join("tmp");
    std::fs::create_dir(&spill_directory).expect("created");
    let engine = test_engine(2, 1 << 24, Some(spill_directory));
    let quota = ExportQuota::new(capacity_bytes, MAX_EXPORT_FILES, &UNSHARED);
    let directory = root.path().join("exports");
    let disk = disk(&directory);
    let exports = ExportCache::with_grace_period(
        ProcessTempDir::create(&directory).expect("a directory"),
        disk,
        quota,
        grace_period,
    );
    let admission = AdmissionControl::new(&config::Config::default().query, &UNSHARED, 2, 1 << 30);
    ExportFixture { root, resources: ResourceContext::new(engine, admission, PrincipalHasher::new(None)), exports }
}

impl ExportFixture {
    pub(super) async fn get(&self, number: usize, source: &ExportSource) -> Result<Option<CachedExport>, ReadError> {
        self.exports.get(&self.resources, CacheKey::from_test_number(number), source.clone()).await
    }

    pub(super) async fn start_export(
        &self,
        number: usize,
        source: &ExportSource,
        sender: &mpsc::Sender<Result<Bytes, ReadError>>,
        chunks: [Bytes; 2],
    ) -> CachedExport {
        let send = async {
            for chunk in chunks {
                sender.send(Ok(chunk)).await.expect("sent");
            }
        };
        let (export, ()) = tokio::join!(self.get(number, source), send);
        export.expect("no error").expect("an export")
    }

    pub(super) async fn read(&self, number: usize, source: &ExportSource) -> Option<Vec<u8>> {
        let export = self.get(number, source).await.expect("no error")?;
        let body = read_all(export.into_chunks()).await.expect("a body");
        // Waits until the job of the export has released the file, unless a reader of the test keeps the file.
        for _ in 0..1_000 {
            let key = CacheKey::from_test_number(number);
            let is_in_use =
                self.exports.lock_index().entries.get(&key).is_some_and(|entry| entry.evictable_bytes().is_none());
            if !is_in_use {
                break;
            }
            tokio::task::yield_now().await;
        }
        Some(body)
    }

    pub(super) fn file_paths(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.exports.directory.path()).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some()).collect()
    }

    pub(super) fn file_sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> =
            self.file_paths().iter().map(|path| path.metadata().map_or(0, |data| data.len())).collect();
        sizes.sort_unstable();
        sizes
    }

    pub(super) fn files_and_bytes(&self) -> (usize, u64) {
        let index = self.exports.lock_index();
        (index.entries.len(), index.quota.used_bytes())
    }

    pub(super) async fn wait_until_empty(&self) {
        while self.files_and_bytes() != (0, 0) {
            tokio::task::yield_now().await;
        }
        assert_eq!(self.file_sizes(), [] as [u64; 0]);
    }
}

pub(super) async fn read_all(stream: BoxStream<'static, Result<Bytes, ReadError>>) -> Result<Vec<u8>, ReadError> {
    stream.map_ok(Vec::from).try_concat().await
}

pub(super) fn counting_source(chunks: &[&[u8]]) -> (ExportSource, Arc<AtomicUsize>) {
    let chunks: Vec<Bytes> = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect();
    let build_count = Arc::new(AtomicUsize::new(0));
    let counter = build_count.clone();
    let source: ExportSource = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let chunks = stream::iter(chunks.clone()).map(Ok).boxed();
        Box::pin(async move { Ok(ExportBody::new(SEVEN_ENTITIES, chunks)) })
    });
    (source, build_count)
}

pub(super) fn channel_source() -> (ExportSource, mpsc::Sender<Result<Bytes, ReadError>>) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let source: ExportSource = Arc::new(move |_| {
        let receiver = receiver.lock().take().expect("source is called once");
        let chunks = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
        Box::pin(async move { Ok(ExportBody::new(SEVEN_ENTITIES, chunks.boxed())) })
    });
    (source, sender)
}
