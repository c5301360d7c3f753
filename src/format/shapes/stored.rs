//! Where the shapes of each row group lie in a file: what its footer's metadata says of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use strata_store::{Result, StorageError};

use crate::layout::{json_text, section_record};

pub const SHAPES_KEY: &str = "strata.shapes";

/// The format of shapes. A reader passes over any other, and reads documents.
const FORMAT: u32 = 1;

#[derive(Debug, Default)]
pub struct ShapeIndex {
    pub(crate) row_groups: Vec<Option<StoredShapes>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredShapes {
    pub range: Range<u64>,
    pub checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct IndexRecord {
    format: u32,
    /// Offset, length and checksum; null for a row group without shapes.
    row_groups: Vec<Option<(u64, u32, u32)>>,
}

impl ShapeIndex {
    pub fn is_empty(&self) -> bool {
        self.row_groups.iter().all(Option::is_none)
    }

    pub fn encode(&self) -> Result<String> {
        let record = |shapes: &StoredShapes| {
            let length = u32::try_from(shapes.range.end - shapes.range.start).unwrap_or(u32::MAX);
            (shapes.range.start, length, shapes.checksum)
        };
        let row_groups = self.row_groups.iter().map(|shapes| shapes.as_ref().map(record)).collect();
        let index = IndexRecord { format: FORMAT, row_groups };
        json_text(&index)
    }

    /// Reads what [`ShapeIndex::encode`] wrote, of a file of this size with so many row groups. Shapes of another
    /// format are none.
    pub fn parse(text: &str, row_groups: usize, size_bytes: u64) -> Result<ShapeIndex> {
        let damaged = || StorageError::Layout("its footer is damaged: its path index is misplaced".to_owned());
        let record: Option<IndexRecord> = section_record(text, FORMAT).map_err(|_| damaged())?;
        let Some(record) = record else { return Ok(ShapeIndex::default()) };
        if record.row_groups.len() != row_groups {
            return Err(damaged());
        }
        let place = |(offset, length, checksum): (u64, u32, u32)| {
            let end = offset.checked_add(u64::from(length)).filter(|end| *end <= size_bytes);
            end.map(|end| StoredShapes { range: offset..end, checksum }).ok_or_else(damaged)
        };
        let places = record.row_groups.into_iter().map(|shapes| shapes.map(place).transpose());
        Ok(ShapeIndex { row_groups: places.collect::<Result<_, _>>()? })
    }

    pub fn get(&self, row_group: usize) -> Option<&StoredShapes> {
        self.row_groups.get(row_group)?.as_ref()
    }

    pub fn row_groups(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.row_groups.len()).filter(|row_group| self.get(*row_group).is_some())
    }

    pub fn memory_bytes(&self) -> usize {
        self.row_groups.capacity() * size_of::<Option<StoredShapes>>()
    }
}
