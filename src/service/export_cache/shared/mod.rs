//! Exports in the store, so that only one of the servers builds each export.
//!
//! 1. A server fetches the object of an export ([`object`]) block by block. A damaged object is removed, and the rest
//!    built.
//! 2. If there is no object, the server builds the export, and then writes it to the store.
//! 3. Servers that build the same export at the same time write the same bytes, because encoders are deterministic. A
//!    server whose bytes differ from the object in the store drops its own export.
//!
//! For example, node 1 builds `/api/7/x/v1/?format=parquet`, whose key begins with `e3b0`, and writes
//! `shared-exports/e3/e3b0….parquet`. If a client resumes the download at node 2, that node fetches the object.
//!
//! No request fails because of the store. The oldest exports are removed if another export needs the space.

pub(crate) mod object;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_store::store::Store;
use strata_types::error_chain::ErrorChain;
use strata_types::version::VersionFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::object::{SharedExport, SharedExportError};
use crate::admission::resource_context::ResourceContext;
use crate::export_cache::ExportCache;
use crate::export_cache::checksums::BlockChecksums;
use crate::export_cache::file::WrittenExport;
use crate::export_cache::reader::rebuild_range;
use crate::export_cache::writer::{ExportBody, ExportChunks, ExportConsumer, ExportSource};
use crate::{CacheKey, ReadError};

/// Exports of smaller version files are not shared, because building them takes milliseconds.
const MIN_SHARED_FILE_BYTES: u64 = 1 << 20;

/// A single export can use the space of all shared exports, divided by this number.
const EXPORT_SPACE_DIVISOR: u64 = 4;
const MAX_TRANSFERS: usize = 4;

/// How long a server waits for a transfer slot, and for the store to open an export.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
const SERVICE_FETCH_BLOCKS: u64 = 16;
const MAX_SERVICE_FETCHES: usize = 3;

/// Blocks per store request, one at a time, for a client of a server that has no space to cache the shared export.
const CLIENT_FETCH_BLOCKS: u64 = 4;

pub(crate) struct SharedExportStore {
    store: Store,
    max_bytes: u64,
    transfers: Arc<Semaphore>,
}

impl SharedExportStore {
    pub(crate) fn new(config: &Config, store: Store) -> Option<Arc<SharedExportStore>> {
        let max_bytes = config.cache.shared_export_bytes;
        let is_shared = config.has_node_registration() && !store.is_local() && max_bytes > 0;
        let transfers = Arc::new(Semaphore::new(MAX_TRANSFERS));
        is_shared.then(|| Arc::new(SharedExportStore { store, max_bytes, transfers }))
    }

    pub(crate) async fn export_bytes(&self, key: CacheKey) -> Option<u64> {
        timeout(TRANSFER_TIMEOUT, SharedExport::fetch_size_bytes(&self.store, key)).await.ok()?.ok()
    }

    async fn open(&self, key: CacheKey) -> Result<SharedExport, SharedExportError> {
        timeout(TRANSFER_TIMEOUT, SharedExport::open(&self.store, key)).await.unwrap_or(Err(SharedExportError::Busy))
    }

    async fn acquire_transfer_permit(&self) -> Result<OwnedSemaphorePermit, SharedExportError> {
        let permit = timeout(TRANSFER_TIMEOUT, self.transfers.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(SharedExportError::Busy)
    }

    async fn write_if_absent(
        &self,
        key: CacheKey,
        exports: &ExportCache,
        written: &WrittenExport,
    ) -> Result<Option<BlockChecksums>, SharedExportError> {
        let _transfer = self.acquire_transfer_permit().await?;
        match self.open(key).await {
            Ok(existing) => return Ok(Some(existing.checksums)),
            Err(error) if error.is_permanent() => {}
            Err(error) => return Err(error),
        }
        let max_bytes = self.max_bytes - written.checksums.size_bytes;
        for other in object::find_surplus_exports(&self.store, max_bytes, DateTime::<Utc>::MIN_UTC).await? {
            object::remove_object(&self.store, &other.location).await;
        }
        object::write_object(&self.store, key, exports, written).await?;
        Ok(None)
    }

    pub(crate) fn wrap_source(
        self: &Arc<Self>,
        resources: &ResourceContext,
        key: CacheKey,
        file: &VersionFile,
        source: ExportSource,
    ) -> ExportSource {
        if file.size_bytes < MIN_SHARED_FILE_BYTES {
            return source;
        }
        let resources = resources.clone();
        let shared = self.clone();
        Arc::new(move |consumer| {
            let job = SharedExportJob { shared: shared.clone(), key, source: source.clone(), consumer };
            let resources = resources.clone();
            Box::pin(async move { job.fetch_or_build(&resources).await })
        })
    }
}

struct SharedExportJob {
    shared: Arc<SharedExportStore>,
    key: CacheKey,
    source: ExportSource,
    consumer: ExportConsumer,
}

impl SharedExportJob {
    async fn fetch_or_build(self, resources: &ResourceContext) -> Result<ExportBody, ReadError> {
        match self.shared.open(self.key).await {
            Ok(export) if self.consumer == ExportConsumer::Client => {
                // A response to a slow client needs a permit, like any streamed response, but little memory.
                let chunks = export.fetch_all(CLIENT_FETCH_BLOCKS, 1, resources.admission.acquire_stream().await?);
                return Ok(self.into_fetched_body(export, chunks));
            }
            Ok(export) => match self.shared.acquire_transfer_permit().await {
                Ok(transfer) => {
                    let chunks = export.fetch_all(SERVICE_FETCH_BLOCKS, MAX_SERVICE_FETCHES, transfer);
                    return Ok(self.into_fetched_body(export, chunks));
                }
                Err(error) => self.record_fetch_failure(&error).await,
            },
            Err(error) if error.is_missing() => {}
            Err(error) => self.record_fetch_failure(&error).await,
        }
        let body = (self.source)(self.consumer).await?;
        Ok(ExportBody { publisher: Some(Box::new(|exports, written| self.publish(exports, written).boxed())), ..body })
    }

