//! Reads the pages of a column, checks each before the library decodes it, and counts their memory.
//!
//! A page is refused in three cases: its bytes do not decode to the size in its header, a dictionary has more entries
//! than its bytes can hold, or the pages and dictionaries held at the time take more memory than they may. Texts in
//! delta encodings are written out (`delta`).

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use strata_types::leb128;

use super::super::error::{SourceError, quoted_name};
use super::codec;
use super::delta::{self, DeltaError};
use super::header::{self, Header, PageType};
use super::{damaged, over_memory_limit};

/// Bytes of memory for one value of a column and its levels while a batch is made, the text of strings not counted.
pub(super) const VALUE_BYTES: u64 = 24;

/// The memory that decoding holds. The columns of a row group share it.
#[derive(Debug, Default)]
pub(super) struct Account {
    limit_bytes: u64,
    /// The page and the dictionary that each column is at.
    held_bytes: AtomicU64,
    /// Pages that columns have left behind while this batch was made, which the batch may still refer to.
    replaced_bytes: AtomicU64,
    /// Why a page was refused. Kept here because the library would turn it into a text.
    refusal: Mutex<Option<SourceError>>,
}

impl Account {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, ..Self::default() }
    }

    pub(super) fn begin_batch(&self) {
        self.replaced_bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn take_refusal(&self) -> Option<SourceError> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn refuse(&self, error: SourceError) -> ParquetError {
        let text = error.to_string();
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        ParquetError::General(text)
    }

    fn taken_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed) + self.replaced_bytes.load(Ordering::Relaxed)
    }

    fn check(&self, bytes: u64) -> Result<(), SourceError> {
        let needed = self.taken_bytes().saturating_add(bytes);
        if needed > self.limit_bytes { Err(self.over(needed)) } else { Ok(()) }
    }

    fn over(&self, needed_bytes: u64) -> SourceError {
        over_memory_limit("the decoded pages in use at the same time", needed_bytes, self.limit_bytes)
    }

    /// Holds this many bytes in place of others, to which the batch may still refer.
    fn replace(&self, held: &mut u64, bytes: u64) -> Result<(), SourceError> {
        self.check(bytes)?;
        self.replaced_bytes.fetch_add(*held, Ordering::Relaxed);
        self.held_bytes.fetch_sub(*held, Ordering::Relaxed);
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        *held = bytes;
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) values: u64,
    described: ColumnDescPtr,
    compression: Compression,
    pub(super) type_bytes: usize,
    /// Whether a batch copies each text, also those that a dictionary holds once.
    pub(super) copies_strings: bool,
}

impl Column {
    pub(super) fn try_new(
        chunk: &ColumnChunkMetaData,
        file_bytes: u64,
        copies_strings: bool,
    ) -> Result<Self, SourceError> {
        let damaged = |reason: &str| in_column(chunk.column_descr(), damaged(reason));
        let described = chunk.column_descr_ptr();
        let (start, end) = match chunk.num_values() {
            // There need be no page, and the offsets of pages mean nothing.
            0 => (0, 0),
            _ => {
                let data = chunk.data_page_offset();
                // Some writers give 0 for none.
                let dictionary = chunk.dictionary_page_offset().filter(|offset| *offset > 0 && *offset < data);
                let start = u64::try_from(dictionary.unwrap_or(data));
                let start = start.map_err(|_| damaged("a column starts before the beginning of the file"))?;
                let length = u64::try_from(chunk.compressed_size());
                let length = length.map_err(|_| damaged("a column has a negative length"))?;
                let end = start.checked_add(length).filter(|end| *end <= file_bytes);
                (start, end.ok_or_else(|| damaged("a column extends past the end of the file"))?)
            }
        };
        let type_bytes = match chunk.column_type() {
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 => 12,
            Type::BYTE_ARRAY => 4,
            Type::FIXED_LEN_BYTE_ARRAY => match usize::try_from(described.type_length()) {
                Ok(length) if length > 0 => length,
                _ => return Err(damaged("a fixed-length column has no length")),
            },
        };
        Ok(Self {
            start,
            end,
            values: u64::try_from(chunk.num_values()).unwrap_or(0),
            described,
            compression: chunk.compression(),
            type_bytes,
            copies_strings,
        })
    }

