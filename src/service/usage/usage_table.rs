//! A concurrent, bounded table of the counts since the last flush.

use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use strata_catalog::{UsageCounts, UsageIncrement};
use strata_types::ids::DatasetId;

/// The key of a usage count. Keys are ordered by dataset and day.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UsageKey {
    pub dataset: DatasetId,
    pub day: u32,
    /// The requested slug, for a later check that the dataset exists; `None` if the dataset was already looked up.
    pub name_slug: Option<Arc<str>>,
}

impl UsageKey {
    pub(super) fn with_counts(&self, counts: UsageCounts) -> UsageIncrement {
        let name_slug = self.name_slug.as_deref().map(Box::from);
        UsageIncrement { dataset: self.dataset, name_slug, day: self.day, counts }
    }
}

pub(super) struct UsageTable {
    counts: DashMap<UsageKey, UsageCounts, RandomState>,
    max_entries: usize,
}

impl UsageTable {
    pub(super) fn new(max_entries: usize) -> UsageTable {
        UsageTable { counts: DashMap::default(), max_entries }
    }

    /// Adds usage counts. Returns `false` if the table is full. Concurrent calls can each exceed the maximum by one.
    pub(super) fn try_add(&self, key: UsageKey, counts: UsageCounts) -> bool {
        if let Some(mut entry) = self.counts.get_mut(&key) {
            entry.add(counts);
            return true;
        }
        // `len` locks every shard of the map, so no entry can be borrowed here.
        if self.counts.len() >= self.max_entries {
            return false;
        }
        self.counts.entry(key).or_default().add(counts);
        true
    }

    /// Iterates over the entries. You must not add to the table during the iteration, because that can deadlock.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = UsageIncrement> {
        self.counts.iter().map(|entry| entry.key().with_counts(*entry.value()))
    }

    pub(super) fn drain(&self) -> Vec<(UsageKey, UsageCounts)> {
        let mut drained = Vec::new();
        self.counts.retain(|key, counts| {
            drained.push((key.clone(), *counts));
            false
        });
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dataset: u64, name_slug: Option<&str>, day: u32) -> UsageKey {
        UsageKey { dataset: DatasetId::new(dataset), name_slug: name_slug.map(Arc::from), day }
    }

    fn requests(requests: u64) -> UsageCounts {
        UsageCounts { requests, ..UsageCounts::default() }
    }

    #[test]
    fn full_table_counts_only_its_entries() {
        let table = UsageTable::new(5);
        for key in [key(1, None, 5), key(2, None, 5), key(1, None, 6), key(1, Some("a"), 5), key(1, Some("b"), 5)] {
            assert!(table.try_add(key.clone(), requests(1)) && table.try_add(key, requests(2)));
        }
        assert!(!table.try_add(key(3, None, 5), requests(1)));
        let counted: Vec<_> = table.snapshot().collect();
        assert_eq!(counted.len(), 5);
        assert!(counted.iter().all(|counted| counted.counts == requests(3)), "{counted:?}");
    }

    #[test]
    fn drain_during_additions_returns_each_count_once() {
        let table = UsageTable::new(100_000);
        let mut sum = 0;
        std::thread::scope(|scope| {
            let add = |_| scope.spawn(|| (0..20_000).all(|round| table.try_add(key(round % 97, None, 1), requests(1))));
            let threads = [0; 8].map(add);
            while threads.iter().any(|thread| !thread.is_finished()) {
                sum += table.drain().iter().map(|(_, counts)| counts.requests).sum::<u64>();
            }
            assert!(threads.into_iter().all(|thread| thread.join().expect("thread panicked")));
        });
        sum += table.drain().iter().map(|(_, counts)| counts.requests).sum::<u64>();
        assert_eq!(sum, 8 * 20_000);
    }
}
