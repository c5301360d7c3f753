//! Decodes Apache Parquet: one entity per row, as arrow-json prints it with nulls explicit.
//!
//! A file of some kilobytes can announce, and become, any number of gigabytes. So no part of it is trusted:
//!
//! 1. `footer` walks over the footer before the library builds it. `schema` chooses the types as which columns are
//!    read.
//! 2. `plan` reads the headers of a row group's pages, and chooses the rows of a batch, so that its pages and values
//!    stay within `sources.parquet_memory_bytes`.
//! 3. `pages` gives the library one page at a time, unpacked and checked (`header`, `delta`), and counts the bytes
//!    held.
//! 4. `json` prints a batch in slices, which become smaller when rows are long. The size of all text is bounded by the
//!    bytes received (`expansion`).
//!
//! No error shows a text of the library. If the library cannot decode a row group, its columns are decoded one by one,
//! so that the error names the column.

mod codec;
mod delta;
mod footer;
mod header;
mod json;
mod pages;
mod plan;
mod schema;
mod thrift;

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::RecordBatch;
use parquet::arrow::FieldLevels;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups};
use parquet::column::page::PageIterator;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use strata_store::budget::SpoolCharge;

use self::footer::Footer;
use self::json::PrintError;
use self::pages::{Account, Column, OneChunk, Pages};
use self::plan::Became;
use self::schema::ReadSchema;
use super::entity::EntityWriter;
use super::error::{Place, SourceError, quoted_name};
use super::expansion::Expansion;
use super::input::{Progress, check_size};
use super::{Decode, DecodeOptions};

/// The text of a slice may be this long, or one entity's limit if that is more.
const SLICE_TEXT_BYTES: usize = 4 * 1024 * 1024;

pub(super) struct ParquetDecoder {
    file: Arc<File>,
    _copy: Option<SpoolCharge>,
    file_bytes: u64,
    metadata: Arc<ParquetMetaData>,
    schema: ReadSchema,
    page_memory_bytes: u64,
    row_group: usize,
    batches: Option<Batches>,
    group_rows: u64,
    writer: EntityWriter,
    /// The rest of the current batch, in the slices in which it will be printed.
    slices: VecDeque<RecordBatch>,
    /// The printed slice, one row per line, and how much of it has been given out.
    text: Vec<u8>,
    text_position: usize,
    rows: u64,
    text_total_bytes: u64,
    became: Became,
    /// For a local file: its length, spread evenly over its rows, counts as read.
    progress: Option<Progress>,
}

impl ParquetDecoder {
    /// Reads the footer. `progress` shows the reading of `file`; a `copy` of a stream was counted when it came.
    pub(super) fn try_new(
        file: File,
        copy: Option<SpoolCharge>,
        writer: EntityWriter,
        options: &DecodeOptions,
        expansion: &Expansion,
        progress: Option<Progress>,
    ) -> Result<Self, SourceError> {
        let file_bytes = file.metadata().map_err(SourceError::Io)?.len();
        let Footer { metadata, memory_bytes } = footer::read(&file, file_bytes, options)?;
        let metadata = guard(|| ParquetMetaDataReader::decode_metadata(&metadata))?;
        let metadata = Arc::new(metadata.map_err(|_| damaged("its footer is malformed"))?);
        let schema = guard(|| ReadSchema::try_new(&metadata))??;
        let mut rows = 0_u64;
        let mut bytes = 0_u64;
        for row_group in metadata.row_groups() {
            rows = rows.saturating_add(u64::try_from(row_group.num_rows()).unwrap_or(0));
            bytes = bytes.saturating_add(u64::try_from(row_group.total_byte_size()).unwrap_or(0));
        }
        let total = metadata.file_metadata().num_rows();
        if u64::try_from(total).ok() != Some(rows) {
            let reason = format!("the row groups of the Parquet file have {rows} rows, but its footer says {total}");
            return Err(SourceError::document(reason));
        }
        check_size(bytes, options.source_limit_bytes)?;
        expansion.check(bytes)?;
        Ok(Self {
            file: Arc::new(file),
            _copy: copy,
            file_bytes,
            metadata,
            schema,
            page_memory_bytes: options.parquet_memory_bytes.saturating_sub(memory_bytes),
            row_group: 0,
            batches: None,
            group_rows: 0,
            writer,
            slices: VecDeque::new(),
            text: Vec::new(),
            text_position: 0,
            rows: 0,
            text_total_bytes: 0,
            became: Became { expansion: expansion.clone(), limit_bytes: options.source_limit_bytes, bytes: 0 },
            progress,
        })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        loop {
            let Some(Batches { reader, account, batch_rows }) = &mut self.batches else {
                if self.row_group >= self.metadata.num_row_groups() {
                    return Ok(None);
                }
                self.batches = Some(self.open_row_group(self.row_group)?);
                self.row_group += 1;
                self.group_rows = 0;
                continue;
            };
            account.begin_batch();
            match guard(|| reader.next()) {
                Ok(Some(Ok(batch))) if batch.num_rows() > 0 => {
                    self.group_rows += batch.num_rows() as u64;
                    return Ok(Some(batch));
                }
                Ok(Some(Ok(_))) => {}
                Ok(None) => {
                    self.batches = None;
                    self.check_row_count()?;
                }
                Ok(Some(Err(_))) | Err(_) => {
                    let refusal = account.take_refusal();
                    let batch_rows = *batch_rows;
                    self.batches = None;
                    return Err(refusal.unwrap_or_else(|| self.undecodable(self.row_group - 1, batch_rows)));
                }
            }
        }
    }