    pub(super) fn name_in(&self, error: SourceError) -> SourceError {
        in_column(&self.described, error)
    }

    /// Whether a row can have more than one value.
    pub(super) fn is_list(&self) -> bool {
        self.described.max_rep_level() > 0
    }

    pub(super) fn value_bytes(&self) -> u64 {
        VALUE_BYTES + self.type_bytes as u64
    }
}

fn in_column(described: &ColumnDescriptor, error: SourceError) -> SourceError {
    match error {
        SourceError::BadDocument { place, reason } => {
            let name = quoted_name(&described.path().string());
            SourceError::BadDocument { place, reason: format!("{reason} (column {name})") }
        }
        other => other,
    }
}

pub(super) struct Pages {
    file: Arc<File>,
    column: Column,
    account: Arc<Account>,
    batch_rows: usize,
    position: u64,
    next: Option<Header>,
    page_bytes: u64,
    dictionary_bytes: u64,
    longest_entry_bytes: u64,
}

impl Pages {
    pub(super) fn new(file: Arc<File>, column: Column, account: Arc<Account>, batch_rows: usize) -> Self {
        let position = column.start;
        Self {
            file,
            column,
            account,
            batch_rows,
            position,
            next: None,
            page_bytes: 0,
            dictionary_bytes: 0,
            longest_entry_bytes: 0,
        }
    }

    fn refuse(&self, error: SourceError) -> ParquetError {
        self.account.refuse(self.column.name_in(error))
    }

    /// The header of the next page that holds anything.
    fn peek(&mut self) -> Result<Option<Header>, SourceError> {
        while self.next.is_none() && self.position < self.column.end {
            let (header, taken) = header::read(&self.file, self.position, self.column.end)?;
            self.position += taken;
            match header.page_type {
                PageType::Index => self.position += u64::from(header.compressed_bytes),
                _ => self.next = Some(header),
            }
        }
        Ok(self.next)
    }

    fn page(&mut self) -> Result<Option<Page>, SourceError> {
        let Some(header) = self.peek()? else { return Ok(None) };
        self.next = None;
        let start = self.position;
        self.position += u64::from(header.compressed_bytes);
        // The compressed and the uncompressed size.
        let both = u64::from(header.compressed_bytes) + u64::from(header.uncompressed_bytes);
        self.account.check(both)?;
        let mut bytes = vec![0; header.compressed_bytes as usize];
        self.file.read_exact_at(&mut bytes, start).map_err(|_| damaged("a page extends past the end of the file"))?;
        if header.crc.is_some_and(|expected| crc32fast::hash(&bytes) != expected) {
            return Err(damaged("the checksum of a page does not match"));
        }
        let levels_bytes = match header.page_type {
            PageType::DataV2 { definition_bytes, repetition_bytes, .. } => {
                let page_bytes = header.compressed_bytes.min(header.uncompressed_bytes);
                let bytes = u64::from(definition_bytes) + u64::from(repetition_bytes);
                let bytes = usize::try_from(bytes).ok().filter(|levels| *levels <= page_bytes as usize);
                bytes.ok_or_else(|| damaged("the levels of a page are longer than the page"))?
            }
            _ => 0,
        };
        let is_packed = !matches!(header.page_type, PageType::DataV2 { is_compressed: false, .. });
        let bytes = match self.column.compression {
            Compression::UNCOMPRESSED => bytes,
            _ if !is_packed => bytes,
            compression => {
                let decoder_bytes = codec::decoder_bytes(compression, &bytes[levels_bytes..]);
                self.account.check(both + decoder_bytes)?;
                codec::unpack(compression, bytes, levels_bytes, header.uncompressed_bytes as usize)?
            }
        };
        if bytes.len() != header.uncompressed_bytes as usize {
            return Err(damaged("a page does not have the uncompressed size that its header specifies"));
        }
        match header.page_type {
            PageType::Dictionary => self.dictionary(header, bytes).map(Some),
            _ => self.data(header, bytes, levels_bytes).map(Some),
        }
    }

