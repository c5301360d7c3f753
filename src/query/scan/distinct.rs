//! Which rows may be the first of their group, where the keys of groups are codes: the others are left out before
//! anything is grouped. What is left is grouped all the same, so leaving out less is never wrong.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{self, AtomicU64};

use datafusion::execution::memory_pool::MemoryReservation;

use crate::scan::dedup_key::GroupCodes;
use crate::scan::row_selection::RowSelection;

/// Keys below this have a place each in the table that all row groups share: 1 MiB.
const TABLE_KEYS: u64 = 1 << 17;

/// The best rank of each group so far, over all row groups.
pub(super) struct DistinctFilter {
    /// By key; none where there are too many.
    best: Vec<AtomicU64>,
    _reserved: MemoryReservation,
}

/// The order of rows of a row group: their ranks, and what tells rows of one rank apart.
pub(super) struct RowOrder<'a> {
    /// By row; lower ranks come first.
    pub(super) ranks: &'a [u64],
    /// Orders rows of one rank.
    pub(super) compare: &'a (dyn Fn(usize, usize) -> Ordering + Sync),
}

impl DistinctFilter {
    /// A filter for these keys; its memory is taken from the reservation, as far as there is any.
    pub(super) fn new(codes: &GroupCodes<'_>, reserved: MemoryReservation) -> DistinctFilter {
        let keys = if codes.space <= TABLE_KEYS { codes.space as usize } else { 0 };
        let keys = if reserved.try_grow(keys * size_of::<AtomicU64>()).is_ok() { keys } else { 0 };
        DistinctFilter { best: (0..keys).map(|_| AtomicU64::new(u64::MAX)).collect(), _reserved: reserved }
    }

    /// The rows that may be the first of their group, ascending: of this row group one of each group at most. `first`
    /// is the position of the row group. Without an order, rows come in the order of their positions.
    pub(super) fn select(
        &self,
        codes: &GroupCodes<'_>,
        first: usize,
        selected: &RowSelection,
        order: Option<&RowOrder<'_>>,
    ) -> Vec<usize> {
        let Some(order) = order else { return self.select_unordered(codes, first, selected) };
        let mut best_rows: HashMap<u64, usize, foldhash::fast::RandomState> = HashMap::default();
        each(codes, first, selected, |position, key| {
            let row = position - first;
            let rank = order.ranks[row];
            if let Some(best) = self.best.get(key as usize) {
                // Rows of the same rank are told apart by more.
                if rank > best.load(atomic::Ordering::Relaxed) {
                    return;
                }
                best.fetch_min(rank, atomic::Ordering::Relaxed);
            }
            let best = best_rows.entry(key).or_insert(row);
            if *best != row {
                let ordering = rank.cmp(&order.ranks[*best]).then_with(|| match rank {
                    // What comes last keeps its order.
                    u64::MAX => Ordering::Greater,
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

    fn select_unordered(&self, codes: &GroupCodes<'_>, first: usize, selected: &RowSelection) -> Vec<usize> {
        let mut rows = Vec::new();
        let mut seen: HashSet<u64, foldhash::fast::RandomState> = HashSet::default();
        each(codes, first, selected, |position, key| {
            let is_first = match self.best.get(key as usize) {
                Some(best) if best.load(atomic::Ordering::Relaxed) > position as u64 => {
                    best.fetch_min(position as u64, atomic::Ordering::Relaxed);
                    true
                }
                Some(_) => false,
                None => seen.insert(key),
            };
            if is_first {
                rows.push(position - first);
            }
        });
        rows
    }
}

/// Calls `visit` with the position and the key of each selected row, in their order.
fn each(codes: &GroupCodes<'_>, first: usize, selected: &RowSelection, visit: impl FnMut(usize, u64)) {
    match selected {
        RowSelection::Range(range) => codes.each(first + range.start..first + range.end, visit),
        RowSelection::Bits(bits) => codes.each(bits.set_indices().map(|row| first + row), visit),
        RowSelection::List(rows) => codes.each(rows.iter().map(|row| first + row), visit),
    }
}
