//! The search texts of row groups to segments, while a file is written.

use std::ops::Range;

use arrow::array::BinaryArray;

use crate::keywords::segment::{Segment, SegmentBuilder, SegmentLimits};

pub struct IndexedRowGroups {
    pub row_groups: Range<usize>,
    pub segment: Segment,
}

/// Makes segments of row groups that come one after the other.
pub struct Indexer {
    limits: SegmentLimits,
    builder: SegmentBuilder,
    row_groups: Range<usize>,
    /// Whether a segment has been worth its bytes. If the first was not, others are not tried.
    pays: Option<bool>,
}

impl Indexer {
    pub fn new(limits: SegmentLimits) -> Indexer {
        Indexer { limits, builder: SegmentBuilder::new(limits), row_groups: 0..0, pays: None }
    }

    /// Adds the next row group. Gives the segment that ends with it, if one does that is worth its bytes.
    pub fn add(&mut self, texts: &BinaryArray) -> Option<IndexedRowGroups> {
        self.row_groups.end += 1;
        if self.pays == Some(false) {
            return None;
        }
        texts.iter().for_each(|text| self.builder.push(text.unwrap_or_default()));
        if self.builder.is_full() { self.end() } else { None }
    }

    pub fn end(&mut self) -> Option<IndexedRowGroups> {
        let next = self.row_groups.end..self.row_groups.end;
        let row_groups = std::mem::replace(&mut self.row_groups, next);
        let builder = std::mem::replace(&mut self.builder, SegmentBuilder::new(self.limits));
        if row_groups.is_empty() || self.pays == Some(false) {
            return None;
        }
        let segment = builder.finish();
        self.pays.get_or_insert(segment.is_some());
        segment.map(|segment| IndexedRowGroups { row_groups, segment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rows: &[&str]) -> BinaryArray {
        BinaryArray::from_iter_values(rows.iter().map(|row| row.as_bytes()))
    }

    #[test]
    fn segments_end_with_row_groups() {
        let limits = SegmentLimits { rows: 3, share_percent: 1_000_000, text_bytes: 0, ..SegmentLimits::default() };
        let mut indexer = Indexer::new(limits);
        let row_groups = [&["a b", "b"][..], &["c"], &["a", "b", "c", "d"], &["a"]];
        let found = row_groups
            .map(|rows| indexer.add(&texts(rows)).map(|found| (found.row_groups, found.segment.header.rows())));
        assert_eq!(found, [None, Some((0..2, 3)), Some((2..3, 4)), None]);
        assert_eq!(indexer.end().map(|found| (found.row_groups, found.segment.header.rows())), Some((3..4, 1)));
        assert!(indexer.end().is_none());
    }

    #[test]
    fn it_gives_up_when_the_first_segment_does_not_pay() {
        let small =
            "a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a";
        let check = |rows: [&str; 3], expected: [bool; 3]| {
            let limits = SegmentLimits { rows: 1, share_percent: 50, text_bytes: 0, ..SegmentLimits::default() };
            let mut indexer = Indexer::new(limits);
            assert_eq!(rows.map(|row| indexer.add(&texts(&[row])).is_some()), expected);
        };
        check(["abcdef", small, small], [false, false, false]);
        check([small, "abcdef", small], [true, false, true]);
    }
}