    /// Whether the row group had all of its rows: if all columns end early, the library takes that for the end.
    fn check_row_count(&self) -> Result<(), SourceError> {
        let index = self.row_group - 1;
        let rows = self.group_rows;
        let named = self.metadata.row_group(index).num_rows();
        if u64::try_from(named).is_ok_and(|named| named == rows) {
            return Ok(());
        }
        let reason = format!("row group {index} of the Parquet file has {rows} rows, but its footer says {named}");
        Err(SourceError::document(reason))
    }

    fn open_row_group(&mut self, index: usize) -> Result<Batches, SourceError> {
        let metadata = Arc::clone(&self.metadata);
        let row_group = metadata.row_group(index);
        let columns = self.columns(row_group)?;
        let limit_bytes = self.page_memory_bytes;
        let fields = &self.schema.fields;
        let batch_rows = plan::batch_rows(&self.file, row_group, &columns, fields, limit_bytes, &mut self.became)?;
        let group = OneRowGroup::new(self, row_group, &columns, batch_rows);
        let account = Arc::clone(&group.account);
        match guard(|| group.reader(&self.schema.levels)) {
            Ok(Ok(reader)) => Ok(Batches { reader, account, batch_rows }),
            _ => Err(account.take_refusal().unwrap_or_else(|| self.undecodable(index, batch_rows))),
        }
    }

    fn columns(&self, row_group: &RowGroupMetaData) -> Result<Vec<Column>, SourceError> {
        let chunks = row_group.columns().iter();
        chunks.map(|chunk| Column::try_new(chunk, self.file_bytes, self.schema.copies_strings)).collect()
    }

    /// The error for a row group that the library cannot decode. It names the first column that fails by itself.
    fn undecodable(&self, index: usize, batch_rows: usize) -> SourceError {
        let row_group = self.metadata.row_group(index);
        let columns = match self.columns(row_group) {
            Ok(columns) => columns,
            Err(error) => return error,
        };
        for (name, levels) in self.schema.top_level_columns() {
            let group = OneRowGroup::new(self, row_group, &columns, batch_rows);
            let name = quoted_name(name);
            let reason = match guard(|| group.count_rows(&levels)) {
                Ok(Ok(rows)) if rows == group.num_rows() => continue,
                Ok(Ok(rows)) => format!(
                    "column {name} has {rows} rows in row group {index}, but the footer says {}",
                    group.num_rows()
                ),
                _ => format!(
                    "column {name} cannot be decoded in row group {index}: its values are malformed, or its strings \
                     are not UTF-8"
                ),
            };
            return group.account.take_refusal().unwrap_or_else(|| damaged(&reason));
        }
        damaged(&format!("the columns of row group {index} are inconsistent"))
    }