    fn dictionary(&mut self, header: Header, bytes: Vec<u8>) -> Result<Page, SourceError> {
        if u64::from(header.values) * self.column.type_bytes as u64 > bytes.len() as u64 {
            return Err(damaged("a dictionary has more entries than its bytes can contain"));
        }
        if self.column.described.physical_type() == Type::BYTE_ARRAY && self.column.copies_strings {
            self.longest_entry_bytes = longest(&bytes);
        }
        // The entries once more, as values.
        let taken = bytes.len() as u64 + u64::from(header.values) * self.column.value_bytes();
        self.account.replace(&mut self.dictionary_bytes, taken)?;
        Ok(Page::DictionaryPage {
            buf: bytes.into(),
            num_values: header.values,
            encoding: header.encoding,
            is_sorted: false,
        })
    }

    fn data(&mut self, header: Header, bytes: Vec<u8>, levels_bytes: usize) -> Result<Page, SourceError> {
        let values = u64::from(header.values);
        let is_list = self.column.is_list();
        let in_batch =
            if is_list { self.most_values(&header, &bytes).min(values) } else { values.min(self.batch_rows as u64) };
        let copied = match header.encoding {
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => in_batch.saturating_mul(self.longest_entry_bytes),
            _ if self.column.copies_strings => bytes.len() as u64,
            _ => 0,
        };
        // Flat columns have their values of a batch in the plan.
        let own = if is_list { in_batch * self.column.value_bytes() } else { 0 };
        let taken = (bytes.len() as u64).saturating_add(own).saturating_add(copied);
        self.account.replace(&mut self.page_bytes, taken)?;
        let (bytes, encoding) = match header.encoding {
            Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY => {
                let start = self.values_start(&header, &bytes, levels_bytes)?;
                (self.plain(&header, &bytes, start)?, Encoding::PLAIN)
            }
            encoding => (bytes, encoding),
        };
        let buf = Bytes::from(bytes);
        Ok(match header.page_type {
            PageType::DataV2 { nulls, rows, definition_bytes, repetition_bytes, .. } => Page::DataPageV2 {
                buf,
                num_values: header.values,
                encoding,
                num_nulls: nulls,
                num_rows: rows,
                def_levels_byte_len: definition_bytes,
                rep_levels_byte_len: repetition_bytes,
                is_compressed: false,
                statistics: None,
            },
            PageType::Data { definition_levels, repetition_levels } => Page::DataPage {
                buf,
                num_values: header.values,
                encoding,
                def_level_encoding: definition_levels,
                rep_level_encoding: repetition_levels,
                statistics: None,
            },
            PageType::Dictionary | PageType::Index => return Err(damaged("a page has an unexpected type")),
        })
    }

    fn plain(&mut self, header: &Header, bytes: &[u8], start: usize) -> Result<Vec<u8>, SourceError> {
        let has_prefixes = header.encoding == Encoding::DELTA_BYTE_ARRAY;
        let has_lengths = self.column.described.physical_type() == Type::BYTE_ARRAY;
        let room = self.account.limit_bytes.saturating_sub(self.account.taken_bytes());
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let values = header.values as usize;
        let plain = delta::to_plain(&bytes[..start], &bytes[start..], has_prefixes, has_lengths, values, room);
        let plain = plain.map_err(|error| match error {
            DeltaError::Malformed => damaged("the string lengths of a page are malformed"),
            DeltaError::TooLong => self.account.over(self.account.limit_bytes + 1),
        })?;
        let taken = self.page_bytes.saturating_add(plain.len() as u64);
        self.account.replace(&mut self.page_bytes, taken)?;
        Ok(plain)
    }

    fn values_start(&self, header: &Header, bytes: &[u8], levels_bytes: usize) -> Result<usize, SourceError> {
        let PageType::Data { definition_levels, repetition_levels } = header.page_type else { return Ok(levels_bytes) };
        let mut start = 0;
        let described = &self.column.described;
        let levels = [(described.max_rep_level(), repetition_levels), (described.max_def_level(), definition_levels)];
        for (max, encoding) in levels.into_iter().filter(|(max, _)| *max > 0) {
            start += level_bytes(&bytes[start..], max, encoding, header.values)
                .ok_or_else(|| damaged("the levels of a page are longer than the page"))?;
        }
        Ok(start)
    }

