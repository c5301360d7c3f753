//! What the tests of the cache share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use strata_config as config;
use strata_store::free_space::DiskReserve;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::admission::Admission;
use crate::admission::capacity::{Capacity, test_engine};
use crate::admission::principal_hasher::PrincipalHasher;
use crate::export_cache::quota::ExportQuota;
use crate::export_cache::{Export, ExportBody, ExportSource, Exports, MAX_FILES, Totals};
use crate::maintenance::scratch::Scratch;
use crate::{CacheKey, ReadError};

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// A cache, what it needs, and what its exports are made from.
pub(super) struct Setup {
    pub(super) root: TempDir,
    pub(super) capacity: Capacity,
    pub(super) exports: Arc<Exports>,
}

pub(super) const SEVEN: Totals = Totals { total: 7, matches: None };

/// A failure that is nobody's share.
pub(super) const LATE: ReadError = ReadError::Timeout { seconds: 1 };

pub(super) const NO_SHARES: config::Fair = config::Fair { share_percent: 100, user_percent: 0, space_percent: 100 };

pub(super) fn boundless() -> DiskReserve {
    DiskReserve::looking(Path::new("/"), 0, |_| None)
}

pub(super) fn setup(capacity_bytes: u64, linger: Duration) -> Setup {
    setup_on(|_| boundless(), capacity_bytes, linger)
}

/// On the disk that this makes of the directory.
pub(super) fn setup_on(disk: impl FnOnce(&Path) -> DiskReserve, capacity_bytes: u64, linger: Duration) -> Setup {
    let root = tempfile::tempdir().expect("a directory");
    let spills = root.path().join("tmp");
    std::fs::create_dir(&spills).expect("created");
    let engine = test_engine(2, 1 << 24, Some(spills));
    let quota = ExportQuota::new(capacity_bytes, MAX_FILES, &NO_SHARES);
    let directory = root.path().join("exports");
    let disk = disk(&directory);
    let exports = Exports::lingering(Scratch::create(&directory).expect("a directory"), disk, quota, linger);
    let admission = Admission::new(&config::Config::default().query, &NO_SHARES, 2, 1 << 30);
    Setup { root, capacity: Capacity::new(engine, admission, PrincipalHasher::new(None)), exports }
}

impl Setup {
    pub(super) async fn get(&self, number: usize, source: &ExportSource) -> Result<Option<Export>, ReadError> {
        self.exports.get(&self.capacity, CacheKey::numbered(number), source.clone()).await
    }

    /// An export that has begun with these chunks, sent to `make`.
    pub(super) async fn begun(
        &self,
        number: usize,
        source: &ExportSource,
        sender: &mpsc::Sender<Result<Bytes, ReadError>>,
        chunks: [Bytes; 2],
    ) -> Export {
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
        let body = read(export.whole()).await.expect("a body");
        // Whoever made it has let go of it, unless a test holds it.
        for _ in 0..1_000 {
            let key = CacheKey::numbered(number);
            let held = self.exports.index().entries.get(&key).is_some_and(|entry| entry.idle_bytes().is_none());
            if !held {
                break;
            }
            tokio::task::yield_now().await;
        }
        Some(body)
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.exports.directory.path()).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        // All but the lock.
        paths.filter(|path| path.extension().is_some()).collect()
    }

    pub(super) fn files(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> =
            self.paths().iter().map(|path| path.metadata().map_or(0, |data| data.len())).collect();
        sizes.sort_unstable();
        sizes
    }

    pub(super) fn accounted(&self) -> (usize, u64) {
        let index = self.exports.index();
        (index.entries.len(), index.quota.bytes())
    }

    pub(super) async fn is_empty(&self) {
        while self.accounted() != (0, 0) {
            tokio::task::yield_now().await;
        }
        assert_eq!(self.files(), [] as [u64; 0]);
    }
}

pub(super) async fn read(stream: BoxStream<'static, Result<Bytes, ReadError>>) -> Result<Vec<u8>, ReadError> {
    stream.map_ok(Vec::from).try_concat().await
}

pub(super) fn chunks(chunks: &[&[u8]]) -> (ExportSource, Arc<AtomicUsize>) {
    let chunks: Vec<Bytes> = chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect();
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let source: ExportSource = Arc::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let chunks = stream::iter(chunks.clone()).map(Ok).boxed();
        Box::pin(async move { Ok(ExportBody::new(SEVEN, chunks)) })
    });
    (source, made)
}

pub(super) fn sent() -> (ExportSource, mpsc::Sender<Result<Bytes, ReadError>>) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let source: ExportSource = Arc::new(move |_| {
        let receiver = receiver.lock().expect("not poisoned").take().expect("made once");
        let chunks = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
        Box::pin(async move { Ok(ExportBody::new(SEVEN, chunks.boxed())) })
    });
    (source, sender)
}
