//! One column of a row group, encoded. Columns are encoded apart from each other, on any number of threads: the bytes
//! depend on the cells alone.
//!
//! 1. Values that repeat become codes of a dictionary, if that is smaller. Where the first values hardly repeat, the
//!    rest is not looked at.
//! 2. Pages are compressed, with one compressor for all columns of a thread.
//! 3. The minimum and the maximum are kept for readers, cut to a few bytes.
//!
//! The crate's writer for Arrow arrays would need an array of each column first, and looks up every value of a column
//! in a dictionary, however different they are.

use std::hash::BuildHasher;
use std::mem;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ColumnChunkMetaData, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr};
use zstd::bulk::Compressor;

use super::Sink;
use super::batch::Batch;
use super::page::{PageKind, PageSize, code_bits, write_codes, write_header, write_levels};
use crate::encode::EncodeError;

/// Bytes of values at which a page ends.
const PAGE_BYTES: usize = 1 << 20;

/// Largest dictionary, in values and in bytes.
const DICTIONARY_VALUES: usize = 1 << 16;
const DICTIONARY_BYTES: usize = 1 << 20;

/// Values after which a dictionary is given up if more than seven of eight are different.
const TRIED_VALUES: usize = 4_096;

/// Bytes of a minimum or maximum.
const BOUND_BYTES: usize = 64;

/// The level of Zstandard.
pub(super) const LEVEL: i32 = 1;

/// Rows whose columns can be encoded.
#[derive(Debug)]
pub struct RowGroup {
    pub(super) schema: SchemaDescPtr,
    pub(super) batches: Vec<Batch>,
    pub(super) rows: usize,
}

/// Working memory for columns, kept from one to the next.
pub struct ColumnEncoder {
    compressor: Compressor<'static>,
    hasher: RandomState,
    table: HashTable<u32>,
    codes: Vec<u32>,
    present: Vec<u32>,
    page: Vec<u8>,
    compressed: Vec<u8>,
}

impl std::fmt::Debug for ColumnEncoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ColumnEncoder").finish_non_exhaustive()
    }
}

/// An encoded column of a row group.
pub struct ColumnChunk {
    bytes: Bytes,
    close: ColumnCloseResult,
}

impl std::fmt::Debug for ColumnChunk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ColumnChunk").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl ColumnChunk {
    /// Bytes that it holds.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Puts it into a row group, behind the columns before it.
    pub(super) fn append_to(self, row_group: &mut SerializedRowGroupWriter<'_, Sink>) -> Result<(), EncodeError> {
        Ok(row_group.append_column(&self.bytes, self.close)?)
    }
}

impl RowGroup {
    /// Its columns.
    pub fn columns(&self) -> usize {
        self.schema.num_columns()
    }

    /// Encodes a column.
    ///
    /// # Errors
    /// [`EncodeError`], where a page would be too large for Parquet.
    pub fn encode(&self, column: usize, encoder: &mut ColumnEncoder) -> Result<ColumnChunk, EncodeError> {
        let mut first = 0;
        let batches = self.batches.iter().map(move |batch| {
            let start = first;
            first += batch.rows() as u32;
            (start, batch)
        });
        let cells =
            batches.flat_map(move |(start, batch)| batch.column(column).map(move |(row, text)| (start + row, text)));
        encoder.encode(cells, self.rows, self.schema.column(column))
    }
}

/// A chunk in the making.
struct Chunk {
    bytes: Vec<u8>,
    uncompressed_bytes: usize,
    pages: usize,
}

impl ColumnEncoder {
    /// An encoder that has seen nothing.
    ///
    /// # Errors
    /// [`EncodeError::Compression`].
    pub fn try_new() -> Result<ColumnEncoder, EncodeError> {
        Ok(ColumnEncoder {
            compressor: Compressor::new(LEVEL).map_err(EncodeError::Compression)?,
            hasher: RandomState::default(),
            table: HashTable::new(),
            codes: Vec::new(),
            present: Vec::new(),
            page: Vec::new(),
            compressed: Vec::new(),
        })
    }

