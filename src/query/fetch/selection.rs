//! Which entities an answer holds, in its order: selected before its first byte.

use std::ops::Range;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::QueryError;
use crate::account::Accounted;

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

pub(crate) struct SelectionBuilder {
    /// All positions, as long as they are a range.
    range: Range<u64>,
    list: Accounted<u64>,
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
    /// Nothing selected; memory is that of the reservation's consumer.
    pub(crate) fn new(reservation: &MemoryReservation) -> SelectionBuilder {
        SelectionBuilder { range: 0..0, list: Accounted::new(reservation) }
    }

    pub(crate) fn finish(self) -> Selection {
        if self.list.is_empty() {
            return Selection::of_range(self.range);
        }
        let (list, reservation) = self.list.into_parts();
        Selection { positions: Positions::List(list), _reservation: Some(reservation) }
    }

    pub(crate) fn append(&mut self, batch: &RecordBatch) -> Result<(), QueryError> {
        let positions = batch.column(0).as_primitive::<UInt64Type>().values();
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return Ok(()) };
        let run = last.checked_sub(*first).is_some_and(|steps| steps == positions.len() as u64 - 1)
            && positions.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if self.list.is_empty() {
            let before = self.range.clone();
            if run && (before.is_empty() || before.end == *first) {
                let start = if before.is_empty() { *first } else { before.start };
                self.range = start..*last + 1;
                return Ok(());
            }
            let count = (before.end - before.start) as usize;
            self.list.reserve(count + positions.len())?;
            self.list.extend((0..count).map(|place| before.start + place as u64))?;
        }
        self.list.extend(positions.iter().copied())
    }
}

impl Selection {
    /// All positions from the first up to, not including, the last.
    pub(crate) fn of_range(range: Range<u64>) -> Selection {
        Selection { positions: Positions::Range(range), _reservation: None }
    }

    /// These positions, so few that they need no accounting.
    pub(crate) fn of_few(positions: Vec<u64>) -> Selection {
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
