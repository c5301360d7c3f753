//! Exports in the store, so that of all servers one builds each.
//!
//! 1. A server that needs an export checks in the catalog whether the store has it, and fetches it, block by block.
//!    What is damaged or deleted is forgotten there, and the rest is built.
//! 2. If it is not there, the first server to claim it builds it. Others wait a while, and fetch what was built. One
//!    that has waited for [`WAIT`] builds its own: its client waits for a first byte.
//! 3. What was built is put into the store, and recorded in the catalog. The first one to do so wins. The bytes of
//!    others are the same, because encoders give the same bytes each time; if they are not, theirs are dropped.
//!
//! No request fails because of this. If catalog or store do not respond, each server builds its own.
//!
//! The space in the store is limited ([`ExportRoom`]). The least recently fetched exports are removed, in a sweep or
//! when another one needs the space. A server that is fetching it then builds the rest.

mod object;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use strata_catalog::{Catalog, ExportClaim, ExportRecorded, ExportRoom, SharedExport};
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_store::store::Store;
use strata_types::causes::Causes;
use strata_types::ids::FileId;
use strata_types::version::VersionFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::object::{Blocks, ObjectError, verified};
use crate::admission::capacity::Capacity;
use crate::export_cache::Exports;
use crate::export_cache::file::{Totals, Written};
use crate::export_cache::reader::rebuilt;
use crate::export_cache::writer::{Chunks, Content, Make, Publish, Taker};
use crate::{CacheKey, ReadError};

/// How long a server waits for another one that builds the same export.
const WAIT: Duration = Duration::from_secs(20);

/// Between two looks whether it is built, at first and at last.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(800)];

/// How long a claim lasts unless it is renewed: so long others wait for a server that was killed, at most.
const CLAIM: Duration = Duration::from_secs(15);

/// How often a claim is renewed while the export is built.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// Version files that are smaller are not worth it: their exports are built in milliseconds.
const MIN_FILE_BYTES: u64 = 1 << 20;

/// One export may take the whole space, divided by this.
const SPACE_DIVISOR: u64 = 4;

/// Exports that are put into the store at once, and fetched by the service: each takes some MiB of memory.
const TRANSFERS: usize = 4;

/// How long one waits for a slot among them. A store that stalls takes all of them until its requests fail.
const TRANSFER_WAIT: Duration = Duration::from_secs(5);

pub(crate) struct SharedExports {
    catalog: Catalog,
    store: Store,
    room: ExportRoom,
    transfers: Arc<Semaphore>,
}

impl SharedExports {
    /// `None` if servers share no store, according to the configuration.
    pub(crate) fn new(config: &Config, catalog: Catalog, store: Store) -> Option<Arc<SharedExports>> {
        let room = ExportRoom::of_bytes(config.cache.shared_export_bytes);
        let is_shared = config.has_nodes() && !store.is_local() && room.bytes > 0;
        let transfers = Arc::new(Semaphore::new(TRANSFERS));
        is_shared.then(|| Arc::new(SharedExports { catalog, store, room, transfers }))
    }

    /// The length of an export that is in the store; `None` also if the catalog does not respond.
    pub(crate) async fn bytes(&self, key: CacheKey) -> Option<u64> {
        self.catalog.shared_export(&key.whole()).await.ok().flatten().map(|export| export.size_bytes)
    }

