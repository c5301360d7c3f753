//! Encodes columns of a row group, independently and on any number of threads: the bytes depend only on the cells.
//!
//! 1. Repeated values become codes of a dictionary, if that is smaller. If the first values rarely repeat, the others
//!    are not looked up.
//! 2. Pages are compressed, with one compressor for all columns of a thread.
//! 3. The statistics contain the minimum and the maximum. In a file with types, each page has them, too, and pages are
//!    short, because its readers search for values.
//!
//! The crate's `ArrowWriter` would need Arrow arrays, and looks up every value of a column in a dictionary.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::io::Write;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr};
use zstd::bulk::Compressor;

use super::cell_batch::{BatchColumnCells, CellBatch, EncodedValues};
use super::column_types::ColumnType;
use super::page_encoding::{dictionary_code_bits, write_boolean_bits, write_definition_levels, write_dictionary_codes};
use super::value_bounds::ValueBounds;
use crate::EncodeError;

pub(super) const MAX_PAGE_BYTES: usize = 1 << 20;

const MAX_DICTIONARY_VALUES: usize = 1 << 16;
const MAX_DICTIONARY_BYTES: usize = 1 << 20;

/// Values before the encoder's first check whether a dictionary saves bytes. The number doubles for each further check.
const FIRST_DICTIONARY_CHECK_VALUES: usize = 512;

pub(super) const MAX_INDEXED_PAGE_ROWS: usize = 20_000;

pub(super) const PAGE_ZSTD_LEVEL: i32 = 1;

#[derive(Debug)]
pub struct PendingRowGroup {
    pub(super) schema: SchemaDescPtr,
    /// The types of the columns; `None` if all columns are text. Then pages have no index.
    pub(super) column_types: Option<Arc<[ColumnType]>>,
    pub(super) batches: Vec<CellBatch>,
    pub(super) rows: usize,
}

pub struct ColumnEncoder {
    compressor: Compressor<'static>,
    hasher: RandomState,
    code_table: HashTable<u32>,
    codes: Vec<u32>,
    present_rows: Vec<u32>,
    page: Vec<u8>,
    compressed: Vec<u8>,
    chunk: Vec<u8>,
}

pub struct ColumnChunk {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
}

impl ColumnChunk {
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl PendingRowGroup {
    pub fn column_count(&self) -> usize {
        self.schema.num_columns()
    }

    /// Returns the columns, with the largest first, so that the threads that encode them end at about the same time.
    pub fn columns_by_size_desc(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.column_count()];
        self.batches.iter().for_each(|batch| batch.add_column_sizes(&mut sizes));
        let mut columns: Vec<usize> = (0..self.column_count()).collect();
        columns.sort_unstable_by_key(|&column| (Reverse(sizes[column]), column));
        columns
    }

    pub fn encode_column(&self, column: usize, encoder: &mut ColumnEncoder) -> Result<ColumnChunk, EncodeError> {
        let column_type = self.column_types.as_ref().map_or(ColumnType::Text, |types| types[column]);
        let page_rows = if self.column_types.is_some() { MAX_INDEXED_PAGE_ROWS } else { usize::MAX };
        let mut column_cells = RowGroupColumnCells {
            column_type,
            max_page_rows: page_rows,
            row_count: self.rows,
            cell_count: 0,
            cells_by_batch: Vec::new(),
        };
        let mut first_row = 0;
        for batch in &self.batches {
            if let Some(cells) = batch.column_cells(column) {
                column_cells.cell_count += cells.count;
                column_cells.cells_by_batch.push((first_row, cells));
            }
            first_row += batch.rows as u32;
        }
        encoder.encode_chunk(&column_cells, self.schema.column(column))
    }
}

struct RowGroupColumnCells<'c> {
    column_type: ColumnType,
    /// The limit of the rows of a page; `usize::MAX` if pages have no index.
    max_page_rows: usize,
    row_count: usize,
    cell_count: usize,
    /// The first row of each batch that has cells in the column, and these cells.
    cells_by_batch: Vec<(u32, BatchColumnCells<'c>)>,
}

impl<'c> RowGroupColumnCells<'c> {
    fn has_no_nulls(&self) -> bool {
        self.cell_count == self.row_count
    }

    fn has_page_index(&self) -> bool {
        self.max_page_rows < usize::MAX
    }

    fn values(&self) -> impl Iterator<Item = &'c [u8]> {
        self.cells_by_batch.iter().flat_map(|(_, cells)| cell_values(self.column_type, cells))
    }

    fn cell_rows(&self) -> impl Iterator<Item = u32> {
        self.cells_by_batch
            .iter()
            .flat_map(|(first, cells)| (0..cells.count).map(move |cell| first + cells.row_of_cell(cell)))
    }
}

