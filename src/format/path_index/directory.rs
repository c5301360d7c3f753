//! Locations of the path indexes of a file's row groups, stored in the metadata of the Parquet footer.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use strata_store::{Result, StorageError};

use crate::layout::{parse_if_format, to_json_string};

pub const PATH_INDEX_KEY: &str = "strata.shapes";
/// The format number of path indexes. Readers ignore an index with another number, and read documents instead.
const PATH_INDEX_FORMAT: u32 = 1;

#[derive(Debug, Default)]
pub struct PathIndexDirectory {
    pub(crate) row_groups: Vec<Option<PathIndexBlock>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathIndexBlock {
    pub range: Range<u64>,
    pub checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct PathIndexRecord {
    format: u32,
    /// The offset, length, and checksum of each path index; `None` for a row group without a path index.
    row_groups: Vec<Option<(u64, u32, u32)>>,
}

impl PathIndexDirectory {
    pub fn is_empty(&self) -> bool {
        self.row_groups.iter().all(Option::is_none)
    }

    pub fn encode(&self) -> Result<String> {
        let record = |block: &PathIndexBlock| {
            let length = u32::try_from(block.range.end - block.range.start).unwrap_or(u32::MAX);
            (block.range.start, length, block.checksum)
        };
        let row_groups = self.row_groups.iter().map(|block| block.as_ref().map(record)).collect();
        let index = PathIndexRecord { format: PATH_INDEX_FORMAT, row_groups };
        to_json_string(&index)
    }

    /// Parses the output of [`PathIndexDirectory::encode`]. An unknown format results in an empty directory.
    pub fn parse(text: &str, row_groups: usize, size_bytes: u64) -> Result<PathIndexDirectory> {
        let damaged = || StorageError::InvalidFile("its footer is damaged: its path index is misplaced".to_owned());
        let record: Option<PathIndexRecord> = parse_if_format(text, PATH_INDEX_FORMAT).map_err(|_| damaged())?;
        let Some(record) = record else { return Ok(PathIndexDirectory::default()) };
        if record.row_groups.len() != row_groups {
            return Err(damaged());
        }
        let to_block = |(offset, length, checksum): (u64, u32, u32)| {
            let end = offset.checked_add(u64::from(length)).filter(|end| *end <= size_bytes);
            end.map(|end| PathIndexBlock { range: offset..end, checksum }).ok_or_else(damaged)
        };
        let blocks = record.row_groups.into_iter().map(|block| block.map(to_block).transpose());
        Ok(PathIndexDirectory { row_groups: blocks.collect::<Result<_, _>>()? })
    }

    pub fn get(&self, row_group: usize) -> Option<&PathIndexBlock> {
        self.row_groups.get(row_group)?.as_ref()
    }

    pub fn indexed_row_groups(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.row_groups.len()).filter(|row_group| self.get(*row_group).is_some())
    }

    pub fn memory_bytes(&self) -> usize {
        self.row_groups.capacity() * size_of::<Option<PathIndexBlock>>()
    }
}
