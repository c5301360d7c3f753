//! One cache for all decoded parts of version files, bounded in bytes.

use std::future::Future;
use std::sync::{Arc, LazyLock};

use moka::future::Cache;
use tokio::sync::mpsc;

use super::StorageError;
use super::parts::{Part, PartKey};
use super::reader_metrics::ReaderMetrics;
use crate::metrics::metrics;

/// Hits and misses of one kind of part.
struct Lookups {
    hits: ::metrics::Counter,
    misses: ::metrics::Counter,
}

/// Found once, for a look-up in the cache is quicker than one of a counter.
static LOOKUPS: LazyLock<[Lookups; 7]> = LazyLock::new(|| {
    ["footers", "documents", "columns", "blooms", "paths", "keywords", "derived"].map(|cache| {
        let counter = |outcome: &'static str| metrics().cache_lookups.of([cache.into(), outcome.into()]);
        Lookups { hits: counter("hit"), misses: counter("miss") }
    })
});

impl Lookups {
    fn of(key: &PartKey) -> &'static Lookups {
        let [footers, documents, columns, blooms, paths, keywords, derived] = &*LOOKUPS;
        match key {
            PartKey::Footer(_) => footers,
            PartKey::Documents { .. } => documents,
            PartKey::Column { .. } => columns,
            PartKey::Bloom { .. } => blooms,
            PartKey::Paths { .. } => paths,
            PartKey::Keywords { .. } | PartKey::KeywordLists { .. } => keywords,
            PartKey::Derived { .. } => derived,
        }
    }
}

/// Counts a part that was found or loaded.
fn count(part: &Part) {
    match part {
        // Others are neither rows nor large, and the size of a footer is dear to find.
        Part::Documents(_) | Part::Column(_) => metrics().scanned_bytes.increment(part.memory_bytes() as u64),
        Part::Footer(_)
        | Part::Bloom(_)
        | Part::Paths(_)
        | Part::Keywords(_)
        | Part::KeywordLists(_)
        | Part::Derived(_) => {}
    }
}

/// A version file that a reader could not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    /// Its path in the store.
    pub path: String,
    /// What is wrong.
    pub cause: String,
}

/// The cache. Files never change, so nothing in it goes stale; what is used least goes when it is full. Only parts that
/// verified are kept, so what it holds stays right when the file is damaged later. Clones share everything.
#[derive(Clone)]
pub struct PartCache {
    parts: Cache<PartKey, Part, foldhash::fast::RandomState>,
    /// The metrics of the look-ups of this clone alone.
    reader_metrics: Option<Arc<ReaderMetrics>>,
    /// Who is told of files that cannot be read.
    damage: Option<mpsc::Sender<DamageReport>>,
}

impl PartCache {
    /// A cache of at most `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> PartCache {
        let parts = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, part: &Part| u32::try_from(part.memory_bytes()).unwrap_or(u32::MAX))
            .build_with_hasher(foldhash::fast::RandomState::default());
        PartCache { parts, reader_metrics: None, damage: None }
    }

    /// The same cache; files that cannot be read through this clone of it are reported there.
    pub fn reporting(self, damage: mpsc::Sender<DamageReport>) -> PartCache {
        PartCache { damage: Some(damage), ..self }
    }

    /// The same cache; look-ups through this clone of it are counted there, too.
    pub fn observed(&self, metrics: Arc<ReaderMetrics>) -> PartCache {
        PartCache { reader_metrics: Some(metrics), ..self.clone() }
    }

    /// Reports a file that cannot be read. A report that nobody has time for is dropped: the read fails all the same.
    pub(super) fn report(&self, path: &str, cause: String) {
        metrics().damaged_parts.increment(1);
        if let Some(damage) = &self.damage {
            let _ = damage.try_send(DamageReport { path: path.to_owned(), cause });
        }
    }

    /// The metrics of the look-ups of this clone.
    pub(super) fn reader_metrics(&self) -> Option<&Arc<ReaderMetrics>> {
        self.reader_metrics.as_ref()
    }

    fn looked_up(&self, key: &PartKey, found: bool) {
        let lookups = Lookups::of(key);
        if found { &lookups.hits } else { &lookups.misses }.increment(1);
        if let Some(reader) = &self.reader_metrics {
            reader.looked_up(key, found);
        }
    }

    /// A part that is there already.
    pub async fn get(&self, key: &PartKey) -> Option<Part> {
        let part = self.parts.get(key).await?;
        self.looked_up(key, true);
        count(&part);
        Some(part)
    }

    /// Bytes in memory of a part that is there already. The metrics do not count the look-up.
    pub async fn bytes_of(&self, key: &PartKey) -> Option<u64> {
        Some(self.parts.get(key).await?.memory_bytes() as u64)
    }

    /// Whether a part is there. No look-up is counted.
    pub(super) fn contains(&self, key: &PartKey) -> bool {
        self.parts.contains_key(key)
    }

    /// Keeps a part that was not there.
    pub async fn insert(&self, key: PartKey, part: Part) {
        self.looked_up(&key, false);
        count(&part);
        self.parts.insert(key, part).await;
    }

    /// A part, loaded when it is not there. Requests for the same part at the same time load it once.
    ///
    /// # Errors
    /// What `load` failed with; nothing is kept then.
    pub async fn get_or_load(
        &self,
        key: PartKey,
        load: impl Future<Output = Result<Part, StorageError>>,
    ) -> Result<Part, StorageError> {
        if let Some(part) = self.get(&key).await {
            return Ok(part);
        }
        self.looked_up(&key, false);
        let part = self.parts.try_get_with(key, load).await.map_err(StorageError::Shared)?;
        count(&part);
        Ok(part)
    }

    /// Most bytes that are held.
    pub fn capacity_bytes(&self) -> u64 {
        self.parts.policy().max_capacity().unwrap_or(u64::MAX)
    }

    /// About how many bytes are held.
    pub fn memory_bytes(&self) -> u64 {
        self.parts.weighted_size()
    }
}
