//! What was counted and is not in the catalog yet: bounded, and taken in batches that are written once.

use std::collections::BTreeMap;

use strata_catalog::{CountedUsage, UsageCounts};
use strata_types::ids::DatasetId;

/// Rows of a batch, which is one transaction.
const BATCH: usize = 1_000;

type Key = (u64, u32, Option<Box<str>>);

#[derive(Debug)]
pub(super) struct Unwritten {
    waiting: BTreeMap<Key, UsageCounts>,
    most: usize,
    /// The batch that is being written, or of which nobody knows whether it was.
    batch: Vec<CountedUsage>,
    number: u64,
}

impl Unwritten {
    pub(super) fn new(most: usize) -> Unwritten {
        Unwritten { waiting: BTreeMap::new(), most, batch: Vec::new(), number: 0 }
    }

    /// Takes counts over, and gives the number of requests that are lost because there is no room.
    pub(super) fn add(&mut self, counted: CountedUsage) -> u64 {
        let CountedUsage { dataset, name_slug, day, counts } = counted;
        let key = (dataset.get(), day, name_slug);
        if self.waiting.len() >= self.most && !self.waiting.contains_key(&key) {
            return counts.requests;
        }
        self.waiting.entry(key).or_default().add(counts);
        0
    }

    /// The next batch with its number; the same one until it is [`Unwritten::written`]. `None` if there is nothing.
    pub(super) fn batch(&mut self) -> Option<(u64, &[CountedUsage])> {
        if self.batch.is_empty() {
            while self.batch.len() < BATCH
                && let Some(((dataset, day, name_slug), counts)) = self.waiting.pop_first()
            {
                self.batch.push(CountedUsage { dataset: DatasetId::new(dataset), name_slug, day, counts });
            }
            if self.batch.is_empty() {
                return None;
            }
            self.number += 1;
        }
        Some((self.number, &self.batch))
    }

    pub(super) fn written(&mut self) {
        self.batch.clear();
    }

    /// All that waits, or is in the batch.
    pub(super) fn of(&self, dataset: DatasetId) -> impl Iterator<Item = CountedUsage> {
        let from = (dataset.get(), 0, None);
        let waiting = self.waiting.range(from..).take_while(move |((id, ..), _)| *id == dataset.get());
        let waiting = waiting.map(move |((_, day, name_slug), counts)| CountedUsage {
            dataset,
            name_slug: name_slug.clone(),
            day: *day,
            counts: *counts,
        });
        waiting.chain(self.batch.iter().filter(move |counted| counted.dataset == dataset).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(dataset: u64, requests: u64) -> CountedUsage {
        let counts = UsageCounts { requests, ..UsageCounts::default() };
        CountedUsage { dataset: DatasetId::new(dataset), name_slug: None, day: 7, counts }
    }

    #[test]
    fn a_batch_stays_the_same_until_it_is_written() {
        let mut unwritten = Unwritten::new(10_000);
        assert!(unwritten.batch().is_none());
        for dataset in (1..=1_500).rev() {
            assert_eq!(unwritten.add(counted(dataset, 1)), 0);
        }
        let first = unwritten.batch().map(|(number, rows)| (number, rows.to_vec())).expect("a batch");
        assert_eq!((first.0, first.1.len()), (1, 1_000));
        assert!(first.1.is_sorted_by_key(|row| (row.dataset.get(), row.day)));
        // What is counted meanwhile is no part of it.
        assert_eq!(unwritten.add(counted(1, 5)), 0);
        assert_eq!(unwritten.batch().map(|(number, rows)| (number, rows.to_vec())), Some(first));
        let of = |unwritten: &Unwritten| unwritten.of(DatasetId::new(1)).map(|row| row.counts.requests).sum::<u64>();
        assert_eq!(of(&unwritten), 6);
        unwritten.written();
        assert_eq!(of(&unwritten), 5);
        let (number, rows) = unwritten.batch().expect("a batch");
        assert_eq!((number, rows.len()), (2, 501));
        assert_eq!(rows[0], counted(1, 5));
        unwritten.written();
        assert!(unwritten.batch().is_none());
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_lost_is_told() {
        let mut unwritten = Unwritten::new(2);
        let lost: Vec<u64> = [(1, 1), (2, 1), (3, 4), (1, 2)]
            .map(|(dataset, requests)| unwritten.add(counted(dataset, requests)))
            .to_vec();
        assert_eq!(lost, [0, 0, 4, 0]);
        assert_eq!(unwritten.batch().map(|(_, rows)| rows.to_vec()), Some(vec![counted(1, 3), counted(2, 1)]));
        // Room for others while the batch is written.
        assert_eq!(unwritten.add(counted(3, 1)), 0);
    }
}
