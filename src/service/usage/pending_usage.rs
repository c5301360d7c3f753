//! A bounded queue of counts that are not in the catalog yet. Batches are numbered, so that a batch whose commit has an
//! unknown outcome can be repeated without counting twice.

use std::collections::BTreeMap;

use strata_catalog::{UsageCounts, UsageIncrement};
use strata_types::ids::DatasetId;

use super::usage_table::UsageKey;

/// Maximum number of rows in a batch of usage counts, which is added in one transaction.
const MAX_BATCH_ROWS: usize = 1_000;

#[derive(Debug)]
pub(super) struct PendingUsage {
    entries: BTreeMap<UsageKey, UsageCounts>,
    max_entries: usize,
    /// The batch of counts whose commit is not confirmed yet.
    batch: Vec<UsageIncrement>,
    batch_number: u64,
}

impl PendingUsage {
    pub(super) fn new(max_entries: usize) -> PendingUsage {
        PendingUsage { entries: BTreeMap::new(), max_entries, batch: Vec::new(), batch_number: 0 }
    }

    /// Adds usage counts to the queue. Returns the number of requests that are lost because the queue is full.
    pub(super) fn add_or_count_lost(&mut self, key: UsageKey, counts: UsageCounts) -> u64 {
        if self.entries.len() >= self.max_entries && !self.entries.contains_key(&key) {
            return counts.requests;
        }
        self.entries.entry(key).or_default().add(counts);
        0
    }

    /// Returns the number and the rows of the next batch: the same batch until [`PendingUsage::confirm_batch`].
    pub(super) fn next_batch(&mut self) -> Option<(u64, &[UsageIncrement])> {
        if self.batch.is_empty() {
            let entries = std::iter::from_fn(|| self.entries.pop_first()).take(MAX_BATCH_ROWS);
            self.batch.extend(entries.map(|(key, counts)| key.with_counts(counts)));
            self.batch_number += u64::from(!self.batch.is_empty());
        }
        (!self.batch.is_empty()).then_some((self.batch_number, &self.batch))
    }

    pub(super) fn confirm_batch(&mut self) {
        self.batch.clear();
    }

    /// Returns the counts of a dataset in the queue and in the unconfirmed batch.
    pub(super) fn counts_for_dataset(&self, dataset: DatasetId) -> impl Iterator<Item = UsageIncrement> {
        let queued = self.entries.range(UsageKey { dataset, day: 0, name_slug: None }..);
        let queued = queued.take_while(move |(key, _)| key.dataset == dataset);
        let batch = self.batch.iter().filter(move |increment| increment.dataset == dataset);
        queued.map(|(key, counts)| key.with_counts(*counts)).chain(batch.cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dataset: u64) -> UsageKey {
        UsageKey { dataset: DatasetId::new(dataset), day: 7, name_slug: None }
    }

    fn requests(requests: u64) -> UsageCounts {
        UsageCounts { requests, ..UsageCounts::default() }
    }

    #[test]
    fn batch_repeats_until_confirmed() {
        let mut pending = PendingUsage::new(10_000);
        assert!(pending.next_batch().is_none());
        for dataset in (1..=1_500).rev() {
            assert_eq!(pending.add_or_count_lost(key(dataset), requests(1)), 0);
        }
        let first = pending.next_batch().map(|(number, rows)| (number, rows.to_vec())).expect("no batch");
        assert_eq!((first.0, first.1.len()), (1, 1_000));
        assert!(first.1.is_sorted_by_key(|row| (row.dataset.get(), row.day)));
        // Counts that are added later are not part of the unconfirmed batch.
        assert_eq!(pending.add_or_count_lost(key(1), requests(5)), 0);
        assert_eq!(pending.next_batch().map(|(number, rows)| (number, rows.to_vec())), Some(first));
        let requests_of_dataset = |pending: &PendingUsage| {
            pending.counts_for_dataset(DatasetId::new(1)).map(|row| row.counts.requests).sum::<u64>()
        };
        assert_eq!(requests_of_dataset(&pending), 6);
        pending.confirm_batch();
        assert_eq!(requests_of_dataset(&pending), 5);
        let (number, rows) = pending.next_batch().expect("no batch");
        assert_eq!((number, rows.len()), (2, 501));
        assert_eq!(rows[0], key(1).with_counts(requests(5)));
        pending.confirm_batch();
        assert!(pending.next_batch().is_none());
    }

    #[test]
    fn requests_beyond_maximum_are_lost() {
        let mut pending = PendingUsage::new(2);
        let lost: Vec<u64> = [(1, 1), (2, 1), (3, 4), (1, 2)]
            .map(|(dataset, count)| pending.add_or_count_lost(key(dataset), requests(count)))
            .to_vec();
        assert_eq!(lost, [0, 0, 4, 0]);
        assert_eq!(
            pending.next_batch().map(|(_, rows)| rows.to_vec()),
            Some(vec![key(1).with_counts(requests(3)), key(2).with_counts(requests(1))])
        );
        // Entries of the unconfirmed batch no longer count toward the maximum of the queue.
        assert_eq!(pending.add_or_count_lost(key(3), requests(1)), 0);
    }
}
