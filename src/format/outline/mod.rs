//! The outline of a version file: what a reader needs of the Parquet footer, in few bytes that need no decoding.
//!
//! The footer of a large version has megabytes: Thrift structures of each column of each row group, page indexes of all
//! columns, checksums in hexadecimal digits. Decoded, they take several times as much. A reader of one page needs
//! little of it, and would wait for all. So a writer puts an outline before the footer ([`OutlinePlace`] tells
//! where): tables of numbers of fixed length, which are fetched, compared with their checksum and used as they are.
//!
//! Of a file without an outline, or whose outline is damaged, the same tables are made from the Parquet footer
//! ([`builder::OutlineBuilder`]). So all readers use the same form, and no answer depends on an outline.
//!
//! docs/internals/storage-format-footer.md, Footer index, describes the bytes.
//!
//! `benches/cold` measures what it saves; `format::outline` compares reads with and without it.

pub(super) mod builder;
mod details;
mod place;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use parquet::file::page_index::offset_index::PageLocation;

use self::details::Details;
pub(super) use self::place::OutlinePlace;
use strata_store::{Result, StorageError};

/// The format of outlines. A reader passes over any other, and decodes the Parquet footer.
const FORMAT: u32 = 1;

/// Bytes of the numbers that come first: the format, how many row groups, columns and pages of documents there are, and
/// bytes of the details and of the texts.
const HEADER_BYTES: usize = 24;

/// Bytes of a row group: its first byte in the file (64 bits), its rows, and how many pages come before its own.
const GROUP_BYTES: usize = 16;

/// Bytes of a column chunk: its first byte, counted from that of the row group; its bytes as stored and decompressed,
/// its values, the bytes of its dictionary page, its checksum, and where its details end.
const CHUNK_BYTES: usize = 28;

/// Bytes of a page of documents: its end, counted from the first byte of the documents; its first row, its checksum.
const PAGE_BYTES: usize = 12;

/// The keys of the footer's metadata with their values.
pub(super) type Texts = BTreeMap<String, String>;

pub(super) struct Outline {
    pub(super) bytes: Bytes,
    pub(super) row_groups: usize,
    pub(super) columns: usize,
    /// Where the table of column chunks begins; and where the others do.
    chunks: usize,
    pages: usize,
    details: usize,
    texts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) stored_bytes: u32,
    pub(super) decompressed_bytes: u32,
    pub(super) values: u32,
    /// Bytes of its dictionary page, 0 if it has none.
    pub(super) dictionary_bytes: u32,
    /// Except for the column of documents, whose pages have their own.
    pub(super) checksum: u32,
}

impl Chunk {
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(u64::from(self.stored_bytes))
    }
}

impl Outline {
    /// Reads what [`builder::OutlineBuilder`] wrote, of a file of this size. `None` when it has another format.
    ///
    /// # Errors
    /// [`StorageError::Layout`] when it is damaged, or something lies outside of the file: what comes after may trust
    /// it.
    pub(super) fn read(bytes: Bytes, size_bytes: u64) -> Result<Option<Outline>> {
        let header: Vec<usize> =
            bytes.chunks_exact(4).take(HEADER_BYTES / 4).map(|word| number(word) as usize).collect();
        let [format, row_groups, columns, page_count, detail_bytes, text_bytes] = header[..] else {
            return Err(damaged("its footer index is truncated"));
        };
        if format != FORMAT as usize {
            return Ok(None);
        }
        let chunks = HEADER_BYTES + (row_groups + 1) * GROUP_BYTES;
        let pages =
            row_groups.checked_mul(columns).and_then(|count| count.checked_mul(CHUNK_BYTES)?.checked_add(chunks));
        let details = pages.and_then(|pages| page_count.checked_mul(PAGE_BYTES)?.checked_add(pages));
        let texts = details.and_then(|details| details.checked_add(detail_bytes));
        let (Some(pages), Some(details), Some(texts)) = (pages, details, texts) else {
            return Err(damaged("its footer index is truncated"));
        };
        if columns == 0 || texts.checked_add(text_bytes) != Some(bytes.len()) {
            return Err(damaged("its footer index is truncated"));
        }
        let outline = Outline { bytes, row_groups, columns, chunks, pages, details, texts };
        outline.check(page_count, size_bytes)?;
        Ok(Some(outline))
    }