    fn encode<'c>(
        &mut self,
        cells: impl Iterator<Item = (u32, &'c [u8])> + Clone,
        rows: usize,
        descriptor: ColumnDescPtr,
    ) -> Result<ColumnChunk, EncodeError> {
        let mut chunk = Chunk { bytes: Vec::new(), uncompressed_bytes: 0, pages: 0 };
        let mut bounds = Bounds::default();
        let dictionary = self.dictionary(cells.clone());
        let mut dictionary_bytes = 0;
        if let Some(values) = &dictionary {
            for value in values {
                bounds.add(value);
                write_value(value, &mut self.page);
            }
            self.end_page(PageKind::Dictionary, values.len(), &mut chunk)?;
            dictionary_bytes = chunk.bytes.len();
            self.present.extend(cells.clone().map(|(row, _)| row));
            write_levels(rows, &self.present, &mut self.page);
            write_codes(&self.codes, values.len(), &mut self.page);
            self.end_page(PageKind::Codes, rows, &mut chunk)?;
        } else {
            self.plain(cells.clone(), rows, &mut bounds, &mut chunk)?;
        }
        self.forget_much();
        let values = cells.count();
        let Chunk { mut bytes, uncompressed_bytes, pages } = chunk;
        bytes.shrink_to_fit();
        let (encodings, page_stats) = match dictionary {
            Some(_) => (
                vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY],
                vec![
                    stats(PageType::DICTIONARY_PAGE, Encoding::PLAIN, 1),
                    stats(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY, 1),
                ],
            ),
            None => {
                (vec![Encoding::PLAIN, Encoding::RLE], vec![stats(PageType::DATA_PAGE, Encoding::PLAIN, pages as i32)])
            }
        };
        let metadata = ColumnChunkMetaData::builder(descriptor)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_encodings(encodings)
            .set_page_encoding_stats(page_stats)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed_bytes as i64)
            .set_num_values(rows as i64)
            .set_data_page_offset(dictionary_bytes as i64)
            .set_dictionary_page_offset((dictionary_bytes > 0).then_some(0))
            .set_statistics(bounds.statistics((rows - values) as u64))
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(ColumnChunk { bytes: bytes.into(), close })
    }

    /// The different values in order of first appearance, and in `codes` which of them each cell has; `None` where
    /// that saves nothing.
    fn dictionary<'c>(&mut self, cells: impl Iterator<Item = (u32, &'c [u8])>) -> Option<Vec<&'c [u8]>> {
        let ColumnEncoder { hasher, table, codes, .. } = self;
        table.clear();
        codes.clear();
        let mut values: Vec<&[u8]> = Vec::new();
        let (mut value_bytes, mut all_bytes) = (0, 0);
        for (_, text) in cells {
            all_bytes += text.len() + size_of::<u32>();
            let is_it = |&code: &u32| values[code as usize] == text;
            let code = match table.entry(hasher.hash_one(text), is_it, |&code| hasher.hash_one(values[code as usize])) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(free) => *free.insert(values.len() as u32).get(),
            };
            if code as usize == values.len() {
                values.push(text);
                value_bytes += text.len() + size_of::<u32>();
                if values.len() > DICTIONARY_VALUES || value_bytes > DICTIONARY_BYTES {
                    return None;
                }
            }
            codes.push(code);
            if codes.len() == TRIED_VALUES && values.len() > TRIED_VALUES / 8 * 7 {
                return None;
            }
        }
        let code_bytes = codes.len() * code_bits(values.len()) / 8;
        (!values.is_empty() && value_bytes + code_bytes < all_bytes).then_some(values)
    }

    /// All values, in pages of a bounded size.
    fn plain<'c>(
        &mut self,
        cells: impl Iterator<Item = (u32, &'c [u8])> + Clone,
        rows: usize,
        bounds: &mut Bounds<'c>,
        chunk: &mut Chunk,
    ) -> Result<(), EncodeError> {
        let (mut row, mut rest) = (0, cells);
        loop {
            // The page's rows come before its values.
            let (mut ahead, mut bytes) = (rest.clone(), 0);
            let end = loop {
                let Some((next, text)) = ahead.next() else { break rows };
                if bytes > 0 && bytes + text.len() > PAGE_BYTES {
                    break next as usize;
                }
                bytes += size_of::<u32>() + text.len();
                self.present.push(next - row as u32);
            };
            self.page.reserve(bytes);
            write_levels(end - row, &self.present, &mut self.page);
            for (_, text) in rest.by_ref().take(self.present.len()) {
                bounds.add(text);
                write_value(text, &mut self.page);
            }
            self.end_page(PageKind::Plain, end - row, chunk)?;
            if end == rows {
                return Ok(());
            }
            row = end;
        }
    }

    /// Compresses the page, and appends it.
    fn end_page(&mut self, kind: PageKind, values: usize, chunk: &mut Chunk) -> Result<(), EncodeError> {
        let ColumnEncoder { compressor, present, page, compressed, .. } = self;
        compressed.clear();
        compressed.reserve(zstd::zstd_safe::compress_bound(page.len()));
        compressor.compress_to_buffer(page.as_slice(), compressed).map_err(EncodeError::Compression)?;
        let size = PageSize { uncompressed: page.len(), compressed: compressed.len() };
        // Sizes of pages have 31 bits.
        if i32::try_from(size.uncompressed.max(size.compressed)).is_err() {
            return Err(EncodeError::PageTooLarge);
        }
        let start = chunk.bytes.len();
        write_header(kind, values, size, &mut chunk.bytes);
        chunk.uncompressed_bytes += chunk.bytes.len() - start + size.uncompressed;
        chunk.bytes.extend_from_slice(compressed);
        chunk.pages += 1;
        page.clear();
        present.clear();
        Ok(())
    }

    /// Frees what a large value has left.
    fn forget_much(&mut self) {
        for buffer in [&mut self.page, &mut self.compressed] {
            if buffer.capacity() > 4 * PAGE_BYTES {
                drop(mem::take(buffer));
            }
        }
    }
}

