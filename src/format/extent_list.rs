//! The list of extents (row ranges in files) that make up a version. Readers handle them as the version's row groups.

use super::keywords::segment_directory::KeywordIndex;
use super::overlay::Extent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGroupSpan {
    pub first_position: u64,
    pub rows: usize,
}

impl RowGroupSpan {
    pub fn contains(&self, position: u64) -> bool {
        position >= self.first_position && position - self.first_position < self.rows as u64
    }
}

pub struct ExtentList {
    /// ID of the file, or a new ID for an edited file's list. Decoded parts of the extents are cached under this ID.
    pub(super) id: u64,
    pub(super) extents: Vec<Extent>,
    pub(super) row_groups: Vec<RowGroupSpan>,
    pub(super) keyword_index: KeywordIndex,
}

impl ExtentList {
    /// Creates the list of a file with one extent per row group. `rows` has the row count of each row group.
    pub(super) fn from_row_groups(id: u64, rows: &[usize], keyword_index: KeywordIndex) -> ExtentList {
        let whole =
            |(row_group, rows): (u32, &usize)| Extent { file: Extent::BASE, row_group, start: 0, rows: *rows as u32 };
        let extents: Vec<Extent> = (0..).zip(rows).map(whole).collect();
        ExtentList::new(id, extents, keyword_index)
    }

    pub(super) fn new(id: u64, extents: Vec<Extent>, keyword_index: KeywordIndex) -> ExtentList {
        let mut first = 0;
        let row_group = |extent: &Extent| {
            let row_group = RowGroupSpan { first_position: first, rows: extent.rows as usize };
            first += u64::from(extent.rows);
            row_group
        };
        ExtentList { id, row_groups: extents.iter().map(row_group).collect(), extents, keyword_index }
    }

    pub fn memory_bytes(&self) -> usize {
        self.extents.len() * (size_of::<Extent>() + size_of::<RowGroupSpan>())
            + self.keyword_index.memory_bytes()
            + size_of::<ExtentList>()
    }
}
