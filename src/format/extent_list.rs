//! The list of extents (row ranges in files) that make up a version, and its row groups.
//!
//! A row group of a version is what a query reads at once. In a version of one file, it is a row group of this file. In
//! a delta version, it consists of consecutive extents: the rows of about one row group of the largest base, and the
//! rows between them from other files. Therefore, the number of extents hardly affects queries.
//!
//! Both the rows and the bytes of a row group are limited. For example, a base has 1,000,000 entities of 1 KiB in
//! row groups of 32,768 rows, and a refresh inserts 200 entities of 1 MiB at one position. By their number, these would
//! belong to one row group of 232 MiB, but a new row group starts after at most 64 MiB.

use std::ops::Range;
use std::sync::OnceLock;

use super::footer_index::FooterIndex;
use super::keywords::segment_directory::KeywordIndex;
use super::overlay::Extent;
use super::writer::ROW_GROUP_TARGET_BYTES;

/// Estimated max bytes of the documents in a row group of a delta version. A single extent can have more, but it is in
/// one row group of its file, which the writer limits.
const MAX_ROW_GROUP_BYTES: u64 = 2 * ROW_GROUP_TARGET_BYTES as u64;

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

/// An extent in a row group of the version.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedExtent {
    pub(super) extent: Extent,
    /// The number of the extent's first row in the row group of the version.
    pub(super) first_row: u32,
    /// The number of the extent's first document page in the row group of the version. Each extent has its own pages,
    /// also if the next extent has rows of the same page.
    pub(super) first_page: u32,
    /// The number of its first document page in the row group of the file.
    pub(super) file_page: u32,
}

/// Rows of a file's row group that a row group of the version has, as ranges in the order of the file. The first rows
/// of the ranges are stored separately, because each keyword search looks at most of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowRanges<'a> {
    starts: &'a [u32],
    /// The number of rows, and the number of the first one in the row group of the version.
    places: &'a [(u32, u32)],
}

/// The parts of [`RowRanges`] of all sources.
type SortedRanges = (Box<[u32]>, Box<[(u32, u32)]>);

impl<'a> RowRanges<'a> {
    fn split_at(self, ranges: usize) -> (RowRanges<'a>, RowRanges<'a>) {
        let (starts, later_starts) = self.starts.split_at(ranges);
        let (places, later_places) = self.places.split_at(ranges);
        (RowRanges { starts, places }, RowRanges { starts: later_starts, places: later_places })
    }

    /// Returns the range in the file that contains all rows, perhaps with others between them.
    pub(super) fn bounds(self) -> Option<Range<usize>> {
        let [first, last] = [*self.starts.first()?, *self.starts.last()?];
        let (rows, _) = self.places.last()?;
        Some(first as usize..(last + rows) as usize)
    }

    /// Returns the ranges in the row group of the version.
    pub(super) fn in_version(self) -> impl Iterator<Item = Range<usize>> {
        self.places.iter().map(|&(rows, first)| first as usize..(first + rows) as usize)
    }

    /// Returns the number of a row of the file in the row group of the version; `None` if the version does not have it.
    /// Skips the ranges before the row, so the rows of further calls must not be before it.
    pub(super) fn find_next(&mut self, row: u32) -> Option<u32> {
        self.skip_before(row);
        let offset = row.checked_sub(*self.starts.first()?)?;
        let (rows, first) = *self.places.first()?;
        (offset < rows).then_some(first + offset)
    }

    /// Skips the ranges before the last one that starts at or before `row`. The cost depends on how many they are.
    fn skip_before(&mut self, row: u32) {
        let mut step = 1;
        while self.starts.get(step).is_some_and(|start| *start <= row) {
            step *= 2;
        }
        let low = step / 2;
        let started = self.starts[low..step.min(self.starts.len())].partition_point(|start| *start <= row);
        (_, *self) = self.split_at((low + started).saturating_sub(1));
    }
}

/// A row group of a file, and how many of its rows a row group of the version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceRowGroup {
    pub(super) file: u8,
    pub(super) row_group: u32,
    pub(super) rows: u32,
    pub(super) extents: u32,
}

/// The parts of a row group of a version.
struct RowGroupParts {
    extents: Range<usize>,
    sources: Range<usize>,
    pages: usize,
    /// The blocks of `1 << block_shift` rows in [`ExtentList::blocks`].
    blocks: Range<usize>,
    block_shift: u32,
    /// Sorted when a search first needs them.
    by_row: OnceLock<SortedRanges>,
}

