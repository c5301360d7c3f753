//! Locations of the keyword segments of a file, stored in the metadata of the Parquet footer.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use strata_store::{Result, StorageError};

use crate::keywords::segment::{KeywordSegment, SectionLengths, SegmentHeader};
use crate::keywords::tokenizer::TokenClass;
use crate::layout::{parse_if_format, to_json_string};

pub const KEYWORDS_KEY: &str = "strata.keywords";
/// The format number of keyword indexes. Readers ignore an index with another number, and scan the full text.
const KEYWORD_INDEX_FORMAT: u32 = 1;

/// The keyword segments of a file. Row groups outside of all segments must be scanned.
#[derive(Debug, Default)]
pub struct KeywordIndex {
    pub segments: Vec<StoredSegment>,
    /// For each row group: the index of its segment, and the number of its first row in the segment.
    pub(crate) row_group_starts: Vec<Option<(usize, usize)>>,
    pub indexed_rows: u64,
}

#[derive(Clone, Debug)]
pub struct StoredSegment {
    pub offset: u64,
    pub row_groups: Range<usize>,
    pub header: SegmentHeader,
    pub checksums: [u32; 3],
}

impl StoredSegment {
    pub fn token_range(&self, class: TokenClass) -> Range<u64> {
        let range = self.header.token_range(class);
        self.offset + range.start..self.offset + range.end
    }
}

#[derive(Serialize, Deserialize)]
struct KeywordIndexRecord {
    format: u32,
    segments: Vec<KeywordSegmentRecord>,
}

#[derive(Serialize, Deserialize)]
struct KeywordSegmentRecord {
    offset: u64,
    row_group: usize,
    row_groups: usize,
    /// The lengths in bytes of the dictionary, row tokens, and postings of each class of tokens.
    sections: [[u32; 3]; 3],
    checksums: [u32; 3],
}

impl KeywordIndex {
    pub fn add_segment(&mut self, offset: u64, row_groups: Range<usize>, segment: KeywordSegment) {
        let KeywordSegment { header, checksums, .. } = segment;
        self.segments.push(StoredSegment { offset, row_groups, header, checksums });
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn encode(&self) -> Result<String> {
        let lengths = |lengths: SectionLengths| [lengths.dictionary, lengths.row_tokens, lengths.postings];
        let record = |segment: &StoredSegment| KeywordSegmentRecord {
            offset: segment.offset,
            row_group: segment.row_groups.start,
            row_groups: segment.row_groups.len(),
            sections: segment.header.section_lengths().map(lengths),
            checksums: segment.checksums,
        };
        let index =
            KeywordIndexRecord { format: KEYWORD_INDEX_FORMAT, segments: self.segments.iter().map(record).collect() };
        to_json_string(&index)
    }

    /// Parses the keyword index of a file with row groups of `rows` rows. An unknown format results in an empty index.
    pub fn parse(text: &str, rows: &[usize], size_bytes: u64) -> Result<KeywordIndex> {
        let damaged = || StorageError::InvalidFile("its footer is damaged: its keyword index is misplaced".to_owned());
        let record: Option<KeywordIndexRecord> = parse_if_format(text, KEYWORD_INDEX_FORMAT).map_err(|_| damaged())?;
        let Some(record) = record else { return Ok(KeywordIndex::default()) };
        let mut segments = Vec::with_capacity(record.segments.len());
        let mut row_group_starts = vec![None; rows.len()];
        let mut indexed_rows = 0;
        let mut next = 0;
        let convert = |[dictionary, row_tokens, postings]: [_; 3]| SectionLengths { dictionary, row_tokens, postings };
        for segment in record.segments {
            let end = segment.row_group.checked_add(segment.row_groups).ok_or_else(damaged)?;
            let row_groups = segment.row_group..end;
            let segment_rows = rows.get(row_groups.clone()).filter(|rows| !rows.is_empty()).ok_or_else(damaged)?;
            if row_groups.start < next {
                return Err(damaged());
            }
            next = row_groups.end;
            let lengths = segment.sections.map(convert);
            let header = SegmentHeader::try_new(segment_rows.iter().sum(), lengths).map_err(|_| damaged())?;
            if segment.offset.checked_add(header.total_bytes()).is_none_or(|end| end > size_bytes) {
                return Err(damaged());
            }
            let mut start = 0;
            for (row_group_start, rows) in row_group_starts[row_groups.clone()].iter_mut().zip(segment_rows) {
                *row_group_start = Some((segments.len(), start));
                start += rows;
            }
            indexed_rows += start as u64;
            segments.push(StoredSegment { offset: segment.offset, row_groups, header, checksums: segment.checksums });
        }
        Ok(KeywordIndex { segments, row_group_starts, indexed_rows })
    }

    pub fn segment_and_first_row(&self, row_group: usize) -> Option<(usize, usize)> {
        self.row_group_starts.get(row_group).copied().flatten()
    }

    pub fn memory_bytes(&self) -> usize {
        self.segments.capacity() * size_of::<StoredSegment>()
            + self.row_group_starts.capacity() * size_of::<Option<(usize, usize)>>()
    }
}