    fn print_slice(&mut self) -> Result<bool, SourceError> {
        loop {
            let next = match self.slices.pop_front() {
                None => self.next_batch()?,
                slice => slice,
            };
            let Some(slice) = next else { return Ok(false) };
            self.text.clear();
            self.text_position = 0;
            // An entity of exactly the limit must pass, and the line end after it.
            let limit_bytes = SLICE_TEXT_BYTES.max(self.writer.limit_bytes.saturating_add(1));
            match guard(|| json::print(&slice, limit_bytes, &mut self.text))? {
                Ok(()) => return Ok(true),
                Err(_) if slice.num_rows() > 1 => {
                    let half = slice.num_rows() / 2;
                    self.slices.push_front(slice.slice(half, slice.num_rows() - half));
                    self.slices.push_front(slice.slice(0, half));
                }
                Err(PrintError::TooLong) => {
                    return Err(SourceError::too_large(self.place_of_next(), self.writer.limit_bytes));
                }
                Err(PrintError::NoJson(reason)) => return Err(SourceError::item(self.place_of_next(), reason)),
            }
        }
    }

    fn place_of_next(&self) -> Place {
        Place { item: self.rows + 1, line: None, column: None }
    }
}

impl Decode for ParquetDecoder {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        if self.text_position >= self.text.len() && !self.print_slice()? {
            return Ok(false);
        }
        let place = self.place_of_next();
        let rest = &self.text[self.text_position..];
        // The line end after the row: those inside strings are escaped.
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.writer.write_json(&rest[..length], |_| place, out)?;
        self.text_position += length + 1;
        self.text_total_bytes += length as u64;
        check_size(self.text_total_bytes, self.became.limit_bytes)?;
        self.rows += 1;
        if let Some(progress) = &self.progress {
            let share = self.rows as f64 / self.metadata.file_metadata().num_rows().max(1) as f64;
            progress.set((share * self.file_bytes as f64) as u64);
        }
        Ok(true)
    }
}

struct Batches {
    reader: ParquetRecordBatchReader,
    account: Arc<Account>,
    batch_rows: usize,
}

struct OneRowGroup<'a> {
    decoder: &'a ParquetDecoder,
    row_group: &'a RowGroupMetaData,
    columns: &'a [Column],
    account: Arc<Account>,
    batch_rows: usize,
}

impl<'a> OneRowGroup<'a> {
    fn new(
        decoder: &'a ParquetDecoder,
        row_group: &'a RowGroupMetaData,
        columns: &'a [Column],
        batch_rows: usize,
    ) -> Self {
        let account = Arc::new(Account::new(decoder.page_memory_bytes));
        Self { decoder, row_group, columns, account, batch_rows }
    }

    fn reader(&self, levels: &FieldLevels) -> ParquetResult<ParquetRecordBatchReader> {
        ParquetRecordBatchReader::try_new_with_row_groups(levels, self, self.batch_rows, None)
    }

    fn count_rows(&self, levels: &FieldLevels) -> ParquetResult<usize> {
        let mut rows = 0;
        for batch in self.reader(levels)? {
            rows += batch?.num_rows();
            self.account.begin_batch();
        }
        Ok(rows)
    }
}

impl RowGroups for OneRowGroup<'_> {
    fn num_rows(&self) -> usize {
        usize::try_from(self.row_group.num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, index: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let column = self.columns[index].clone();
        let pages = Pages::new(Arc::clone(&self.decoder.file), column, Arc::clone(&self.account), self.batch_rows);
        Ok(Box::new(OneChunk(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.row_group))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.decoder.metadata
    }
}

/// Runs a call into the Parquet reader, which panics on some damaged files.
fn guard<T>(call: impl FnOnce() -> T) -> Result<T, SourceError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| SourceError::document("the Parquet file is damaged"))
}

fn damaged(reason: &str) -> SourceError {
    SourceError::document(format!("the Parquet file is damaged: {reason}"))
}

fn over_memory_limit(what: &str, bytes: u64, limit_bytes: u64) -> SourceError {
    let reason = format!(
        "decoding the Parquet file takes too much memory: {what} would take {bytes} bytes, but only {limit_bytes} are \
         available (sources.parquet_memory_bytes); write the file with smaller pages, dictionaries, or row groups"
    );
    SourceError::TooLarge { place: None, reason }
}