pub struct ExtentList {
    /// ID of the file, or a new ID for a delta version. Decoded parts of its row groups are cached under this ID.
    pub(super) id: u64,
    pub(super) row_groups: Vec<RowGroupSpan>,
    pub(super) keyword_index: KeywordIndex,
    extents: Vec<PlacedExtent>,
    sources: Vec<SourceRowGroup>,
    parts: Vec<RowGroupParts>,
    /// For each block of rows of a row group, the number in the row group of the extent with its first row. A block has
    /// about as many rows as an extent, so that a search for a row looks at few extents.
    blocks: Vec<u32>,
}

impl ExtentList {
    /// Creates the list of a file with one extent per row group.
    pub(super) fn from_row_groups(id: u64, index: &FooterIndex, keyword_index: KeywordIndex) -> ExtentList {
        let whole = |row_group: usize| Extent {
            file: Extent::OWN,
            row_group: row_group as u32,
            start: 0,
            rows: index.rows(row_group),
        };
        let extents: Vec<Extent> = (0..index.row_groups).map(whole).collect();
        ExtentList::new(id, &extents, &[index], keyword_index)
    }

    /// Groups extents, which must exist. `files` has the footer index of each file to which extents refer.
    pub(super) fn new(id: u64, extents: &[Extent], files: &[&FooterIndex], keyword_index: KeywordIndex) -> ExtentList {
        let mut list = ExtentList {
            id,
            row_groups: Vec::new(),
            keyword_index,
            extents: Vec::with_capacity(extents.len()),
            sources: Vec::new(),
            parts: Vec::new(),
            blocks: Vec::new(),
        };
        let largest = largest_file(extents, files.len());
        let rows_of =
            |row_group: u32| files.get(usize::from(largest)).map_or(0, |index| index.rows(row_group as usize));
        let max_rows = files
            .get(usize::from(largest))
            .map_or(0, |index| (0..index.row_groups as u32).map(rows_of).max().unwrap_or(0));
        let mut start = 0;
        let mut rows = 0;
        let mut bytes = 0;
        // The row group of the largest file to which the current row group of the version belongs.
        let mut current = None;
        for (number, extent) in extents.iter().enumerate() {
            // A moved block within a row group does not divide it, unless it is near the end.
            let is_next = extent.file == largest
                && current
                    .is_some_and(|current| current != extent.row_group && 8 * rows >= 7 * u64::from(rows_of(current)));
            let extent_rows = u64::from(extent.rows);
            let index = files[usize::from(extent.file)];
            let extent_bytes = index.estimate_document_bytes(extent.row_group as usize, extent.rows);
            let is_full = rows + extent_rows > 2 * u64::from(max_rows) || bytes + extent_bytes > MAX_ROW_GROUP_BYTES;
            if start < number && (is_next || is_full) {
                list.push_row_group(&extents[start..number], files);
                start = number;
                rows = 0;
                bytes = 0;
            }
            rows += extent_rows;
            bytes += extent_bytes;
            if extent.file == largest {
                current = Some(extent.row_group);
            }
        }
        if start < extents.len() {
            list.push_row_group(&extents[start..], files);
        }
        list
    }

