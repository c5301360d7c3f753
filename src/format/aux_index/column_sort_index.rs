//! Sort index: all entities of a file in the order of a column, so that `sort` with a limit reads no column.
//!
//! For example, the values 7, 3, none, and 7 at the positions 0 to 3 result in:
//!
//! | Part | Content |
//! |---|---|
//! | `positions` | 1, 0, 3, 2 |
//! | `value_starts` | bits 0 and 1: the value 3 starts at index 0, the value 7 at index 1 |
//! | `value_count` | 3 |
//!
//! A cursor returns 1, 0, 3, 2 in ascending order, and 0, 3, 1, 2 in descending order.
//!
//! - Entities with equal values are in the order of their positions in both directions. So the descending order is not
//!   the reverse of `positions`: it consists of the runs of equal values, from the last run to the first one.
//! - Entities without a sortable value are last in both directions.

use std::ops::Range;
use std::sync::Arc;

use strata_json::SortDirection;

use super::AuxIndex;

/// Permutation of a file's entities in the order of a column. Takes 4 bytes and one bit per entity.
#[derive(Debug)]
pub struct ColumnSortIndex {
    /// Positions, ascending by value and then by position. Entities without a sortable value are last.
    pub positions: Vec<u32>,
    /// One bit per index in `positions`, set at the first entity of each distinct value.
    pub value_starts: Vec<u64>,
    pub value_count: usize,
    pub has_empty_string: bool,
}

impl ColumnSortIndex {
    /// Returns the index of the first entity with the same value as the entity at `index`.
    fn value_start(&self, index: usize) -> usize {
        let mut word = index / 64;
        let mask = u64::MAX >> (63 - index % 64);
        let mut bits = self.value_starts[word] & mask;
        while bits == 0 && word > 0 {
            word -= 1;
            bits = self.value_starts[word];
        }
        word * 64 + (63 - bits.leading_zeros().min(63)) as usize
    }
}

impl AuxIndex for ColumnSortIndex {
    const MAX_BYTES_PER_ENTITY: u64 = size_of::<u32>() as u64 + 1;

    fn memory_bytes(&self) -> usize {
        self.positions.capacity() * size_of::<u32>() + self.value_starts.capacity() * size_of::<u64>()
    }
}

/// The positions of the first entities of a sort.
#[derive(Debug)]
pub struct SortedPrefix(pub Vec<u64>);

impl AuxIndex for SortedPrefix {
    const MAX_BYTES_PER_ENTITY: u64 = 0;

    fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}

#[derive(Clone, Debug)]
pub struct SortIndexCursor {
    order: Arc<ColumnSortIndex>,
    /// In ascending order, the range of all `positions`; in descending order, the current run of equal values.
    run: Range<usize>,
    /// In descending order, the runs of equal values before this index in `positions` are returned after `run`.
    remaining_values: usize,
    without_value: Range<usize>,
}

impl SortIndexCursor {
    pub fn new(order: Arc<ColumnSortIndex>, direction: SortDirection) -> SortIndexCursor {
        let value_count = order.value_count;
        let count = order.positions.len();
        match direction {
            SortDirection::Ascending => {
                SortIndexCursor { order, run: 0..count, remaining_values: 0, without_value: 0..0 }
            }
            SortDirection::Descending => {
                SortIndexCursor { order, run: 0..0, remaining_values: value_count, without_value: value_count..count }
            }
        }
    }
}

impl Iterator for SortIndexCursor {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.run.is_empty() {
            self.run = match self.remaining_values {
                0 => std::mem::take(&mut self.without_value),
                end => {
                    self.remaining_values = self.order.value_start(end - 1);
                    self.remaining_values..end
                }
            };
        }
        self.run.next().map(|index| self.order.positions[index])
    }
}
