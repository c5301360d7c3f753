//! The counts of one interval, in memory: many threads add to it at once, without a lock.
//!
//! A table is an array of buckets, each a list to which entries are only ever added. To find an entry is to follow
//! pointers; to count is to add to atomic numbers. The one who adds an entry may wait for another who adds the same one
//! at the same moment. A table is never emptied: its owner puts another in its place, and reads this one when nobody
//! uses it any more.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::RandomState;

use crate::catalog::{CountedUsage, UsageCounts};
use crate::model::ids::DatasetId;

/// Lists of a table. A power of two.
const BUCKETS: usize = 1 << 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key<'a> {
    pub dataset: DatasetId,
    /// The slug that it must have, where that was not looked up.
    pub name_slug: Option<&'a str>,
    pub day: u32,
}

pub(super) struct Table {
    buckets: Box<[Link]>,
    hasher: RandomState,
    entries: AtomicUsize,
    /// Entries that it may have.
    most: usize,
}

type Link = OnceLock<Box<Entry>>;

struct Entry {
    dataset: DatasetId,
    name_slug: Option<Box<str>>,
    day: u32,
    counts: AtomicCounts,
    next: Link,
}

#[derive(Default)]
struct AtomicCounts {
    requests: AtomicU64,
    not_modified: AtomicU64,
    rate_limited: AtomicU64,
    bytes: AtomicU64,
}

impl AtomicCounts {
    fn add(&self, counts: UsageCounts) {
        for (sum, count) in [
            (&self.requests, counts.requests),
            (&self.not_modified, counts.not_modified),
            (&self.rate_limited, counts.rate_limited),
            (&self.bytes, counts.bytes),
        ] {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    fn get(&self) -> UsageCounts {
        UsageCounts {
            requests: self.requests.load(Ordering::Relaxed),
            not_modified: self.not_modified.load(Ordering::Relaxed),
            rate_limited: self.rate_limited.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Entry {
    fn is(&self, key: Key<'_>) -> bool {
        Key { dataset: self.dataset, name_slug: self.name_slug.as_deref(), day: self.day } == key
    }

    fn counted(&self) -> CountedUsage {
        let (dataset, name_slug, day) = (self.dataset, self.name_slug.clone(), self.day);
        CountedUsage { dataset, name_slug, day, counts: self.counts.get() }
    }
}

impl Table {
    /// An empty one, for at most so many entries.
    pub(super) fn new(most: usize) -> Table {
        let buckets = (0..BUCKETS).map(|_| Link::new()).collect();
        Table { buckets, hasher: RandomState::default(), entries: AtomicUsize::new(0), most }
    }

    /// Adds counts to an entry, which is made if it is not there. `false` if there is no room for it.
    pub(super) fn add(&self, key: Key<'_>, counts: UsageCounts) -> bool {
        let hash = self.hasher.hash_one(key);
        // The remainder is less than the number of buckets.
        let Some(mut link) = self.buckets.get(hash as usize & (BUCKETS - 1)) else { return false };
        loop {
            match link.get() {
                Some(entry) if entry.is(key) => {
                    entry.counts.add(counts);
                    return true;
                }
                Some(entry) => link = &entry.next,
                None => {
                    if self.entries.fetch_add(1, Ordering::Relaxed) >= self.most {
                        self.entries.fetch_sub(1, Ordering::Relaxed);
                        return false;
                    }
                    let entry = Entry {
                        dataset: key.dataset,
                        name_slug: key.name_slug.map(Box::from),
                        day: key.day,
                        counts: AtomicCounts::default(),
                        next: Link::new(),
                    };
                    if link.set(Box::new(entry)).is_err() {
                        // Another was faster; whose entry it is, the next round sees.
                        self.entries.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// Whether it has no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.load(Ordering::Relaxed) == 0
    }

    /// Its entries, as they are now.
    pub(super) fn counted(&self) -> impl Iterator<Item = CountedUsage> {
        self.buckets.iter().flat_map(|bucket| {
            std::iter::successors(bucket.get(), |entry| entry.next.get()).map(|entry| entry.counted())
        })
    }
}

impl Drop for Table {
    /// Lists are taken apart from their beginning: dropping an entry with all that follow it would nest as deep as the
    /// list is long.
    fn drop(&mut self) {
        for bucket in &mut self.buckets {
            let mut link = bucket.take();
            while let Some(mut entry) = link {
                link = entry.next.take();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn key(dataset: u64, name_slug: Option<&str>, day: u32) -> Key<'_> {
        Key { dataset: DatasetId::new(dataset), name_slug, day }
    }

    fn requests(requests: u64) -> UsageCounts {
        UsageCounts { requests, bytes: 10 * requests, ..UsageCounts::default() }
    }

    #[test]
    fn what_differs_in_anything_is_counted_apart() {
        let table = Table::new(10);
        assert!(table.is_empty());
        for key in [key(1, None, 5), key(2, None, 5), key(1, None, 6), key(1, Some("a"), 5), key(1, Some("b"), 5)] {
            assert!(table.add(key, requests(1)) && table.add(key, requests(2)));
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
