//! The use of the cache and the store by one reader of those that share them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fixedbitset::FixedBitSet;

use super::parts::PartKey;

/// Metrics of what a reader asks for while they are attached to it ([`super::reader::VersionReader::observed`]).
#[derive(Debug, Default)]
pub struct ReaderMetrics {
    pub footers: Lookups,
    pub documents: Lookups,
    pub columns: Lookups,
    pub blooms: Lookups,
    pub keywords: Lookups,
    pub shapes: Lookups,
    requests: AtomicU64,
    bytes: AtomicU64,
    pages: Mutex<PageSet>,
}

type PageSet = BTreeMap<u32, FixedBitSet>;

#[derive(Debug, Default)]
pub struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    pub hits: u64,
    /// Loaded, or waited for while another reader loaded it.
    pub misses: u64,
}

impl Lookups {
    pub fn get(&self) -> CacheUse {
        CacheUse { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

impl ReaderMetrics {
    pub(super) fn looked_up(&self, key: &PartKey, found: bool) {
        let lookups = match key {
            PartKey::Footer(_) => &self.footers,
            PartKey::Documents { row_group, page, .. } => {
                self.pages().entry(*row_group).or_default().grow_and_insert(*page as usize);
                &self.documents
            }
            PartKey::Column { .. } => &self.columns,
            PartKey::Bloom { .. } => &self.blooms,
            PartKey::Keywords { .. } | PartKey::KeywordLists { .. } => &self.keywords,
            PartKey::Shapes { .. } => &self.shapes,
            // No parts of the file that a read fetches, or asked for beside it.
            PartKey::Paths { .. }
            | PartKey::ProfileSummary { .. }
            | PartKey::Extents { .. }
            | PartKey::Aux { .. }
            | PartKey::Indented { .. } => return,
        };
        if found { &lookups.hits } else { &lookups.misses }.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fetched(&self, bytes: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn distinct_pages(&self) -> u64 {
        self.distinct_pages_with(&ReaderMetrics::default())
    }

    /// How many pages of documents were asked for by this reader or another one of the same file, each counted once.
    pub fn distinct_pages_with(&self, other: &ReaderMetrics) -> u64 {
        let mut all = self.pages().clone();
        for (row_group, pages) in other.pages().iter() {
            all.entry(*row_group).or_default().union_with(pages);
        }
        all.values().map(|pages| pages.count_ones(..) as u64).sum()
    }

    fn pages(&self) -> MutexGuard<'_, PageSet> {
        // Nothing panics between two changes that belong together.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_count_once_whoever_asks_for_them() {
        let one = ReaderMetrics::default();
        let other = ReaderMetrics::default();
        let page = |row_group, page| PartKey::Documents { file: 1, row_group, page };
        for (row_group, number) in [(0, 0), (0, 0), (0, 63), (0, 64), (7, 200)] {
            one.looked_up(&page(row_group, number), true);
        }
        other.looked_up(&page(0, 64), false);
        other.looked_up(&page(0, 500), false);
        assert_eq!((one.distinct_pages(), other.distinct_pages()), (4, 2));
        assert_eq!((one.distinct_pages_with(&other), other.distinct_pages_with(&one)), (5, 5));
        assert_eq!(one.documents.get(), CacheUse { hits: 5, misses: 0 });
        assert_eq!(other.documents.get(), CacheUse { hits: 0, misses: 2 });
        assert_eq!(one.columns.get(), CacheUse::default());
    }
}
