//! Exports that lie in the store, so that of all servers one makes each.
//!
//! 1. Who needs an export looks in the catalog whether the store has it, and fetches it, block by block. What is
//!    damaged or gone is forgotten there, and the rest is made.
//! 2. If it is not there, whoever claims it first makes it. Others wait a while, and fetch what was made. One that has
//!    waited for [`WAIT`] makes its own: its client waits for a first byte.
//! 3. What was made is put into the store, and recorded in the catalog. The first one to do so wins. The bytes of
//!    others are the same, because encoders give the same bytes each time; where they are not, theirs are dropped.
//!
//! No request fails because of this. Where catalog or store do not answer, each server makes its own.
//!
//! What lies in the store is bounded ([`ExportRoom`]): what was fetched least recently goes, in a sweep or when another
//! one needs its room. A server that is fetching it then makes the rest.

mod claim;
mod object;

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use strata_catalog::{Catalog, ExportClaim, ExportRecorded, ExportRoom, SharedExport};
use strata_config::Config;
use strata_runtime::metrics::metrics;
use strata_store::store::Store;
use strata_types::causes::Causes;
use strata_types::ids::FileId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use self::claim::Claim;
use self::object::{Blocks, ObjectError, verified};
use crate::admission::capacity::Capacity;
use crate::export_cache::index::Files;
use crate::export_cache::making::{Content, Keep, Make, Taker};
use crate::export_cache::progress::{MadeFile, Totals};
use crate::export_cache::serving::remade;
use crate::{CacheKey, ReadError};

/// How long a server waits for another one that makes the same export.
const WAIT: Duration = Duration::from_secs(20);

/// Between two looks whether it is made, at first and at last.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(800)];

/// Version files that are smaller are not worth it: their exports are made in milliseconds.
const WORTH_BYTES: u64 = 1 << 20;

/// Of all the room, what one export may take.
const ONE_OF: u64 = 4;

/// Exports that are put into the store at once, and fetched by the service: each takes some MiB of memory.
const TRANSFERS: usize = 4;

/// How long a place among them is waited for. A store that stalls holds all of them until its requests fail.
const TURN: Duration = Duration::from_secs(5);

pub(crate) struct SharedExports {
    catalog: Catalog,
    store: Store,
    room: ExportRoom,
    transfers: Arc<Semaphore>,
}

enum Found {
    Made(SharedExport),
    /// It is to be made, and others wait for it.
    Claimed(Claim),
    /// It is to be made for one server alone.
    Nothing,
}

impl SharedExports {
    /// Those of this configuration; `None` where servers share no store.
    pub(crate) fn new(config: &Config, catalog: Catalog, store: Store) -> Option<Arc<SharedExports>> {
        let room = ExportRoom::of_bytes(config.cache.shared_export_bytes);
        let is_shared = config.has_nodes() && !store.is_local() && room.bytes > 0;
        let transfers = Arc::new(Semaphore::new(TRANSFERS));
        is_shared.then(|| Arc::new(SharedExports { catalog, store, room, transfers }))
    }

    /// The length of an export that lies in the store; `None` also where the catalog does not answer.
    pub(crate) async fn bytes(&self, key: CacheKey) -> Option<u64> {
        self.catalog.shared_export(&key.whole()).await.ok().flatten().map(|export| export.size_bytes)
    }

