//! Where the segments of a file lie: what its footer's metadata says of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use strata_store::{Result, StorageError};

use crate::keywords::cut::Class;
use crate::keywords::segment::{Header, Lengths, Segment};
use crate::layout::{json_text, section_record};

pub const KEYWORDS_KEY: &str = "strata.keywords";

/// The format of the index. A reader passes over any other, and scans.
const FORMAT: u32 = 1;

/// The segments of a file. Row groups that lie in none have to be scanned.
#[derive(Debug, Default)]
pub struct KeywordIndex {
    pub segments: Vec<StoredSegment>,
    /// Of each row group: the segment that holds it, and which of the segment's rows is its first one.
    pub(crate) places: Vec<Option<(usize, usize)>>,
    pub rows: u64,
}

#[derive(Clone, Debug)]
pub struct StoredSegment {
    pub offset: u64,
    pub row_groups: Range<usize>,
    pub header: Header,
    /// The CRC-32 of each class's [entries](Header::entries_range).
    pub checksums: [u32; 3],
}

impl StoredSegment {
    pub fn entries_range(&self, class: Class) -> Range<u64> {
        let range = self.header.entries_range(class);
        self.offset + range.start..self.offset + range.end
    }
}

#[derive(Serialize, Deserialize)]
struct IndexRecord {
    format: u32,
    segments: Vec<SegmentRecord>,
}

#[derive(Serialize, Deserialize)]
struct SegmentRecord {
    offset: u64,
    row_group: usize,
    row_groups: usize,
    /// By class: bytes of the dictionary, of the texts and of the lists.
    sections: [[u32; 3]; 3],
    checksums: [u32; 3],
}

impl KeywordIndex {
    /// Adds a segment that lies at an offset. Its row groups come after those of the segments before.
    pub fn add(&mut self, offset: u64, row_groups: Range<usize>, segment: Segment) {
        let Segment { header, checksums, .. } = segment;
        self.segments.push(StoredSegment { offset, row_groups, header, checksums });
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn encode(&self) -> Result<String> {
        let record = |segment: &StoredSegment| SegmentRecord {
            offset: segment.offset,
            row_group: segment.row_groups.start,
            row_groups: segment.row_groups.len(),
            sections: segment.header.lengths().map(|lengths| [lengths.dictionary, lengths.texts, lengths.lists]),
            checksums: segment.checksums,
        };
        let index = IndexRecord { format: FORMAT, segments: self.segments.iter().map(record).collect() };
        json_text(&index)
    }

    /// Reads what [`KeywordIndex::encode`] wrote, of a file of this size whose row groups have so many rows. An index
    /// of another format is none.
    pub fn parse(text: &str, rows: &[usize], size_bytes: u64) -> Result<KeywordIndex> {
        let damaged = || StorageError::Layout("its footer is damaged: its keyword index is misplaced".to_owned());
        let record: Option<IndexRecord> = section_record(text, FORMAT).map_err(|_| damaged())?;
        let Some(record) = record else { return Ok(KeywordIndex::default()) };
        let mut segments = Vec::with_capacity(record.segments.len());
        let mut places = vec![None; rows.len()];
        let mut indexed = 0;
        let mut next = 0;
        for segment in record.segments {
            let end = segment.row_group.checked_add(segment.row_groups).ok_or_else(damaged)?;
            let row_groups = segment.row_group..end;
            let held = rows.get(row_groups.clone()).filter(|rows| !rows.is_empty()).ok_or_else(damaged)?;
            if row_groups.start < next {
                return Err(damaged());
            }
            next = row_groups.end;
            let lengths = segment.sections.map(|[dictionary, texts, lists]| Lengths { dictionary, texts, lists });
            let header = Header::try_new(held.iter().sum(), lengths).map_err(|_| damaged())?;
            if segment.offset.checked_add(header.bytes()).is_none_or(|end| end > size_bytes) {
                return Err(damaged());
            }
            let mut start = 0;
            for (place, rows) in places[row_groups.clone()].iter_mut().zip(held) {
                *place = Some((segments.len(), start));
                start += rows;
            }
            indexed += start as u64;
            segments.push(StoredSegment { offset: segment.offset, row_groups, header, checksums: segment.checksums });
        }
        Ok(KeywordIndex { segments, places, rows: indexed })
    }

    /// The segment that holds a row group, if one does, and which of the segment's rows is its first one.
    pub fn place_of(&self, row_group: usize) -> Option<(usize, usize)> {
        self.places.get(row_group).copied().flatten()
    }

    pub fn memory_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<StoredSegment>()
            + self.places.capacity() * size_of::<Option<(usize, usize)>>()
    }
}
