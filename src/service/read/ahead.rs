//! Builds popular Parquet exports in advance, when another version becomes active or latest.
//!
//! 1. Counted reads record which exports of `active` or `latest` they request ([`AskedExports`]).
//! 2. A loop resolves `active` and `latest` periodically, and at once after a change by this process. So it also finds
//!    changes by other processes: a version that was published, pinned or activated, and an alternate.
//! 3. If a popular export has become another one, the loop builds it, one after the other, for the principal that
//!    requested it last: within the shares of that principal in the cache, in memory and in permits.
//!
//! For example, clients request `/api/7/x/active/?format=parquet` every morning. When a refresh publishes v13, the
//! export of v13 is built before the first of them arrives.
//!
//! A job never delays other work. It runs on the threads of the lowest priority. It starts only if no request waits for
//! a permit, most of the memory of queries is free, and the disk has twice its reserve. It stops without a trace as
//! soon as a request waits, or memory or disk is short, and is tried again later. If a client requests the export
//! meanwhile, the job continues.
//!
//! The loop also checks the disk, and evicts exports without readers if something else has filled it.
//!
//! The list of popular exports is in the memory of this process only. `service::exports_ahead` fails without it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strata_runtime::metrics::metrics;
use strata_types::request::ReadRequest;
use strata_types::version::VersionSelector;
use tokio_util::sync::CancellationToken;

use crate::admission::capacity::Capacity;
use crate::export_cache::popularity::{AskedExport, AskedExports};
use crate::export_cache::{ExportState, PrewarmOutcome};
use crate::lookup::Admitted;
use crate::read::Reads;
use crate::{CacheKey, Principal};

/// How often the loop checks for changes by other processes.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Between two checks, regardless of how much changes.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often a job checks whether other work waits.
const YIELD_INTERVAL: Duration = Duration::from_millis(50);

/// How much of the memory of queries can be in use when a job starts.
const BEFORE_PERCENT: u64 = 25;

/// How much of the memory of queries can be in use while a job runs, including its own.
const MEANWHILE_PERCENT: u64 = 75;

/// Maximum length of a query string whose export is remembered. People and tools write much shorter ones.
const QUERY_BYTES: usize = 2 << 10;

pub struct ExportsAhead {
    pub(crate) asked: AskedExports,
    pub(crate) reads: Arc<Reads>,
}

impl ExportsAhead {
    /// Records the request of an export by a query string of `query_bytes`.
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
                tokio::time::sleep(MIN_POLL_INTERVAL).await;
                // A change by this process, or the end of the interval.
                let _ = tokio::time::timeout(POLL_INTERVAL, self.reads.lookups.next_change()).await;
            }
        };
        // A running job stops when it is dropped.
        stop.run_until_cancelled(look).await;
    }

    /// Builds the popular exports that have become other ones, one after the other.
    pub(crate) async fn make_all(&self) {
        for export in self.asked.often(Instant::now()) {
            let Some(admitted) = self.now(&export).await else { continue };
            let Some(key) = CacheKey::of(&admitted, &export.request) else { continue };
            if key == export.key {
                continue;
            }
            // The export of the next version is probably too large, too.
            if self.reads.exports.state(export.key) == Some(ExportState::TooLarge) {
                continue;
            }
            if self.reads.exports.state(key).is_some() {
                self.asked.settle(&export, key);
                continue;
            }
            let capacity = self.reads.capacity.of(admitted.holder).in_background();
            let made = match self.is_in_the_way(&capacity, BEFORE_PERCENT) {
                true => PrewarmOutcome::Yielded,
                false => {
                    let source = self.reads.export_source(&capacity, key, &admitted, &export.request);
                    self.reads.exports.prewarm(&capacity, key, source, self.give_way(&capacity)).await
                }
            };
            let outcome = match &made {
                PrewarmOutcome::Built => "made",
                PrewarmOutcome::NoSpace => "no_room",
                PrewarmOutcome::Yielded => "gave_way",
                // Others use what it needs.
                PrewarmOutcome::Failed(error) if error.is_of_a_share() => "gave_way",
                PrewarmOutcome::Failed(error) => {
                    // A client that requests it gets the error.
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

    /// The target of an export now; `None` if it cannot be read, or the catalog does not respond.
    async fn now(&self, export: &AskedExport) -> Option<Admitted> {
        let resolved = self.reads.lookups.resolve(export.dataset, export.version).await.ok()??;
        // Only its owner can read a dataset that has become private.
        let holder =
            if resolved.dataset.is_private() { Principal::User(resolved.dataset.owner) } else { export.holder };
        if resolved.dataset.frozen {
            return None;
        }
        Admitted::new(&resolved, export.version, export.alt, holder).ok()
    }

    async fn give_way(&self, capacity: &Capacity) {
        loop {
            tokio::time::sleep(YIELD_INTERVAL).await;
            if self.is_in_the_way(capacity, MEANWHILE_PERCENT) {
                return;
            }
        }
    }

    /// Whether a request waits, more than `percent` of the memory of queries is in use, or the disk is short.
    fn is_in_the_way(&self, capacity: &Capacity, percent: u64) -> bool {
        let engine = &capacity.engine;
        let most_bytes = u128::from(engine.all_memory_bytes()) * u128::from(percent) / 100;
        capacity.admission.is_contended()
            || engine.memory_bytes() as u128 > most_bytes
            || !self.reads.exports.disk().is_ample()
    }
}
