//! Collects the full text of row groups into the segments of the keyword index while a file is written.
//!
//! A writer calls [`KeywordIndexer::add_row_group`] for each row group, in order, and in the end
//! [`KeywordIndexer::finish`], which returns the segments. Each of them is then written with
//! [`UnwrittenSegment::write`].

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BinaryArray;
use strata_json::for_each_token;
use strata_store::Result;

use super::field_set::{FieldSet, FieldTable, MAX_FIELDS};
use super::merge::{WriteBytes, merge_runs};
use super::run::{RunReader, RunSpace, StoredRun};
use super::run_builder::{RunBuilder, is_long_hexadecimal};
use super::segment::StoredSegment;
use crate::layout::TEXT_SEPARATOR;

#[derive(Clone, Copy, Debug)]
pub struct KeywordSegmentLimits {
    /// A segment ends with the row group in which it reaches this number of rows.
    pub max_rows: usize,
    /// The memory of a run at which it is encoded.
    pub max_run_memory_bytes: usize,
    /// If the first run is larger than this part of its full text when compressed, no index is built.
    pub max_text_percent: u64,
    /// Versions with less full text get no index, because a scan of the text is as fast.
    pub min_text_bytes: u64,
}

impl Default for KeywordSegmentLimits {
    fn default() -> KeywordSegmentLimits {
        KeywordSegmentLimits {
            max_rows: 15 << 20,
            max_run_memory_bytes: 128 << 20,
            max_text_percent: 50,
            min_text_bytes: 1 << 20,
        }
    }
}

/// The full text of a row group.
pub struct RowGroupText {
    pub texts: BinaryArray,
    /// The field of each scalar in the texts, in their order.
    pub fields: Vec<u8>,
}

impl RowGroupText {
    /// Returns the fields in which most of the first scalars have a long hexadecimal token.
    fn hash_fields(&self) -> FieldSet {
        const SAMPLED_ROWS: usize = 100;
        let mut counts = [(0, 0); MAX_FIELDS];
        let mut fields = self.fields.iter();
        for text in self.texts.iter().flatten().take(SAMPLED_ROWS) {
            // Each scalar follows a separator, and the last separator ends the row.
            let scalars = text.get(1..).unwrap_or_default().split_inclusive(|byte| *byte == TEXT_SEPARATOR);
            for (scalar, field) in scalars.zip(&mut fields) {
                let Some((scalars, hashes)) = counts.get_mut(usize::from(*field)) else { continue };
                let mut has_hash = false;
                for_each_token(scalar, |start, end| has_hash |= is_long_hexadecimal(&scalar[start..end]));
                *scalars += 1;
                *hashes += usize::from(has_hash);
            }
        }
        let is_hash_field = |field: &u8| {
            let (scalars, hashes) = counts[usize::from(*field)];
            hashes > scalars / 2
        };
        FieldSet::ALL.iter().filter(is_hash_field).collect()
    }
}

/// The runs of a segment, which are not merged yet.
pub struct UnwrittenSegment {
    pub row_groups: Range<usize>,
    pub rows: usize,
    runs: Vec<(StoredRun, u32)>,
}

pub struct KeywordIndexer {
    limits: KeywordSegmentLimits,
    space: RunSpace,
    fields_with_column: FieldSet,
    /// The fields with only the first digits of hashes, which the first row group determines.
    hashes_in_columns: Option<FieldSet>,
    run: RunBuilder,
    segments: Vec<UnwrittenSegment>,
    current: UnwrittenSegment,
    text_bytes: u64,
    /// Whether the first run was worth its size; set after this run. If not, no further ones are built.
    is_worthwhile: Option<bool>,
}

impl KeywordIndexer {
    /// `fields_with_column`: the fields whose path has an indexed column.
    pub fn new(limits: KeywordSegmentLimits, space: RunSpace, fields_with_column: FieldSet) -> KeywordIndexer {
        KeywordIndexer {
            limits,
            space,
            fields_with_column,
            hashes_in_columns: None,
            run: RunBuilder::default(),
            segments: Vec::new(),
            current: UnwrittenSegment { row_groups: 0..0, rows: 0, runs: Vec::new() },
            text_bytes: 0,
            is_worthwhile: None,
        }
    }

