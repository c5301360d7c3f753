//! Collects the full-text columns of row groups into keyword segments while a file is written.
//!
//! A writer calls [`KeywordIndexer::add_row_group`] for each row group, in order, and stores each segment that the call
//! returns. In the end, it calls [`KeywordIndexer::finish_segment`] for the remaining row groups.

use std::ops::Range;

use arrow::array::BinaryArray;

use crate::keywords::segment::{KeywordSegment, KeywordSegmentBuilder, KeywordSegmentLimits};

pub struct FinishedSegment {
    pub row_groups: Range<usize>,
    pub segment: KeywordSegment,
}

pub struct KeywordIndexer {
    limits: KeywordSegmentLimits,
    builder: KeywordSegmentBuilder,
    row_groups: Range<usize>,
    /// Whether the first keyword segment was worth its size; set after this segment. If not, no further ones are built.
    is_worthwhile: Option<bool>,
}

impl KeywordIndexer {
    pub fn new(limits: KeywordSegmentLimits) -> KeywordIndexer {
        KeywordIndexer { limits, builder: KeywordSegmentBuilder::new(limits), row_groups: 0..0, is_worthwhile: None }
    }

    pub fn add_row_group(&mut self, texts: &BinaryArray) -> Option<FinishedSegment> {
        self.row_groups.end += 1;
        if self.is_worthwhile == Some(false) {
            return None;
        }
        texts.iter().for_each(|text| self.builder.push_row(text.unwrap_or_default()));
        if self.builder.is_full() { self.finish_segment() } else { None }
    }

    /// Returns a segment of the row groups since the last segment, unless it is not worth its size.
    pub fn finish_segment(&mut self) -> Option<FinishedSegment> {
        let next = self.row_groups.end..self.row_groups.end;
        let row_groups = std::mem::replace(&mut self.row_groups, next);
        let builder = std::mem::replace(&mut self.builder, KeywordSegmentBuilder::new(self.limits));
        if row_groups.is_empty() || self.is_worthwhile == Some(false) {
            return None;
        }
        let segment = builder.finish();
        self.is_worthwhile.get_or_insert(segment.is_some());
        segment.map(|segment| FinishedSegment { row_groups, segment })
    }
}