    async fn transfer(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(TURN, self.transfers.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Fetches an export that is in the store; otherwise makes it and puts it there.
    pub(crate) fn maker(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        (file, file_bytes): (FileId, u64),
        make: Make,
    ) -> Make {
        if file_bytes < WORTH_BYTES {
            return make;
        }
        let (shared, capacity) = (self.clone(), capacity.clone());
        Arc::new(move |taker| {
            let asked = Asked { shared: shared.clone(), name: key.whole(), file, make: make.clone() };
            let capacity = capacity.clone();
            Box::pin(async move { asked.content(&capacity, taker).await })
        })
    }
}

struct Asked {
    shared: Arc<SharedExports>,
    name: String,
    file: FileId,
    make: Make,
}

impl Asked {
    async fn content(self, capacity: &Capacity, taker: Taker) -> Result<Content, ReadError> {
        // Once more, if what there is turns out to be none.
        for _ in 0..2 {
            match self.find(taker).await {
                Found::Nothing => break,
                Found::Claimed(claim) => {
                    let content = (self.make)(taker).await?;
                    return Ok(Content { keep: Some(self.keeper(Some(claim))), ..content });
                }
                Found::Made(export) => match self.open(capacity, &export, taker).await? {
                    Ok(blocks) => return Ok(self.fetched(export, blocks, taker)),
                    Err(error) => {
                        self.lost(&export, &error).await;
                        if let ObjectError::Busy = error {
                            break;
                        }
                    }
                },
            }
        }
        let content = (self.make)(taker).await?;
        Ok(match taker {
            Taker::Client => content,
            Taker::Service => Content { keep: Some(self.keeper(None)), ..content },
        })
    }

    /// Looks for it. The service claims it, or waits for who has.
    async fn find(&self, taker: Taker) -> Found {
        let catalog = &self.shared.catalog;
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::debug!(error = %Causes(error), "failed to look up shared export");
            Found::Nothing
        };
        if taker == Taker::Client {
            return match catalog.shared_export(&self.name).await {
                Ok(found) => found.map_or(Found::Nothing, Found::Made),
                Err(error) => failed(&error),
            };
        }
        let (maker, until, mut pause) = (Claim::new_maker(), Instant::now() + WAIT, LOOKS[0]);
        loop {
            match catalog.claim_export(&self.name, self.file, &maker, claim::LASTS).await {
                Ok(ExportClaim::Made(export)) => return Found::Made(export),
                Ok(ExportClaim::Granted) => {
                    return Found::Claimed(Claim::renewed(catalog.clone(), self.name.clone(), self.file, maker));
                }
                Ok(ExportClaim::Anothers) if Instant::now() < until => tokio::time::sleep(pause).await,
                Ok(ExportClaim::Anothers) => return Found::Nothing,
                Err(error) => return failed(&error),
            }
            pause = (2 * pause).min(LOOKS[1]);
        }
    }

    async fn open(
        &self,
        capacity: &Capacity,
        export: &SharedExport,
        taker: Taker,
    ) -> Result<Result<Blocks, ObjectError>, ReadError> {
        // A client may be slow: it holds one of the places for streamed answers, and little memory.
        let held = match taker {
            Taker::Client => (Some(capacity.admission.stream().await?), None),
            Taker::Service => match self.shared.transfer().await {
                None => return Ok(Err(ObjectError::Busy)),
                transfer => (None, transfer),
            },
        };
        Ok(Blocks::open(&self.shared.store, export, taker, held).await)
    }

    /// It as it comes from the store. Where that ends early, the rest is made: the same bytes.
    fn fetched(self, export: SharedExport, blocks: Blocks, taker: Taker) -> Content {
        let totals = Totals { total: export.entity_count, matches: export.match_count };
        let bytes = export.size_bytes;
        let reading = Reading { asked: self, export, taker, at: 0, source: Source::Store(blocks) };
        let chunks = futures::stream::try_unfold(reading, |mut reading| async move {
            Ok(reading.next().await?.map(|chunk| (chunk, reading)))
        });
        Content { bytes: Some(bytes), ..Content::new(totals, chunks.boxed()) }
    }

    /// Notes that what the store has is none, or cannot be fetched at the moment.
    async fn lost(&self, export: &SharedExport, error: &ObjectError) {
        let SharedExports { catalog, store, .. } = &*self.shared;
        tracing::warn!(error = %Causes(error), path = export.path, "failed to fetch shared export; rebuilding it");
        let outcome = match error {
            ObjectError::Busy => "busy",
            error if error.is_for_good() => "damaged",
            _ => "failed",
        };
        metrics().shared_exports.of([outcome.into()]).increment(1);
        if error.is_for_good() && catalog.forget_export(&self.name, &export.path).await.is_ok() {
            object::remove(store, &export.path).await;
        }
    }

    fn keeper(&self, claim: Option<Claim>) -> Keep {
        let (shared, name, file) = (self.shared.clone(), self.name.clone(), self.file);
        Box::new(move |files, made| {
            Box::pin(async move {
                let kept = shared.put(&name, file, &files, &made).await;
                // Not before others can fetch it.
                drop(claim);
                kept
            })
        })
    }
}

impl SharedExports {
    /// Puts an export into the store, unless one is there. Whether this one is the same, so that it may be kept.
    async fn put(&self, name: &str, file: FileId, files: &Arc<Files>, made: &Arc<MadeFile>) -> bool {
        if made.bytes > self.room.bytes / ONE_OF {
            return true;
        }
        let counted = |outcome: &'static str| metrics().shared_exports.of([outcome.into()]).increment(1);
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::warn!(error = %Causes(error), "failed to share export with other nodes");
            counted("failed");
            true
        };
        match self.catalog.shared_export(name).await {
            Ok(None) => {}
            Ok(Some(first)) => return is_the_same(&first, made),
            Err(error) => return failed(&error),
        }
        let Some(_transfer) = self.transfer().await else {
            counted("busy");
            return true;
        };
        let path = object::new_path();
        if let Err(error) = object::write(&self.store, &path, files, made).await {
            return failed(&error);
        }
        let export = SharedExport {
            path,
            size_bytes: made.bytes,
            entity_count: made.totals.total,
            match_count: made.totals.matches,
            checksum: object::checksum(made),
        };
        match self.catalog.record_export(name, file, &export, self.room).await {
            Ok(ExportRecorded::First(dropped)) => {
                counted("stored");
                for other in dropped {
                    object::remove(&self.store, &other.path).await;
                }
                true
            }
            Ok(ExportRecorded::Second(first)) => {
                counted("second");
                object::remove(&self.store, &export.path).await;
                is_the_same(&first, made)
            }
            // It may have been recorded all the same. If not, a sweep removes the object.
            Err(error) => failed(&error),
        }
    }
}

/// Whether what was made here is what all servers serve.
fn is_the_same(first: &SharedExport, made: &MadeFile) -> bool {
    let is_same = (first.size_bytes, first.checksum) == (made.bytes, object::checksum(made));
    if !is_same {
        tracing::error!(path = first.path, "dropped export that differs from the shared one");
    }
    is_same
}

struct Reading {
    asked: Asked,
    export: SharedExport,
    taker: Taker,
    at: u64,
    source: Source,
}

enum Source {
    Store(Blocks),
    Made(BoxStream<'static, Result<bytes::Bytes, ReadError>>),
}

impl Reading {
    async fn next(&mut self) -> Result<Option<bytes::Bytes>, ReadError> {
        let chunk = match &mut self.source {
            Source::Made(chunks) => chunks.try_next().await?,
            Source::Store(blocks) => match blocks.next().await {
                Ok(None) => {
                    metrics().shared_exports.of(["fetched".into()]).increment(1);
                    None
                }
                Ok(chunk) => chunk,
                Err(error) => {
                    let sums = blocks.sums.clone();
                    self.asked.lost(&self.export, &error).await;
                    let made = remade(self.asked.make.clone(), self.taker, self.at, u64::MAX);
                    let mut made = verified(made.boxed(), sums, self.at, self.export.size_bytes);
                    let first = made.try_next().await?;
                    self.source = Source::Made(made);
                    first
                }
            },
        };
        self.at += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Ok(chunk)
    }
}
