//! Filters rows that cannot be among the first *k* of an order.
//!
//! For example, `k` is 2 and the first row group has the [ranks](crate::scan::sort_rank) 7, 3, 9, and 5. The rows with
//! the ranks 3 and 5 remain, and the threshold becomes 5. A row group whose minimum rank is above 5 is not read, and in
//! other row groups, only rows up to rank 5 remain.
//!
//! - The first `k` of all selected rows always remain. If `k` is not 0, at most `k` rows of each row group remain.
//! - A row with the rank of the threshold remains, because its complete value can precede the others.
//! - The threshold never rises. Row groups on several threads can share it without locks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::scan::row_selection::RowSelection;

/// The highest rank that can still be among the first `k` entities of a sort order. Each row group can lower the rank.
pub(super) struct TopKThreshold {
    pub(super) k: usize,
    max_rank: AtomicU64,
}

impl TopKThreshold {
    pub(super) fn new(k: usize) -> TopKThreshold {
        TopKThreshold { k, max_rank: AtomicU64::new(u64::MAX) }
    }

    pub(super) fn may_be_in_top_k(&self, rank: u64) -> bool {
        rank <= self.max_rank.load(Ordering::Relaxed)
    }

    /// Selects the at most `k` rows that may be among the first `k` of a sort order, ascending. `compare` breaks ties.
    pub(super) fn select_top_k_rows(
        &self,
        selected: &RowSelection,
        ranks: &[u64],
        mut compare: impl FnMut(usize, usize) -> std::cmp::Ordering,
    ) -> Vec<usize> {
        let threshold = self.max_rank.load(Ordering::Relaxed);
        let mut rows: Vec<usize> = match selected {
            // A range of rows, the most frequent case, is filtered without a virtual call for each row.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn first_rows_remain(
            k in 1_usize..6,
            row_groups in proptest::collection::vec(proptest::collection::vec(0_u64..10, 0..20), 1..6),
        ) {
            let threshold = TopKThreshold::new(k);
            let mut expected = Vec::new();
            let mut remaining = Vec::new();
            for (number, ranks) in row_groups.iter().enumerate() {
                let all = 0..ranks.len();
                let selected = RowSelection::Range(all.clone());
                let rows = threshold.select_top_k_rows(&selected, ranks, |one, other| one.cmp(&other));
                prop_assert!(rows.is_sorted() && rows.len() <= k);
                expected.extend(all.map(|row| (ranks[row], number, row)));
                remaining.extend(rows.into_iter().map(|row| (ranks[row], number, row)));
            }
            for rows in [&mut expected, &mut remaining] {
                rows.sort_unstable();
                rows.truncate(k);
            }
            prop_assert_eq!(remaining, expected);
        }
    }
}
