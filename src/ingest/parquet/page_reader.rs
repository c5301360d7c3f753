//! Reads the pages of a column, checks each one before decoding, and counts their memory. A page is rejected if its
//! decompressed size differs from its header, if a dictionary has more entries than its bytes can contain, or if the
//! pages in use exceed the memory limit. Delta encodings become plain values (`delta_encoding`).

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use strata_types::leb128;

use super::super::error::{SourceError, quote_name};
use super::delta_encoding::{self, DeltaEncodingError};
use super::page_decompression;
use super::page_header::{self, PageHeader, PageType};
use super::{damaged_file_error, memory_limit_error};

/// The memory for a value and its levels while a batch is built, without the text of a string.
pub(super) const VALUE_MEMORY_BYTES: u64 = 24;

#[derive(Debug, Default)]
pub(super) struct PageMemory {
    max_bytes: u64,
    /// The size of the current pages and dictionaries of all columns.
    current_bytes: AtomicU64,
    /// The size of earlier pages to which the current batch might still refer.
    replaced_bytes: AtomicU64,
    /// The error for a rejected page, stored here because the library would convert a returned error to a string.
    refusal_error: Mutex<Option<SourceError>>,
}

impl PageMemory {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { max_bytes: limit_bytes, ..Self::default() }
    }

    pub(super) fn reset_replaced_bytes(&self) {
        self.replaced_bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn take_refusal(&self) -> Option<SourceError> {
        self.refusal_error.lock().take()
    }

    fn record_refusal(&self, error: SourceError) -> ParquetError {
        let text = error.to_string();
        *self.refusal_error.lock() = Some(error);
        ParquetError::General(text)
    }

    fn used_bytes(&self) -> u64 {
        self.current_bytes.load(Ordering::Relaxed) + self.replaced_bytes.load(Ordering::Relaxed)
    }

    fn check_available(&self, bytes: u64) -> Result<(), SourceError> {
        let needed = self.used_bytes().saturating_add(bytes);
        if needed > self.max_bytes { Err(self.memory_limit_error(needed)) } else { Ok(()) }
    }

    fn memory_limit_error(&self, needed_bytes: u64) -> SourceError {
        memory_limit_error("the decoded pages in use at the same time", needed_bytes, self.max_bytes)
    }

    /// Reserves `bytes` for a new page instead of the `reserved` bytes of the previous page. The previous page remains
    /// counted, because the current batch might still refer to it.
    fn replace_reservation(&self, reserved: &mut u64, bytes: u64) -> Result<(), SourceError> {
        self.check_available(bytes)?;
        self.replaced_bytes.fetch_add(*reserved, Ordering::Relaxed);
        self.current_bytes.fetch_sub(*reserved, Ordering::Relaxed);
        self.current_bytes.fetch_add(bytes, Ordering::Relaxed);
        *reserved = bytes;
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub(super) struct CheckedColumnChunk {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) value_count: u64,
    descriptor: ColumnDescPtr,
    compression: Compression,
    pub(super) type_width_bytes: usize,
    /// Whether a batch contains a copy of each string of the column, even of strings that are dictionary entries.
    pub(super) copies_strings: bool,
}

impl CheckedColumnChunk {
    pub(super) fn try_new(
        chunk: &ColumnChunkMetaData,
        file_bytes: u64,
        copies_strings: bool,
    ) -> Result<Self, SourceError> {
        let damaged = |reason: &str| with_column_name(chunk.column_descr(), damaged_file_error(reason));
        let descriptor = chunk.column_descr_ptr();
        let (start, end) = match chunk.num_values() {
            // A column chunk without values need not have pages, so its offsets have no meaning.
            0 => (0, 0),
            _ => {
                let data = chunk.data_page_offset();
                // Some writers store the dictionary offset 0 if a column chunk has no dictionary.
                let dictionary = chunk.dictionary_page_offset().filter(|offset| *offset > 0 && *offset < data);
                let start = u64::try_from(dictionary.unwrap_or(data));
                let start = start.map_err(|_| damaged("a column starts before the beginning of the file"))?;
                let length = u64::try_from(chunk.compressed_size());
                let length = length.map_err(|_| damaged("a column has a negative length"))?;
                let end = start.checked_add(length).filter(|end| *end <= file_bytes);
                (start, end.ok_or_else(|| damaged("a column extends past the end of the file"))?)
            }
        };
        let type_width_bytes = match chunk.column_type() {
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 => 12,
            Type::BYTE_ARRAY => 4,
            Type::FIXED_LEN_BYTE_ARRAY => match usize::try_from(descriptor.type_length()) {
                Ok(length) if length > 0 => length,
                _ => return Err(damaged("a fixed-length column has no length")),
            },
        };
        Ok(Self {
            start,
            end,
            value_count: u64::try_from(chunk.num_values()).unwrap_or(0),
            descriptor,
            compression: chunk.compression(),
            type_width_bytes,
            copies_strings,
        })
    }

    pub(super) fn add_column_name(&self, error: SourceError) -> SourceError {
        with_column_name(&self.descriptor, error)
    }

    pub(super) fn is_list(&self) -> bool {
        self.descriptor.max_rep_level() > 0
    }

    pub(super) fn value_memory_bytes(&self) -> u64 {
        VALUE_MEMORY_BYTES + self.type_width_bytes as u64
    }
}

fn with_column_name(descriptor: &ColumnDescriptor, error: SourceError) -> SourceError {
    match error {
        SourceError::InvalidDocument { position, reason } => {
            let name = quote_name(&descriptor.path().string());
            SourceError::InvalidDocument { position, reason: format!("{reason} (column {name})") }
        }
        other => other,
    }
}

pub(super) struct CheckedPageReader {
    file: Arc<File>,
    column: CheckedColumnChunk,
    page_memory: Arc<PageMemory>,
    batch_rows: usize,
    position: u64,
    next_header: Option<PageHeader>,
    page_bytes: u64,
    dictionary_bytes: u64,
    longest_dictionary_entry_bytes: u64,
}

impl CheckedPageReader {
    pub(super) fn new(file: Arc<File>, column: CheckedColumnChunk, memory: Arc<PageMemory>, batch_rows: usize) -> Self {
        let position = column.start;
        Self {
            file,
            column,
            page_memory: memory,
            batch_rows,
            position,
            next_header: None,
            page_bytes: 0,
            dictionary_bytes: 0,
            longest_dictionary_entry_bytes: 0,
        }
    }

    fn record_refusal(&self, error: SourceError) -> ParquetError {
        self.page_memory.record_refusal(self.column.add_column_name(error))
    }

    fn peek_header(&mut self) -> Result<Option<PageHeader>, SourceError> {
        while self.next_header.is_none() && self.position < self.column.end {
            let (header, header_bytes) = page_header::read_page_header(&self.file, self.position, self.column.end)?;
            self.position += header_bytes;
            match header.page_type {
                PageType::Index => self.position += u64::from(header.compressed_bytes),
                _ => self.next_header = Some(header),
            }
        }
        Ok(self.next_header)
    }

    fn read_page(&mut self) -> Result<Option<Page>, SourceError> {
        let Some(header) = self.peek_header()? else { return Ok(None) };
        self.next_header = None;
        let start = self.position;
        self.position += u64::from(header.compressed_bytes);
        // The compressed and the decompressed page are in memory at the same time.
        let total_bytes = u64::from(header.compressed_bytes) + u64::from(header.uncompressed_bytes);
        self.page_memory.check_available(total_bytes)?;
        let mut bytes = vec![0; header.compressed_bytes as usize];
        self.file
            .read_exact_at(&mut bytes, start)
            .map_err(|_| damaged_file_error("a page extends past the end of the file"))?;
        if header.crc.is_some_and(|expected| crc32fast::hash(&bytes) != expected) {
            return Err(damaged_file_error("the checksum of a page does not match"));
        }
        let levels_bytes = match header.page_type {
            PageType::DataV2 { definition_level_bytes, repetition_level_bytes, .. } => {
                let page_bytes = header.compressed_bytes.min(header.uncompressed_bytes);
                let bytes = u64::from(definition_level_bytes) + u64::from(repetition_level_bytes);
                let bytes = usize::try_from(bytes).ok().filter(|levels| *levels <= page_bytes as usize);
                bytes.ok_or_else(|| damaged_file_error("the levels of a page are longer than the page"))?
            }
            _ => 0,
        };
        let uncompressed_bytes = header.uncompressed_bytes as usize;
        let is_packed = !matches!(header.page_type, PageType::DataV2 { is_compressed: false, .. });
        let bytes = match self.column.compression {
            Compression::UNCOMPRESSED => bytes,
            _ if !is_packed => bytes,
            compression => {
                let decoder_bytes = page_decompression::decoder_memory_bytes(compression, &bytes[levels_bytes..]);
                self.page_memory.check_available(total_bytes + decoder_bytes)?;
                page_decompression::decompress_page(compression, bytes, levels_bytes, uncompressed_bytes)?
            }
        };
        if bytes.len() != uncompressed_bytes {
            return Err(damaged_file_error("a page does not have the uncompressed size that its header specifies"));
        }
        match header.page_type {
            PageType::Dictionary => self.build_dictionary_page(header, bytes).map(Some),
            _ => self.build_data_page(header, bytes, levels_bytes).map(Some),
        }
    }

    fn build_dictionary_page(&mut self, header: PageHeader, bytes: Vec<u8>) -> Result<Page, SourceError> {
        if u64::from(header.value_count) * self.column.type_width_bytes as u64 > bytes.len() as u64 {
            return Err(damaged_file_error("a dictionary has more entries than its bytes can contain"));
        }
        if self.column.descriptor.physical_type() == Type::BYTE_ARRAY && self.column.copies_strings {
            self.longest_dictionary_entry_bytes = longest_dictionary_entry_bytes(&bytes);
        }
        // The library stores the entries of a dictionary a second time, as values.
        let memory_bytes = bytes.len() as u64 + u64::from(header.value_count) * self.column.value_memory_bytes();
        self.page_memory.replace_reservation(&mut self.dictionary_bytes, memory_bytes)?;
        let PageHeader { value_count: num_values, encoding, .. } = header;
        Ok(Page::DictionaryPage { buf: bytes.into(), num_values, encoding, is_sorted: false })
    }

    fn build_data_page(&mut self, header: PageHeader, bytes: Vec<u8>, level_bytes: usize) -> Result<Page, SourceError> {
        let values = u64::from(header.value_count);
        let is_list = self.column.is_list();
        let batch_values = if is_list {
            self.max_values_in_batch(&header, &bytes).min(values)
        } else {
            values.min(self.batch_rows as u64)
        };
        let copied_bytes = match header.encoding {
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                batch_values.saturating_mul(self.longest_dictionary_entry_bytes)
            }
            _ if self.column.copies_strings => bytes.len() as u64,
            _ => 0,
        };
        // `batch_size` has already counted the values of columns without lists.
        let value_bytes = if is_list { batch_values * self.column.value_memory_bytes() } else { 0 };
        let memory_bytes = (bytes.len() as u64).saturating_add(value_bytes).saturating_add(copied_bytes);
        self.page_memory.replace_reservation(&mut self.page_bytes, memory_bytes)?;
        let (bytes, encoding) = match header.encoding {
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY => {
                let start = self.values_offset(&header, &bytes, level_bytes)?;
                (self.decode_delta_page(&header, &bytes, start)?, Encoding::PLAIN)
            }
            encoding => (bytes, encoding),
        };
        let buf = Bytes::from(bytes);
        Ok(match header.page_type {
            PageType::DataV2 { null_count, row_count, definition_level_bytes, repetition_level_bytes, .. } => {
                Page::DataPageV2 {
                    buf,
                    num_values: header.value_count,
                    encoding,
                    num_nulls: null_count,
                    num_rows: row_count,
                    def_levels_byte_len: definition_level_bytes,
                    rep_levels_byte_len: repetition_level_bytes,
                    is_compressed: false,
                    statistics: None,
                }
            }
            PageType::Data { definition_levels, repetition_levels } => Page::DataPage {
                buf,
                num_values: header.value_count,
                encoding,
                def_level_encoding: definition_levels,
                rep_level_encoding: repetition_levels,
                statistics: None,
            },
            PageType::Dictionary | PageType::Index => return Err(damaged_file_error("a page has an unexpected type")),
        })
    }

    fn decode_delta_page(&mut self, header: &PageHeader, bytes: &[u8], start: usize) -> Result<Vec<u8>, SourceError> {
        let has_prefixes = header.encoding == Encoding::DELTA_BYTE_ARRAY;
        let has_lengths = self.column.descriptor.physical_type() == Type::BYTE_ARRAY;
        let limit_bytes = self.page_memory.max_bytes.saturating_sub(self.page_memory.used_bytes());
        let limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        let (head, values) = bytes.split_at(start);
        let max_values = header.value_count as usize;
        let plain = delta_encoding::decode_to_plain(head, values, has_prefixes, has_lengths, max_values, limit_bytes);
        let plain = plain.map_err(|error| match error {
            DeltaEncodingError::Malformed => damaged_file_error("the string lengths of a page are malformed"),
            DeltaEncodingError::TooLong => self.page_memory.memory_limit_error(self.page_memory.max_bytes + 1),
        })?;
        let memory_bytes = self.page_bytes.saturating_add(plain.len() as u64);
        self.page_memory.replace_reservation(&mut self.page_bytes, memory_bytes)?;
        Ok(plain)
    }

    fn values_offset(&self, header: &PageHeader, bytes: &[u8], levels_bytes: usize) -> Result<usize, SourceError> {
        let PageType::Data { definition_levels, repetition_levels } = header.page_type else { return Ok(levels_bytes) };
        let mut start = 0;
        let descriptor = &self.column.descriptor;
        let levels = [(descriptor.max_rep_level(), repetition_levels), (descriptor.max_def_level(), definition_levels)];
        for (max, encoding) in levels.into_iter().filter(|(max, _)| *max > 0) {
            start += levels_length(&bytes[start..], max, encoding, header.value_count)
                .ok_or_else(|| damaged_file_error("the levels of a page are longer than the page"))?;
        }
        Ok(start)
    }

    /// Returns the maximum number of values in `batch_rows` consecutive rows of a page with lists.
    fn max_values_in_batch(&self, header: &PageHeader, bytes: &[u8]) -> u64 {
        let width = level_bit_width(self.column.descriptor.max_rep_level());
        let levels = match header.page_type {
            PageType::DataV2 { repetition_level_bytes, .. } => bytes.get(..repetition_level_bytes as usize),
            PageType::Data { repetition_levels: Encoding::RLE, .. } => {
                let length = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
                length.and_then(|length| bytes.get(4..4 + length))
            }
            _ => None,
        };
        let values = u64::from(header.value_count);
        levels.map_or(values, |levels| max_levels_in_rows(levels, width, values, self.batch_rows))
    }
}

