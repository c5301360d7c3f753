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
use strata_catalog::{CatalogError, Resolved};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::lookup::error::ReadError;

/// Maximum age of a lookup: half of the time in which a change must appear. The other half is for a slow read.
pub(super) const TTL: Duration = Duration::from_millis(500);

/// Number of targets, in about 10 MB. The most frequent ones stay.
const TARGETS: u64 = 10_000;

pub(crate) struct CatalogCache {
    cache: Cache<Key, CachedLookup>,
    ttl: Duration,
    changes: AtomicU64,
}

type Key = (u64, DatasetId, VersionSelector);

#[derive(Clone)]
struct CachedLookup {
    asked: Instant,
    resolved: Option<Arc<Resolved>>,
}

impl CatalogCache {
    pub(crate) fn new(ttl: Duration) -> CatalogCache {
        let cache = Cache::builder().max_capacity(TARGETS).time_to_live(ttl).build();
        CatalogCache { cache, ttl, changes: AtomicU64::new(0) }
    }

    /// Must be called after each write to the catalog, before its response is sent.
    pub(crate) fn invalidate(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The result of `ask` for a target ([`Catalog::resolve_read`]), or the cached one.
    ///
    /// [`Catalog::resolve_read`]: strata_catalog::Catalog::resolve_read
    pub(super) async fn resolve<F>(
        &self,
        id: DatasetId,
        selector: VersionSelector,
        ask: impl Fn() -> F,
    ) -> Result<Option<Arc<Resolved>>, ReadError>
    where
        F: Future<Output = Result<Option<Resolved>, CatalogError>>,
    {
        let key = (self.changes.load(Ordering::SeqCst), id, selector);
        if let Some(cached) = self.cache.get(&key).await
            && cached.asked.elapsed() <= TTL
        {
            return Ok(cached.resolved);
        }
        let load = async {
            let asked = Instant::now();
            Ok(CachedLookup { asked, resolved: ask().await?.map(Arc::new) })
        };
        // In a box: a cached answer is more frequent.
        let cached = Box::pin(self.cache.try_get_with(key, load)).await;
        let cached = cached.map_err(|error: Arc<CatalogError>| ReadError::from(error))?;
        if cached.asked.elapsed() <= self.ttl {
            return Ok(cached.resolved);
        }
        // The lookup took long, and another request may have started it.
        Ok(Box::pin(ask()).await?.map(Arc::new))
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

    /// A catalog that counts its questions, and answers when it is let.
    struct Asked {
        questions: AtomicUsize,
        answers: Semaphore,
    }

    impl Asked {
        fn new(answers: usize) -> Asked {
            Asked { questions: AtomicUsize::new(0), answers: Semaphore::new(answers) }
        }

        async fn answer(&self) -> Result<Option<Resolved>, CatalogError> {
            self.questions.fetch_add(1, Ordering::SeqCst);
            self.answers.acquire().await.expect("open").forget();
            Ok(None)
        }

        async fn resolve(&self, lookups: &CatalogCache) {
            let (id, selector) = target();
            let resolved = lookups.resolve(id, selector, || self.answer()).await.expect("an answer");
            assert!(resolved.is_none());
        }

        fn questions(&self) -> usize {
            self.questions.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn concurrent_lookups_ask_once() {
        let lookups = CatalogCache::new(TTL);
        let asked = Asked::new(0);
        let answer = async {
            tokio::task::yield_now().await;
            asked.answers.add_permits(1);
        };
        tokio::join!(asked.resolve(&lookups), asked.resolve(&lookups), asked.resolve(&lookups), answer);
        assert_eq!(asked.questions(), 1);
    }

    #[tokio::test]
    async fn change_invalidates_lookup_in_flight() {
        let lookups = CatalogCache::new(TTL);
        let asked = Asked::new(0);
        let changed = async {
            tokio::task::yield_now().await;
            assert_eq!(asked.questions(), 1);
            // While the first is under way: the second must not wait for its answer, nor find it later.
            lookups.invalidate();
            asked.answers.add_permits(2);
            asked.resolve(&lookups).await;
        };
        tokio::join!(asked.resolve(&lookups), changed);
        assert_eq!(asked.questions(), 2);
    }

    #[tokio::test]
    async fn stale_lookup_is_not_used() {
        let lookups = CatalogCache::new(TTL);
        let asked = Asked::new(9);
        let (id, selector) = target();
        let asked_at = Instant::now().checked_sub(TTL + Duration::from_millis(1)).expect("a running machine");
        lookups.cache.insert((0, id, selector), CachedLookup { asked: asked_at, resolved: None }).await;
        asked.resolve(&lookups).await;
        assert_eq!(asked.questions(), 1);
    }

    #[tokio::test]
    async fn failure_is_not_cached() {
        let lookups = CatalogCache::new(TTL);
        let (id, selector) = target();
        let failed = lookups.resolve(id, selector, async || Err(CatalogError::NotFound)).await;
        assert!(matches!(failed, Err(ReadError::Unreadable(_))), "{failed:?}");
        Asked::new(1).resolve(&lookups).await;
    }
}
