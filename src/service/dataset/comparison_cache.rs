//! A cache of comparisons of two version files: diffs and patches.
//!
//! The files are immutable, so a comparison never changes. It is a list of positions, with 16 to 32 bytes per change. A
//! new comparison counts toward the query memory. A cached one counts toward `cache.diff_bytes`; an evicted one that a
//! response still uses counts toward a second quota of the same size. If the quota is full, a comparison is not cached,
//! and continues to count toward the query memory.

use std::ops::Deref;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use strata_diff::ChangeList;
use strata_diff::patch::VersionPatch;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_types::ids::VersionFileId;
use strata_types::version::VersionFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ReadError;
use crate::read::single_flight::SingleFlight;

const COMPARISON_OVERHEAD_BYTES: usize = 1 << 10;

/// Bytes per semaphore permit. A permit for each byte could exceed the maximum number of permits.
const BYTES_PER_PERMIT: u64 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ComparisonKind {
    Diff,
    Patch,
}

type ComparisonKey = (ComparisonKind, [VersionFileId; 2]);

/// A result that the cache can store.
pub(crate) trait Comparison: Sized + Send + Sync + 'static {
    const KIND: ComparisonKind;

    fn memory_bytes(&self) -> usize;

    /// Releases the reservations in the query memory.
    fn without_reservations(self) -> Self;

    fn into_cached(shared: SharedComparison<Self>) -> CachedComparison;

    fn from_cached(cached: CachedComparison) -> Option<SharedComparison<Self>>;
}

impl Comparison for ChangeList {
    const KIND: ComparisonKind = ComparisonKind::Diff;

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn without_reservations(self) -> Self {
        self.without_reservations()
    }

    fn into_cached(shared: SharedComparison<Self>) -> CachedComparison {
        CachedComparison::Diff(shared)
    }

    fn from_cached(cached: CachedComparison) -> Option<SharedComparison<Self>> {
        if let CachedComparison::Diff(shared) = cached { Some(shared) } else { None }
    }
}

impl Comparison for VersionPatch {
    const KIND: ComparisonKind = ComparisonKind::Patch;

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn without_reservations(self) -> Self {
        self.without_reservation()
    }

    fn into_cached(shared: SharedComparison<Self>) -> CachedComparison {
        CachedComparison::Patch(shared)
    }

    fn from_cached(cached: CachedComparison) -> Option<SharedComparison<Self>> {
        if let CachedComparison::Patch(shared) = cached { Some(shared) } else { None }
    }
}

/// A comparison that responses share. Its memory permit is `None` if it counts toward the query memory.
pub(crate) struct SharedComparison<T>(Arc<(T, Option<OwnedSemaphorePermit>)>);

impl<T> SharedComparison<T> {
    pub(crate) fn uncached(comparison: T) -> SharedComparison<T> {
        SharedComparison(Arc::new((comparison, None)))
    }
}

impl<T> Clone for SharedComparison<T> {
    fn clone(&self) -> Self {
        SharedComparison(self.0.clone())
    }
}

impl<T> Deref for SharedComparison<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

#[derive(Clone)]
pub(crate) enum CachedComparison {
    Diff(SharedComparison<ChangeList>),
    Patch(SharedComparison<VersionPatch>),
}

impl CachedComparison {
    fn memory_bytes(&self) -> usize {
        let memory_bytes = match self {
            CachedComparison::Diff(diff) => diff.memory_bytes(),
            CachedComparison::Patch(patch) => patch.memory_bytes(),
        };
        memory_bytes + COMPARISON_OVERHEAD_BYTES
    }
}

/// A cache of comparisons. A capacity of 0 disables it.
pub(crate) struct ComparisonCache {
    entries: Cache<ComparisonKey, CachedComparison, foldhash::fast::RandomState>,
    single_flight: SingleFlight<ComparisonKey, CachedComparison>,
    capacity_bytes: u64,
    /// Memory quota for cached comparisons and for evicted ones in use, which do not count toward the query memory.
    memory_permits: Arc<Semaphore>,
}