fn cell_values<'c>(column_type: ColumnType, cells: &BatchColumnCells<'c>) -> EncodedValues<'c> {
    EncodedValues { bytes: cells.values, width: column_type.value_width() }
}

struct ColumnChunkBuffer {
    bytes: Vec<u8>,
    uncompressed_bytes: usize,
    page_count: usize,
    page_index: Option<PageIndexBuilder>,
}

struct PageIndexBuilder {
    column_index: ColumnIndexBuilder,
    offset_index: OffsetIndexBuilder,
}

impl PageIndexBuilder {
    fn add_page(&mut self, bounds: &ValueBounds<'_>, rows: usize, nulls: usize, bytes: Range<usize>) {
        match bounds.page_index_bounds() {
            Some((min, max)) => self.column_index.append(bounds.is_empty(), min, max, nulls as i64),
            None => self.column_index.to_invalid(),
        }
        self.offset_index.append_offset_and_size(bytes.start as i64, bytes.len() as i32);
        self.offset_index.append_row_count(rows as i64);
    }
}

/// The values of a page. They are copied when all rows of the page are known.
#[derive(Default)]
struct PlainPage<'c> {
    first_row: u32,
    value_slices: Vec<&'c [u8]>,
    bytes: usize,
    cell_count: usize,
    /// The minimum and the maximum of the page. Set only if pages have an index.
    bounds: ValueBounds<'c>,
}

impl ColumnEncoder {
    pub fn try_new() -> Result<ColumnEncoder, EncodeError> {
        Ok(ColumnEncoder {
            compressor: Compressor::new(PAGE_ZSTD_LEVEL).map_err(EncodeError::Compression)?,
            hasher: RandomState::default(),
            code_table: HashTable::new(),
            codes: Vec::new(),
            present_rows: Vec::new(),
            page: Vec::new(),
            compressed: Vec::new(),
            chunk: Vec::new(),
        })
    }

