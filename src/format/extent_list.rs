//! The row groups of a version as its readers see them: the extents of its files.

use super::keywords::stored::KeywordIndex;
use super::overlay::Extent;
use super::shapes::stored::ShapeIndex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGroup {
    pub first: u64,
    pub rows: usize,
}

impl RowGroup {
    pub fn holds(&self, position: u64) -> bool {
        position >= self.first && position - self.first < self.rows as u64
    }
}

/// The extents of a version and what the indexes of its files say of them. All readers of the version share it.
pub struct ExtentList {
    /// The number of the file, or of an edited list a number that no file has: parts of its extents are cached under
    /// it.
    pub(super) id: u64,
    pub(super) extents: Vec<Extent>,
    pub(super) row_groups: Vec<RowGroup>,
    pub(super) keywords: KeywordIndex,
    pub(super) shapes: ShapeIndex,
}

impl ExtentList {
    /// The row groups of one file, which have these numbers of rows.
    pub(super) fn of_file(id: u64, rows: &[usize], keywords: KeywordIndex, shapes: ShapeIndex) -> ExtentList {
        let whole =
            |(row_group, rows): (u32, &usize)| Extent { file: Extent::BASE, row_group, start: 0, rows: *rows as u32 };
        let extents: Vec<Extent> = (0..).zip(rows).map(whole).collect();
        ExtentList::new(id, extents, keywords, shapes)
    }

    pub(super) fn new(id: u64, extents: Vec<Extent>, keywords: KeywordIndex, shapes: ShapeIndex) -> ExtentList {
        let mut first = 0;
        let row_group = |extent: &Extent| {
            let row_group = RowGroup { first, rows: extent.rows as usize };
            first += u64::from(extent.rows);
            row_group
        };
        ExtentList { id, row_groups: extents.iter().map(row_group).collect(), extents, keywords, shapes }
    }

    pub fn memory_bytes(&self) -> usize {
        self.extents.len() * (size_of::<Extent>() + size_of::<RowGroup>())
            + self.keywords.memory_bytes()
            + self.shapes.memory_bytes()
            + size_of::<ExtentList>()
    }
}