    async fn transfer(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(TRANSFER_WAIT, self.transfers.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Fetches an export that is in the store; otherwise builds it and puts it there.
    pub(crate) fn maker(self: &Arc<Self>, capacity: &Capacity, key: CacheKey, file: &VersionFile, make: Make) -> Make {
        if file.size_bytes < MIN_FILE_BYTES {
            return make;
        }
        let capacity = capacity.clone();
        let shared = self.clone();
        let file = file.id;
        Arc::new(move |taker| {
            let job = SharedExportJob { shared: shared.clone(), name: key.whole(), file, make: make.clone(), taker };
            let capacity = capacity.clone();
            Box::pin(async move { job.content(&capacity).await })
        })
    }
}

#[derive(Clone)]
struct SharedExportJob {
    shared: Arc<SharedExports>,
    name: String,
    file: FileId,
    make: Make,
    taker: Taker,
}

impl SharedExportJob {
    async fn content(self, capacity: &Capacity) -> Result<Content, ReadError> {
        let mut claim = None;
        // Once more, if what there is turns out to be none.
        for _ in 0..2 {
            let Some(export) = self.find(&mut claim).await else { break };
            let opened = match self.taker {
                // It has a slow reader: it takes a permit as other streamed responses do, and little memory.
                Taker::Client => {
                    let permit = capacity.admission.stream().await?;
                    Blocks::open(&self.shared.store, &export, self.taker, permit).await
                }
                Taker::Service => match self.shared.transfer().await {
                    Some(transfer) => Blocks::open(&self.shared.store, &export, self.taker, transfer).await,
                    None => Err(ObjectError::Busy),
                },
            };
            match opened {
                Ok(blocks) => return Ok(self.fetched(export, blocks)),
                Err(error) => {
                    self.lost(&export, &error).await;
                    if let ObjectError::Busy = error {
                        break;
                    }
                }
            }
        }
        let content = (self.make)(self.taker).await?;
        let publish = (self.taker == Taker::Service).then(|| self.publisher(claim));
        Ok(Content { publish, ..content })
    }

    /// The export, if it is in the store. If not, the service claims it, or waits for the server that has claimed it.
    async fn find(&self, claim: &mut Option<DropGuard>) -> Option<SharedExport> {
        let catalog = &self.shared.catalog;
        let maker = hex::encode(rand::random::<[u8; 16]>());
        let until = Instant::now() + WAIT;
        let mut pause = POLL_INTERVALS[0];
        loop {
            let found = match self.taker {
                Taker::Client => catalog.shared_export(&self.name).await.map(|found| found.map(ExportClaim::Made)),
                Taker::Service => catalog.claim_export(&self.name, self.file, &maker, CLAIM).await.map(Some),
            };
            match found {
                Ok(Some(ExportClaim::Made(export))) => return Some(export),
                Ok(Some(ExportClaim::Granted)) => {
                    *claim = Some(self.renewed(maker));
                    return None;
                }
                Ok(Some(ExportClaim::Anothers)) if Instant::now() < until => sleep(pause).await,
                Ok(Some(ExportClaim::Anothers) | None) => return None,
                Err(error) => {
                    tracing::debug!(error = %Causes(&error), "failed to look up shared export");
                    return None;
                }
            }
            pause = (2 * pause).min(POLL_INTERVALS[1]);
        }
    }

    /// Renews a claim until it is dropped. Then it ends, and others may build the export if it is not there.
    fn renewed(&self, maker: String) -> DropGuard {
        let job = self.clone();
        let dropped = CancellationToken::new();
        let claim = dropped.clone().drop_guard();
        tokio::spawn(async move {
            let SharedExports { catalog, .. } = &*job.shared;
            // A renewal that has begun ends before the claim does.
            while dropped.run_until_cancelled(sleep(RENEWAL_INTERVAL)).await.is_some() {
                // If the catalog does not respond, the claim may end: then two build it.
                if let Ok(ExportClaim::Made(_)) = catalog.claim_export(&job.name, job.file, &maker, CLAIM).await {
                    return;
                }
            }
            if let Err(error) = catalog.release_export(&job.name, &maker).await {
                tracing::debug!(%error, "failed to release claim on export");
            }
        });
        claim
    }

    /// The export as it arrives from the store. If that ends early, the rest is built: the same bytes.
    fn fetched(self, export: SharedExport, blocks: Blocks) -> Content {
        let totals = Totals { total: export.entity_count, matches: export.match_count };
        let bytes = Some(export.size_bytes);
        let fetch = Fetch { job: self, export, blocks: Some(blocks), at: 0 };
        let chunks = stream::try_unfold(fetch, Fetch::next).try_flatten();
        Content { bytes, ..Content::new(totals, chunks.boxed()) }
    }

    /// Notes that what the store has is none, or cannot be fetched at the moment.
    async fn lost(&self, export: &SharedExport, error: &ObjectError) {
        let SharedExports { catalog, store, .. } = &*self.shared;
        tracing::warn!(error = %Causes(error), path = export.path, "failed to fetch shared export; rebuilding it");
        count(match error {
            ObjectError::Busy => "busy",
            error if error.is_for_good() => "damaged",
            _ => "failed",
        });
        if error.is_for_good() && catalog.forget_export(&self.name, &export.path).await.is_ok() {
            object::remove(store, &export.path).await;
        }
    }

    fn publisher(self, claim: Option<DropGuard>) -> Publish {
        Box::new(move |exports, whole| {
            Box::pin(async move {
                let may_stay = self.put(&exports, &whole).await;
                // Not before others can fetch it.
                drop(claim);
                may_stay
            })
        })
    }

    /// Puts an export into the store, unless one is there. Whether this one is the same, so that it may stay.
    async fn put(&self, exports: &Exports, whole: &Written) -> bool {
        let SharedExports { catalog, store, room, .. } = &*self.shared;
        if whole.sums.bytes > room.bytes / SPACE_DIVISOR {
            return true;
        }
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::warn!(error = %Causes(error), "failed to share export with other nodes");
            count("failed");
            true
        };
        match catalog.shared_export(&self.name).await {
            Ok(None) => {}
            Ok(Some(first)) => return is_the_same(&first, whole),
            Err(error) => return failed(&error),
        }
        let Some(_transfer) = self.shared.transfer().await else {
            count("busy");
            return true;
        };
        let path = object::new_path();
        if let Err(error) = object::write(store, &path, exports, whole).await {
            return failed(&error);
        }
        let Totals { total, matches } = whole.file.totals;
        let export = SharedExport {
            path,
            size_bytes: whole.sums.bytes,
            entity_count: total,
            match_count: matches,
            checksum: object::checksum(&whole.sums),
        };
        match catalog.record_export(&self.name, self.file, &export, *room).await {
            Ok(ExportRecorded::First(dropped)) => {
                count("stored");
                for other in dropped {
                    object::remove(store, &other.path).await;
                }
                true
            }
            Ok(ExportRecorded::Second(first)) => {
                count("second");
                object::remove(store, &export.path).await;
                is_the_same(&first, whole)
            }
            // It may have been recorded all the same. If not, a sweep removes the object.
            Err(error) => failed(&error),
        }
    }
}

fn count(outcome: &'static str) {
    metrics().shared_exports.of([outcome.into()]).increment(1);
}

/// Whether the export that was built here is the one that all servers serve.
fn is_the_same(first: &SharedExport, whole: &Written) -> bool {
    let is_same = first.size_bytes == whole.sums.bytes && first.checksum == object::checksum(&whole.sums);
    if !is_same {
        tracing::error!(path = first.path, "dropped export that differs from the shared one");
    }
    is_same
}

struct Fetch {
    job: SharedExportJob,
    export: SharedExport,
    /// `None` once the rest is built.
    blocks: Option<Blocks>,
    at: u64,
}

impl Fetch {
    /// The next bytes, or all the rest if it has to be built.
    async fn next(mut self) -> Result<Option<(Chunks, Fetch)>, ReadError> {
        let Some(blocks) = &mut self.blocks else { return Ok(None) };
        let chunks = match blocks.pieces.try_next().await {
            Ok(None) => {
                count("fetched");
                return Ok(None);
            }
            Ok(Some(piece)) => {
                self.at += piece.len() as u64;
                stream::once(async { Ok::<Bytes, ReadError>(piece) }).boxed()
            }
            Err(error) => {
                let sums = blocks.sums.clone();
                self.blocks = None;
                self.job.lost(&self.export, &error).await;
                let rest = rebuilt(self.job.make.clone(), self.job.taker, self.at, u64::MAX);
                verified(rest, sums, self.at)
            }
        };
        Ok(Some((chunks, self)))
    }
}
