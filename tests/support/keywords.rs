//! Keyword segments in memory: built from rows, and searched like a reader searches them.

use std::sync::Arc;

use arrow::array::BinaryArray;
use strata_format::keywords::field_set::{FieldSet, FieldTable};
use strata_format::keywords::indexer::{KeywordIndexer, KeywordSegmentLimits, RowGroupText, UnwrittenSegment};
use strata_format::keywords::segment::{
    KeywordCandidates, PostingBytes, SegmentProbe, StoredSegment, choose_verification,
};
use strata_format::keywords::tokenizer::TermQuery;
use strata_format::keywords::{KeywordIndexError, RunSpace, TokenPage};
use strata_format::layout::TEXT_SEPARATOR;
use strata_store::spool_quota::SpoolReservation;

/// The field whose path has an indexed column. If most of its scalars are hashes, the index has only their first
/// digits.
pub const FIELD_WITH_COLUMN: u8 = 1;

/// The scalars of a row: the field of each, and its text.
pub type RowScalars = Vec<(u8, Vec<u8>)>;

/// Returns the full text of a row: each scalar after a separator, and a final separator.
pub fn full_text(scalars: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut text = vec![TEXT_SEPARATOR];
    for (_, scalar) in scalars {
        text.extend(scalar.iter().filter(|byte| **byte != TEXT_SEPARATOR));
        text.push(TEXT_SEPARATOR);
    }
    text
}

pub fn row_group_text(rows: &[RowScalars]) -> RowGroupText {
    let texts = BinaryArray::from_iter_values(rows.iter().map(|row| full_text(row)));
    let fields = rows.iter().flatten().map(|(field, _)| *field).collect();
    RowGroupText { texts, fields }
}

pub fn indexer(limits: KeywordSegmentLimits) -> KeywordIndexer {
    let space = RunSpace::new(std::env::temp_dir(), SpoolReservation::unbounded());
    KeywordIndexer::new(limits, space, FieldSet::single(FIELD_WITH_COLUMN))
}

/// Writes segments one after another and returns them with all bytes.
pub fn write_segments(segments: Vec<UnwrittenSegment>) -> (Vec<StoredSegment>, Vec<u8>) {
    let mut bytes = Vec::new();
    let fields = Arc::new(FieldTable::default());
    let segments = segments.into_iter().map(|segment| {
        let mut write = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok((bytes.len() - part.len()) as u64)
        };
        segment.write(&fields, &mut write).expect("failed to write segment")
    });
    let segments = segments.collect();
    (segments, bytes)
}

/// A segment of one row group, with its bytes.
pub struct SegmentBytes {
    pub segment: StoredSegment,
    pub bytes: Vec<u8>,
    /// The rows of the fields with only the first digits of hashes. A reader searches their columns.
    pub columns: Vec<RowScalars>,
}

impl SegmentBytes {
    /// Builds a segment from runs that are encoded when they reach `max_run_memory_bytes`.
    pub fn build(rows: &[RowScalars], max_run_memory_bytes: usize) -> SegmentBytes {
        let limits = KeywordSegmentLimits {
            max_run_memory_bytes,
            max_text_percent: u64::MAX >> 20,
            min_text_bytes: 0,
            ..KeywordSegmentLimits::default()
        };
        let mut indexer = indexer(limits);
        indexer.add_row_group(&row_group_text(rows)).expect("failed to index rows");
        let in_columns = indexer.hashes_in_columns();
        let (mut segments, bytes) = write_segments(indexer.finish());
        let in_column =
            |row: &RowScalars| row.iter().filter(|(field, _)| in_columns.contains(*field)).cloned().collect();
        let columns = rows.iter().map(in_column).collect();
        SegmentBytes { segment: segments.pop().expect("there is no segment"), bytes, columns }
    }

    /// Returns the candidates for a needle. Postings are passed in parts of `part_bytes`.
    pub fn candidates(
        &self,
        needle: &[u8],
        fields: FieldSet,
        max_rows: usize,
        part_bytes: u32,
    ) -> Result<KeywordCandidates, KeywordIndexError> {
        const TRUNCATED: KeywordIndexError = KeywordIndexError { part: "segment", cause: "it is truncated" };
        let query = TermQuery::from_needle(needle);
        let mut probe = SegmentProbe::new(&self.segment, &query, fields);
        for number in self.segment.required_pages(&query, fields) {
            let page = &self.segment.pages[number];
            let range = page.range();
            let bytes = self.bytes.get(range.start as usize..range.end as usize).ok_or(TRUNCATED)?;
            probe.search_page(number, &TokenPage::decode(page.kind, self.segment.rows, page.posting_bytes, bytes)?);
        }
        let mut candidates = None;
        for fragment in probe.into_fragments() {
            let mut rows = fragment.row_set(self.segment.rows);
            for matches in &fragment.pages {
                let all = self.segment.pages[matches.page].postings_range();
                let mut parts = Vec::new();
                for range in matches.required_postings() {
                    for start in range.clone().step_by(part_bytes as usize) {
                        let end = range.end.min(start.saturating_add(part_bytes));
                        let range = (all.start + u64::from(start)) as usize..(all.start + u64::from(end)) as usize;
                        let bytes = self.bytes.get(range).ok_or(TRUNCATED)?;
                        parts.push(PostingBytes { start, bytes });
                    }
                }
                matches.union_rows(&parts, &mut rows)?;
            }
            if let Some(hexadecimal) = &fragment.hexadecimal {
                let matches = |row: &RowScalars| {
                    row.iter().any(|(field, text)| fields.contains(*field) && hexadecimal.matches_token_of(text))
                };
                let matching = self.columns.iter().enumerate().filter(|(_, row)| matches(row));
                matching.for_each(|(row, _)| rows.insert(row));
            }
            if let Some(candidates) = &candidates {
                rows.intersect_with(candidates);
            }
            let count = rows.count_ones(..);
            candidates = Some(rows);
            if count <= max_rows {
                break;
            }
        }
        Ok(choose_verification(&query, candidates))
    }
}