fn stats(page_type: PageType, encoding: Encoding, count: i32) -> PageEncodingStats {
    PageEncodingStats { page_type, encoding, count }
}

/// Appends a value with its length.
fn write_value(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
}

/// The minimum and the maximum of values, by bytes, which is by code point.
#[derive(Debug, Default)]
struct Bounds<'c>(Option<(&'c [u8], &'c [u8])>);

impl<'c> Bounds<'c> {
    fn add(&mut self, value: &'c [u8]) {
        match &mut self.0 {
            None => self.0 = Some((value, value)),
            Some((min, _)) if value < *min => *min = value,
            Some((_, max)) if value > *max => *max = value,
            Some(_) => {}
        }
    }

    /// As readers are told: a long one is cut to one that is as small, or as large.
    fn statistics(&self, nulls: u64) -> Statistics {
        let bytes = |bytes: &[u8]| ByteArray::from(bytes.to_vec());
        let Some((min, max)) = self.0 else {
            return Statistics::ByteArray(ValueStatistics::new(None, None, None, Some(nulls), false));
        };
        let below = cut(min);
        let (above, exact) =
            if max.len() <= BOUND_BYTES { (Some(max.to_vec()), true) } else { (after(cut(max)), false) };
        let statistics =
            ValueStatistics::new(Some(bytes(below)), above.as_deref().map(bytes), None, Some(nulls), false);
        Statistics::ByteArray(statistics.with_min_is_exact(below.len() == min.len()).with_max_is_exact(exact))
    }
}

/// The first characters of UTF-8 text.
fn cut(text: &[u8]) -> &[u8] {
    let mut end = text.len().min(BOUND_BYTES);
    // Continuation bytes.
    while end < text.len() && end > 0 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}

/// A text after all that begin with this one; `None` where there is none.
fn after(text: &[u8]) -> Option<Vec<u8>> {
    let mut characters: Vec<char> = std::str::from_utf8(text).ok()?.chars().collect();
    while let Some(last) = characters.pop() {
        if let Some(next) = char::from_u32(u32::from(last) + 1) {
            characters.push(next);
            return Some(characters.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_cut_between_characters() {
        let long = "é".repeat(40);
        assert_eq!(cut(long.as_bytes()), "é".repeat(32).as_bytes());
        assert_eq!(cut("a".repeat(3).as_bytes()), b"aaa");
        assert_eq!(cut(format!("a{long}").as_bytes()), format!("a{}", "é".repeat(31)).as_bytes());
        assert_eq!(after(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(after("a\u{10ffff}".as_bytes()).as_deref(), Some(&b"b"[..]));
        assert_eq!(after("\u{10ffff}".as_bytes()), None);
        assert_eq!(after("a\u{d7ff}".as_bytes()).as_deref(), Some(&b"b"[..]));
    }
}
