//! One cache for all decoded parts of version files, bounded in bytes.

use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use moka::future::Cache;
use strata_runtime::metrics::metrics;
use strata_store::disk_cache::DiskCache;
use strata_store::{Result, StorageError};
use tokio::sync::mpsc;

use super::parts::{Part, PartKey};
use super::reader_metrics::ReaderMetrics;

/// A part is large that takes more than one in so many bytes of the cache.
const LARGE_SHARE: u64 = 1_024;

struct Lookups {
    hits: ::metrics::Counter,
    misses: ::metrics::Counter,
}

/// Found once, for a look-up in the cache is quicker than one of a counter.
static LOOKUPS: LazyLock<[Lookups; 8]> = LazyLock::new(|| {
    ["footers", "documents", "columns", "blooms", "paths", "keywords", "shapes", "derived"].map(|cache| {
        let counter = |outcome: &'static str| metrics().cache_lookups.of([cache.into(), outcome.into()]);
        Lookups { hits: counter("hit"), misses: counter("miss") }
    })
});

impl Lookups {
    fn for_key(key: &PartKey) -> &'static Lookups {
        let [footers, documents, columns, blooms, paths, keywords, shapes, derived] = &*LOOKUPS;
        match key {
            PartKey::Footer(_) | PartKey::Extents { .. } => footers,
            PartKey::Documents { .. } | PartKey::Indented { .. } => documents,
            PartKey::Column { .. } => columns,
            PartKey::Bloom { .. } => blooms,
            PartKey::Paths { .. } | PartKey::ProfileSummary { .. } => paths,
            PartKey::Keywords { .. } | PartKey::KeywordLists { .. } => keywords,
            PartKey::Shapes { .. } => shapes,
            PartKey::Aux { .. } => derived,
        }
    }
}

fn count(part: &Part) {
    // Others are neither rows nor large, and the size of a footer is dear to find.
    if matches!(part, Part::Documents(_) | Part::Column(_)) {
        metrics().scanned_bytes.increment(part.memory_bytes() as u64);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    pub path: String,
    pub cause: String,
    pub loss: Loss,
}

/// What reads lose with a part that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    Answers,
    /// Time: other parts tell the same.
    Time,
}

/// The cache. Files never change, so its parts are never stale, and a full cache evicts the least used ones. All parts
/// are verified, and stay correct if the file is damaged later. Clones share everything.
#[derive(Clone)]
pub struct PartCache {
    parts: Cache<PartKey, Part, foldhash::fast::RandomState>,
    pub(super) reader_metrics: Option<Arc<ReaderMetrics>>,
    /// Who is told of files that cannot be read, until [`PartCache::end_reports`].
    damage: Arc<Mutex<Option<mpsc::Sender<DamageReport>>>>,
    disk: Option<DiskCache>,
}

impl PartCache {
    pub fn new(capacity_bytes: u64) -> PartCache {
        let parts = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, part: &Part| u32::try_from(part.memory_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        PartCache { parts, reader_metrics: None, damage: Arc::default(), disk: None }
    }

    /// The same cache; this clone and its clones report files that cannot be read to `damage`.
    pub fn reporting(self, damage: mpsc::Sender<DamageReport>) -> PartCache {
        PartCache { damage: Arc::new(Mutex::new(Some(damage))), ..self }
    }

    /// Ends the reports of all clones. The receiver gets the waiting reports, and then the end of the channel.
    pub fn end_reports(&self) {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The same cache; this clone looks for missing parts on `disk` before it fetches them from a remote store.
    pub fn with_disk(self, disk: Option<DiskCache>) -> PartCache {
        PartCache { disk, ..self }
    }

    pub fn disk(&self) -> Option<&DiskCache> {
        self.disk.as_ref()
    }

    /// The same cache; `metrics` also counts the look-ups of this clone.
    pub fn observed(&self, metrics: Arc<ReaderMetrics>) -> PartCache {
        PartCache { reader_metrics: Some(metrics), ..self.clone() }
    }

    /// Reports a file that cannot be read. If the channel is full, the report is dropped.
    pub(super) fn report(&self, path: &str, cause: String, loss: Loss) {
        metrics().damaged_parts.increment(1);
        if let Some(damage) = &*self.damage.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = damage.try_send(DamageReport { path: path.to_owned(), cause, loss });
        }
    }

    fn looked_up(&self, key: &PartKey, found: bool) {
        let lookups = Lookups::for_key(key);
        if found { &lookups.hits } else { &lookups.misses }.increment(1);
        if let Some(reader) = &self.reader_metrics {
            reader.looked_up(key, found);
        }
    }

    pub async fn get(&self, key: &PartKey) -> Option<Part> {
        let part = self.parts.get(key).await?;
        self.looked_up(key, true);
        count(&part);
        Some(part)
    }

    /// A cached part. No look-up is counted, because the caller might not [use](PartCache::found_elsewhere) the part.
    pub(super) async fn peek(&self, key: &PartKey) -> Option<Part> {
        self.parts.get(key).await
    }

    /// Counts a look-up of a part that was found without the cache.
    pub(super) fn found_elsewhere(&self, key: &PartKey, part: &Part) {
        self.looked_up(key, true);
        count(part);
    }

    /// As [`PartCache::found_elsewhere`], for pages of documents.
    pub(super) fn found_pages(&self, keys: &[PartKey], bytes: u64) {
        let [_, documents, ..] = &*LOOKUPS;
        documents.hits.increment(keys.len() as u64);
        metrics().scanned_bytes.increment(bytes);
        if let Some(reader) = &self.reader_metrics {
            keys.iter().for_each(|key| reader.looked_up(key, true));
        }
    }

    pub(super) fn contains(&self, key: &PartKey) -> bool {
        self.parts.contains_key(key)
    }

    pub async fn insert(&self, key: PartKey, part: Part) {
        self.looked_up(&key, false);
        count(&part);
        self.keep(key, part).await;
    }

    /// Caches a part that is computed from another one. No look-up is counted.
    pub(super) async fn keep(&self, key: PartKey, part: Part) {
        let bytes = part.memory_bytes();
        self.parts.insert(key, part).await;
        self.keep_to_capacity(bytes).await;
    }

    /// Evicts parts at once, after a part of `bytes` was added. By itself, the cache does so only after some dozen
    /// parts, and a part can have tens of megabytes.
    async fn keep_to_capacity(&self, bytes: usize) {
        if bytes as u64 >= self.capacity_bytes() / LARGE_SHARE {
            self.parts.run_pending_tasks().await;
        }
    }

    /// A part, loaded when it is not there. Requests for the same part at the same time load it once. Loading is begun
    /// in a box of its own: it is large, and parts are there most of the time.
    ///
    /// # Errors
    /// What `load` failed with; nothing is kept then.
    pub async fn get_or_load<F: Future<Output = Result<Part>>>(
        &self,
        key: PartKey,
        load: impl FnOnce() -> F,
    ) -> Result<Part> {
        if let Some(part) = self.get(&key).await {
            return Ok(part);
        }
        Box::pin(self.loaded(key, load())).await
    }

    async fn loaded(&self, key: PartKey, load: impl Future<Output = Result<Part>>) -> Result<Part> {
        self.looked_up(&key, false);
        let part = self.parts.try_get_with(key, load).await.map_err(StorageError::Shared)?;
        count(&part);
        self.keep_to_capacity(part.memory_bytes()).await;
        Ok(part)
    }

    /// Whether the cache has space for `bytes` without an eviction.
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
