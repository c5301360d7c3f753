//! Encodes a column of a row group. Columns are encoded independently, on any number of threads: the bytes depend only
//! on the cells.
//!
//! 1. Repeated values become codes of a dictionary, if that is smaller. If the first values rarely repeat, the others
//!    are not looked up.
//! 2. Pages are compressed, with one compressor for all columns of a thread.
//! 3. The statistics contain the minimum and the maximum. In a file with types, each page has them, too, and pages are
//!    short, because its readers search for values.
//!
//! The writer of the crate for Arrow arrays would need an array of each column first, and looks up every value of a
//! column in a dictionary.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::io::Write;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr};
use zstd::bulk::Compressor;

use super::batch::{Batch, Cells, Values};
use super::bounds::Bounds;
use super::page::{code_bits, write_bits, write_codes, write_levels};
use super::types::ColumnType;
use crate::EncodeError;

pub(super) const PAGE_BYTES: usize = 1 << 20;

const MAX_DICTIONARY_VALUES: usize = 1 << 16;
const MAX_DICTIONARY_BYTES: usize = 1 << 20;

/// The number of values after which the benefit of a dictionary is first checked. It doubles each time.
const FIRST_CHECK: usize = 512;

pub(super) const INDEXED_ROWS: usize = 20_000;

pub(super) const LEVEL: i32 = 1;

#[derive(Debug)]
pub struct RowGroup {
    pub(super) schema: SchemaDescPtr,
    /// `None` if all columns are text. Then pages have no index.
    pub(super) types: Option<Arc<[ColumnType]>>,
    pub(super) batches: Vec<Batch>,
    pub(super) rows: usize,
}

/// Buffers for encoding columns.
pub struct ColumnEncoder {
    compressor: Compressor<'static>,
    hasher: RandomState,
    table: HashTable<u32>,
    codes: Vec<u32>,
    present: Vec<u32>,
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

impl RowGroup {
    pub fn columns(&self) -> usize {
        self.schema.num_columns()
    }

    /// The columns, with the largest first, so that threads that encode them end at about the same time.
    pub fn largest_first(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.columns()];
        self.batches.iter().for_each(|batch| batch.add_sizes(&mut sizes));
        let mut columns: Vec<usize> = (0..self.columns()).collect();
        columns.sort_unstable_by_key(|&column| (Reverse(sizes[column]), column));
        columns
    }

    pub fn encode(&self, column: usize, encoder: &mut ColumnEncoder) -> Result<ColumnChunk, EncodeError> {
        let column_type = self.types.as_ref().map_or(ColumnType::Text, |types| types[column]);
        let page_rows = if self.types.is_some() { INDEXED_ROWS } else { usize::MAX };
        let mut column_cells = ColumnCells { column_type, page_rows, rows: self.rows, count: 0, parts: Vec::new() };
        let mut first_row = 0;
        for batch in &self.batches {
            if let Some(cells) = batch.column(column) {
                column_cells.count += cells.count;
                column_cells.parts.push((first_row, cells));
            }
            first_row += batch.rows as u32;
        }
        encoder.encode(&column_cells, self.schema.column(column))
    }
}

struct ColumnCells<'c> {
    column_type: ColumnType,
    /// Rows of a page. Unlimited if pages have no index.
    page_rows: usize,
    rows: usize,
    count: usize,
    /// The first row of each batch with cells, and its cells.
    parts: Vec<(u32, Cells<'c>)>,
}

impl<'c> ColumnCells<'c> {
    fn are_all(&self) -> bool {
        self.count == self.rows
    }

    fn is_indexed(&self) -> bool {
        self.page_rows < usize::MAX
    }

    fn values(&self) -> impl Iterator<Item = &'c [u8]> {
        self.parts.iter().flat_map(|(_, cells)| values(self.column_type, cells))
    }

    fn rows(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().flat_map(|(first, cells)| (0..cells.count).map(move |cell| first + cells.row(cell)))
    }
}

