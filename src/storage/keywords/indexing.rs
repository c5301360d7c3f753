//! The search texts of row groups to segments, while a file is written.

use std::ops::Range;

use arrow::array::{Array, BinaryArray};

use crate::storage::keywords::segment::{Segment, SegmentBuilder, SegmentLimits};

#[derive(Default)]
pub struct SearchTexts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl SearchTexts {
    /// None yet, with room for so many rows and bytes: memory that grows is copied again and again.
    pub fn with_capacity(rows: usize, bytes: usize) -> SearchTexts {
        SearchTexts { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(rows) }
    }

    pub fn append(&mut self, texts: &BinaryArray) {
        self.ends.reserve(texts.len());
        for text in texts.iter() {
            self.bytes.extend_from_slice(text.unwrap_or_default());
            self.ends.push(self.bytes.len());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| self.bytes.get(std::mem::replace(&mut start, *end)..*end).unwrap_or_default())
    }
}

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
    pub fn add(&mut self, texts: &SearchTexts) -> Option<IndexedRowGroups> {
        self.row_groups.end += 1;
        if self.pays == Some(false) {
            return None;
        }
        texts.iter().for_each(|text| self.builder.push(text));
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

    fn texts(rows: &[&str]) -> SearchTexts {
        let mut texts = SearchTexts::default();
        let (one, other) = rows.split_at(rows.len() / 2);
        for rows in [one, other] {
            texts.append(&BinaryArray::from_iter_values(rows.iter().map(|row| row.as_bytes())));
        }
        texts
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
