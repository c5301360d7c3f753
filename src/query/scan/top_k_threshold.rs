//! Filters rows that cannot be among the first *k* of an order.
//!
//! For example, `k` is 2 and the first row group has the [ranks](crate::scan::sort_rank) 7, 3, 9, and 5. The rows with
//! the ranks 3 and 5 remain, and the threshold becomes 5. A row group whose minimum rank is above 5 is not read, and in
//! other row groups, only rows up to rank 5 remain. If the second row group has the ranks 4 and 6, the row with the
//! rank 4 remains, and the threshold becomes 4.
//!
//! - The first `k` of all selected rows always remain. If `k` is not 0, at most `k` rows of each row group remain.
//! - A row with the rank of the threshold remains, because its complete value can precede the others. If a row group
//!   has `k` rows with the same best number, later row groups without a better number are not read either.
//! - The threshold never rises. Row groups on several threads share it, and compare their rows without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::execution::memory_pool::MemoryReservation;
use parking_lot::Mutex;

use crate::scan::row_selection::RowSelection;
use crate::scan::sort_key::RankBounds;

/// The highest rank that can still be among the first `k` entities of a sort order. Each row group can lower the rank.
pub(super) struct TopKThreshold {
    pub(super) k: usize,
    max_rank: AtomicU64,
    /// The bits of a number and the position of its row: at most `k - 1` rows precede this row.
    max_number: Mutex<Option<(u64, u64)>>,
    /// The ranks of the best rows of all row groups. `None` if each row group lowers the threshold only on its own.
    best_ranks: Option<Mutex<BestRanks>>,
}

struct BestRanks {
    k: usize,
    /// In any order, the `k` lowest ranks and some higher ones.
    ranks: Vec<u64>,
    _reservation: MemoryReservation,
}

impl BestRanks {
    /// Adds ranks. Returns the `k`-th lowest of all ranks, or `None` until enough ranks were added since the last time.
    fn add(&mut self, ranks: impl Iterator<Item = u64>) -> Option<u64> {
        self.ranks.extend(ranks);
        // A selection takes time for `k` ranks, so it waits for a part of as many new ranks.
        if self.ranks.len() < self.k + self.k / 8 {
            return None;
        }
        let (_, max_rank, _) = self.ranks.select_nth_unstable(self.k - 1);
        let max_rank = *max_rank;
        self.ranks.truncate(self.k);
        Some(max_rank)
    }
}

impl TopKThreshold {
    pub(super) fn new(k: usize) -> TopKThreshold {
        TopKThreshold { k, max_rank: AtomicU64::new(u64::MAX), max_number: Mutex::new(None), best_ranks: None }
    }

    /// Creates a threshold from the ranks of all row groups together, which is lower than that of any row group.
    /// Returns `None` if there is no memory for `k` ranks.
    pub(super) fn try_with_best_ranks(k: usize, reservation: MemoryReservation) -> Option<TopKThreshold> {
        const RESERVED_BYTES_PER_RANK: usize = 2 * size_of::<u64>();
        if k == 0 {
            return None;
        }
        reservation.try_grow(k.saturating_mul(RESERVED_BYTES_PER_RANK)).ok()?;
        let best_ranks = BestRanks { k, ranks: Vec::new(), _reservation: reservation };
        Some(TopKThreshold { best_ranks: Some(Mutex::new(best_ranks)), ..TopKThreshold::new(k) })
    }

    /// Whether a row group with these limits, whose first row has this position, may contain one of the first `k` rows.
    pub(super) fn may_contain(&self, bounds: RankBounds, first_position: u64) -> bool {
        let follows = |number| self.max_number.lock().is_some_and(|max_number| (number, first_position) > max_number);
        bounds.min <= self.max_rank.load(Ordering::Relaxed) && !bounds.min_number.is_some_and(follows)
    }

    /// Excludes row groups without better numbers after a row, because at most `k - 1` rows precede that row. `bits`
    /// are its [`SortColumn::exact_number_bits`](crate::scan::sort_key::SortColumn::exact_number_bits).
    pub(super) fn lower_to_number(&self, bits: u64, position: u64) {
        let mut max_number = self.max_number.lock();
        *max_number = Some(max_number.map_or((bits, position), |before| before.min((bits, position))));
    }

    /// Lowers the threshold, before rows are scanned, to the lowest rank up to which there are certainly `k` rows.
    /// Needs the maximum rank and the number of rows of each row group, in any order.
    pub(super) fn lower_to_k_rows(&self, mut row_groups: Vec<(u64, usize)>) {
        row_groups.sort_unstable();
        let mut rows = 0;
        let has_k_rows = |(_, more): &(u64, usize)| {
            rows += more;
            rows >= self.k
        };
        if let Some((max_rank, _)) = row_groups.into_iter().find(has_k_rows) {
            self.max_rank.fetch_min(max_rank, Ordering::Relaxed);
        }
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
        if self.k == 0 {
            return rows;
        }
        if rows.len() > self.k {
            let order =
                |one: &usize, other: &usize| ranks[*one].cmp(&ranks[*other]).then_with(|| compare(*one, *other));
            let (_, worst, _) = rows.select_nth_unstable_by(self.k - 1, order);
            self.max_rank.fetch_min(ranks[*worst], Ordering::Relaxed);
            rows.truncate(self.k);
            rows.sort_unstable();
        }
        if let Some(best_ranks) = &self.best_ranks
            && let Some(max_rank) = best_ranks.lock().add(rows.iter().map(|row| ranks[*row]))
        {
            self.max_rank.fetch_min(max_rank, Ordering::Relaxed);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn first_rows_remain(
            k in 1_usize..6,
            row_groups in proptest::collection::vec(proptest::collection::vec(0_u64..10, 0..20), 1..6),
        ) {
            let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
            let reservation = MemoryConsumer::new("best ranks").register(&pool);
            let shared = TopKThreshold::try_with_best_ranks(k, reservation).expect("memory");
            for threshold in [TopKThreshold::new(k), shared] {
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
}
