//! Where the shapes of each row group lie in a file: what its footer's metadata says of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use strata_store::{Result, StorageError};

use crate::layout::section_record;

pub const SHAPES_KEY: &str = "strata.shapes";

/// The format of shapes. A reader passes over any other, and reads documents.
const FORMAT: u32 = 1;

#[derive(Debug, Default)]
pub struct ShapeIndex {
    /// Nothing for a row group without shapes.
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
        serde_json::to_string(&index).map_err(|error| StorageError::Layout(error.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let (one, other) =
            (StoredShapes { range: 4..40, checksum: u32::MAX }, StoredShapes { range: 100..120, checksum: 7 });
        let index = ShapeIndex { row_groups: vec![Some(one), None, Some(other)] };
        let text = index.encode().expect("a text");
        assert_eq!(text, r#"{"format":1,"row_groups":[[4,36,4294967295],null,[100,20,7]]}"#);
        let read = ShapeIndex::parse(&text, 3, 120).expect("an index");
        assert_eq!((read.get(2), read.get(1), read.get(3)), (index.get(2), None, None));
        assert_eq!(read.row_groups().collect::<Vec<_>>(), [0, 2]);
        assert!(!read.is_empty());

        assert!(ShapeIndex::parse(&text, 3, 119).is_err());
        assert!(ShapeIndex::parse(&text, 2, 120).is_err());
        assert!(ShapeIndex::parse(&text.replace("[4,", "[18446744073709551615,"), 3, 120).is_err());
        assert!(ShapeIndex::parse("{", 3, 120).is_err());
        // Another format is not for this reader.
        assert!(ShapeIndex::parse(r#"{"format":2,"row_groups":"?"}"#, 3, 120).expect("none").is_empty());
    }
}
