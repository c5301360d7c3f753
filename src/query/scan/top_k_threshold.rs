//! Filters rows that cannot be among the first *k* of an order.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::scan::row_selection::RowSelection;

/// The highest rank that may be among the first `k` of an order. Each row group can lower the rank.
pub(super) struct TopKThreshold {
    pub(super) k: usize,
    max_rank: AtomicU64,
}

impl TopKThreshold {
    pub(super) fn new(k: usize) -> TopKThreshold {
        TopKThreshold { k, max_rank: AtomicU64::new(u64::MAX) }
    }

    pub(super) fn may_contain_rank(&self, rank: u64) -> bool {
        rank <= self.max_rank.load(Ordering::Relaxed)
    }

    /// Selects the rows that may be among the first, ascending, at most `k`. `compare` orders rows with the same rank.
    pub(super) fn select_rows(
        &self,
        selected: &RowSelection,
        ranks: &[u64],
        mut compare: impl FnMut(usize, usize) -> std::cmp::Ordering,
    ) -> Vec<usize> {
        let threshold = self.max_rank.load(Ordering::Relaxed);
        let mut rows: Vec<usize> = match selected {
            // The most frequent case, without a virtual call for each row.
            RowSelection::Range(range) => {
                let ranks = ranks[range.clone()].iter().enumerate();
                ranks.filter(|(_, rank)| **rank <= threshold).map(|(row, _)| range.start + row).collect()
            }
            _ => selected.iter().filter(|row| ranks[*row] <= threshold).collect(),
        };
        if rows.len() <= self.k || self.k == 0 {
            return rows;
        }
        let order = |one: &usize, other: &usize| ranks[*one].cmp(&ranks[*other]).then_with(|| compare(*one, *other));
        let (_, worst, _) = rows.select_nth_unstable_by(self.k - 1, order);
        self.max_rank.fetch_min(ranks[*worst], Ordering::Relaxed);
        rows.truncate(self.k);
        rows.sort_unstable();
        rows
    }
}
