//! Counts that are not in the catalog yet: limited, and written in batches, each of them once.

use std::collections::BTreeMap;

use strata_catalog::{CountedUsage, UsageCounts};
use strata_types::ids::DatasetId;

use super::table::Key;

/// Rows of a batch, which is one transaction.
const BATCH_ROWS: usize = 1_000;

#[derive(Debug)]
pub(super) struct Unwritten {
    waiting: BTreeMap<Key, UsageCounts>,
    max_waiting: usize,
    /// The batch that is being written, or can have been written.
    batch: Vec<CountedUsage>,
    number: u64,
}

impl Unwritten {
    pub(super) fn new(max_waiting: usize) -> Unwritten {
        Unwritten { waiting: BTreeMap::new(), max_waiting, batch: Vec::new(), number: 0 }
    }

    /// Adds counts, and returns the number of requests that are lost because the maximum is reached.
    pub(super) fn add(&mut self, key: Key, counts: UsageCounts) -> u64 {
        if self.waiting.len() >= self.max_waiting && !self.waiting.contains_key(&key) {
            return counts.requests;
        }
        self.waiting.entry(key).or_default().add(counts);
        0
    }

    /// The next batch with its number, or the same one until it is [`Unwritten::written`]. `None` if there is nothing.
    pub(super) fn batch(&mut self) -> Option<(u64, &[CountedUsage])> {
        if self.batch.is_empty() {
            let first = std::iter::from_fn(|| self.waiting.pop_first()).take(BATCH_ROWS);
            self.batch.extend(first.map(|(key, counts)| key.counted(counts)));
            self.number += u64::from(!self.batch.is_empty());
        }
        (!self.batch.is_empty()).then_some((self.number, &self.batch))
    }

    pub(super) fn written(&mut self) {
        self.batch.clear();
    }

    /// The counts of a dataset that wait or are in the batch.
    pub(super) fn of_dataset(&self, dataset: DatasetId) -> impl Iterator<Item = CountedUsage> {
        let waiting = self.waiting.range(Key { dataset, day: 0, name_slug: None }..);
        let waiting = waiting.take_while(move |(key, _)| key.dataset == dataset);
        let batch = self.batch.iter().filter(move |counted| counted.dataset == dataset);
        waiting.map(|(key, counts)| key.counted(*counts)).chain(batch.cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dataset: u64) -> Key {
        Key { dataset: DatasetId::new(dataset), day: 7, name_slug: None }
    }

    fn requests(requests: u64) -> UsageCounts {
        UsageCounts { requests, ..UsageCounts::default() }
    }

    #[test]
    fn batch_stays_until_it_is_written() {
        let mut unwritten = Unwritten::new(10_000);
        assert!(unwritten.batch().is_none());
        for dataset in (1..=1_500).rev() {
            assert_eq!(unwritten.add(key(dataset), requests(1)), 0);
        }
        let first = unwritten.batch().map(|(number, rows)| (number, rows.to_vec())).expect("a batch");
        assert_eq!((first.0, first.1.len()), (1, 1_000));
        assert!(first.1.is_sorted_by_key(|row| (row.dataset.get(), row.day)));
        // What is counted meanwhile is no part of it.
        assert_eq!(unwritten.add(key(1), requests(5)), 0);
        assert_eq!(unwritten.batch().map(|(number, rows)| (number, rows.to_vec())), Some(first));
        let of =
            |unwritten: &Unwritten| unwritten.of_dataset(DatasetId::new(1)).map(|row| row.counts.requests).sum::<u64>();
        assert_eq!(of(&unwritten), 6);
        unwritten.written();
        assert_eq!(of(&unwritten), 5);
        let (number, rows) = unwritten.batch().expect("a batch");
        assert_eq!((number, rows.len()), (2, 501));
        assert_eq!(rows[0], key(1).counted(requests(5)));
        unwritten.written();
        assert!(unwritten.batch().is_none());
    }

    #[test]
    fn requests_beyond_maximum_are_lost() {
        let mut unwritten = Unwritten::new(2);
        let lost: Vec<u64> = [(1, 1), (2, 1), (3, 4), (1, 2)]
            .map(|(dataset, count)| unwritten.add(key(dataset), requests(count)))
            .to_vec();
        assert_eq!(lost, [0, 0, 4, 0]);
        assert_eq!(
            unwritten.batch().map(|(_, rows)| rows.to_vec()),
            Some(vec![key(1).counted(requests(3)), key(2).counted(requests(1))])
        );
        // Room for others while the batch is written.
        assert_eq!(unwritten.add(key(3), requests(1)), 0);
    }
}
