//! The search texts of row groups to segments, while a file is written.

use std::ops::Range;

use arrow::array::BinaryArray;

use crate::keywords::segment::{Segment, SegmentBuilder, SegmentLimits};

pub struct IndexedRowGroups {
    pub row_groups: Range<usize>,
    pub segment: Segment,
}

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
