//! Which rows of a row group are selected, and which of them may still be among the first of an order.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::buffer::BooleanBuffer;

/// What may be among the first of an order, over all row groups: the worst rank that still may, lowered as ranks come.
pub struct First {
    most: usize,
    /// Rows of a higher rank are out.
    bound: AtomicU64,
}

impl First {
    /// The first `most`, of which nothing is known yet.
    pub fn new(most: usize) -> First {
        First { most, bound: AtomicU64::new(u64::MAX) }
    }

    /// How many are wanted.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The rows that may be among the first, ascending: of this row group no more than are wanted. `compare` orders
    /// rows of one rank, and no two alike.
    pub fn among(
        &self,
        selected: &Rows,
        ranks: &[u64],
        mut compare: impl FnMut(usize, usize) -> std::cmp::Ordering,
    ) -> Vec<usize> {
        let bound = self.bound.load(Ordering::Relaxed);
        let mut rows: Vec<usize> = match selected {
            // Most often, and then without asking row by row for the next one.
            Rows::Range(range) => {
                let ranks = ranks[range.clone()].iter().enumerate();
                ranks.filter(|(_, rank)| **rank <= bound).map(|(row, _)| range.start + row).collect()
            }
            _ => selected.iter().filter(|row| ranks[*row] <= bound).collect(),
        };
        if rows.len() <= self.most || self.most == 0 {
            return rows;
        }
        let order = |one: &usize, other: &usize| ranks[*one].cmp(&ranks[*other]).then_with(|| compare(*one, *other));
        let (_, worst, _) = rows.select_nth_unstable_by(self.most - 1, order);
        self.bound.fetch_min(ranks[*worst], Ordering::Relaxed);
        rows.truncate(self.most);
        rows.sort_unstable();
        rows
    }
}

/// Selected rows of a row group, ascending.
pub enum Rows {
    /// All of a range.
    Range(Range<usize>),
    /// Those whose bit is set.
    Bits(BooleanBuffer),
    /// Each by itself.
    List(Vec<usize>),
}

impl Rows {
    /// How many are selected.
    pub fn len(&self) -> usize {
        match self {
            Rows::Range(range) => range.len(),
            Rows::Bits(bits) => bits.count_set_bits(),
            Rows::List(list) => list.len(),
        }
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        match self {
            Rows::Range(range) => range.is_empty(),
            Rows::Bits(bits) => bits.set_indices().next().is_none(),
            Rows::List(list) => list.is_empty(),
        }
    }

    /// The rows.
    pub fn iter(&self) -> Box<dyn Iterator<Item = usize> + Send + '_> {
        match self {
            Rows::Range(range) => Box::new(range.clone()),
            Rows::Bits(bits) => Box::new(bits.set_indices()),
            Rows::List(list) => Box::new(list.iter().copied()),
        }
    }

    /// Those that are selected in both.
    pub fn and(self, rows: BooleanBuffer) -> Rows {
        match self {
            Rows::Range(range) if range.len() == rows.len() => Rows::Bits(rows),
            Rows::Range(range) => {
                let mut bits = arrow::array::BooleanBufferBuilder::new(rows.len());
                bits.append_n(range.start.min(rows.len()), false);
                bits.append_n(range.len(), true);
                bits.append_n(rows.len() - range.end.min(rows.len()), false);
                Rows::Bits(&bits.finish() & &rows)
            }
            Rows::Bits(bits) => Rows::Bits(&bits & &rows),
            Rows::List(list) => Rows::List(list.into_iter().filter(|row| rows.value(*row)).collect()),
        }
    }

    /// The first `most`.
    pub fn truncated(self, most: Option<usize>) -> Rows {
        let Some(most) = most else { return self };
        match self {
            Rows::Range(range) => Rows::Range(range.start..range.end.min(range.start.saturating_add(most))),
            Rows::Bits(bits) => Rows::List(bits.set_indices().take(most).collect()),
            Rows::List(mut list) => {
                list.truncate(most);
                Rows::List(list)
            }
        }
    }
}
