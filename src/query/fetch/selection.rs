//! The selected entities of a response, in its order.

use std::ops::Range;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::QueryError;
use crate::account::Accounted;

/// The positions of the selected entities. The memory pool accounts for long lists.
#[derive(Debug)]
pub struct Selection {
    positions: Positions,
    _reservation: Option<MemoryReservation>,
}

#[derive(Debug)]
pub enum Outcome {
    /// `count=true`: the number of entities that the request would return.
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
    /// All positions, until they are not consecutive.
    range: Range<u64>,
    list: Accounted<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Positions {
    Range(Range<u64>),
    List(Vec<u64>),
}

impl Positions {
    pub(super) fn get(&self, place: u64) -> u64 {
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
    pub(crate) fn new(reservation: &MemoryReservation) -> SelectionBuilder {
        SelectionBuilder { range: 0..0, list: Accounted::new(reservation) }
    }

    pub(crate) fn finish(self) -> Selection {
        if self.list.is_empty() {
            return Selection::from_range(self.range);
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
            self.list.extend((0..count).map(|number| before.start + number as u64))?;
        }
        self.list.extend(positions.iter().copied())
    }
}

impl Selection {
    pub(crate) fn from_range(range: Range<u64>) -> Selection {
        Selection { positions: Positions::Range(range), _reservation: None }
    }

    /// A list that is too short to be accounted for.
    pub(crate) fn from_list(positions: Vec<u64>) -> Selection {
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