fn values<'c>(column_type: ColumnType, cells: &Cells<'c>) -> Values<'c> {
    Values { bytes: cells.values, width: column_type.width() }
}

struct Chunk {
    bytes: Vec<u8>,
    uncompressed_bytes: usize,
    pages: usize,
    index: Option<Index>,
}

struct Index {
    bounds: ColumnIndexBuilder,
    places: OffsetIndexBuilder,
}

impl Index {
    /// Adds a page at these bytes of the chunk.
    fn add(&mut self, bounds: &Bounds<'_>, rows: usize, nulls: usize, bytes: Range<usize>) {
        match bounds.indexed() {
            Some((min, max)) => self.bounds.append(bounds.is_empty(), min, max, nulls as i64),
            None => self.bounds.to_invalid(),
        }
        self.places.append_offset_and_size(bytes.start as i64, bytes.len() as i32);
        self.places.append_row_count(rows as i64);
    }
}

/// The values of a page, which are copied once its rows are known.
#[derive(Default)]
struct PlainPage<'c> {
    first_row: u32,
    values: Vec<&'c [u8]>,
    bytes: usize,
    cells: usize,
    /// Set if pages have an index.
    bounds: Bounds<'c>,
}

impl ColumnEncoder {
    pub fn try_new() -> Result<ColumnEncoder, EncodeError> {
        Ok(ColumnEncoder {
            compressor: Compressor::new(LEVEL).map_err(EncodeError::Compression)?,
            hasher: RandomState::default(),
            table: HashTable::new(),
            codes: Vec::new(),
            present: Vec::new(),
            page: Vec::new(),
            compressed: Vec::new(),
            chunk: Vec::new(),
        })
    }

