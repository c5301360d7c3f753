//! Decodes Apache Parquet: one entity per row, printed like arrow-json with explicit nulls.
//!
//! A file of a few kilobytes can announce, and expand to, gigabytes. Therefore no part of it is trusted:
//!
//! 1. `footer_check` checks the footer before the library parses it. `read_schema` chooses the Arrow types.
//! 2. `batch_size` reads the page headers of a row group and chooses the number of rows in a batch, so that the pages
//!    and values stay within `sources.parquet_memory_bytes`.
//! 3. `page_reader` passes the pages to the library one at a time, decompressed and checked, and counts their memory.
//! 4. `json_printer` prints a batch in slices, which are halved if the text is too long. `expansion_guard` limits the
//!    total text.
//!
//! Errors never contain texts of the library. If the library cannot decode a row group, the columns are decoded one by
//! one to find the column for the error.

mod batch_size;
mod delta_encoding;
mod footer_check;
mod json_printer;
mod page_decompression;
mod page_header;
mod page_reader;
mod read_schema;
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
use strata_store::spool_quota::SpoolReservation;

use self::batch_size::DecodedSize;
use self::footer_check::CheckedFooter;
use self::json_printer::JsonPrintError;
use self::page_reader::{CheckedColumnChunk, CheckedPageReader, PageMemory, SingleChunkPages};
use self::read_schema::ReadSchema;
use super::entity_writer::EntityWriter;
use super::error::{SourceError, SourcePosition, quote_name};
use super::expansion_guard::ExpansionGuard;
use super::source_input::{ReadProgress, check_source_size};
use super::{DecodeOptions, EntityDecoder};

/// The maximum text of a printed slice of a batch, unless the size limit of one entity is higher.
const MAX_SLICE_TEXT_BYTES: usize = 4 * 1024 * 1024;

pub(super) struct ParquetDecoder {
    file: Arc<File>,
    _disk_reservation: Option<SpoolReservation>,
    file_bytes: u64,
    metadata: Arc<ParquetMetaData>,
    schema: ReadSchema,
    max_page_memory_bytes: u64,
    next_row_group: usize,
    batches: Option<RowGroupBatches>,
    rows_read_in_group: u64,
    writer: EntityWriter,
    pending_slices: VecDeque<RecordBatch>,
    /// The text of the printed slice, one row per line, and the byte position of the next row.
    text: Vec<u8>,
    text_position: usize,
    row_count: u64,
    text_total_bytes: u64,
    decoded_size: DecodedSize,
    /// The progress of a local file. The bytes read are estimated from the rows, because reads are not sequential.
    progress: Option<ReadProgress>,
}

impl ParquetDecoder {
    /// Reads a Parquet footer. `progress` is `None` for a `copy` of a stream, whose bytes were counted on arrival.
    pub(super) fn try_new(
        file: File,
        copy: Option<SpoolReservation>,
        writer: EntityWriter,
        options: &DecodeOptions,
        expansion: &ExpansionGuard,
        progress: Option<ReadProgress>,
    ) -> Result<Self, SourceError> {
        let file_bytes = file.metadata().map_err(SourceError::Io)?.len();
        let CheckedFooter { metadata, memory_bytes } = footer_check::read_footer(&file, file_bytes, options)?;
        let metadata = catch_panic(|| ParquetMetaDataReader::decode_metadata(&metadata))?;
        let metadata = Arc::new(metadata.map_err(|_| damaged_file_error("its footer is malformed"))?);
        let schema = catch_panic(|| ReadSchema::try_new(&metadata))??;
        let mut row_count = 0_u64;
        let mut total_bytes = 0_u64;
        for row_group in metadata.row_groups() {
            row_count = row_count.saturating_add(u64::try_from(row_group.num_rows()).unwrap_or(0));
            total_bytes = total_bytes.saturating_add(u64::try_from(row_group.total_byte_size()).unwrap_or(0));
        }
        let footer_rows = metadata.file_metadata().num_rows();
        if u64::try_from(footer_rows).ok() != Some(row_count) {
            return Err(SourceError::invalid_document(format!(
                "the row groups of the Parquet file have {row_count} rows, but its footer says {footer_rows}"
            )));
        }
        check_source_size(total_bytes, options.max_source_bytes)?;
        expansion.check_expanded(total_bytes)?;
        let max_bytes = options.max_source_bytes;
        Ok(Self {
            file: Arc::new(file),
            _disk_reservation: copy,
            file_bytes,
            metadata,
            schema,
            max_page_memory_bytes: options.parquet_memory_bytes.saturating_sub(memory_bytes),
            next_row_group: 0,
            batches: None,
            rows_read_in_group: 0,
            writer,
            pending_slices: VecDeque::new(),
            text: Vec::new(),
            text_position: 0,
            row_count: 0,
            text_total_bytes: 0,
            decoded_size: DecodedSize { expansion: expansion.clone(), max_bytes, decoded_bytes: 0 },
            progress,
        })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        loop {
            let Some(RowGroupBatches { reader, page_memory, batch_rows }) = &mut self.batches else {
                if self.next_row_group >= self.metadata.num_row_groups() {
                    return Ok(None);
                }
                self.batches = Some(self.open_row_group(self.next_row_group)?);
                self.next_row_group += 1;
                self.rows_read_in_group = 0;
                continue;
            };
            page_memory.reset_replaced_bytes();
            match catch_panic(|| reader.next()) {
                Ok(Some(Ok(batch))) if batch.num_rows() > 0 => {
                    self.rows_read_in_group += batch.num_rows() as u64;
                    return Ok(Some(batch));
                }
                Ok(Some(Ok(_))) => {}
                Ok(None) => {
                    self.batches = None;
                    self.check_row_count()?;
                }
                Ok(Some(Err(_))) | Err(_) => {
                    let refusal = page_memory.take_refusal();
                    let batch_rows = *batch_rows;
                    self.batches = None;
                    return Err(refusal
                        .unwrap_or_else(|| self.undecodable_row_group_error(self.next_row_group - 1, batch_rows)));
                }
            }
        }
    }

