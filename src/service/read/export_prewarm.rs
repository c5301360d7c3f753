//! Builds popular Parquet exports in advance, when another version becomes active or latest.
//!
//! For example, clients request `/api/7/x/active/?format=parquet` every morning. When a refresh publishes v13, the
//! export of v13 is built before the first client requests it.
//!
//! 1. Counted reads record which exports of `active` or `latest` they request ([`ExportPopularity`]).
//! 2. A loop resolves `active` and `latest` periodically, and at once after a change by this process.
//! 3. If the selector of a popular export names another version, the loop builds the new export within the resource
//!    shares of the principal that requested it last. It builds one export at a time.
//!
//! A job never delays other work: it runs with the lowest priority, and stops as soon as a request waits, or memory or
//! disk space is short. If a client requests the export in the meantime, the job continues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strata_runtime::metrics::metrics;
use strata_types::read_request::ReadRequest;
use strata_types::version::VersionSelector;
use tokio_util::sync::CancellationToken;

use crate::admission::resource_context::ResourceContext;
use crate::export_cache::popularity::{ExportPopularity, RequestedExport};
use crate::export_cache::{ExportState, PrewarmOutcome};
use crate::lookup::AuthorizedTarget;
use crate::read::ReadService;
use crate::{CacheKey, Principal};

const POLL_INTERVAL: Duration = Duration::from_secs(10);
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);
const YIELD_CHECK_INTERVAL: Duration = Duration::from_millis(50);
const MAX_START_MEMORY_PERCENT: u64 = 25;

/// Maximum percentage of query memory in use while an export is built in advance, including the memory of the build.
const MAX_RUNNING_MEMORY_PERCENT: u64 = 75;

/// The popularity of exports with longer query strings is not tracked. Usual query strings are much shorter.
const MAX_QUERY_STRING_BYTES: usize = 2 << 10;

pub struct ExportPrewarmer {
    pub(crate) popularity: ExportPopularity,
    pub(crate) reads: Arc<ReadService>,
}

impl ExportPrewarmer {
    pub fn record_request(
        &self,
        version: VersionSelector,
        target: &AuthorizedTarget,
        request: &ReadRequest,
        query_bytes: usize,
    ) {
        let follows_versions = matches!(version, VersionSelector::Active | VersionSelector::Latest);
        if !follows_versions || !self.popularity.is_enabled() || query_bytes > MAX_QUERY_STRING_BYTES {
            return;
        }
        let Some(key) = CacheKey::for_request(target, request) else { return };
        let AuthorizedTarget { dataset_id: dataset, variant, principal, .. } = *target;
        let request = Arc::new(request.canonicalize());
        self.popularity
            .record_request(RequestedExport { dataset, version, variant, request, principal, key }, Instant::now());
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let poll = async {
            loop {
                self.reads.export_cache.disk().ensure_free();
                self.prewarm_popular_exports().await;
                tokio::time::sleep(MIN_POLL_INTERVAL).await;
                let _ = tokio::time::timeout(POLL_INTERVAL, self.reads.lookups.local_change.notified()).await;
            }
        };
        stop.run_until_cancelled(poll).await;
    }

    pub(crate) async fn prewarm_popular_exports(&self) {
        for export in self.popularity.popular_exports(Instant::now()) {
            let Some(target) = self.resolve_target(&export).await else { continue };
            let Some(key) = CacheKey::for_request(&target, &export.request) else { continue };
            if key == export.key {
                continue;
            }
            // If the previous version's export was too large for the cache, the next version's probably is, too.
            if self.reads.export_cache.state(export.key) == Some(ExportState::TooLarge) {
                continue;
            }
            if self.reads.export_cache.state(key).is_some() {
                self.popularity.mark_prewarm_done(&export, key);
                continue;
            }
            let resources = self.reads.resources.for_principal(target.principal).for_background();
            let outcome = match self.is_contended(&resources, MAX_START_MEMORY_PERCENT) {
                true => PrewarmOutcome::Yielded,
                false => {
                    let source = self.reads.new_export_source(&resources, key, &target, &export.request);
                    let contended = self.wait_until_contended(&resources);
                    self.reads.export_cache.prewarm(&resources, key, source, contended).await
                }
            };
            let outcome = match &outcome {
                PrewarmOutcome::Built => "made",
                PrewarmOutcome::NoSpace => "no_room",
                PrewarmOutcome::Yielded => "gave_way",
                // Other work of the principal has used up its share of a resource, so the build yields to that work.
                PrewarmOutcome::Failed(error) if error.is_quota_exceeded() => "gave_way",
                PrewarmOutcome::Failed(error) => {
                    tracing::debug!(%error, dataset_id = export.dataset.get(), "failed to build export in advance");
                    "failed"
                }
            };
            metrics().export_prewarms.with_label_values([outcome.into()]).increment(1);
            if outcome == "gave_way" {
                self.popularity.record_prewarm_yield(&export, key);
            } else {
                self.popularity.mark_prewarm_done(&export, key);
            }
        }
    }

    /// Returns the version that an export of `active` or `latest` currently refers to; `None` if it is not readable, or
    /// the catalog does not respond.
    async fn resolve_target(&self, export: &RequestedExport) -> Option<AuthorizedTarget> {
        let resolved = self.reads.lookups.resolve(export.dataset, export.version).await.ok()??;
        // An export of a dataset that has become private is charged to its owner.
        let principal =
            if resolved.dataset.is_private() { Principal::User(resolved.dataset.owner) } else { export.principal };
        if resolved.dataset.frozen {
            return None;
        }
        AuthorizedTarget::new(&resolved, export.version, export.variant, principal).ok()
    }

    async fn wait_until_contended(&self, resources: &ResourceContext) {
        loop {
            tokio::time::sleep(YIELD_CHECK_INTERVAL).await;
            if self.is_contended(resources, MAX_RUNNING_MEMORY_PERCENT) {
                return;
            }
        }
    }

    fn is_contended(&self, resources: &ResourceContext, max_memory_percent: u64) -> bool {
        let engine = &resources.engine;
        let max_bytes = u128::from(engine.total_memory_bytes()) * u128::from(max_memory_percent) / 100;
        resources.admission.is_contended()
            || engine.reserved_memory_bytes() as u128 > max_bytes
            || !self.reads.export_cache.disk().has_ample_space()
    }
}
