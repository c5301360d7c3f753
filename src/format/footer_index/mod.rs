//! The footer index of a version file: the parts of the Parquet footer that readers need, without decoding.
//!
//! The Parquet footer of a large version has megabytes, and several times as much when decoded, but a reader of one
//! page needs little of it. Writers therefore put a footer index before the footer ([`FooterIndexLocation`] points to
//! it): tables of fixed-size records that are fetched, verified, and used without decoding. If the index is missing or
//! damaged, [`builder::FooterIndexBuilder`] builds the same tables from the footer.
//!
//! docs/internals/storage-format-footer.md describes the format. `benches/cold` measures its benefit, and the tests
//! `format::footer_index` compare reads with and without it.

pub(super) mod builder;
mod chunk_details;
mod location;

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use parquet::file::page_index::offset_index::PageLocation;

use self::chunk_details::ChunkDetails;
pub(super) use self::location::FooterIndexLocation;
use crate::layout::DOCUMENT_COLUMN_INDEX;
use strata_store::{Result, StorageError};

const FOOTER_INDEX_FORMAT: u32 = 1;
/// The header of a footer index: its format number, and the sizes of the tables that follow.
const INDEX_HEADER_BYTES: usize = 24;
/// The record of a row group: file offset (64 bits), row count, and number of document pages in earlier row groups.
const ROW_GROUP_RECORD_BYTES: usize = 16;
/// The record of a column chunk: its offset from the row group, its stored and its decompressed size, its value count,
/// the size of its dictionary page, its checksum, and the end of its details, such as statistics.
const CHUNK_RECORD_BYTES: usize = 28;
/// The record of a document page: its end, relative to the first document page; its first row; its checksum.
const PAGE_RECORD_BYTES: usize = 12;
pub(super) type FooterKeyValues = BTreeMap<String, String>;

pub(super) struct FooterIndex {
    pub(super) bytes: Bytes,
    pub(super) row_groups: usize,
    pub(super) columns: usize,
    /// Offset in `bytes` of the table of column chunks. The fields below are the offsets of the other tables.
    chunks_offset: usize,
    pages_offset: usize,
    details_offset: usize,
    key_values_offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkEntry {
    pub(super) start: u64,
    pub(super) stored_bytes: u32,
    pub(super) decompressed_bytes: u32,
    pub(super) values: u32,
    pub(super) dictionary_bytes: u32,
    /// The checksum of a column chunk. Not used for the document column, whose pages have checksums of their own.
    pub(super) checksum: u32,
}

impl ChunkEntry {
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(u64::from(self.stored_bytes))
    }
}

impl FooterIndex {
    /// Decodes the output of [`builder::FooterIndexBuilder`]. Returns `None` for an unknown format. Damage and ranges
    /// outside the file are errors, so that other methods can rely on the index.
    pub(super) fn decode(bytes: Bytes, size_bytes: u64) -> Result<Option<FooterIndex>> {
        let header: Vec<usize> =
            bytes.chunks_exact(4).take(INDEX_HEADER_BYTES / 4).map(|word| read_u32(word) as usize).collect();
        let [format, row_groups, columns, page_count, detail_bytes, text_bytes] = header[..] else {
            return Err(footer_damaged("its footer index is truncated"));
        };
        if format != FOOTER_INDEX_FORMAT as usize {
            return Ok(None);
        }
        let chunks_offset = INDEX_HEADER_BYTES + (row_groups + 1) * ROW_GROUP_RECORD_BYTES;
        let offsets = || {
            let pages = row_groups.checked_mul(columns)?.checked_mul(CHUNK_RECORD_BYTES)?.checked_add(chunks_offset)?;
            let details = page_count.checked_mul(PAGE_RECORD_BYTES)?.checked_add(pages)?;
            let key_values = details.checked_add(detail_bytes)?;
            let end = key_values.checked_add(text_bytes)?;
            (columns > 0 && end == bytes.len()).then_some((pages, details, key_values))
        };
        let Some((pages_offset, details_offset, key_values_offset)) = offsets() else {
            return Err(footer_damaged("its footer index is truncated"));
        };
        let footer_index =
            FooterIndex { bytes, row_groups, columns, chunks_offset, pages_offset, details_offset, key_values_offset };
        footer_index.validate(page_count, size_bytes)?;
        Ok(Some(footer_index))
    }

