//! Exports in the store, so that of all servers one builds each.
//!
//! 1. A server that needs an export asks the store for the object of its key ([`object`]), and fetches it, block by
//!    block. A damaged object is removed, and the rest is built.
//! 2. If there is no object, the server builds the export, and then writes it to the store.
//! 3. Servers that build the same export at the same time all write the same bytes, because encoders give the same
//!    bytes each time. A server whose bytes differ from those in the store drops its own.
//!
//! For example, node 1 builds `/api/7/x/v1/?format=parquet`, whose key begins with `e3b0`, and writes
//! `shared-exports/e3/e3b0….parquet`. A client of node 2 resumes the download there: node 2 has no such file, finds
//! the object, and fetches it into its own directory.
//!
//! No request fails because of this. If the store does not respond, each server builds its own.
//!
//! The space in the store is limited. The oldest exports are removed when another one needs the space, or in a sweep. A
//! server that is fetching one of them then builds the rest.

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
use strata_types::causes::Causes;
use strata_types::version::VersionFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::object::{ObjectError, SharedExport};
use crate::admission::capacity::Capacity;
use crate::export_cache::Exports;
use crate::export_cache::checksums::Sums;
use crate::export_cache::file::Written;
use crate::export_cache::reader::rebuilt;
use crate::export_cache::writer::{Chunks, Consumer, ExportBody, ExportSource};
use crate::{CacheKey, ReadError};

/// Version files that are smaller are not worth it: their exports are built in milliseconds.
const MIN_FILE_BYTES: u64 = 1 << 20;

/// One export may take the whole space, divided by this.
const SPACE_DIVISOR: u64 = 4;

/// Exports that are put into the store at once, and fetched by the service: each takes some MiB of memory.
const TRANSFERS: usize = 4;

/// How long a server waits for one of these slots, and for the store to find an export.
const TRANSFER_WAIT: Duration = Duration::from_secs(5);

/// Blocks that the service fetches with a request.
const FETCH_BLOCKS: u64 = 16;

/// Requests at once, by the service.
const FETCHES: usize = 3;

/// Blocks that are fetched with a request for a client whose server has no space for the export, one at a time.
const CLIENT_BLOCKS: u64 = 4;

pub(crate) struct SharedExports {
    store: Store,
    room_bytes: u64,
    transfers: Arc<Semaphore>,
}

impl SharedExports {
    /// `None` if servers share no store, according to the configuration.
    pub(crate) fn new(config: &Config, store: Store) -> Option<Arc<SharedExports>> {
        let room_bytes = config.cache.shared_export_bytes;
        let is_shared = config.has_nodes() && !store.is_local() && room_bytes > 0;
        let transfers = Arc::new(Semaphore::new(TRANSFERS));
        is_shared.then(|| Arc::new(SharedExports { store, room_bytes, transfers }))
    }

    /// The length of an export that is in the store; `None` also if the store does not respond.
    pub(crate) async fn bytes(&self, key: CacheKey) -> Option<u64> {
        timeout(TRANSFER_WAIT, SharedExport::size_bytes(&self.store, key)).await.ok()?.ok()
    }

    async fn open(&self, key: CacheKey) -> Result<SharedExport, ObjectError> {
        timeout(TRANSFER_WAIT, SharedExport::open(&self.store, key)).await.unwrap_or(Err(ObjectError::Busy))
    }