    /// Checks that everything lies in the file, and that pages of documents cut their row group.
    fn check(&self, page_count: usize, size_bytes: u64) -> Result<()> {
        let mut details_end = 0;
        for row_group in 0..self.row_groups {
            for column in 0..self.columns {
                if self.chunk(row_group, column).range().end > size_bytes {
                    return Err(damaged("a column is outside the file"));
                }
                let end = number(&self.chunk_record(row_group, column)[24..]) as usize;
                let details = self.bytes.get(self.details + details_end..self.details + end);
                let details = details.filter(|_| self.details + end <= self.texts).and_then(Details::read);
                let Some(details) = details else { return Err(damaged("its footer index is truncated")) };
                details_end = end;
                let range = self.bloom_of(row_group, &details).map(|(range, _)| range);
                if range.is_some_and(|range| range.end > size_bytes) {
                    return Err(damaged("a bloom filter is outside the file"));
                }
            }
            let pages = self.page_numbers(row_group);
            if pages.start > pages.end || pages.end > page_count {
                return Err(damaged("its footer index is truncated"));
            }
            let mut first_row = None;
            let mut end = 0;
            for page in pages {
                let record = self.page_record(page);
                let next_end = number(record);
                let row = number(&record[4..]);
                // Parquet counts the bytes of a page in a signed number.
                let is_inside = next_end <= self.chunk(row_group, 0).stored_bytes.min(i32::MAX.cast_unsigned());
                if next_end <= end || !is_inside || first_row.is_some_and(|before| row <= before) {
                    return Err(damaged("a document page is misplaced"));
                }
                if first_row.is_none() && row != 0 {
                    return Err(damaged("the document pages do not match their row group"));
                }
                (first_row, end) = (Some(row), next_end);
            }
            if first_row.is_none_or(|row| row >= self.rows(row_group)) {
                return Err(damaged("the document pages do not match their row group"));
            }
        }
        match self.page_numbers(self.row_groups).start == page_count && self.details + details_end == self.texts {
            true => Ok(()),
            false => Err(damaged("its footer index is truncated")),
        }
    }

    pub(super) fn texts(&self) -> Result<Texts> {
        serde_json::from_slice(&self.bytes[self.texts..]).map_err(|error| damaged(&format!("footer index: {error}")))
    }

    pub(super) fn rows(&self, row_group: usize) -> u32 {
        number(&self.group_record(row_group)[8..])
    }

    pub(super) fn chunk(&self, row_group: usize, column: usize) -> Chunk {
        let record = self.chunk_record(row_group, column);
        Chunk {
            start: self.base(row_group).saturating_add(u64::from(number(record))),
            stored_bytes: number(&record[4..]),
            decompressed_bytes: number(&record[8..]),
            values: number(&record[12..]),
            dictionary_bytes: number(&record[16..]),
            checksum: number(&record[20..]),
        }
    }

    pub(super) fn bloom(&self, row_group: usize, column: usize) -> Option<(Range<u64>, u32)> {
        self.bloom_of(row_group, &self.details(row_group, column))
    }

    fn bloom_of(&self, row_group: usize, details: &Details<'_>) -> Option<(Range<u64>, u32)> {
        let (start, length, checksum) = details.bloom?;
        let start = self.base(row_group).saturating_add(u64::from(start));
        Some((start..start.saturating_add(u64::from(length)), checksum))
    }

    pub(super) fn page_count(&self, row_group: usize) -> usize {
        self.page_numbers(row_group).len()
    }

