//! Cache for the decoded parts of version files, with a limit in bytes.

use std::future::Future;
use std::sync::{Arc, LazyLock};

use moka::future::Cache;
use parking_lot::Mutex;
use strata_runtime::metrics::metrics;
use strata_store::disk_cache::DiskCache;
use strata_store::{Result, StorageError};
use tokio::sync::mpsc;

use super::cached_part::{CachedPart, PartKey};
use super::reader_metrics::{CacheLookup, ReaderMetrics};

const LARGE_PART_CAPACITY_DIVISOR: u64 = 1_024;

struct CacheLookupCounters {
    hits: ::metrics::Counter,
    misses: ::metrics::Counter,
}

/// Counters of cache lookups for each kind of part, resolved once because resolving takes longer than a lookup.
static CACHE_LOOKUP_COUNTERS: LazyLock<[CacheLookupCounters; 6]> = LazyLock::new(|| {
    ["footers", "documents", "columns", "paths", "keywords", "derived"].map(|cache| {
        let counter = |outcome: &'static str| metrics().cache_lookups.with_label_values([cache.into(), outcome.into()]);
        CacheLookupCounters { hits: counter("hit"), misses: counter("miss") }
    })
});

impl CacheLookupCounters {
    fn for_key(key: &PartKey) -> &'static CacheLookupCounters {
        let [footers, documents, columns, paths, keywords, derived] = &*CACHE_LOOKUP_COUNTERS;
        match key {
            PartKey::Footer(_) | PartKey::Extents { .. } => footers,
            PartKey::Documents { .. } | PartKey::IndentedDocuments { .. } => documents,
            PartKey::Column { .. } => columns,
            PartKey::ProfilePaths { .. } | PartKey::ProfileSummary { .. } => paths,
            PartKey::KeywordTokens { .. } | PartKey::KeywordPostings { .. } => keywords,
            PartKey::FoldedColumn { .. } | PartKey::AuxIndex { .. } => derived,
        }
    }
}