    fn encode_chunk(
        &mut self,
        cells: &RowGroupColumnCells<'_>,
        descriptor: ColumnDescPtr,
    ) -> Result<ColumnChunk, EncodeError> {
        let rows = cells.row_count;
        let index = cells.has_page_index().then(|| PageIndexBuilder {
            column_index: ColumnIndexBuilder::new(descriptor.physical_type()),
            offset_index: OffsetIndexBuilder::new(),
        });
        let bytes = mem::take(&mut self.chunk);
        let mut chunk = ColumnChunkBuffer { bytes, uncompressed_bytes: 0, page_count: 0, page_index: index };
        let mut bounds = ValueBounds::new(cells.column_type);
        // Parquet has no dictionaries of booleans.
        let dictionary = if cells.column_type == ColumnType::Boolean { None } else { self.try_build_dictionary(cells) };
        let mut dictionary_bytes = 0;
        if let Some(values) = &dictionary {
            for value in values {
                bounds.update_min_max(value);
                if cells.column_type == ColumnType::Text {
                    self.page.extend_from_slice(&(value.len() as u32).to_le_bytes());
                }
                self.page.extend_from_slice(value);
            }
            self.end_page(None, values.len(), &mut chunk)?;
            dictionary_bytes = chunk.bytes.len();
            self.encode_dictionary_pages(cells, values, &mut chunk)?;
        } else {
            self.encode_plain_pages(cells, &mut bounds, &mut chunk)?;
        }
        let ColumnChunkBuffer { bytes: encoded, uncompressed_bytes, page_count, page_index: index } = chunk;
        let bytes = Bytes::copy_from_slice(&encoded);
        self.chunk = encoded;
        self.free_large_buffers();
        let mut encodings = vec![Encoding::PLAIN, Encoding::RLE];
        let mut page_stats = Vec::new();
        let mut encoding = Encoding::PLAIN;
        if dictionary.is_some() {
            encoding = Encoding::RLE_DICTIONARY;
            encodings.push(encoding);
            let page_type = PageType::DICTIONARY_PAGE;
            page_stats.push(PageEncodingStats { page_type, encoding: Encoding::PLAIN, count: 1 });
        }
        let count = (page_count - page_stats.len()) as i32;
        page_stats.push(PageEncodingStats { page_type: PageType::DATA_PAGE, encoding, count });
        let metadata = ColumnChunkMetaData::builder(descriptor)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(PAGE_ZSTD_LEVEL)?))
            .set_encodings(encodings)
            .set_page_encoding_stats(page_stats)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed_bytes as i64)
            .set_num_values(rows as i64)
            .set_data_page_offset(dictionary_bytes as i64)
            .set_dictionary_page_offset((dictionary_bytes > 0).then_some(0))
            .set_statistics(bounds.build_statistics((rows - cells.cell_count) as u64))
            .build()?;
        let (column_index, offset_index) = match index {
            None => (None, None),
            Some(PageIndexBuilder { column_index: bounds, offset_index: places }) => {
                (if bounds.valid() { Some(bounds.build()?) } else { None }, Some(places.build()))
            }
        };
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index,
            offset_index,
        };
        Ok(ColumnChunk { bytes, close })
    }

    /// Returns the distinct values of a column. `codes` then contains the index of each cell's value. `None` if a
    /// dictionary saves no bytes.
    fn try_build_dictionary<'c>(&mut self, cells: &RowGroupColumnCells<'c>) -> Option<Vec<&'c [u8]>> {
        let ColumnEncoder { hasher, code_table, codes, .. } = self;
        code_table.clear();
        codes.clear();
        let mut values: Vec<&[u8]> = Vec::new();
        let mut value_bytes = 0;
        let mut full_length_bytes = 0;
        let mut next_check = FIRST_DICTIONARY_CHECK_VALUES;
        let prefix_bytes = cells.column_type.length_prefix_bytes();
        for text in cells.values() {
            full_length_bytes += prefix_bytes + text.len();
            let is_equal = |&code: &u32| values[code as usize] == text;
            let rehash = |&code: &u32| hasher.hash_one(values[code as usize]);
            let code = *code_table.entry(hasher.hash_one(text), is_equal, rehash).or_insert(values.len() as u32).get();
            if code as usize == values.len() {
                values.push(text);
                value_bytes += prefix_bytes + text.len();
                if values.len() > MAX_DICTIONARY_VALUES || value_bytes > MAX_DICTIONARY_BYTES {
                    return None;
                }
            }
            codes.push(code);
            if codes.len() == next_check {
                if !may_dictionary_save_bytes(codes.len(), values.len(), cells.cell_count) {
                    return None;
                }
                next_check *= 2;
            }
        }
        let code_bytes = codes.len() * dictionary_code_bits(values.len()) / 8;
        (!values.is_empty() && value_bytes + code_bytes < full_length_bytes).then_some(values)
    }

    fn encode_dictionary_pages(
        &mut self,
        cells: &RowGroupColumnCells<'_>,
        values: &[&[u8]],
        chunk: &mut ColumnChunkBuffer,
    ) -> Result<(), EncodeError> {
        let codes = mem::take(&mut self.codes);
        let mut cell_rows = cells.cell_rows().peekable();
        let mut first_row = 0;
        let mut cell = 0;
        while first_row < cells.row_count {
            let end_row = first_row.saturating_add(cells.max_page_rows).min(cells.row_count);
            let first_cell = cell;
            while let Some(row) = cell_rows.next_if(|row| (*row as usize) < end_row) {
                cell += 1;
                if !cells.has_no_nulls() {
                    self.present_rows.push(row - first_row as u32);
                }
            }
            let page_codes = &codes[first_cell..cell];
            let rows = end_row - first_row;
            self.append_definition_levels(rows, cells);
            write_dictionary_codes(page_codes, values.len(), &mut self.page);
            let start = chunk.bytes.len();
            self.end_page(Some(Encoding::RLE_DICTIONARY), rows, chunk)?;
            if let Some(index) = &mut chunk.page_index {
                let mut bounds = ValueBounds::new(cells.column_type);
                page_codes.iter().for_each(|code| bounds.update_min_max(values[*code as usize]));
                index.add_page(&bounds, rows, rows - page_codes.len(), start..chunk.bytes.len());
            }
            first_row = end_row;
        }
        self.codes = codes;
        Ok(())
    }

    fn encode_plain_pages<'c>(
        &mut self,
        cells: &RowGroupColumnCells<'c>,
        bounds: &mut ValueBounds<'c>,
        chunk: &mut ColumnChunkBuffer,
    ) -> Result<(), EncodeError> {
        let prefix_bytes = cells.column_type.length_prefix_bytes();
        let begin =
            |first_row| PlainPage { first_row, bounds: ValueBounds::new(cells.column_type), ..PlainPage::default() };
        let mut page = begin(0);
        for (first_row, part) in &cells.cells_by_batch {
            // Values of the batch before the offset `start` are in earlier pages.
            let mut start = 0;
            let mut end = 0;
            for (cell, text) in cell_values(cells.column_type, part).enumerate() {
                bounds.update_min_max(text);
                let row = first_row + part.row_of_cell(cell);
                let bytes = prefix_bytes + text.len();
                let is_long = (row - page.first_row) as usize >= cells.max_page_rows;
                if page.bytes > 0 && (page.bytes + bytes > MAX_PAGE_BYTES || is_long) {
                    page.value_slices.push(&part.values[start..end]);
                    start = end;
                    self.end_plain_page(mem::replace(&mut page, begin(row)), row, cells, chunk)?;
                }
                end += bytes;
                page.bytes += bytes;
                page.cell_count += 1;
                if cells.has_page_index() {
                    page.bounds.update_min_max(text);
                }
                if !cells.has_no_nulls() {
                    self.present_rows.push(row - page.first_row);
                }
            }
            page.value_slices.push(&part.values[start..end]);
        }
        self.end_plain_page(page, cells.row_count as u32, cells, chunk)
    }

    fn end_plain_page(
        &mut self,
        plain: PlainPage<'_>,
        end_row: u32,
        cells: &RowGroupColumnCells<'_>,
        chunk: &mut ColumnChunkBuffer,
    ) -> Result<(), EncodeError> {
        let rows = (end_row - plain.first_row) as usize;
        self.page.reserve(plain.bytes + rows / 8 + 64);
        self.append_definition_levels(rows, cells);
        match cells.column_type {
            ColumnType::Boolean => write_boolean_bits(&plain.value_slices, &mut self.page),
            _ => plain.value_slices.iter().for_each(|values| self.page.extend_from_slice(values)),
        }
        let start = chunk.bytes.len();
        self.end_page(Some(Encoding::PLAIN), rows, chunk)?;
        if let Some(index) = &mut chunk.page_index {
            index.add_page(&plain.bounds, rows, rows - plain.cell_count, start..chunk.bytes.len());
        }
        Ok(())
    }

    fn append_definition_levels(&mut self, rows: usize, cells: &RowGroupColumnCells<'_>) {
        write_definition_levels(rows, (!cells.has_no_nulls()).then_some(&self.present_rows[..]), &mut self.page);
    }

    fn end_page(
        &mut self,
        encoding: Option<Encoding>,
        values: usize,
        chunk: &mut ColumnChunkBuffer,
    ) -> Result<(), EncodeError> {
        let ColumnEncoder { compressor, present_rows, page, compressed, .. } = self;
        compressed.clear();
        compressed.reserve(zstd::zstd_safe::compress_bound(page.len()));
        compressor.compress_to_buffer(page.as_slice(), compressed).map_err(EncodeError::Compression)?;
        let buf = Bytes::copy_from_slice(compressed);
        let num_values = values as u32;
        let compressed_page = match encoding {
            None => Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN, is_sorted: false },
            Some(encoding) => Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            },
        };
        let mut sink = TrackedWrite::new(&mut chunk.bytes);
        let spec = SerializedPageWriter::new(&mut sink).write_page(CompressedPage::new(compressed_page, page.len()))?;
        sink.flush().map_err(ParquetError::from)?;
        drop(sink);
        chunk.uncompressed_bytes += spec.uncompressed_size;
        chunk.page_count += 1;
        page.clear();
        present_rows.clear();
        Ok(())
    }

    fn free_large_buffers(&mut self) {
        self.chunk.clear();
        for buffer in [&mut self.page, &mut self.compressed, &mut self.chunk] {
            if buffer.capacity() > 4 * MAX_PAGE_BYTES {
                drop(mem::take(buffer));
            }
        }
    }
}

