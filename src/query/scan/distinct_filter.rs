//! Filters rows that cannot be the first of their group, if the group keys are path codes (small numbers). The
//! remaining rows are grouped anyway, so the filter may keep more rows than necessary.
//!
//! For example, if two row groups with three rows each have the keys 1, 2, 1 and 2, 3, 3, the filter selects the rows 0
//! and 1 of the first row group. Key 2 is already known in the second row group, so only its row 1 remains. If the row
//! groups are filtered in the other order, row 0 of the second row group also remains.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::atomic::{self, AtomicU64};

use datafusion::execution::memory_pool::MemoryReservation;

use crate::scan::dedup_key_source::DedupKeyCodes;
use crate::scan::row_selection::RowSelection;
use crate::scan::sort_rank::LAST_RANK;

/// If group keys are below this limit, all row groups share a 1 MiB table of the lowest sort rank of each key.
const MAX_RANK_TABLE_KEYS: u64 = 1 << 17;

pub(super) struct DistinctFilter {
    /// The lowest sort rank of each group key so far, over all row groups. Empty if there are too many keys.
    lowest_ranks: Vec<AtomicU64>,
    _reservation: MemoryReservation,
}

pub(super) struct RowRankOrder<'a> {
    pub(super) ranks: &'a [u64],
    pub(super) compare: &'a (dyn Fn(usize, usize) -> Ordering + Sync),
}

impl DistinctFilter {
    pub(super) fn new(codes: &DedupKeyCodes<'_>, reserved: MemoryReservation) -> DistinctFilter {
        let keys = if codes.key_limit <= MAX_RANK_TABLE_KEYS { codes.key_limit as usize } else { 0 };
        let keys = if reserved.try_grow(keys * size_of::<AtomicU64>()).is_ok() { keys } else { 0 };
        DistinctFilter { lowest_ranks: (0..keys).map(|_| AtomicU64::new(u64::MAX)).collect(), _reservation: reserved }
    }

    /// Selects the rows that may be the first of their `dedup` group, ascending: at most one of each group. `first` is
    /// the first position of the row group. Without a sort order, rows are ordered by position.
    pub(super) fn select_first_row_per_key(
        &self,
        codes: &DedupKeyCodes<'_>,
        first: usize,
        selected: &RowSelection,
        order: Option<&RowRankOrder<'_>>,
    ) -> Vec<usize> {
        let mut best_rows: HashMap<u64, usize, foldhash::fast::RandomState> = HashMap::default();
        for_each_key(codes, first, selected, |position, key| {
            let row = position - first;
            let rank = order.map_or(position as u64, |order| order.ranks[row]);
            if let Some(best) = self.lowest_ranks.get(key as usize) {
                if rank > best.load(atomic::Ordering::Relaxed) {
                    return;
                }
                best.fetch_min(rank, atomic::Ordering::Relaxed);
            }
            let best = best_rows.entry(key).or_insert(row);
            if let Some(order) = order
                && *best != row
            {
                let ordering = rank.cmp(&order.ranks[*best]).then_with(|| match rank {
                    // Rows without a sort value retain their order.
                    LAST_RANK => Ordering::Greater,
                    _ => (order.compare)(row, *best),
                });
                if ordering == Ordering::Less {
                    *best = row;
                }
            }
        });
        let mut rows: Vec<usize> = best_rows.into_values().collect();
        rows.sort_unstable();
        rows
    }
}

fn for_each_key(codes: &DedupKeyCodes<'_>, first: usize, selected: &RowSelection, visit: impl FnMut(usize, u64)) {
    match selected {
        RowSelection::Range(range) => codes.for_each_key(first + range.start..first + range.end, visit),
        RowSelection::Bits(bits) => codes.for_each_key(bits.set_indices().map(|row| first + row), visit),
        RowSelection::List(rows) => codes.for_each_key(rows.iter().map(|row| first + row), visit),
    }
}
