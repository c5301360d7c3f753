//! The counts of one interval, in memory, up to a maximum number of entries.

use std::sync::Arc;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use strata_catalog::{CountedUsage, UsageCounts};
use strata_types::ids::DatasetId;

/// What is counted separately, ordered by dataset and day.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub dataset: DatasetId,
    pub day: u32,
    /// The slug that the dataset must have, if it was not looked up.
    pub name_slug: Option<Arc<str>>,
}

impl Key {
    pub(super) fn counted(&self, counts: UsageCounts) -> CountedUsage {
        let name_slug = self.name_slug.as_deref().map(Box::from);
        CountedUsage { dataset: self.dataset, name_slug, day: self.day, counts }
    }
}

pub(super) struct Table {
    counts: DashMap<Key, UsageCounts, RandomState>,
    max_entries: usize,
}

impl Table {
    pub(super) fn new(max_entries: usize) -> Table {
        Table { counts: DashMap::default(), max_entries }
    }

    /// Adds counts to an entry, or inserts it. Returns `false` if the table is full. Concurrent calls can each insert
    /// one entry more.
    pub(super) fn add(&self, key: Key, counts: UsageCounts) -> bool {
        if let Some(mut entry) = self.counts.get_mut(&key) {
            entry.add(counts);
            return true;
        }
        // `len` locks every shard, so that this call must not hold an entry.
        if self.counts.len() >= self.max_entries {
            return false;
        }
        self.counts.entry(key).or_default().add(counts);
        true
    }

    /// The current entries. Do not add to the table while you iterate: that can deadlock.
    pub(super) fn counted(&self) -> impl Iterator<Item = CountedUsage> {
        self.counts.iter().map(|entry| entry.key().counted(*entry.value()))
    }

    /// Removes all entries, and returns them.
    pub(super) fn drain(&self) -> Vec<(Key, UsageCounts)> {
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

    fn key(dataset: u64, name_slug: Option<&str>, day: u32) -> Key {
        Key { dataset: DatasetId::new(dataset), name_slug: name_slug.map(Arc::from), day }
    }

    fn requests(requests: u64) -> UsageCounts {
        UsageCounts { requests, ..UsageCounts::default() }
    }

    #[test]
    fn full_table_counts_only_its_entries() {
        let table = Table::new(5);
        for key in [key(1, None, 5), key(2, None, 5), key(1, None, 6), key(1, Some("a"), 5), key(1, Some("b"), 5)] {
            assert!(table.add(key.clone(), requests(1)) && table.add(key, requests(2)));
        }
        assert!(!table.add(key(3, None, 5), requests(1)));
        let counted: Vec<_> = table.counted().collect();
        assert_eq!(counted.len(), 5);
        assert!(counted.iter().all(|counted| counted.counts == requests(3)), "{counted:?}");
    }

    #[test]
    fn drain_during_additions_loses_and_doubles_nothing() {
        let table = Table::new(100_000);
        let mut sum = 0;
        std::thread::scope(|scope| {
            let add = |_| scope.spawn(|| (0..20_000).all(|round| table.add(key(round % 97, None, 1), requests(1))));
            let threads = [0; 8].map(add);
            while threads.iter().any(|thread| !thread.is_finished()) {
                sum += table.drain().iter().map(|(_, counts)| counts.requests).sum::<u64>();
            }
            assert!(threads.into_iter().all(|thread| thread.join().expect("no panic")));
        });
        sum += table.drain().iter().map(|(_, counts)| counts.requests).sum::<u64>();
        assert_eq!(sum, 8 * 20_000);
    }
}