    /// The most values that as many rows as a batch has take together in a page of lists.
    fn most_values(&self, header: &Header, bytes: &[u8]) -> u64 {
        let width = level_width(self.column.described.max_rep_level());
        let levels = match header.page_type {
            PageType::DataV2 { repetition_bytes, .. } => bytes.get(..repetition_bytes as usize),
            PageType::Data { repetition_levels: Encoding::RLE, .. } => {
                let length = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
                length.and_then(|length| bytes.get(4..4 + length))
            }
            _ => None,
        };
        let values = u64::from(header.values);
        levels.map_or(values, |levels| most_between_zeros(levels, width, values, self.batch_rows))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.account.held_bytes.fetch_sub(self.page_bytes + self.dictionary_bytes, Ordering::Relaxed);
    }
}

impl Iterator for Pages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        self.page().map_err(|error| self.refuse(error))
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        let next = self.peek().map_err(|error| self.refuse(error))?;
        Ok(next.map(|header| {
            let num_rows = match header.page_type {
                PageType::DataV2 { rows, .. } => Some(rows as usize),
                _ => None,
            };
            let is_dict = header.page_type == PageType::Dictionary;
            PageMetadata { num_rows, num_levels: (!is_dict).then_some(header.values as usize), is_dict }
        }))
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        if let Some(header) = self.peek().map_err(|error| self.refuse(error))? {
            self.next = None;
            self.position += u64::from(header.compressed_bytes);
        }
        Ok(())
    }
}

/// The one column chunk of a row group, as the library asks for it.
pub(super) struct OneChunk(pub(super) Option<Pages>);

impl Iterator for OneChunk {
    type Item = ParquetResult<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl PageIterator for OneChunk {}

fn longest(mut bytes: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        let Some(rest) = rest.get(length as usize..) else { break };
        longest = longest.max(length);
        bytes = rest;
    }
    u64::from(longest)
}

fn level_width(max: i16) -> u32 {
    i16::BITS - max.leading_zeros()
}

/// Bytes of the levels that a page of version 1 begins with.
fn level_bytes(bytes: &[u8], max: i16, encoding: Encoding, values: u32) -> Option<usize> {
    let length = match encoding {
        Encoding::RLE => 4 + u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize,
        _ => (values as usize).checked_mul(level_width(max) as usize)?.div_ceil(8),
    };
    (length <= bytes.len()).then_some(length)
}

/// Of levels in the hybrid of runs and packed bits: the most that lie between a zero, which begins a row, and the one
/// that is `rows` zeros after it. What is malformed counts as one row.
fn most_between_zeros(mut bytes: &[u8], width: u32, values: u64, rows: usize) -> u64 {
    let rows = rows.max(1);
    // The positions at which the last rows began.
    let mut starts: VecDeque<u64> = VecDeque::with_capacity(rows + 1);
    let mut position = 0_u64;
    let mut most = 0_u64;
    let mut begin_row = |starts: &mut VecDeque<u64>, position: u64| {
        starts.push_back(position);
        if starts.len() > rows {
            let first = starts.pop_front().unwrap_or(position);
            most = most.max(position - first);
        }
    };
    let value_bytes = width.div_ceil(8) as usize;
    while position < values {
        let Some(head) = leb128::read(&mut bytes) else { break };
        let count = head >> 1;
        if head & 1 == 0 {
            let Some((value, rest)) = bytes.split_at_checked(value_bytes) else { break };
            bytes = rest;
            let count = count.min(values - position);
            if value.iter().all(|byte| *byte == 0) {
                // Of a long run of rows of one value the first and the last ones are enough.
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
            let there = packed.len() as u64 * 8 / u64::from(width.max(1));
            for index in 0..count.min(there) {
                if is_zero(packed, index, width) {
                    begin_row(&mut starts, position + index);
                }
            }
            position += count;
        }
    }
    most.max(values - starts.front().copied().unwrap_or(0))
}

fn is_zero(packed: &[u8], index: u64, width: u32) -> bool {
    let first = index * u64::from(width);
    (first..first + u64::from(width)).all(|bit| {
        let byte = usize::try_from(bit / 8).ok().and_then(|at| packed.get(at));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 0)
    })
}