    /// Returns an error if a row group lacks rows, because the library does not notice if all columns end early.
    fn check_row_count(&self) -> Result<(), SourceError> {
        let index = self.next_row_group - 1;
        let rows = self.rows_read_in_group;
        let expected = self.metadata.row_group(index).num_rows();
        if u64::try_from(expected).is_ok_and(|expected| expected == rows) {
            return Ok(());
        }
        let reason = format!("row group {index} of the Parquet file has {rows} rows, but its footer says {expected}");
        Err(SourceError::invalid_document(reason))
    }

    fn open_row_group(&mut self, index: usize) -> Result<RowGroupBatches, SourceError> {
        let metadata = Arc::clone(&self.metadata);
        let row_group = metadata.row_group(index);
        let columns = self.column_chunks_of(row_group)?;
        let batch_rows = batch_size::choose_batch_rows(
            &self.file,
            row_group,
            &columns,
            &self.schema.fields,
            self.max_page_memory_bytes,
            &mut self.decoded_size,
        )?;
        let group = SingleRowGroup::new(self, row_group, &columns, batch_rows);
        let page_memory = Arc::clone(&group.page_memory);
        match catch_panic(|| group.open_reader(&self.schema.levels)) {
            Ok(Ok(reader)) => Ok(RowGroupBatches { reader, page_memory, batch_rows }),
            _ => Err(page_memory.take_refusal().unwrap_or_else(|| self.undecodable_row_group_error(index, batch_rows))),
        }
    }

    fn column_chunks_of(&self, row_group: &RowGroupMetaData) -> Result<Vec<CheckedColumnChunk>, SourceError> {
        let chunks = row_group.columns().iter();
        chunks.map(|chunk| CheckedColumnChunk::try_new(chunk, self.file_bytes, self.schema.copies_strings)).collect()
    }