    fn validate(&self, page_count: usize, size_bytes: u64) -> Result<()> {
        let mut details_end = 0;
        for row_group in 0..self.row_groups {
            for column in 0..self.columns {
                if self.chunk(row_group, column).range().end > size_bytes {
                    return Err(footer_damaged("a column is outside the file"));
                }
                let end = read_u32(&self.chunk_record(row_group, column)[24..]) as usize;
                let details = self.bytes.get(self.details_offset + details_end..self.details_offset + end);
                let details = details
                    .filter(|_| self.details_offset + end <= self.key_values_offset)
                    .and_then(ChunkDetails::decode);
                if details.is_none() {
                    return Err(footer_damaged("its footer index is truncated"));
                }
                details_end = end;
            }
            let pages = self.page_range(row_group);
            if pages.start > pages.end || pages.end > page_count {
                return Err(footer_damaged("its footer index is truncated"));
            }
            let mut first_row = None;
            let mut end = 0;
            for page in pages {
                let record = self.page_record(page);
                let next_end = read_u32(record);
                let row = read_u32(&record[4..]);
                let is_inside = next_end <= self.chunk(row_group, 0).stored_bytes.min(i32::MAX.cast_unsigned());
                if next_end <= end || !is_inside || first_row.is_some_and(|before| row <= before) {
                    return Err(footer_damaged("a document page is misplaced"));
                }
                if first_row.is_none() && row != 0 {
                    return Err(footer_damaged("the document pages do not match their row group"));
                }
                first_row = Some(row);
                end = next_end;
            }
            if first_row.is_none_or(|row| row >= self.rows(row_group)) {
                return Err(footer_damaged("the document pages do not match their row group"));
            }
        }
        let has_all_pages = self.page_range(self.row_groups).start == page_count;
        let has_all_details = self.details_offset + details_end == self.key_values_offset;
        if has_all_pages && has_all_details { Ok(()) } else { Err(footer_damaged("its footer index is truncated")) }
    }

    pub(super) fn key_values(&self) -> Result<FooterKeyValues> {
        serde_json::from_slice(&self.bytes[self.key_values_offset..])
            .map_err(|error| footer_damaged(&format!("footer index: {error}")))
    }

    pub(super) fn rows(&self, row_group: usize) -> u32 {
        read_u32(&self.row_group_record(row_group)[8..])
    }

    pub(super) fn chunk(&self, row_group: usize, column: usize) -> ChunkEntry {
        let record = self.chunk_record(row_group, column);
        ChunkEntry {
            start: self.row_group_offset(row_group).saturating_add(u64::from(read_u32(record))),
            stored_bytes: read_u32(&record[4..]),
            decompressed_bytes: read_u32(&record[8..]),
            values: read_u32(&record[12..]),
            dictionary_bytes: read_u32(&record[16..]),
            checksum: read_u32(&record[20..]),
        }
    }

    /// Returns the bytes of the documents in `rows` rows of a row group, estimated from the mean size of all of its
    /// documents.
    pub(super) fn estimate_document_bytes(&self, row_group: usize, rows: u32) -> u64 {
        let all_bytes = u64::from(self.chunk(row_group, DOCUMENT_COLUMN_INDEX).decompressed_bytes);
        (all_bytes * u64::from(rows)).div_ceil(u64::from(self.rows(row_group).max(1)))
    }

    pub(super) fn page_count(&self, row_group: usize) -> usize {
        self.page_range(row_group).len()
    }