    fn encode(&mut self, cells: &ColumnCells<'_>, descriptor: ColumnDescPtr) -> Result<ColumnChunk, EncodeError> {
        let rows = cells.rows;
        let index = cells.is_indexed().then(|| Index {
            bounds: ColumnIndexBuilder::new(descriptor.physical_type()),
            places: OffsetIndexBuilder::new(),
        });
        let mut chunk = Chunk { bytes: mem::take(&mut self.chunk), uncompressed_bytes: 0, pages: 0, index };
        let mut bounds = Bounds::new(cells.column_type);
        // The format has none for booleans.
        let dictionary = if cells.column_type == ColumnType::Boolean { None } else { self.dictionary(cells) };
        let mut dictionary_bytes = 0;
        if let Some(values) = &dictionary {
            for value in values {
                bounds.add(value);
                if cells.column_type == ColumnType::Text {
                    self.page.extend_from_slice(&(value.len() as u32).to_le_bytes());
                }
                self.page.extend_from_slice(value);
            }
            self.end_page(None, values.len(), &mut chunk)?;
            dictionary_bytes = chunk.bytes.len();
            self.coded(cells, values, &mut chunk)?;
        } else {
            self.plain(cells, &mut bounds, &mut chunk)?;
        }
        let Chunk { bytes: encoded, uncompressed_bytes, pages, index } = chunk;
        let bytes = Bytes::copy_from_slice(&encoded);
        self.chunk = encoded;
        self.free_large_buffers();
        let mut encodings = vec![Encoding::PLAIN, Encoding::RLE];
        let mut page_stats = Vec::new();
        let mut data_encoding = Encoding::PLAIN;
        if dictionary.is_some() {
            data_encoding = Encoding::RLE_DICTIONARY;
            encodings.push(data_encoding);
            page_stats.push(stats(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1));
        }
        page_stats.push(stats(PageType::DATA_PAGE, data_encoding, (pages - page_stats.len()) as i32));
        let metadata = ColumnChunkMetaData::builder(descriptor)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_encodings(encodings)
            .set_page_encoding_stats(page_stats)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed_bytes as i64)
            .set_num_values(rows as i64)
            .set_data_page_offset(dictionary_bytes as i64)
            .set_dictionary_page_offset((dictionary_bytes > 0).then_some(0))
            .set_statistics(bounds.statistics((rows - cells.count) as u64))
            .build()?;
        let (column_index, offset_index) = match index {
            None => (None, None),
            Some(Index { bounds, places }) => {
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

    /// The distinct values by first appearance, with the value of each cell in `codes`. `None` if they save no bytes.
    fn dictionary<'c>(&mut self, cells: &ColumnCells<'c>) -> Option<Vec<&'c [u8]>> {
        let ColumnEncoder { hasher, table, codes, .. } = self;
        table.clear();
        codes.clear();
        let mut values: Vec<&[u8]> = Vec::new();
        let mut value_bytes = 0;
        let mut all_bytes = 0;
        let mut next_check = FIRST_CHECK;
        let prefix_bytes = cells.column_type.prefix_bytes();
        for text in cells.values() {
            all_bytes += prefix_bytes + text.len();
            let is_it = |&code: &u32| values[code as usize] == text;
            let code = match table.entry(hasher.hash_one(text), is_it, |&code| hasher.hash_one(values[code as usize])) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(free) => *free.insert(values.len() as u32).get(),
            };
            if code as usize == values.len() {
                values.push(text);
                value_bytes += prefix_bytes + text.len();
                if values.len() > MAX_DICTIONARY_VALUES || value_bytes > MAX_DICTIONARY_BYTES {
                    return None;
                }
            }
            codes.push(code);
            if codes.len() == next_check {
                if !may_save_bytes(codes.len(), values.len(), cells.count) {
                    return None;
                }
                next_check *= 2;
            }
        }
        let code_bytes = codes.len() * code_bits(values.len()) / 8;
        (!values.is_empty() && value_bytes + code_bytes < all_bytes).then_some(values)
    }

    fn coded(&mut self, cells: &ColumnCells<'_>, values: &[&[u8]], chunk: &mut Chunk) -> Result<(), EncodeError> {
        let codes = mem::take(&mut self.codes);
        let mut cell_rows = cells.rows().peekable();
        let mut first_row = 0;
        let mut cell = 0;
        while first_row < cells.rows {
            let end_row = first_row.saturating_add(cells.page_rows).min(cells.rows);
            let first_cell = cell;
            while let Some(row) = cell_rows.next_if(|row| (*row as usize) < end_row) {
                cell += 1;
                if !cells.are_all() {
                    self.present.push(row - first_row as u32);
                }
            }
            let page_codes = &codes[first_cell..cell];
            let rows = end_row - first_row;
            self.write_levels(rows, cells);
            write_codes(page_codes, values.len(), &mut self.page);
            let start = chunk.bytes.len();
            self.end_page(Some(Encoding::RLE_DICTIONARY), rows, chunk)?;
            if let Some(index) = &mut chunk.index {
                let mut bounds = Bounds::new(cells.column_type);
                page_codes.iter().for_each(|code| bounds.add(values[*code as usize]));
                index.add(&bounds, rows, rows - page_codes.len(), start..chunk.bytes.len());
            }
            first_row = end_row;
        }
        self.codes = codes;
        Ok(())
    }

    fn plain<'c>(
        &mut self,
        cells: &ColumnCells<'c>,
        bounds: &mut Bounds<'c>,
        chunk: &mut Chunk,
    ) -> Result<(), EncodeError> {
        let prefix_bytes = cells.column_type.prefix_bytes();
        let begin = |first_row| PlainPage { first_row, bounds: Bounds::new(cells.column_type), ..PlainPage::default() };
        let mut page = begin(0);
        for (first_row, part) in &cells.parts {
            // Values before `start` are in earlier pages.
            let mut start = 0;
            let mut end = 0;
            for (cell, text) in values(cells.column_type, part).enumerate() {
                bounds.add(text);
                let row = first_row + part.row(cell);
                let bytes = prefix_bytes + text.len();
                let is_long = (row - page.first_row) as usize >= cells.page_rows;
                if page.bytes > 0 && (page.bytes + bytes > PAGE_BYTES || is_long) {
                    page.values.push(&part.values[start..end]);
                    start = end;
                    self.end_plain_page(mem::replace(&mut page, begin(row)), row, cells, chunk)?;
                }
                end += bytes;
                page.bytes += bytes;
                page.cells += 1;
                if cells.is_indexed() {
                    page.bounds.add(text);
                }
                if !cells.are_all() {
                    self.present.push(row - page.first_row);
                }
            }
            page.values.push(&part.values[start..end]);
        }
        self.end_plain_page(page, cells.rows as u32, cells, chunk)
    }

    fn end_plain_page(
        &mut self,
        plain: PlainPage<'_>,
        end_row: u32,
        cells: &ColumnCells<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), EncodeError> {
        let rows = (end_row - plain.first_row) as usize;
        self.page.reserve(plain.bytes + rows / 8 + 64);
        self.write_levels(rows, cells);
        match cells.column_type {
            ColumnType::Boolean => write_bits(&plain.values, &mut self.page),
            _ => plain.values.iter().for_each(|values| self.page.extend_from_slice(values)),
        }
        let start = chunk.bytes.len();
        self.end_page(Some(Encoding::PLAIN), rows, chunk)?;
        if let Some(index) = &mut chunk.index {
            index.add(&plain.bounds, rows, rows - plain.cells, start..chunk.bytes.len());
        }
        Ok(())
    }

    fn write_levels(&mut self, rows: usize, cells: &ColumnCells<'_>) {
        write_levels(rows, (!cells.are_all()).then_some(&self.present[..]), &mut self.page);
    }

    /// Ends a data page with this encoding, or a dictionary page.
    fn end_page(&mut self, encoding: Option<Encoding>, values: usize, chunk: &mut Chunk) -> Result<(), EncodeError> {
        let ColumnEncoder { compressor, present, page, compressed, .. } = self;
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
        let written =
            SerializedPageWriter::new(&mut sink).write_page(CompressedPage::new(compressed_page, page.len()))?;
        sink.flush().map_err(ParquetError::from)?;
        drop(sink);
        chunk.uncompressed_bytes += written.uncompressed_size;
        chunk.pages += 1;
        page.clear();
        present.clear();
        Ok(())
    }

    fn free_large_buffers(&mut self) {
        self.chunk.clear();
        for buffer in [&mut self.page, &mut self.compressed, &mut self.chunk] {
            if buffer.capacity() > 4 * PAGE_BYTES {
                drop(mem::take(buffer));
            }
        }
    }
}

/// Whether a dictionary may save bytes, by the first values: if half of them repeat, or if the estimated number of
/// distinct values is small enough, with a margin of a factor of two. Of the first *t* of *d* equally frequent values,
/// about *t* * *t* / 2*d* repeat an earlier one while *t* is less than *d*.
fn may_save_bytes(tried: usize, different: usize, cells: usize) -> bool {
    let max_values = MAX_DICTIONARY_VALUES.min(cells / 2);
    different <= tried / 2 || tried * tried <= (tried - different) * 4 * max_values
}

fn stats(page_type: PageType, encoding: Encoding, count: i32) -> PageEncodingStats {
    PageEncodingStats { page_type, encoding, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn may_save_bytes_requires_repeated_values() {
        assert!(!may_save_bytes(512, 512, 1_000_000));
        // One in 500 values repeats if tens of thousands are distinct: too many for few cells.
        assert!(may_save_bytes(512, 511, 400_000) && !may_save_bytes(512, 511, 10_000));
        assert!(may_save_bytes(4_096, 2_048, 10_000) && !may_save_bytes(4_096, 3_900, 10_000));
        assert!(may_save_bytes(1 << 19, 7, 1 << 19) && may_save_bytes(1 << 18, 30_000, 350_000));
    }
}
