//! The export cache: each Parquet export is built once into a file on disk, so that strata can serve ranges of it, and
//! a client that resumes a download gets the same bytes.
//!
//! 1. The first request for an export starts a job ([`writer`]), which writes a file regardless of how fast clients
//!    read.
//! 2. Readers follow the file at their own pace ([`reader`]), so nothing is buffered for a slow reader. A request for a
//!    range waits for the end of the job, because only then the length is known.
//! 3. A job reserves space as the file grows ([`quota`]). If there is no space, files without readers are evicted. If
//!    that is not enough, the job deletes the file, and each reader builds the rest of its response itself.
//! 4. A job without readers stops after a grace period, because a client whose request timed out often tries again.
//!
//! For example, `/api/7/x/v1/?format=parquet` becomes `exports/process-…/1.parquet` in the data directory. A second
//! client that requests it after 2 of 5 MiB are written gets these at once, and the rest as it is written.
//!
//! Readers verify block checksums ([`checksums`]). A damaged file is removed, and readers continue as if there were no
//! space. Each process has its own directory, and servers can share exports in the store ([`shared`]).

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

use parking_lot::{Mutex, MutexGuard};

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Semaphore, watch};

pub(crate) use self::file::ExportTotals;
pub use self::reader::CachedExport;
pub(crate) use self::shared::SharedExportStore;
pub(crate) use self::shared::object::find_surplus_exports;
pub(crate) use self::writer::{ExportBody, ExportConsumer, ExportSource};
use strata_config as config;

use crate::admission::resource_context::ResourceContext;
use crate::export_cache::checksums::BLOCK_BYTES;
use crate::export_cache::file::{ExportProgress, export_job_error};
use crate::export_cache::index::ExportIndex;
use crate::export_cache::quota::ExportQuota;
use crate::export_cache::writer::ExportJob;
use strata_store::free_space::DiskReserve;

use crate::maintenance::temp_dir::ProcessTempDir;
use crate::{CacheKey, ReadError};

const MAX_EXPORT_FILES: usize = 4_096;

/// How long the job of an export continues without readers: longer than clients wait before they try again.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Blocks that all export readers read at the same time. Each read uses a thread, and idle threads retain freed memory.
const MAX_CONCURRENT_READS: usize = 8;

pub(crate) struct ExportCache {
    index: Mutex<ExportIndex>,
    disk: DiskReserve,
    grace_period: Duration,
    read_permits: Arc<Semaphore>,
    /// The last field of the cache, so that the files are removed before the directory.
    directory: ProcessTempDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    Made,
    BeingMade,
    TooLarge,
}

pub(crate) enum PrewarmOutcome {
    Built,
    NoSpace,
    Yielded,
    Failed(ReadError),
}

impl ExportCache {
    pub(crate) fn new(
        directory: ProcessTempDir,
        disk: DiskReserve,
        capacity_bytes: u64,
        fair: &config::FairShareConfig,
    ) -> Arc<ExportCache> {
        ExportCache::with_grace_period(
            directory,
            disk,
            ExportQuota::new(capacity_bytes, MAX_EXPORT_FILES, fair),
            GRACE_PERIOD,
        )
    }

    fn with_grace_period(
        directory: ProcessTempDir,
        disk: DiskReserve,
        quota: ExportQuota,
        grace_period: Duration,
    ) -> Arc<ExportCache> {
        let index = Mutex::new(ExportIndex::new(quota));
        let read_permits = Arc::new(Semaphore::new(MAX_CONCURRENT_READS));
        let exports = Arc::new(ExportCache { index, disk, grace_period, read_permits, directory });
        let weak = Arc::downgrade(&exports);
        exports.disk.add_reclaimer(move |is_enough| {
            if let Some(exports) = weak.upgrade() {
                exports.lock_index().evict_until(is_enough);
            }
        });
        exports
    }