    pub fn add_row_group(&mut self, row_group: &RowGroupText) -> Result<()> {
        self.current.row_groups.end += 1;
        if self.hashes_in_columns.is_none() {
            let fields = row_group.hash_fields().intersection(self.fields_with_column);
            self.hashes_in_columns = Some(fields);
            self.run = RunBuilder::new(fields);
        }
        let mut fields = row_group.fields.iter().copied();
        for text in row_group.texts.iter() {
            if self.is_worthwhile == Some(false) {
                return Ok(());
            }
            self.text_bytes += text.map_or(0, |text| text.len() as u64);
            self.run.push_row(text.unwrap_or_default(), &mut fields);
            if self.run.is_full(self.limits.max_run_memory_bytes) {
                self.end_spooled_run()?;
            }
        }
        if self.current.rows + self.run.rows() >= self.limits.max_rows {
            self.end_spooled_run()?;
            self.end_segment();
        }
        Ok(())
    }

    fn end_spooled_run(&mut self) -> Result<()> {
        if let Some((first_row, run)) = self.finish_run() {
            self.current.runs.push((self.space.spool(&run)?, first_row));
        }
        Ok(())
    }

    /// Returns the fields with only the first digits of hashes.
    pub fn hashes_in_columns(&self) -> FieldSet {
        self.hashes_in_columns.unwrap_or_default()
    }

    /// Returns the segments of all row groups, or none if they are not worth their size.
    pub fn finish(mut self) -> Vec<UnwrittenSegment> {
        if self.text_bytes < self.limits.min_text_bytes {
            return Vec::new();
        }
        if let Some((first_row, run)) = self.finish_run() {
            self.current.runs.push((StoredRun::InMemory(run), first_row));
        }
        self.end_segment();
        if self.is_worthwhile == Some(false) { Vec::new() } else { self.segments }
    }

    /// Returns the number of the run's first row in its segment, and the encoded run. `None` if it has no rows, or if
    /// the index is not worth its size.
    fn finish_run(&mut self) -> Option<(u32, Vec<u8>)> {
        let next = RunBuilder::new(self.hashes_in_columns());
        let mut builder = std::mem::replace(&mut self.run, next);
        if builder.rows() == 0 {
            return None;
        }
        let first_row = self.current.rows as u32;
        self.current.rows += builder.rows();
        let run = builder.finish();
        let max_bytes = builder.text_bytes().saturating_mul(self.limits.max_text_percent) / 100;
        let is_worthwhile = *self.is_worthwhile.get_or_insert_with(|| compressed_bytes(&run) <= max_bytes);
        is_worthwhile.then_some((first_row, run))
    }

    fn end_segment(&mut self) {
        let end = self.current.row_groups.end;
        let next = UnwrittenSegment { row_groups: end..end, rows: 0, runs: Vec::new() };
        let ended = std::mem::replace(&mut self.current, next);
        if !ended.runs.is_empty() {
            self.segments.push(ended);
        }
    }
}

/// Estimates the size of the pages and postings that a run results in, from a part of its bytes.
fn compressed_bytes(run: &[u8]) -> u64 {
    const CHUNK_BYTES: usize = 128 << 10;
    const MAX_CHUNKS: usize = 8;
    let compressed = |chunk: &[u8]| zstd::bulk::compress(chunk, 1).map_or(chunk.len(), |bytes| bytes.len());
    let every = run.len().div_ceil(CHUNK_BYTES).div_ceil(MAX_CHUNKS).max(1);
    let chunks = || run.chunks(CHUNK_BYTES).step_by(every);
    let sampled: u64 = chunks().map(|chunk| chunk.len() as u64).sum();
    let compressed: u64 = chunks().map(|chunk| compressed(chunk) as u64).sum();
    (run.len() as u64 * compressed).checked_div(sampled).unwrap_or_default()
}

impl UnwrittenSegment {
    /// Merges the runs and writes the segment with `write`, which returns the offset of its bytes in the file.
    pub fn write(self, fields: &Arc<FieldTable>, write: WriteBytes<'_>) -> Result<StoredSegment> {
        let runs = self.runs.into_iter().map(|(run, first_row)| RunReader::new(run, first_row)).collect();
        let pages = merge_runs(runs, self.rows, write)?.into();
        Ok(StoredSegment { row_groups: self.row_groups, rows: self.rows, fields: fields.clone(), pages })
    }
}