    pub(super) fn page(&self, row_group: usize, page: usize) -> PageLocation {
        let number_of = self.page_numbers(row_group).start + page;
        let record = self.page_record(number_of);
        let start = if page == 0 { 0 } else { number(self.page_record(number_of - 1)) };
        PageLocation {
            // It lies in the file, whose size is such a number.
            offset: (self.chunk(row_group, 0).start + u64::from(start)).cast_signed(),
            compressed_page_size: (number(record) - start).cast_signed(),
            first_row_index: self.first_row(number_of) as i64,
        }
    }

    pub(super) fn page_of(&self, row_group: usize, row: usize) -> usize {
        let pages = self.page_numbers(row_group);
        // Without branches: a page of scattered entities asks a hundred times, and none could be foretold.
        let mut page = pages.start;
        let mut left = pages.len();
        while left > 1 {
            let half = left / 2;
            page = if self.first_row(page + half) <= row { page + half } else { page };
            left -= half;
        }
        page - pages.start
    }

    /// The row of a row group after the last one of a page, unless it is the last page.
    pub(super) fn page_end(&self, row_group: usize, page: usize) -> Option<usize> {
        let pages = self.page_numbers(row_group);
        (page + 1 < pages.len()).then(|| self.first_row(pages.start + page + 1))
    }

    fn first_row(&self, page: usize) -> usize {
        number(&self.page_record(page)[4..]) as usize
    }

    pub(super) fn page_checksum(&self, row_group: usize, page: usize) -> u32 {
        number(&self.page_record(self.page_numbers(row_group).start + page)[8..])
    }

    pub(super) fn parts(&self) -> Vec<(Range<u64>, u32)> {
        let mut parts = Vec::new();
        for row_group in 0..self.row_groups {
            parts.extend((0..self.page_count(row_group)).map(|page| {
                let location = self.page(row_group, page);
                let start = location.offset.cast_unsigned();
                let end = start + u64::from(location.compressed_page_size.cast_unsigned());
                (start..end, self.page_checksum(row_group, page))
            }));
            parts.extend(
                (1..self.columns)
                    .map(|column| self.chunk(row_group, column))
                    .map(|chunk| (chunk.range(), chunk.checksum)),
            );
            parts.extend((0..self.columns).filter_map(|column| self.bloom(row_group, column)));
        }
        parts.sort_by_key(|(range, _)| range.start);
        parts
    }

    fn group_record(&self, row_group: usize) -> &[u8] {
        &self.bytes[HEADER_BYTES + row_group * GROUP_BYTES..][..GROUP_BYTES]
    }

    fn base(&self, row_group: usize) -> u64 {
        let record = self.group_record(row_group);
        record.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn chunk_record(&self, row_group: usize, column: usize) -> &[u8] {
        &self.bytes[self.chunks + (row_group * self.columns + column) * CHUNK_BYTES..][..CHUNK_BYTES]
    }

    fn page_numbers(&self, row_group: usize) -> Range<usize> {
        let first = |row_group: usize| number(&self.group_record(row_group)[12..]) as usize;
        first(row_group)..first((row_group + 1).min(self.row_groups))
    }

    fn page_record(&self, page: usize) -> &[u8] {
        &self.bytes[self.pages + page * PAGE_BYTES..][..PAGE_BYTES]
    }

    pub(super) fn details(&self, row_group: usize, column: usize) -> Details<'_> {
        let chunk = row_group * self.columns + column;
        let end = |chunk: usize| number(&self.bytes[self.chunks + chunk * CHUNK_BYTES + 24..]) as usize;
        let start = chunk.checked_sub(1).map_or(0, end);
        // They were read when the outline was checked.
        Details::read(&self.bytes[self.details + start..self.details + end(chunk)]).unwrap_or_default()
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn damaged(what: &str) -> StorageError {
    StorageError::Layout(format!("its footer is damaged: {what}"))
}