impl ComparisonCache {
    pub(crate) fn new(capacity_bytes: u64) -> ComparisonCache {
        let entries = Cache::builder()
            .max_capacity(capacity_bytes)
            // New entries must not be evicted first (LRU), because their clients are about to request the next page.
            .eviction_policy(EvictionPolicy::lru())
            .weigher(|_, cached: &CachedComparison| u32::try_from(cached.memory_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        // The quota is twice the capacity: one half for cached entries, and one half for evicted entries in use.
        let permits = usize::try_from(capacity_bytes / BYTES_PER_PERMIT).unwrap_or(usize::MAX).saturating_mul(2);
        let memory_permits = Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        ComparisonCache { entries, single_flight: SingleFlight::default(), capacity_bytes, memory_permits }
    }

    /// Returns the comparison of two files from the cache, from a running computation, or from a new one.
    pub(crate) async fn get_or_compute<T: Comparison>(
        self: &Arc<Self>,
        files: &[VersionFile; 2],
        compute: impl Fn() -> BoxFuture<'static, Result<T, ReadError>>,
    ) -> Result<SharedComparison<T>, ReadError> {
        let key = (T::KIND, [files[0].id, files[1].id]);
        let cached = self.entries.get(&key).await;
        let result = if cached.is_some() { "hit" } else { "miss" };
        metrics().cache_lookups.with_label_values(["diffs".into(), result.into()]).increment(1);
        let found = match cached {
            Some(cached) => cached,
            None => {
                let start = || {
                    let cache = self.clone();
                    let computed = compute();
                    async move {
                        // After the look-up in the cache, another request can have inserted the comparison.
                        if let Some(cached) = cache.entries.get(&key).await {
                            return Ok(cached);
                        }
                        Ok(T::into_cached(cache.insert(key.1, computed.await?).await))
                    }
                    .boxed()
                };
                self.single_flight.run(key, start).await?.value
            }
        };
        Ok(T::from_cached(found).ok_or_else(StorageError::wrong_part_kind)?)
    }

    async fn insert<T: Comparison>(&self, files: [VersionFileId; 2], comparison: T) -> SharedComparison<T> {
        let size_bytes = (comparison.memory_bytes() + COMPARISON_OVERHEAD_BYTES) as u64;
        let permits = u32::try_from(size_bytes.div_ceil(BYTES_PER_PERMIT)).ok();
        let permits = permits.filter(|_| size_bytes <= self.capacity_bytes);
        let permit = permits.and_then(|permits| self.memory_permits.clone().try_acquire_many_owned(permits).ok());
        if permit.is_none() {
            return SharedComparison::uncached(comparison);
        }
        let shared = SharedComparison(Arc::new((comparison.without_reservations(), permit)));
        self.entries.insert((T::KIND, files), T::into_cached(shared.clone())).await;
        // Evicts entries now rather than later, so that the evicted entries return their memory permits.
        self.entries.run_pending_tasks().await;
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> [VersionFileId; 2] {
        [VersionFileId::new(number), VersionFileId::new(number + 1)]
    }

    async fn cached_diff(cache: &ComparisonCache, number: u64) -> Option<SharedComparison<ChangeList>> {
        cache.entries.get(&(ComparisonKind::Diff, key(number))).await.and_then(ChangeList::from_cached)
    }

    #[tokio::test]
    async fn diffs_beyond_quota_get_no_permit() {
        let cache = ComparisonCache::new(10 * COMPARISON_OVERHEAD_BYTES as u64);
        let mut used = Vec::new();
        for number in 0..30 {
            used.push(cache.insert(key(number), ChangeList::for_equal_versions(number)).await);
        }
        // 10 cached and 10 evicted diffs have memory permits; the others continue to count toward the query memory.
        let has_permit: Vec<bool> = used.iter().map(|diff| diff.0.1.is_some()).collect();
        assert_eq!(has_permit, (0..30).map(|number| number < 20).collect::<Vec<_>>());
        for number in 0..30 {
            let cached = cached_diff(&cache, number).await;
            assert_eq!(cached.is_some_and(|diff| diff.total_v1 == number), (10..20).contains(&number), "{number}");
        }
        drop(used);
        for _ in 0..10_000 {
            // The cache drops evicted diffs lazily.
            cache.entries.run_pending_tasks().await;
            cached_diff(&cache, 100).await;
        }
        cache.insert(key(100), ChangeList::for_equal_versions(100)).await;
        assert!(cached_diff(&cache, 100).await.is_some_and(|diff| diff.total_v1 == 100 && diff.0.1.is_some()));
    }

    #[tokio::test]
    async fn quota_of_zero_stores_nothing() {
        let cache = ComparisonCache::new(0);
        let diff = cache.insert(key(1), ChangeList::for_equal_versions(7)).await;
        assert_eq!((diff.total_v1, diff.0.1.is_some()), (7, false));
        assert!(cached_diff(&cache, 1).await.is_none());
    }

    #[tokio::test]
    async fn patch_and_diff_of_same_files_are_separate() {
        let cache = ComparisonCache::new(1 << 20);
        cache.insert(key(1), ChangeList::for_equal_versions(7)).await;
        cache.insert(key(1), VersionPatch::for_equal_versions()).await;
        assert!(cached_diff(&cache, 1).await.is_some());
        let patch = cache.entries.get(&(ComparisonKind::Patch, key(1))).await.and_then(VersionPatch::from_cached);
        assert!(patch.is_some());
    }
}