    async fn transfer(&self) -> Result<OwnedSemaphorePermit, ObjectError> {
        let permit = timeout(TRANSFER_WAIT, self.transfers.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(ObjectError::Busy)
    }

    /// Writes an export to the store unless it has one, whose checksums it then returns.
    async fn write(&self, key: CacheKey, exports: &Exports, whole: &Written) -> Result<Option<Sums>, ObjectError> {
        let _transfer = self.transfer().await?;
        match self.open(key).await {
            Ok(first) => return Ok(Some(first.sums)),
            Err(error) if error.is_for_good() => {}
            Err(error) => return Err(error),
        }
        let room_bytes = self.room_bytes - whole.sums.bytes;
        for other in object::surplus(&self.store, room_bytes, DateTime::<Utc>::MIN_UTC).await? {
            object::remove(&self.store, &other.location).await;
        }
        object::write(&self.store, key, exports, whole).await?;
        Ok(None)
    }

    /// Fetches an export that is in the store; otherwise builds it and puts it there.
    pub(crate) fn source(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        file: &VersionFile,
        source: ExportSource,
    ) -> ExportSource {
        if file.size_bytes < MIN_FILE_BYTES {
            return source;
        }
        let capacity = capacity.clone();
        let shared = self.clone();
        Arc::new(move |consumer| {
            let job = SharedExportJob { shared: shared.clone(), key, source: source.clone(), consumer };
            let capacity = capacity.clone();
            Box::pin(async move { job.content(&capacity).await })
        })
    }
}

struct SharedExportJob {
    shared: Arc<SharedExports>,
    key: CacheKey,
    source: ExportSource,
    consumer: Consumer,
}

impl SharedExportJob {
    async fn content(self, capacity: &Capacity) -> Result<ExportBody, ReadError> {
        match self.shared.open(self.key).await {
            Ok(export) if self.consumer == Consumer::Client => {
                // A slow reader takes a permit as other streamed responses do, and little memory.
                let pieces = export.pieces(CLIENT_BLOCKS, 1, capacity.admission.stream().await?);
                return Ok(self.fetched(export, pieces));
            }
            Ok(export) => match self.shared.transfer().await {
                Ok(transfer) => {
                    let pieces = export.pieces(FETCH_BLOCKS, FETCHES, transfer);
                    return Ok(self.fetched(export, pieces));
                }
                Err(error) => self.lost(&error).await,
            },
            Err(error) if error.is_missing() => {}
            Err(error) => self.lost(&error).await,
        }
        let content = (self.source)(self.consumer).await?;
        Ok(ExportBody { publisher: Some(Box::new(|exports, whole| self.put(exports, whole).boxed())), ..content })
    }

    /// The export as it arrives from the store. If that ends early, the rest is built: the same bytes.
    fn fetched(self, export: SharedExport, pieces: BoxStream<'static, Result<Bytes, ObjectError>>) -> ExportBody {
        let SharedExport { totals, sums, .. } = export;
        let bytes = Some(sums.bytes);
        let fetch = Fetch { job: self, pieces: Some(pieces), at: 0 };
        let chunks = stream::try_unfold(fetch, Fetch::next).try_flatten().boxed();
        let publisher = move |_, whole: Written| async move { is_same(&sums, &whole.sums) }.boxed();
        ExportBody { totals, bytes, chunks, publisher: Some(Box::new(publisher)) }
    }

    /// Notes that the object of the store cannot be fetched, at the moment or, if it is damaged, at all.
    async fn lost(&self, error: &ObjectError) {
        let path = object::path_of(self.key);
        tracing::warn!(error = %Causes(error), %path, "failed to fetch shared export; rebuilding it");
        count(error.outcome());
        if error.is_for_good() {
            object::remove(&self.shared.store, &path).await;
        }
    }

    /// Puts an export into the store, unless one is there. Whether this one is the same, so that it may stay.
    async fn put(self, exports: Arc<Exports>, whole: Written) -> bool {
        if whole.sums.bytes > self.shared.room_bytes / SPACE_DIVISOR {
            return true;
        }
        match self.shared.write(self.key, &exports, &whole).await {
            Ok(None) => count("stored"),
            Ok(Some(first)) => {
                count("second");
                return is_same(&first, &whole.sums);
            }
            Err(error) => {
                tracing::warn!(error = %Causes(&error), "failed to share export with other nodes");
                count(error.outcome());
            }
        }
        true
    }
}

fn count(outcome: &'static str) {
    metrics().shared_exports.of([outcome.into()]).increment(1);
}

/// Whether the export of this server is the one that all servers serve.
fn is_same(shared: &Sums, own: &Sums) -> bool {
    let is_same = shared.bytes == own.bytes && shared.blocks() == own.blocks();
    if !is_same {
        tracing::error!("dropped export that differs from the shared one");
    }
    is_same
}

struct Fetch {
    job: SharedExportJob,
    /// `None` once the rest is built.
    pieces: Option<BoxStream<'static, Result<Bytes, ObjectError>>>,
    at: u64,
}

impl Fetch {
    /// The next bytes, or all the rest if it has to be built.
    async fn next(mut self) -> Result<Option<(Chunks, Fetch)>, ReadError> {
        let Some(pieces) = &mut self.pieces else { return Ok(None) };
        let chunks = match pieces.try_next().await {
            Ok(None) => {
                count("fetched");
                return Ok(None);
            }
            Ok(Some(piece)) => {
                self.at += piece.len() as u64;
                stream::once(async { Ok::<Bytes, ReadError>(piece) }).boxed()
            }
            Err(error) => {
                self.pieces = None;
                self.job.lost(&error).await;
                rebuilt(self.job.source.clone(), self.job.consumer, self.at, u64::MAX)
            }
        };
        Ok(Some((chunks, self)))
    }
}
