//! The segments of the keyword index and their pages, stored in the metadata of the Parquet footer.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strata_store::{Result, StorageError};

use crate::keywords::field_set::{FieldSet, FieldTable};
use crate::keywords::segment::{StoredPage, StoredSegment};
use crate::keywords::token_page::PageKind;
use crate::keywords::tokenizer::TokenClass;
use crate::layout::{parse_if_format, to_json_string};

pub const KEYWORDS_KEY: &str = "strata.keywords";
/// The format number of keyword indexes. Readers ignore an index with another number, and scan the full text.
const KEYWORD_INDEX_FORMAT: u32 = 1;

/// The keyword segments of a file, or of all files of a delta version. Row groups outside of all segments must be
/// scanned.
#[derive(Debug, Default)]
pub struct KeywordIndex {
    pub segments: Vec<StoredSegment>,
    /// For each row group of a file: the index of its segment, and the number of its first row in the segment.
    pub(crate) row_group_starts: Vec<Option<(usize, usize)>>,
    pub indexed_rows: u64,
}

#[derive(Serialize, Deserialize)]
struct KeywordIndexRecord {
    format: u32,
    fields: FieldTable,
    segments: Vec<KeywordSegmentRecord>,
}

#[derive(Serialize, Deserialize)]
struct KeywordSegmentRecord {
    row_group: usize,
    row_groups: usize,
    pages: Vec<PageRecord>,
}

/// A page: its kind (0 for a dictionary, 1 for rows, 2 for hashes), class, fields as bits, first token, offset, length,
/// and checksum, and the offset and length of its postings.
#[derive(Serialize, Deserialize)]
struct PageRecord(u8, u8, u32, String, u64, u32, u32, u64, u32);

impl PageRecord {
    fn encode(page: &StoredPage) -> Result<PageRecord> {
        let not_utf8 = |_| StorageError::InvalidFile("a token of its keyword index is not UTF-8".to_owned());
        Ok(PageRecord(
            page.kind as u8,
            page.class as u8,
            page.fields.bits(),
            String::from_utf8(page.first_token.clone()).map_err(not_utf8)?,
            page.offset,
            page.bytes,
            page.checksum,
            page.postings_offset,
            page.posting_bytes,
        ))
    }

    fn decode(self) -> Option<StoredPage> {
        let PageRecord(kind, class, fields, first_token, offset, bytes, checksum, postings_offset, posting_bytes) =
            self;
        Some(StoredPage {
            kind: *PageKind::ALL.get(usize::from(kind))?,
            class: *TokenClass::ALL.get(usize::from(class))?,
            fields: FieldSet::from_bits(fields),
            first_token: first_token.into_bytes(),
            offset,
            bytes,
            checksum,
            postings_offset,
            posting_bytes,
        })
    }
}

impl KeywordIndex {
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Encodes the index of a file, whose segments all have the fields of `fields`.
    pub fn encode(&self, fields: &FieldTable) -> Result<String> {
        let record = |segment: &StoredSegment| {
            let pages = segment.pages.iter().map(PageRecord::encode).collect::<Result<_>>()?;
            let row_groups = segment.row_groups.len();
            Ok(KeywordSegmentRecord { row_group: segment.row_groups.start, row_groups, pages })
        };
        let segments = self.segments.iter().map(record).collect::<Result<_>>()?;
        to_json_string(&KeywordIndexRecord { format: KEYWORD_INDEX_FORMAT, fields: fields.clone(), segments })
    }

    /// Parses the keyword index of a file with row groups of `rows` rows. An unknown format results in an empty index.
    pub fn parse(text: &str, rows: &[usize], size_bytes: u64) -> Result<KeywordIndex> {
        let damaged = || StorageError::InvalidFile("its footer is damaged: its keyword index is misplaced".to_owned());
        let record: Option<KeywordIndexRecord> = parse_if_format(text, KEYWORD_INDEX_FORMAT).map_err(|_| damaged())?;
        let Some(record) = record else { return Ok(KeywordIndex::default()) };
        let fields = Arc::new(record.fields);
        let mut segments = Vec::with_capacity(record.segments.len());
        let mut row_group_starts = vec![None; rows.len()];
        let mut indexed_rows = 0;
        let mut next = 0;
        for segment in record.segments {
            let end = segment.row_group.checked_add(segment.row_groups).ok_or_else(damaged)?;
            let row_groups: Range<usize> = segment.row_group..end;
            let segment_rows = rows.get(row_groups.clone()).filter(|rows| !rows.is_empty()).ok_or_else(damaged)?;
            if row_groups.start < next {
                return Err(damaged());
            }
            next = row_groups.end;
            let pages: Option<Arc<[StoredPage]>> = segment.pages.into_iter().map(PageRecord::decode).collect();
            let mut start = 0;
            for (row_group_start, rows) in row_group_starts[row_groups.clone()].iter_mut().zip(segment_rows) {
                *row_group_start = Some((segments.len(), start));
                start += rows;
            }
            let pages = pages.ok_or_else(damaged)?;
            let segment = StoredSegment { row_groups, rows: start, fields: fields.clone(), pages };
            if !segment.is_valid(size_bytes) {
                return Err(damaged());
            }
            indexed_rows += start as u64;
            segments.push(segment);
        }
        Ok(KeywordIndex { segments, row_group_starts, indexed_rows })
    }

    pub fn segment_and_first_row(&self, row_group: usize) -> Option<(usize, usize)> {
        self.row_group_starts.get(row_group).copied().flatten()
    }

    pub fn memory_bytes(&self) -> usize {
        self.segments.iter().map(StoredSegment::memory_bytes).sum::<usize>()
            + self.row_group_starts.capacity() * size_of::<Option<(usize, usize)>>()
    }
}