    fn push_row_group(&mut self, extents: &[Extent], files: &[&FooterIndex]) {
        let first_extent = self.extents.len();
        let first_source = self.sources.len();
        let mut first_row = 0;
        let mut first_page = 0;
        for extent in extents {
            let index = files[usize::from(extent.file)];
            let row_group = extent.row_group as usize;
            let page_for_row = |row: u32| index.page_for_row(row_group, row as usize) as u32;
            let file_page = page_for_row(extent.start);
            self.extents.push(PlacedExtent { extent: *extent, first_row, first_page, file_page });
            first_row += extent.rows;
            first_page += page_for_row(extent.start + extent.rows - 1) + 1 - file_page;
            let source =
                SourceRowGroup { file: extent.file, row_group: extent.row_group, rows: extent.rows, extents: 1 };
            let is_same =
                |other: &&mut SourceRowGroup| (other.file, other.row_group) == (source.file, source.row_group);
            match self.sources[first_source..].iter_mut().find(is_same) {
                Some(same) => {
                    same.rows += extent.rows;
                    same.extents += 1;
                }
                None => self.sources.push(source),
            }
        }
        self.sources[first_source..].sort_unstable_by_key(|source| (source.file, source.row_group));
        let rows = first_row as usize;
        let block_shift = rows.checked_div(extents.len()).unwrap_or_default().max(1).ilog2();
        let first_block = self.blocks.len();
        let mut at = first_extent;
        for first_row in (0..rows).step_by(1 << block_shift) {
            while self.extents.get(at + 1).is_some_and(|next| next.first_row as usize <= first_row) {
                at += 1;
            }
            self.blocks.push((at - first_extent) as u32);
        }
        let first_position = self.row_groups.last().map_or(0, |group| group.first_position + group.rows as u64);
        self.row_groups.push(RowGroupSpan { first_position, rows });
        self.parts.push(RowGroupParts {
            extents: first_extent..self.extents.len(),
            sources: first_source..self.sources.len(),
            pages: first_page as usize,
            blocks: first_block..self.blocks.len(),
            block_shift,
            by_row: OnceLock::new(),
        });
    }

    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> {
        self.extents.iter().map(|placed| placed.extent)
    }

    pub(super) fn row_group_extents(&self, row_group: usize) -> &[PlacedExtent] {
        &self.extents[self.parts[row_group].extents.clone()]
    }

    /// Returns the row groups of files from which a row group has rows, each once.
    pub(super) fn sources(&self, row_group: usize) -> &[SourceRowGroup] {
        &self.sources[self.parts[row_group].sources.clone()]
    }

    /// Returns the rows of each source of a row group.
    pub(super) fn source_rows(&self, row_group: usize) -> impl Iterator<Item = (SourceRowGroup, RowRanges<'_>)> {
        let (starts, places) = self.parts[row_group].by_row.get_or_init(|| {
            let mut extents = self.row_group_extents(row_group).to_vec();
            extents.sort_unstable_by_key(|placed| (placed.extent.file, placed.extent.row_group, placed.extent.start));
            let starts = extents.iter().map(|placed| placed.extent.start).collect();
            (starts, extents.iter().map(|placed| (placed.extent.rows, placed.first_row)).collect())
        });
        let mut ranges = RowRanges { starts, places };
        self.sources(row_group).iter().map(move |source| {
            let (of_source, others) = ranges.split_at(source.extents as usize);
            ranges = others;
            (*source, of_source)
        })
    }

    pub(super) fn page_count(&self, row_group: usize) -> usize {
        self.parts[row_group].pages
    }

    pub(super) fn extent_for_row(&self, row_group: usize, row: usize) -> PlacedExtent {
        let RowGroupParts { blocks, block_shift, .. } = &self.parts[row_group];
        let mut blocks = self.blocks[blocks.clone()][row >> block_shift..].iter().map(|extent| *extent as usize);
        let extents = self.row_group_extents(row_group);
        let first = blocks.next().unwrap_or_default();
        let end = blocks.next().map_or(extents.len(), |next| next + 1);
        let after = extents[first..end].partition_point(|placed| placed.first_row as usize <= row);
        extents[first + after - 1]
    }

    pub(super) fn extent_for_page(&self, row_group: usize, page: usize) -> PlacedExtent {
        let extents = self.row_group_extents(row_group);
        extents[extents.partition_point(|placed| placed.first_page as usize <= page) - 1]
    }

    pub fn memory_bytes(&self) -> usize {
        // The ranges of `by_row` can be added later.
        self.extents.capacity() * (size_of::<PlacedExtent>() + size_of::<(u32, u32, u32)>())
            + self.blocks.capacity() * size_of::<u32>()
            + self.sources.capacity() * size_of::<SourceRowGroup>()
            + self.row_groups.capacity() * (size_of::<RowGroupSpan>() + size_of::<RowGroupParts>())
            + self.keyword_index.memory_bytes()
            + size_of::<ExtentList>()
    }
}

/// Returns the file with the most rows in the extents.
fn largest_file(extents: &[Extent], files: usize) -> u8 {
    let mut rows = vec![0; files];
    extents.iter().for_each(|extent| rows[usize::from(extent.file)] += u64::from(extent.rows));
    let largest = rows.iter().enumerate().max_by_key(|(number, rows)| (**rows, usize::MAX - number));
    largest.map_or(0, |(number, _)| number as u8)
}
