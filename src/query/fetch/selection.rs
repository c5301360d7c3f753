//! The selection: the positions of the selected entities, in the order of the response.

use std::ops::Range;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::QueryError;
use crate::tracked_vec::TrackedVec;

/// Positions of selected entities. The memory pool accounts for long lists.
#[derive(Debug)]
pub struct EntitySelection {
    positions: SelectedPositions,
    _reservation: Option<MemoryReservation>,
}

#[derive(Debug)]
pub enum QueryOutcome {
    /// The response to `count=true`: the number of entities that the request would return.
    Count(u64),
    Selection(EntitySelection),
}

impl QueryOutcome {
    pub fn len(&self) -> u64 {
        match self {
            QueryOutcome::Count(count) => *count,
            QueryOutcome::Selection(selection) => selection.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

pub(crate) struct EntitySelectionBuilder {
    /// All selected positions, as long as they are consecutive.
    range: Range<u64>,
    list: TrackedVec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectedPositions {
    Range(Range<u64>),
    List(Vec<u64>),
}

impl SelectedPositions {
    pub(super) fn position_at(&self, ordinal: u64) -> u64 {
        match self {
            SelectedPositions::Range(range) => range.start + ordinal,
            SelectedPositions::List(list) => list[ordinal as usize],
        }
    }

    pub fn to_vec(&self) -> Vec<u64> {
        match self {
            SelectedPositions::Range(range) => range.clone().collect(),
            SelectedPositions::List(list) => list.clone(),
        }
    }
}

impl EntitySelectionBuilder {
    pub(crate) fn new(reservation: &MemoryReservation) -> EntitySelectionBuilder {
        EntitySelectionBuilder { range: 0..0, list: TrackedVec::new(reservation) }
    }

    pub(crate) fn finish(self) -> EntitySelection {
        if self.list.is_empty() {
            return EntitySelection::from_range(self.range);
        }
        let (list, reservation) = self.list.into_parts();
        EntitySelection { positions: SelectedPositions::List(list), _reservation: Some(reservation) }
    }

    pub(crate) fn append(&mut self, batch: &RecordBatch) -> Result<(), QueryError> {
        let positions = batch.column(0).as_primitive::<UInt64Type>().values();
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return Ok(()) };
        let is_consecutive = last.checked_sub(*first).is_some_and(|steps| steps == positions.len() as u64 - 1)
            && positions.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if self.list.is_empty() {
            let range = self.range.clone();
            if is_consecutive && (range.is_empty() || range.end == *first) {
                let start = if range.is_empty() { *first } else { range.start };
                self.range = start..*last + 1;
                return Ok(());
            }
            let count = (range.end - range.start) as usize;
            self.list.try_reserve(count + positions.len())?;
            self.list.try_extend((0..count).map(|number| range.start + number as u64))?;
        }
        self.list.try_extend(positions.iter().copied())
    }
}

impl EntitySelection {
    pub(crate) fn from_range(range: Range<u64>) -> EntitySelection {
        EntitySelection { positions: SelectedPositions::Range(range), _reservation: None }
    }

    /// Creates a selection without a reservation, from a short list.
    pub(crate) fn from_list(positions: Vec<u64>) -> EntitySelection {
        EntitySelection { positions: SelectedPositions::List(positions), _reservation: None }
    }

    pub fn len(&self) -> u64 {
        match &self.positions {
            SelectedPositions::Range(range) => range.end - range.start,
            SelectedPositions::List(list) => list.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn positions(&self) -> &SelectedPositions {
        &self.positions
    }
}