/// Whether a dictionary may save bytes, by the first values: if half of them repeat, or if the estimated number of
/// distinct values is small enough, with a margin of a factor of two. Of the first *t* of *d* equally frequent values,
/// about *t* * *t* / 2*d* repeat an earlier one while *t* is less than *d*.
fn may_dictionary_save_bytes(values: usize, distinct: usize, cells: usize) -> bool {
    let max_values = MAX_DICTIONARY_VALUES.min(cells / 2);
    distinct <= values / 2 || values * values <= (values - distinct) * 4 * max_values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn may_save_bytes_requires_repeated_values() {
        assert!(!may_dictionary_save_bytes(512, 512, 1_000_000));
        // If 1 of the first 512 values repeats, the column probably has tens of thousands of distinct values. In a
        // column of 10,000 cells, a dictionary then saves no bytes.
        assert!(may_dictionary_save_bytes(512, 511, 400_000) && !may_dictionary_save_bytes(512, 511, 10_000));
        assert!(may_dictionary_save_bytes(4_096, 2_048, 10_000) && !may_dictionary_save_bytes(4_096, 3_900, 10_000));
        assert!(may_dictionary_save_bytes(1 << 19, 7, 1 << 19) && may_dictionary_save_bytes(1 << 18, 30_000, 350_000));
    }
}