    /// Returns an export body as it arrives from the store. If the fetch fails, builds the rest with the same bytes.
    fn into_fetched_body(
        self,
        export: SharedExport,
        chunks: BoxStream<'static, Result<Bytes, SharedExportError>>,
    ) -> ExportBody {
        let SharedExport { totals, checksums, .. } = export;
        let size_bytes = Some(checksums.size_bytes);
        let fetch = SharedExportFetch { job: self, chunks: Some(chunks), position: 0 };
        let chunks = stream::try_unfold(fetch, SharedExportFetch::next_chunks).try_flatten().boxed();
        let publisher =
            move |_, written: WrittenExport| async move { is_same_content(&checksums, &written.checksums) }.boxed();
        ExportBody { totals, size_bytes, chunks, publisher: Some(Box::new(publisher)) }
    }

    async fn record_fetch_failure(&self, error: &SharedExportError) {
        let path = object::object_path(self.key);
        tracing::warn!(error = %ErrorChain(error), %path, "failed to fetch shared export; rebuilding it");
        count_shared_export_outcome(error.metric_outcome());
        if error.is_permanent() {
            object::remove_object(&self.shared.store, &path).await;
        }
    }

    /// Writes an export to the store unless it is there. Returns whether the local file equals the shared export.
    async fn publish(self, exports: Arc<ExportCache>, written: WrittenExport) -> bool {
        if written.checksums.size_bytes > self.shared.max_bytes / EXPORT_SPACE_DIVISOR {
            return true;
        }
        match self.shared.write_if_absent(self.key, &exports, &written).await {
            Ok(None) => count_shared_export_outcome("stored"),
            Ok(Some(existing)) => {
                count_shared_export_outcome("second");
                return is_same_content(&existing, &written.checksums);
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "failed to share export with other nodes");
                count_shared_export_outcome(error.metric_outcome());
            }
        }
        true
    }
}

fn count_shared_export_outcome(outcome: &'static str) {
    metrics().shared_exports.with_label_values([outcome.into()]).increment(1);
}

fn is_same_content(shared: &BlockChecksums, own: &BlockChecksums) -> bool {
    let is_same = shared.size_bytes == own.size_bytes && shared.block_checksums() == own.block_checksums();
    if !is_same {
        tracing::error!("dropped export that differs from the shared one");
    }
    is_same
}

struct SharedExportFetch {
    job: SharedExportJob,
    chunks: Option<BoxStream<'static, Result<Bytes, SharedExportError>>>,
    position: u64,
}

impl SharedExportFetch {
    async fn next_chunks(mut self) -> Result<Option<(ExportChunks, SharedExportFetch)>, ReadError> {
        let Some(fetched) = &mut self.chunks else { return Ok(None) };
        let chunks = match fetched.try_next().await {
            Ok(None) => {
                count_shared_export_outcome("fetched");
                return Ok(None);
            }
            Ok(Some(chunk)) => {
                self.position += chunk.len() as u64;
                stream::once(async { Ok::<Bytes, ReadError>(chunk) }).boxed()
            }
            Err(error) => {
                self.chunks = None;
                self.job.record_fetch_failure(&error).await;
                rebuild_range(self.job.source.clone(), self.job.consumer, self.position, u64::MAX)
            }
        };
        Ok(Some((chunks, self)))
    }
}