    /// Returns the error for a row group that the library cannot decode, with the name of the first failing column.
    fn undecodable_row_group_error(&self, index: usize, batch_rows: usize) -> SourceError {
        let row_group = self.metadata.row_group(index);
        let columns = match self.column_chunks_of(row_group) {
            Ok(columns) => columns,
            Err(error) => return error,
        };
        for (name, levels) in self.schema.top_level_columns() {
            let group = SingleRowGroup::new(self, row_group, &columns, batch_rows);
            let name = quote_name(name);
            let reason = match catch_panic(|| group.count_decoded_rows(&levels)) {
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
            return group.page_memory.take_refusal().unwrap_or_else(|| damaged_file_error(&reason));
        }
        damaged_file_error(&format!("the columns of row group {index} are inconsistent"))
    }

    fn print_next_slice_as_json(&mut self) -> Result<bool, SourceError> {
        loop {
            let next = match self.pending_slices.pop_front() {
                None => self.next_batch()?,
                slice => slice,
            };
            let Some(slice) = next else { return Ok(false) };
            self.text.clear();
            self.text_position = 0;
            // An entity of exactly the size limit must fit, including its line end.
            let limit_bytes = MAX_SLICE_TEXT_BYTES.max(self.writer.max_entity_bytes.saturating_add(1));
            match catch_panic(|| json_printer::print_batch(&slice, limit_bytes, &mut self.text))? {
                Ok(()) => return Ok(true),
                Err(_) if slice.num_rows() > 1 => {
                    let half = slice.num_rows() / 2;
                    self.pending_slices.push_front(slice.slice(half, slice.num_rows() - half));
                    self.pending_slices.push_front(slice.slice(0, half));
                }
                Err(JsonPrintError::TooLong) => {
                    return Err(SourceError::entity_too_large(self.next_position(), self.writer.max_entity_bytes));
                }
                Err(JsonPrintError::Unrepresentable(reason)) => {
                    return Err(SourceError::invalid_item(self.next_position(), reason));
                }
            }
        }
    }

    fn next_position(&self) -> SourcePosition {
        SourcePosition { item: self.row_count + 1, line: None, column: None }
    }
}

impl EntityDecoder for ParquetDecoder {
    fn next_entity(&mut self, out: &mut Vec<u8>) -> Result<bool, SourceError> {
        if self.text_position >= self.text.len() && !self.print_next_slice_as_json()? {
            return Ok(false);
        }
        let position = self.next_position();
        let rest = &self.text[self.text_position..];
        // A line end ends a row, because JSON escapes line ends inside strings.
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.writer.canonicalize_and_write(&rest[..length], |_| position, out)?;
        self.text_position += length + 1;
        self.text_total_bytes += length as u64;
        check_source_size(self.text_total_bytes, self.decoded_size.max_bytes)?;
        self.row_count += 1;
        if let Some(progress) = &self.progress {
            let share = self.row_count as f64 / self.metadata.file_metadata().num_rows().max(1) as f64;
            progress.set_read_bytes((share * self.file_bytes as f64) as u64);
        }
        Ok(true)
    }
}

struct RowGroupBatches {
    reader: ParquetRecordBatchReader,
    page_memory: Arc<PageMemory>,
    batch_rows: usize,
}

struct SingleRowGroup<'a> {
    decoder: &'a ParquetDecoder,
    row_group: &'a RowGroupMetaData,
    columns: &'a [CheckedColumnChunk],
    page_memory: Arc<PageMemory>,
    batch_rows: usize,
}

impl<'a> SingleRowGroup<'a> {
    fn new(
        decoder: &'a ParquetDecoder,
        row_group: &'a RowGroupMetaData,
        columns: &'a [CheckedColumnChunk],
        batch_rows: usize,
    ) -> Self {
        let page_memory = Arc::new(PageMemory::new(decoder.max_page_memory_bytes));
        Self { decoder, row_group, columns, page_memory, batch_rows }
    }

    fn open_reader(&self, levels: &FieldLevels) -> ParquetResult<ParquetRecordBatchReader> {
        ParquetRecordBatchReader::try_new_with_row_groups(levels, self, self.batch_rows, None)
    }

    fn count_decoded_rows(&self, levels: &FieldLevels) -> ParquetResult<usize> {
        let mut rows = 0;
        for batch in self.open_reader(levels)? {
            rows += batch?.num_rows();
            self.page_memory.reset_replaced_bytes();
        }
        Ok(rows)
    }
}

impl RowGroups for SingleRowGroup<'_> {
    fn num_rows(&self) -> usize {
        usize::try_from(self.row_group.num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, index: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let column = self.columns[index].clone();
        let memory = Arc::clone(&self.page_memory);
        let pages = CheckedPageReader::new(Arc::clone(&self.decoder.file), column, memory, self.batch_rows);
        Ok(Box::new(SingleChunkPages(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.row_group))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.decoder.metadata
    }
}

/// Calls the Parquet library, which panics on some damaged files.
fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, SourceError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| SourceError::invalid_document("the Parquet file is damaged"))
}

fn damaged_file_error(reason: &str) -> SourceError {
    SourceError::invalid_document(format!("the Parquet file is damaged: {reason}"))
}

fn memory_limit_error(what: &str, bytes: u64, limit_bytes: u64) -> SourceError {
    let reason = format!(
        "decoding the Parquet file takes too much memory: {what} would take {bytes} bytes, but only {limit_bytes} are \
         available (sources.parquet_memory_bytes); write the file with smaller pages, dictionaries, or row groups"
    );
    SourceError::TooLarge { position: None, reason }
}
