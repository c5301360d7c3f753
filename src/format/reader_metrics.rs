//! Metrics of one reader: its cache lookups and store requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use fixedbitset::FixedBitSet;
use parking_lot::Mutex;

use super::cached_part::PartKey;

/// Cache lookups and store requests of all readers that share this value
/// ([`super::reader::VersionReader::with_metrics`]).
#[derive(Debug, Default)]
pub struct ReaderMetrics {
    pub footers: AtomicLookupCounts,
    pub documents: AtomicLookupCounts,
    pub columns: AtomicLookupCounts,
    pub keyword_index: AtomicLookupCounts,
    fetch_count: AtomicU64,
    fetched_bytes: AtomicU64,
    pages: Mutex<PagesByRowGroup>,
}

type PagesByRowGroup = BTreeMap<u32, FixedBitSet>;

#[derive(Debug, Default)]
pub struct AtomicLookupCounts {
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheLookup {
    Hit,
    Miss,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupCounts {
    pub hits: u64,
    /// Cache lookups without a result. They include lookups of parts that another reader was loading.
    pub misses: u64,
}

impl AtomicLookupCounts {
    pub fn load(&self) -> LookupCounts {
        LookupCounts { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

impl ReaderMetrics {
    pub(super) fn count_lookup(&self, key: &PartKey, lookup: CacheLookup) {
        let counts = match key {
            PartKey::Footer(_) => &self.footers,
            PartKey::Documents { row_group, page, .. } => {
                self.pages.lock().entry(*row_group).or_default().grow_and_insert(*page as usize);
                &self.documents
            }
            PartKey::Column { .. } => &self.columns,
            PartKey::FoldedColumn { .. } if lookup == CacheLookup::Hit => &self.columns,
            PartKey::KeywordTokens { .. } | PartKey::KeywordPostings { .. } => &self.keyword_index,
            // Lookups of these parts are not counted, because no read fetches them, or another kind counts them. The
            // missing folded texts of a column are read from the column.
            PartKey::FoldedColumn { .. }
            | PartKey::ProfilePaths { .. }
            | PartKey::ProfileSummary { .. }
            | PartKey::Extents { .. }
            | PartKey::AuxIndex { .. }
            | PartKey::IndentedDocuments { .. } => return,
        };
        let count = match lookup {
            CacheLookup::Hit => &counts.hits,
            CacheLookup::Miss => &counts.misses,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_fetch(&self, bytes: u64) {
        self.fetch_count.fetch_add(1, Ordering::Relaxed);
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn fetch_count(&self) -> u64 {
        self.fetch_count.load(Ordering::Relaxed)
    }

    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::Relaxed)
    }

    pub fn distinct_pages(&self) -> u64 {
        self.distinct_pages_of_both(&ReaderMetrics::default())
    }

    /// Number of distinct document pages that this reader or `other`, a reader of the same file, requested.
    pub fn distinct_pages_of_both(&self, other: &ReaderMetrics) -> u64 {
        let mut all = self.pages.lock().clone();
        other.pages.lock().iter().for_each(|(row_group, pages)| all.entry(*row_group).or_default().union_with(pages));
        all.values().map(|pages| pages.count_ones(..) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_two_readers_counts_once() {
        let first = ReaderMetrics::default();
        let second = ReaderMetrics::default();
        let page_key = |row_group, page| PartKey::Documents { file: 1, row_group, page };
        for (row_group, number) in [(0, 0), (0, 0), (0, 63), (0, 64), (7, 200)] {
            first.count_lookup(&page_key(row_group, number), CacheLookup::Hit);
        }
        second.count_lookup(&page_key(0, 64), CacheLookup::Miss);
        second.count_lookup(&page_key(0, 500), CacheLookup::Miss);
        assert_eq!((first.distinct_pages(), second.distinct_pages()), (4, 2));
        assert_eq!((first.distinct_pages_of_both(&second), second.distinct_pages_of_both(&first)), (5, 5));
        assert_eq!(first.documents.load(), LookupCounts { hits: 5, misses: 0 });
        assert_eq!(second.documents.load(), LookupCounts { hits: 0, misses: 2 });
        assert_eq!(first.columns.load(), LookupCounts::default());
    }
}
