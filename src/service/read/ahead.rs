//! Parquet exports that are made before they are asked for: those that were asked for often, when another version
//! takes the place of the one they are of.
//!
//! 1. Reads that count tell which exports they ask for as `active` or `latest` ([`AskedExports`]).
//! 2. A loop looks now and then what `active` and `latest` are, and at once after a change that this process made.
//!    Changes of other processes show so, too: a version that was published, pinned or activated, an alternate.
//! 3. Where an export that is asked for often is another one now, it is made, one after the other, for who asked for it
//!    last: within that holder's shares of the cache, of memory and of permits. Each once, whatever comes of it.
//!
//! It never stands in anybody's way. It runs on the threads of the lowest priority. It begins only where nobody waits
//! for a permit, most of the memory of queries is free, and the disk has twice its reserve, and gives way as soon as
//! somebody waits or memory or disk is short: it then stops, leaves nothing behind, and is tried again later. A client
//! that asks meanwhile finds the making going on, and keeps it going.
//!
//! The loop also looks at the disk: where something else has filled it, exports that nobody reads are dropped.
//!
//! What is asked for is known in the memory of this process alone, and begins anew with each.
//!
//! `service::exports_ahead` protects it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strata_runtime::metrics::metrics;
use strata_types::request::ReadRequest;
use strata_types::version::VersionSelector;
use tokio_util::sync::CancellationToken;

use crate::admission::capacity::Capacity;
use crate::export_cache::popularity::{AskedExport, AskedExports};
use crate::export_cache::{ExportState, MadeAhead};
use crate::lookup::Admitted;
use crate::read::Reads;
use crate::{CacheKey, Principal};

/// How often it looks for changes of other processes.
const LOOK: Duration = Duration::from_secs(10);

/// Between two looks, however much changes.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a making looks whether it is in anybody's way.
const GIVE_WAY: Duration = Duration::from_millis(50);

/// How much of the memory of queries may be taken when a making begins, and while it runs, its own included.
const BEFORE_PERCENT: u64 = 25;
const MEANWHILE_PERCENT: u64 = 75;

/// Bytes of a query string whose export is remembered: those that tools and people write are far shorter.
const QUERY_BYTES: usize = 2 << 10;

pub struct ExportsAhead {
    pub(crate) asked: AskedExports,
    pub(crate) reads: Arc<Reads>,
}

impl ExportsAhead {
    /// Notes that an export was asked for, by a query string of so many bytes.
    pub fn asked(&self, version: VersionSelector, admitted: &Admitted, request: &ReadRequest, query_bytes: usize) {
        let moves = matches!(version, VersionSelector::Active | VersionSelector::Latest);
        if !moves || !self.asked.is_wanted() || query_bytes > QUERY_BYTES {
            return;
        }
        let Some(key) = CacheKey::of(admitted, request) else { return };
        let Admitted { dataset_id: dataset, alt, holder, .. } = *admitted;
        let request = Arc::new(request.canonical());
        self.asked.ask(AskedExport { dataset, version, alt, request, holder, key }, Instant::now());
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let look = async {
            loop {
                self.reads.exports.disk().keep();
                self.make_all().await;
                tokio::time::sleep(PAUSE).await;
                // A change, or time.
                let _ = tokio::time::timeout(LOOK, self.reads.lookups.next_change()).await;
            }
        };
        // Dropped, a making under way stops.
        stop.run_until_cancelled(look).await;
    }

    /// Makes those that are other exports than they were, one after the other.
    pub(crate) async fn make_all(&self) {
        for export in self.asked.often(Instant::now()) {
            let Some(admitted) = self.now(&export).await else { continue };
            let Some(key) = CacheKey::of(&admitted, &export.request) else { continue };
            if key == export.key {
                continue;
            }
            // What was too large is most likely too large again, and would be tried in vain for each version.
            if self.reads.exports.state(export.key) == Some(ExportState::TooLarge) {
                continue;
            }
            if self.reads.exports.state(key).is_some() {
                self.asked.settle(&export, key);
                continue;
            }
            let capacity = self.reads.capacity.of(admitted.holder).in_background();
            let made = match self.is_in_the_way(&capacity, BEFORE_PERCENT) {
                true => MadeAhead::GaveWay,
                false => {
                    let make = self.reads.export_source(&capacity, key, &admitted, &export.request);
                    self.reads.exports.make_ahead(&capacity, key, make, self.give_way(&capacity)).await
                }
            };
            let outcome = match &made {
                MadeAhead::Made => "made",
                MadeAhead::NoRoom => "no_room",
                MadeAhead::GaveWay => "gave_way",
                // Others have what it needs.
                MadeAhead::Failed(error) if error.is_of_a_share() => "gave_way",
                MadeAhead::Failed(error) => {
                    // Who asks for it is told.
                    tracing::debug!(%error, dataset_id = export.dataset.get(), "failed to build export in advance");
                    "failed"
                }
            };
            metrics().exports_ahead.of([outcome.into()]).increment(1);
            if outcome == "gave_way" {
                self.asked.gave_way(&export, key);
            } else {
                self.asked.settle(&export, key);
            }
        }
    }

    /// What an export is of now; `None` where there is nothing that may be read, or the catalog does not answer.
    async fn now(&self, export: &AskedExport) -> Option<Admitted> {
        let resolved = self.reads.lookups.resolve(export.dataset, export.version).await.ok()??;
        // Its owner alone reads a dataset that is private by now.
        let holder =
            if resolved.dataset.is_private() { Principal::User(resolved.dataset.owner) } else { export.holder };
        if resolved.dataset.frozen {
            return None;
        }
        Admitted::new(&resolved, export.version, export.alt, holder).ok()
    }

    async fn give_way(&self, capacity: &Capacity) {
        loop {
            tokio::time::sleep(GIVE_WAY).await;
            if self.is_in_the_way(capacity, MEANWHILE_PERCENT) {
                return;
            }
        }
    }

    /// Whether somebody waits, more than so much of the memory of queries is taken, in percent, or the disk fills.
    fn is_in_the_way(&self, capacity: &Capacity, percent: u64) -> bool {
        let engine = &capacity.engine;
        let most_bytes = u128::from(engine.all_memory_bytes()) * u128::from(percent) / 100;
        capacity.admission.is_contended()
            || engine.memory_bytes() as u128 > most_bytes
            || !self.reads.exports.disk().is_ample()
    }
}
