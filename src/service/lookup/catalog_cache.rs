//! Caches the targets of reads for less than a second, because a lookup costs more than the rest of a small warm read.
//!
//! The cache does not hide changes (docs/reference/api/index.md, Caching):
//! - A change by another process appears within [`TTL`], counted from before the lookup, and at once if the catalog
//!   reports it.
//! - A change by this process appears at once: [`CatalogCache::invalidate`] follows each write, and changes all keys. A
//!   lookup that was running then is cached under a key that no request has.
//!
//! Concurrent lookups of the same target are one lookup.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::future::Cache;
use strata_catalog::{CatalogError, ResolvedDataset};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::lookup::error::ReadError;

/// Maximum age of a cached lookup: half of the second in which a change must appear; a slow lookup can take the rest.
pub(super) const TTL: Duration = Duration::from_millis(500);

/// This number of targets takes about 10 MB. moka evicts rarely used targets.
const MAX_CACHED_TARGETS: u64 = 10_000;

pub(crate) struct CatalogCache {
    cache: Cache<LookupKey, CachedLookup>,
    ttl: Duration,
    generation: AtomicU64,
}

type LookupKey = (u64, DatasetId, VersionSelector);

#[derive(Clone)]
struct CachedLookup {
    started_at: Instant,
    resolved: Option<Arc<ResolvedDataset>>,
}

impl CatalogCache {
    pub(crate) fn new(ttl: Duration) -> CatalogCache {
        let cache = Cache::builder().max_capacity(MAX_CACHED_TARGETS).time_to_live(ttl).build();
        CatalogCache { cache, ttl, generation: AtomicU64::new(0) }
    }

    /// Hides the cached lookups from all later requests. Must be called after each write to the metadata database,
    /// before the response to the write is sent.
    pub(crate) fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) async fn resolve<F>(
        &self,
        id: DatasetId,
        selector: VersionSelector,
        load_target: impl Fn() -> F,
    ) -> Result<Option<Arc<ResolvedDataset>>, ReadError>
    where
        F: Future<Output = Result<Option<ResolvedDataset>, CatalogError>>,
    {
        let key = (self.generation.load(Ordering::SeqCst), id, selector);
        if let Some(cached) = self.cache.get(&key).await
            && cached.started_at.elapsed() <= TTL
        {
            return Ok(cached.resolved);
        }
        let load = async {
            let started_at = Instant::now();
            Ok(CachedLookup { started_at, resolved: load_target().await?.map(Arc::new) })
        };
        // The future is boxed, so that the future of the frequent case, a cached result, stays small.
        let cached = Box::pin(self.cache.try_get_with(key, load)).await;
        let cached = cached.map_err(|error: Arc<CatalogError>| ReadError::from(error))?;
        if cached.started_at.elapsed() <= self.ttl {
            return Ok(cached.resolved);
        }
        // The lookup took long, and an earlier request may have started it, so its result may be too old.
        Ok(Box::pin(load_target()).await?.map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Semaphore;

    use super::*;

    fn target() -> (DatasetId, VersionSelector) {
        (DatasetId::new(1), VersionSelector::Active)
    }

    struct CountingCatalog {
        lookup_count: AtomicUsize,
        permits: Semaphore,
    }

    impl CountingCatalog {
        fn new(permits: usize) -> CountingCatalog {
            CountingCatalog { lookup_count: AtomicUsize::new(0), permits: Semaphore::new(permits) }
        }

        async fn load(&self) -> Result<Option<ResolvedDataset>, CatalogError> {
            self.lookup_count.fetch_add(1, Ordering::SeqCst);
            self.permits.acquire().await.expect("open").forget();
            Ok(None)
        }

        async fn resolve(&self, lookups: &CatalogCache) {
            let (id, selector) = target();
            let resolved = lookups.resolve(id, selector, || self.load()).await.expect("lookup succeeds");
            assert!(resolved.is_none());
        }

        fn lookup_count(&self) -> usize {
            self.lookup_count.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn concurrent_lookups_of_one_target_run_once() {
        let lookups = CatalogCache::new(TTL);
        let catalog = CountingCatalog::new(0);
        let release = async {
            tokio::task::yield_now().await;
            catalog.permits.add_permits(1);
        };
        tokio::join!(catalog.resolve(&lookups), catalog.resolve(&lookups), catalog.resolve(&lookups), release);
        assert_eq!(catalog.lookup_count(), 1);
    }

    #[tokio::test]
    async fn change_invalidates_lookup_in_flight() {
        let lookups = CatalogCache::new(TTL);
        let catalog = CountingCatalog::new(0);
        let change = async {
            tokio::task::yield_now().await;
            assert_eq!(catalog.lookup_count(), 1);
            // The first lookup is still running when the cache is invalidated. The second lookup must neither wait for
            // the result of the first one nor find it later.
            lookups.invalidate();
            catalog.permits.add_permits(2);
            catalog.resolve(&lookups).await;
        };
        tokio::join!(catalog.resolve(&lookups), change);
        assert_eq!(catalog.lookup_count(), 2);
    }

    #[tokio::test]
    async fn stale_lookup_is_not_used() {
        let lookups = CatalogCache::new(TTL);
        let catalog = CountingCatalog::new(9);
        let (id, selector) = target();
        let started_at = Instant::now().checked_sub(TTL + Duration::from_millis(1)).expect("a running machine");
        lookups.cache.insert((0, id, selector), CachedLookup { started_at, resolved: None }).await;
        catalog.resolve(&lookups).await;
        assert_eq!(catalog.lookup_count(), 1);
    }

    #[tokio::test]
    async fn failure_is_not_cached() {
        let lookups = CatalogCache::new(TTL);
        let (id, selector) = target();
        let failed = lookups.resolve(id, selector, async || Err(CatalogError::NotFound)).await;
        assert!(matches!(failed, Err(ReadError::Unreadable(_))), "{failed:?}");
        CountingCatalog::new(1).resolve(&lookups).await;
    }
}