    fn lock_index(&self) -> MutexGuard<'_, ExportIndex> {
        self.index.lock()
    }

    pub(crate) fn disk(&self) -> &DiskReserve {
        &self.disk
    }

    /// Returns the export of this key, which `source` builds if no file or job exists; `None` if there is no space.
    pub(crate) async fn get(
        self: &Arc<Self>,
        resources: &ResourceContext,
        key: CacheKey,
        source: ExportSource,
    ) -> Result<Option<CachedExport>, ReadError> {
        let Some((progress, is_new)) = self.subscribe_or_start(resources, key, &source, self.grace_period) else {
            return Ok(None);
        };
        let since = Instant::now();
        let mut export = match CachedExport::open(self.clone(), key, progress, source).await {
            // The job failed at the limits of the principal that started it, so this requester builds its own.
            Err(error) if !is_new && error.is_retryable_by_waiter(since) => return Ok(None),
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(export)) => export,
        };
        // An export of a single block needs no stream permit.
        if export.known_size_bytes().is_none_or(|bytes| bytes > BLOCK_BYTES) {
            export.stream_permit = Some(resources.admission.acquire_stream().await?);
        }
        Ok(Some(export))
    }

    /// Builds the export of this key before a client requests it, unless there is a file or a job. If `yielding`
    /// completes first, or the future is dropped, the job stops, unless a client has since requested it.
    pub(crate) async fn prewarm(
        self: &Arc<Self>,
        resources: &ResourceContext,
        key: CacheKey,
        source: ExportSource,
        yielding: impl Future<Output = ()>,
    ) -> PrewarmOutcome {
        let Some((mut progress, _)) = self.subscribe_or_start(resources, key, &source, Duration::ZERO) else {
            return PrewarmOutcome::NoSpace;
        };
        tokio::select! {
            end = progress.wait_for(ExportProgress::is_finished) => match end.as_deref() {
                Ok(ExportProgress::Written(_)) => PrewarmOutcome::Built,
                Ok(ExportProgress::Failed(error)) => PrewarmOutcome::Failed(error.clone()),
                Ok(ExportProgress::Started | ExportProgress::Abandoned) => PrewarmOutcome::NoSpace,
                Err(_) => PrewarmOutcome::Failed(export_job_error()),
            },
            () = yielding => PrewarmOutcome::Yielded,
        }
    }

    /// Returns the state of the export of this key. The call does not count as a use.
    pub(crate) fn state(&self, key: CacheKey) -> Option<ExportState> {
        let index = self.lock_index();
        match index.entries.get(&key) {
            Some(entry) if entry.is_being_written() => Some(ExportState::BeingMade),
            Some(entry) if entry.complete_file_bytes().is_some() => Some(ExportState::Made),
            _ => index.too_large.contains(&key).then_some(ExportState::TooLarge),
        }
    }

    pub(crate) fn complete_file_bytes(&self, key: CacheKey) -> Option<u64> {
        self.lock_index().entries.get(&key)?.complete_file_bytes()
    }

    /// Returns the progress of an export, and whether this call started its job; `None` if the export does not fit.
    fn subscribe_or_start(
        self: &Arc<Self>,
        resources: &ResourceContext,
        key: CacheKey,
        source: &ExportSource,
        grace_period: Duration,
    ) -> Option<(watch::Receiver<ExportProgress>, bool)> {
        let principal = resources.admission.principal;
        let mut index = self.lock_index();
        if let Some(entry) = index.touch(&key) {
            if entry.is_being_written() || entry.complete_file_bytes().is_some() {
                return Some((entry.progress.subscribe(), false));
            }
            index.remove_complete(&key);
        }
        if index.too_large.contains(&key) || !index.try_reserve(principal, 0, 1) {
            return None;
        }
        index.file_counter += 1;
        let path = self.directory.path().join(format!("{}.parquet", index.file_counter)).into();
        let (progress, receiver) = watch::channel(ExportProgress::Started);
        index.insert(key, principal, progress.clone());
        drop(index);
        let job = ExportJob {
            exports: self.clone(),
            admission: resources.admission.clone(),
            key,
            path,
            progress,
            reserved_bytes: 0,
            grace_period,
            is_finished: false,
        };
        // The job of an export ends by itself when the file is complete or has no readers.
        drop(resources.engine.spawn(job.run(source.clone())).detach());
        Some((receiver, true))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::fixture::{
        ExportFixture, ONE_HOUR, TIMEOUT_ERROR, channel_source, counting_source, new_fixture, read_all,
    };
    use super::*;

    impl ExportFixture {
        async fn prewarm(
            &self,
            number: usize,
            source: &ExportSource,
            yielding: impl Future<Output = ()>,
        ) -> PrewarmOutcome {
            self.exports.prewarm(&self.resources, CacheKey::from_test_number(number), source.clone(), yielding).await
        }
    }

    #[tokio::test]
    async fn prewarmed_export_is_read_from_file() {
        let setup = new_fixture(1_000, ONE_HOUR);
        let (source, build_count) = counting_source(&[b"one ", b"two"]);
        for _ in 0..2 {
            assert!(matches!(setup.prewarm(1, &source, std::future::pending()).await, PrewarmOutcome::Built));
        }
        assert_eq!(setup.exports.complete_file_bytes(CacheKey::from_test_number(1)), Some(7));
        assert_eq!(setup.read(1, &source).await.as_deref(), Some(&b"one two"[..]));
        assert_eq!(build_count.load(Ordering::SeqCst), 1);
        let failing: ExportSource = Arc::new(|_| Box::pin(async { Err(TIMEOUT_ERROR) }));
        assert!(matches!(setup.prewarm(2, &failing, std::future::pending()).await, PrewarmOutcome::Failed(_)));
        assert_eq!(setup.files_and_bytes(), (1, 7));
        let (large, _) = counting_source(&[&[1; 600], &[2; 600]]);
        assert!(matches!(setup.prewarm(3, &large, std::future::pending()).await, PrewarmOutcome::NoSpace));
        assert_eq!(setup.exports.state(CacheKey::from_test_number(3)), Some(ExportState::TooLarge));
    }

    #[tokio::test]
    async fn yielding_prewarm_leaves_nothing() {
        let setup = new_fixture(1_000, ONE_HOUR);
        let (source, sender) = channel_source();
        let send_first_chunk = async {
            sender.send(Ok("half".into())).await.expect("sent");
        };
        assert!(matches!(setup.prewarm(1, &source, send_first_chunk).await, PrewarmOutcome::Yielded));
        // The interrupted prewarm drops its source at once, although jobs for clients have a grace period of an hour.
        drop(source);
        sender.closed().await;
        setup.wait_until_empty().await;
    }

    #[tokio::test]
    async fn prewarm_continues_for_a_reader() {
        let setup = new_fixture(1_000, ONE_HOUR);
        let (source, sender) = channel_source();
        let requested = tokio::sync::Notify::new();
        let yielded = tokio::sync::Notify::new();
        let prewarm = async {
            assert!(matches!(setup.prewarm(1, &source, requested.notified()).await, PrewarmOutcome::Yielded));
            yielded.notify_one();
        };
        let client = async {
            for chunk in ["all", " of"] {
                sender.send(Ok(chunk.into())).await.expect("sent");
            }
            let export = setup.get(1, &source).await.expect("no error").expect("an export");
            requested.notify_one();
            yielded.notified().await;
            sender.send(Ok(" it".into())).await.expect("sent");
            drop(sender);
            assert_eq!(read_all(export.into_chunks()).await.expect("a body"), b"all of it");
        };
        tokio::join!(prewarm, client);
    }
}