fn count_scanned_bytes(part: &CachedPart) {
    if matches!(part, CachedPart::Documents(_) | CachedPart::Column(_)) {
        metrics().scanned_bytes.increment(part.memory_bytes() as u64);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    pub path: String,
    pub cause: String,
    pub impact: DamageImpact,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DamageImpact {
    ReadsFail,
    ReadsSlower,
}

/// Cache of verified and decoded parts of version files. Files are immutable, so parts do not become stale, and remain
/// correct if the file is damaged later. A full cache evicts the least used parts. Clones share the cache.
#[derive(Clone)]
pub struct PartCache {
    parts: Cache<PartKey, CachedPart, foldhash::fast::RandomState>,
    pub(super) reader_metrics: Option<Arc<ReaderMetrics>>,
    damage_reports: Arc<Mutex<Option<mpsc::Sender<DamageReport>>>>,
    disk_cache: Option<DiskCache>,
}

impl PartCache {
    pub fn new(capacity_bytes: u64) -> PartCache {
        let parts = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, part: &CachedPart| u32::try_from(part.memory_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        PartCache { parts, reader_metrics: None, damage_reports: Arc::default(), disk_cache: None }
    }

    pub fn with_damage_reports(self, damage: mpsc::Sender<DamageReport>) -> PartCache {
        PartCache { damage_reports: Arc::new(Mutex::new(Some(damage))), ..self }
    }

    pub fn close_damage_reports(&self) {
        self.damage_reports.lock().take();
    }

    pub fn with_disk_cache(self, disk_cache: Option<DiskCache>) -> PartCache {
        PartCache { disk_cache, ..self }
    }

    pub fn disk_cache(&self) -> Option<&DiskCache> {
        self.disk_cache.as_ref()
    }

    pub fn with_reader_metrics(&self, metrics: Arc<ReaderMetrics>) -> PartCache {
        PartCache { reader_metrics: Some(metrics), ..self.clone() }
    }

    pub(super) fn report_damage(&self, path: &str, cause: String, impact: DamageImpact) {
        metrics().damaged_parts.increment(1);
        if let Some(damage) = &*self.damage_reports.lock() {
            let _ = damage.try_send(DamageReport { path: path.to_owned(), cause, impact });
        }
    }

    fn count_lookup(&self, key: &PartKey, lookup: CacheLookup) {
        let counters = CacheLookupCounters::for_key(key);
        let counter = match lookup {
            CacheLookup::Hit => &counters.hits,
            CacheLookup::Miss => &counters.misses,
        };
        counter.increment(1);
        if let Some(reader) = &self.reader_metrics {
            reader.count_lookup(key, lookup);
        }
    }

    pub async fn get(&self, key: &PartKey) -> Option<CachedPart> {
        let part = self.parts.get(key).await?;
        self.count_lookup(key, CacheLookup::Hit);
        count_scanned_bytes(&part);
        Some(part)
    }

    /// Returns a cached part without counting a lookup: the caller calls [`PartCache::count_hit`] if it uses the part.
    pub(super) async fn peek(&self, key: &PartKey) -> Option<CachedPart> {
        self.parts.get(key).await
    }

    pub(super) fn count_hit(&self, key: &PartKey, part: &CachedPart) {
        self.count_lookup(key, CacheLookup::Hit);
        count_scanned_bytes(part);
    }

    pub(super) fn count_page_hits(&self, keys: &[PartKey], bytes: u64) {
        let [_, documents, ..] = &*CACHE_LOOKUP_COUNTERS;
        documents.hits.increment(keys.len() as u64);
        metrics().scanned_bytes.increment(bytes);
        if let Some(reader) = &self.reader_metrics {
            keys.iter().for_each(|key| reader.count_lookup(key, CacheLookup::Hit));
        }
    }

    pub(super) fn contains(&self, key: &PartKey) -> bool {
        self.parts.contains_key(key)
    }

    pub async fn insert_loaded(&self, key: PartKey, part: CachedPart) {
        self.count_lookup(&key, CacheLookup::Miss);
        count_scanned_bytes(&part);
        self.insert_derived(key, part).await;
    }

    pub(super) async fn insert_derived(&self, key: PartKey, part: CachedPart) {
        let bytes = part.memory_bytes();
        self.parts.insert(key, part).await;
        self.evict_after_large_insert(bytes).await;
    }

    /// Evicts parts after a large part was added. The cache itself evicts only after some dozen insertions.
    async fn evict_after_large_insert(&self, bytes: usize) {
        if bytes as u64 >= self.capacity_bytes() / LARGE_PART_CAPACITY_DIVISOR {
            self.parts.run_pending_tasks().await;
        }
    }

    /// Returns a cached part, or loads it. Concurrent calls for one part load it once. Errors are not cached. The large
    /// future is boxed only on a miss.
    pub async fn get_or_load<F: Future<Output = Result<CachedPart>>>(
        &self,
        key: PartKey,
        load: impl FnOnce() -> F,
    ) -> Result<CachedPart> {
        if let Some(part) = self.get(&key).await {
            return Ok(part);
        }
        Box::pin(self.load_missing(key, load())).await
    }

    async fn load_missing(&self, key: PartKey, load: impl Future<Output = Result<CachedPart>>) -> Result<CachedPart> {
        self.count_lookup(&key, CacheLookup::Miss);
        let part = self.parts.try_get_with(key, load).await.map_err(StorageError::Shared)?;
        count_scanned_bytes(&part);
        self.evict_after_large_insert(part.memory_bytes()).await;
        Ok(part)
    }

    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.memory_bytes().saturating_add(bytes) <= self.capacity_bytes()
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.parts.policy().max_capacity().unwrap_or(u64::MAX)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.parts.weighted_size()
    }
}