impl Drop for CheckedPageReader {
    fn drop(&mut self) {
        self.page_memory.current_bytes.fetch_sub(self.page_bytes + self.dictionary_bytes, Ordering::Relaxed);
    }
}

impl Iterator for CheckedPageReader {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPageReader {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        self.read_page().map_err(|error| self.record_refusal(error))
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        let next = self.peek_header().map_err(|error| self.record_refusal(error))?;
        Ok(next.map(|header| {
            let num_rows = match header.page_type {
                PageType::DataV2 { row_count, .. } => Some(row_count as usize),
                _ => None,
            };
            let is_dict = header.page_type == PageType::Dictionary;
            PageMetadata { num_rows, num_levels: (!is_dict).then_some(header.value_count as usize), is_dict }
        }))
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        if let Some(header) = self.peek_header().map_err(|error| self.record_refusal(error))? {
            self.next_header = None;
            self.position += u64::from(header.compressed_bytes);
        }
        Ok(())
    }
}

pub(super) struct SingleChunkPages(pub(super) Option<CheckedPageReader>);

impl Iterator for SingleChunkPages {
    type Item = ParquetResult<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl PageIterator for SingleChunkPages {}

fn longest_dictionary_entry_bytes(mut bytes: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        let Some(rest) = rest.get(length as usize..) else { break };
        longest = longest.max(length);
        bytes = rest;
    }
    u64::from(longest)
}

