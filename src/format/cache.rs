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
    fn of(key: &PartKey) -> &'static Lookups {
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

/// The cache. Files never change, so nothing in it goes stale; what is used least goes when it is full. Only parts that
/// verified are kept, so what it holds stays right when the file is damaged later. Clones share everything.
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

    /// The same cache; files that cannot be read through this clone of it, and clones of this one, are reported there.
    pub fn reporting(self, damage: mpsc::Sender<DamageReport>) -> PartCache {
        PartCache { damage: Arc::new(Mutex::new(Some(damage))), ..self }
    }

    /// Nothing more is reported, by whatever clone. Who is told hears the reports that wait, and then that there are no
    /// more.
    pub fn end_reports(&self) {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The same cache; what is not in this clone of it is looked for on this disk before it is fetched from a remote
    /// store.
    pub fn with_disk(self, disk: Option<DiskCache>) -> PartCache {
        PartCache { disk, ..self }
    }

    pub fn disk(&self) -> Option<&DiskCache> {
        self.disk.as_ref()
    }

    /// The same cache; look-ups through this clone of it are counted there, too.
    pub fn observed(&self, metrics: Arc<ReaderMetrics>) -> PartCache {
        PartCache { reader_metrics: Some(metrics), ..self.clone() }
    }

    /// Reports a file that cannot be read. A report that nobody has time for is dropped: the read ends all the same.
    pub(super) fn report(&self, path: &str, cause: String, loss: Loss) {
        metrics().damaged_parts.increment(1);
        if let Some(damage) = &*self.damage.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = damage.try_send(DamageReport { path: path.to_owned(), cause, loss });
        }
    }

    fn looked_up(&self, key: &PartKey, found: bool) {
        let lookups = Lookups::of(key);
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

    /// A part that is there already. Nothing is counted: it may not be [used](PartCache::found_elsewhere).
    pub(super) async fn peek(&self, key: &PartKey) -> Option<Part> {
        self.parts.get(key).await
    }

    /// Counts a part that is there, and was found without asking this.
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

    /// Keeps a part that is made of another one. No look-up is counted.
    pub(super) async fn keep(&self, key: PartKey, part: Part) {
        let bytes = part.memory_bytes();
        self.parts.insert(key, part).await;
        self.keep_to_capacity(bytes).await;
    }

    /// Drops what is too much at once, after a part of so many bytes came. The cache does so by itself, but only after
    /// some dozen parts, and parts have up to tens of megabytes.
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

    /// Whether so many bytes more find room, and nothing has to go for them.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray};

    use super::*;

    fn column(row_group: u32, bytes: usize) -> (PartKey, Part) {
        let array: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&vec![7; bytes]]));
        (PartKey::Column { file: 1, row_group, column: 0 }, Part::Column(array))
    }

    #[tokio::test]
    async fn large_parts_never_take_more_than_the_capacity() {
        const CAPACITY: u64 = 8 << 20;
        let cache = PartCache::new(CAPACITY);
        for number in 0..50 {
            let (key, part) = column(number, 1 << 20);
            match number % 2 {
                0 => cache.insert(key, part).await,
                _ => drop(cache.get_or_load(key, || async { Ok(part) }).await.expect("a part")),
            }
            assert!(cache.memory_bytes() <= CAPACITY, "after part {number}: {}", cache.memory_bytes());
        }
        assert!(cache.memory_bytes() > CAPACITY / 2, "some are kept");
    }

    #[tokio::test]
    async fn reports_that_wait_are_heard_before_the_end_of_all() {
        let (damage, mut reports) = mpsc::channel(8);
        let cache = PartCache::new(8 << 20).reporting(damage);
        let other = cache.clone();
        other.report("versions/a.parquet", "it ends early".to_owned(), Loss::Answers);
        cache.end_reports();
        other.report("versions/b.parquet", "it ends early".to_owned(), Loss::Answers);
        assert_eq!(reports.recv().await.map(|report| report.path), Some("versions/a.parquet".to_owned()));
        assert_eq!(reports.recv().await, None);
    }

    #[tokio::test]
    async fn there_is_room_until_the_capacity_is_taken() {
        let cache = PartCache::new(8 << 20);
        assert!(cache.has_room_for(8 << 20) && !cache.has_room_for((8 << 20) + 1));
        let (key, part) = column(0, 4 << 20);
        cache.insert(key, part).await;
        assert!(cache.has_room_for(3 << 20) && !cache.has_room_for(4 << 20));
    }
}
