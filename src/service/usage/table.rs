//! The counts of one interval, in memory, up to a maximum number of entries.
//!
//! A table is never emptied: its owner puts another in its place, and reads this one when no thread uses it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::RandomState;
use strata_catalog::{CountedUsage, UsageCounts};
use strata_types::ids::DatasetId;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub dataset: DatasetId,
    /// The slug that the dataset must have, if it was not looked up.
    pub name_slug: Option<Arc<str>>,
    pub day: u32,
}

pub(super) struct Table {
    counts: DashMap<Key, UsageCounts, RandomState>,
    entries: AtomicUsize,
    max_entries: usize,
}

impl Table {
    pub(super) fn new(max_entries: usize) -> Table {
        Table { counts: DashMap::default(), entries: AtomicUsize::new(0), max_entries }
    }

    /// Adds counts to an entry, or inserts it. Returns `false` if the table is full.
    pub(super) fn add(&self, key: Key, counts: UsageCounts) -> bool {
        match self.counts.entry(key) {
            Entry::Occupied(mut entry) => entry.get_mut().add(counts),
            Entry::Vacant(entry) => {
                if self.entries.fetch_add(1, Ordering::Relaxed) >= self.max_entries {
                    self.entries.fetch_sub(1, Ordering::Relaxed);
                    return false;
                }
                entry.insert(counts);
            }
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.load(Ordering::Relaxed) == 0
    }

    /// The current entries. Do not add to the table while you iterate: that can deadlock.
    pub(super) fn counted(&self) -> impl Iterator<Item = CountedUsage> {
        self.counts.iter().map(|entry| {
            let Key { dataset, name_slug, day } = entry.key();
            let name_slug = name_slug.as_deref().map(Box::from);
            CountedUsage { dataset: *dataset, name_slug, day: *day, counts: *entry.value() }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn key(dataset: u64, name_slug: Option<&str>, day: u32) -> Key {
        Key { dataset: DatasetId::new(dataset), name_slug: name_slug.map(Arc::from), day }
    }

    fn requests(requests: u64) -> UsageCounts {
        UsageCounts { requests, bytes: 10 * requests, ..UsageCounts::default() }
    }

    #[test]
    fn what_differs_in_anything_is_counted_apart() {
        let table = Table::new(10);
        assert!(table.is_empty());
        for key in [key(1, None, 5), key(2, None, 5), key(1, None, 6), key(1, Some("a"), 5), key(1, Some("b"), 5)] {
            assert!(table.add(key.clone(), requests(1)) && table.add(key, requests(2)));
        }
        let counted: Vec<_> = table.counted().collect();
        assert_eq!(counted.len(), 5);
        assert!(counted.iter().all(|counted| counted.counts == requests(3)), "{counted:?}");
    }

    #[test]
    fn beyond_its_room_only_what_is_there_is_counted() {
        let table = Table::new(3);
        let added: Vec<bool> = (1..=5).map(|dataset| table.add(key(dataset, None, 1), requests(1))).collect();
        assert_eq!(added, [true, true, true, false, false]);
        assert!(table.add(key(2, None, 1), requests(1)));
        assert_eq!(table.counted().count(), 3);
    }

    #[test]
    fn many_threads_lose_and_double_nothing() {
        let table = Table::new(100_000);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..50_000_u64 {
                        // All threads meet at the same new entries.
                        assert!(table.add(key(1 + round % 997, None, (thread / 4) as u32), requests(1)));
                    }
                });
            }
        });
        let mut sums: HashMap<(DatasetId, u32), u64> = HashMap::new();
        for counted in table.counted() {
            assert!(sums.insert((counted.dataset, counted.day), counted.counts.requests).is_none(), "{counted:?}");
            assert_eq!(counted.counts, requests(counted.counts.requests));
        }
        assert_eq!(sums.len(), 2 * 997);
        for ((dataset, _), sum) in sums {
            let expected = (0..50_000).filter(|round| 1 + round % 997 == dataset.get()).count() as u64;
            assert_eq!(sum, 4 * expected);
        }
        assert_eq!(table.entries.load(Ordering::Relaxed), 2 * 997);
    }
}