fn level_bit_width(max: i16) -> u32 {
    i16::BITS - max.leading_zeros()
}

/// Returns the size of the levels at the start of a version 1 page.
fn levels_length(bytes: &[u8], max: i16, encoding: Encoding, values: u32) -> Option<usize> {
    let length = match encoding {
        Encoding::RLE => 4 + u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize,
        _ => (values as usize).checked_mul(level_bit_width(max) as usize)?.div_ceil(8),
    };
    (length <= bytes.len()).then_some(length)
}

/// Returns the maximum number of levels in `rows` consecutive rows. A row starts with the level 0. The levels use the
/// hybrid encoding of runs and bit-packed groups; a malformed rest counts as part of the last row.
fn max_levels_in_rows(mut bytes: &[u8], width: u32, values: u64, rows: usize) -> u64 {
    let rows = rows.max(1);
    // The indexes of the levels at which the last `rows` rows start.
    let mut starts: VecDeque<u64> = VecDeque::with_capacity(rows + 1);
    let mut position = 0_u64;
    let mut max_levels = 0_u64;
    let mut begin_row = |starts: &mut VecDeque<u64>, position: u64| {
        starts.push_back(position);
        if starts.len() > rows {
            let first = starts.pop_front().unwrap_or(position);
            max_levels = max_levels.max(position - first);
        }
    };
    let value_bytes = width.div_ceil(8) as usize;
    while position < values {
        let Some(head) = leb128::read_varint(&mut bytes) else { break };
        let count = head >> 1;
        if head & 1 == 0 {
            let Some((value, rest)) = bytes.split_at_checked(value_bytes) else { break };
            bytes = rest;
            let count = count.min(values - position);
            if value.iter().all(|byte| *byte == 0) {
                // In a long run of rows with one value each, only the first and the last rows matter.
                let first = count.min(rows as u64 + 1);
                (0..first).for_each(|row| begin_row(&mut starts, position + row));
                let last = (count - first).min(rows as u64 + 1);
                if count > first + last {
                    starts.clear();
                }
                (count - last..count).for_each(|row| begin_row(&mut starts, position + row));
            }
            position += count;
        } else {
            let Some(length) = count.checked_mul(u64::from(width)).and_then(|length| usize::try_from(length).ok())
            else {
                break;
            };
            let packed = &bytes[..length.min(bytes.len())];
            bytes = &bytes[packed.len()..];
            let count = count.saturating_mul(8).min(values - position);
            let available = packed.len() as u64 * 8 / u64::from(width.max(1));
            for index in 0..count.min(available) {
                if is_packed_zero(packed, index, width) {
                    begin_row(&mut starts, position + index);
                }
            }
            position += count;
        }
    }
    max_levels.max(values - starts.front().copied().unwrap_or(0))
}

fn is_packed_zero(packed: &[u8], index: u64, width: u32) -> bool {
    let first = index * u64::from(width);
    (first..first + u64::from(width)).all(|bit| {
        let byte = usize::try_from(bit / 8).ok().and_then(|at| packed.get(at));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 0)
    })
}
