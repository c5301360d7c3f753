//! The rows of a row group that a scan has selected so far.

use std::ops::Range;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;

/// Selected rows of a row group, in ascending order.
#[derive(Clone)]
pub(super) enum RowSelection {
    Range(Range<usize>),
    /// One bit for each row of the row group.
    Bits(BooleanBuffer),
    List(Vec<usize>),
}

impl RowSelection {
    pub(super) fn len(&self) -> usize {
        match self {
            RowSelection::Range(range) => range.len(),
            RowSelection::Bits(bits) => bits.count_set_bits(),
            RowSelection::List(list) => list.len(),
        }
    }

    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = usize> + Send + '_> {
        match self {
            RowSelection::Range(range) => Box::new(range.clone()),
            RowSelection::Bits(bits) => Box::new(bits.set_indices()),
            RowSelection::List(list) => Box::new(list.iter().copied()),
        }
    }

    /// Calls `visit` with each row. Faster than [`RowSelection::iter`] for many rows.
    pub(super) fn for_each(&self, visit: impl FnMut(usize)) {
        match self {
            RowSelection::Range(range) => range.clone().for_each(visit),
            RowSelection::Bits(bits) => bits.set_indices().for_each(visit),
            RowSelection::List(list) => list.iter().copied().for_each(visit),
        }
    }

    pub(super) fn intersect(self, rows: BooleanBuffer) -> RowSelection {
        match self {
            RowSelection::Range(range) if range.len() == rows.len() => RowSelection::Bits(rows),
            RowSelection::Range(range) => {
                let mut bits = BooleanBufferBuilder::new(rows.len());
                bits.append_n(range.start.min(rows.len()), false);
                bits.append_n(range.len(), true);
                bits.append_n(rows.len() - range.end.min(rows.len()), false);
                RowSelection::Bits(&bits.finish() & &rows)
            }
            RowSelection::Bits(bits) => RowSelection::Bits(&bits & &rows),
            RowSelection::List(list) => RowSelection::List(list.into_iter().filter(|row| rows.value(*row)).collect()),
        }
    }

    /// Appends one bit for each of the `rows` rows of the row group.
    pub(super) fn append_to(&self, bits: &mut BooleanBufferBuilder, rows: usize) {
        match self {
            RowSelection::Bits(selected) => bits.append_buffer(selected),
            selection => {
                let first = bits.len();
                bits.append_n(rows, false);
                selection.iter().for_each(|row| bits.set_bit(first + row, true));
            }
        }
    }

    pub(super) fn truncate(self, max: Option<usize>) -> RowSelection {
        let Some(max) = max else { return self };
        match self {
            RowSelection::Range(rows) => RowSelection::Range(rows.start..rows.end.min(rows.start.saturating_add(max))),
            RowSelection::Bits(bits) => RowSelection::List(bits.set_indices().take(max).collect()),
            RowSelection::List(mut list) => {
                list.truncate(max);
                RowSelection::List(list)
            }
        }
    }
}
