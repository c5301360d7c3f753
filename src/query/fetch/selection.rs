//! Which entities an answer holds, in its order: selected before its first byte.

use std::ops::Range;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::query::QueryError;

/// Positions of the selected entities. What it holds is accounted to the memory pool until it is dropped.
#[derive(Debug)]
pub struct Selection {
    positions: Positions,
    /// Of a list. A range holds nothing.
    _reservation: Option<MemoryReservation>,
}

#[derive(Debug)]
pub enum Outcome {
    /// `count=true`: how many entities the request would return.
    Count(u64),
    Selection(Selection),
}

impl Outcome {
    pub fn len(&self) -> u64 {
        match self {
            Outcome::Count(count) => *count,
            Outcome::Selection(selection) => selection.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

pub(in crate::query) struct SelectionBuilder {
    positions: Positions,
    reservation: MemoryReservation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Positions {
    /// All from the first up to, not including, the last.
    Range(Range<u64>),
    List(Vec<u64>),
}

impl Positions {
    pub(super) fn at(&self, place: u64) -> u64 {
        match self {
            Positions::Range(range) => range.start + place,
            Positions::List(list) => list[place as usize],
        }
    }

    pub fn to_vec(&self) -> Vec<u64> {
        match self {
            Positions::Range(range) => range.clone().collect(),
            Positions::List(list) => list.clone(),
        }
    }
}

impl SelectionBuilder {
    /// Nothing selected; memory is taken from the reservation.
    pub(in crate::query) fn new(reservation: MemoryReservation) -> SelectionBuilder {
        SelectionBuilder { positions: Positions::Range(0..0), reservation }
    }

    pub(in crate::query) fn finish(self) -> Selection {
        let SelectionBuilder { positions, reservation } = self;
        let is_range = matches!(positions, Positions::Range(_));
        Selection { positions, _reservation: (!is_range).then_some(reservation) }
    }

    pub(in crate::query) fn append(&mut self, batch: &RecordBatch) -> Result<(), QueryError> {
        let positions = batch.column(0).as_primitive::<UInt64Type>().values();
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return Ok(()) };
        let run = last.checked_sub(*first).is_some_and(|steps| steps == positions.len() as u64 - 1)
            && positions.windows(2).all(|pair| pair[1] == pair[0] + 1);
        match &mut self.positions {
            Positions::Range(range) if run && (range.is_empty() || range.end == *first) => {
                if range.is_empty() {
                    range.start = *first;
                }
                range.end = *last + 1;
            }
            Positions::Range(range) => {
                let length = (range.end - range.start) as usize + positions.len();
                self.reservation.try_grow(length * size_of::<u64>())?;
                let mut list: Vec<u64> = Vec::with_capacity(length);
                list.extend(range.clone());
                list.extend_from_slice(positions);
                self.positions = Positions::List(list);
            }
            Positions::List(list) => {
                let missing = (list.len() + positions.len()).saturating_sub(list.capacity());
                if missing > 0 {
                    // Room grows by doubling, so that appending stays linear; the pool is asked first.
                    let more = missing.max(list.capacity());
                    self.reservation.try_grow(more * size_of::<u64>())?;
                    list.reserve_exact(list.capacity() - list.len() + more);
                }
                list.extend_from_slice(positions);
            }
        }
        Ok(())
    }
}

impl Selection {
    /// All positions from the first up to, not including, the last.
    pub(in crate::query) fn of_range(range: Range<u64>) -> Selection {
        Selection { positions: Positions::Range(range), _reservation: None }
    }

    /// These positions, so few that they need no accounting.
    pub(in crate::query) fn of_few(positions: Vec<u64>) -> Selection {
        Selection { positions: Positions::List(positions), _reservation: None }
    }

    pub fn len(&self) -> u64 {
        match &self.positions {
            Positions::Range(range) => range.end - range.start,
            Positions::List(list) => list.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn positions(&self) -> &Positions {
        &self.positions
    }
}