    pub(super) fn page_location(&self, row_group: usize, page: usize) -> PageLocation {
        let index = self.page_range(row_group).start + page;
        let record = self.page_record(index);
        let start = if page == 0 { 0 } else { read_u32(self.page_record(index - 1)) };
        PageLocation {
            offset: (self.chunk(row_group, 0).start + u64::from(start)).cast_signed(),
            compressed_page_size: (read_u32(record) - start).cast_signed(),
            first_row_index: self.first_row(index) as i64,
        }
    }

    pub(super) fn page_for_row(&self, row_group: usize, row: usize) -> usize {
        let pages = self.page_range(row_group);
        // A binary search without branches, because a page of scattered entities needs hundreds of lookups that the
        // processor cannot predict.
        let mut page = pages.start;
        let mut left = pages.len();
        while left > 1 {
            let half = left / 2;
            page = if self.first_row(page + half) <= row { page + half } else { page };
            left -= half;
        }
        page - pages.start
    }

    pub(super) fn page_end_row(&self, row_group: usize, page: usize) -> Option<usize> {
        let pages = self.page_range(row_group);
        (page + 1 < pages.len()).then(|| self.first_row(pages.start + page + 1))
    }

    fn first_row(&self, page: usize) -> usize {
        read_u32(&self.page_record(page)[4..]) as usize
    }

    pub(super) fn page_checksum(&self, row_group: usize, page: usize) -> u32 {
        read_u32(&self.page_record(self.page_range(row_group).start + page)[8..])
    }

    pub(super) fn checksummed_ranges(&self) -> Vec<(Range<u64>, u32)> {
        let mut parts = Vec::new();
        for row_group in 0..self.row_groups {
            parts.extend((0..self.page_count(row_group)).map(|page| {
                let location = self.page_location(row_group, page);
                let start = location.offset.cast_unsigned();
                let end = start + u64::from(location.compressed_page_size.cast_unsigned());
                (start..end, self.page_checksum(row_group, page))
            }));
            let chunks = (1..self.columns).map(|column| self.chunk(row_group, column));
            parts.extend(chunks.map(|chunk| (chunk.range(), chunk.checksum)));
        }
        parts.sort_by_key(|(range, _)| range.start);
        parts
    }

    fn row_group_record(&self, row_group: usize) -> &[u8] {
        &self.bytes[INDEX_HEADER_BYTES + row_group * ROW_GROUP_RECORD_BYTES..][..ROW_GROUP_RECORD_BYTES]
    }

    fn row_group_offset(&self, row_group: usize) -> u64 {
        let record = self.row_group_record(row_group);
        record.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn chunk_record(&self, row_group: usize, column: usize) -> &[u8] {
        &self.bytes[self.chunks_offset + (row_group * self.columns + column) * CHUNK_RECORD_BYTES..]
            [..CHUNK_RECORD_BYTES]
    }

    fn page_range(&self, row_group: usize) -> Range<usize> {
        let first = |row_group: usize| read_u32(&self.row_group_record(row_group)[12..]) as usize;
        first(row_group)..first((row_group + 1).min(self.row_groups))
    }

    fn page_record(&self, page: usize) -> &[u8] {
        &self.bytes[self.pages_offset + page * PAGE_RECORD_BYTES..][..PAGE_RECORD_BYTES]
    }

    pub(super) fn chunk_details(&self, row_group: usize, column: usize) -> ChunkDetails<'_> {
        let chunk = row_group * self.columns + column;
        let end = |chunk: usize| read_u32(&self.bytes[self.chunks_offset + chunk * CHUNK_RECORD_BYTES + 24..]) as usize;
        let start = chunk.checked_sub(1).map_or(0, end);
        ChunkDetails::decode(&self.bytes[self.details_offset + start..self.details_offset + end(chunk)])
            .unwrap_or_default()
    }
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn footer_damaged(what: &str) -> StorageError {
    StorageError::InvalidFile(format!("its footer is damaged: {what}"))
}
