//! An outline made of the Parquet metadata of a file's row groups: while they are written, or from a footer.

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::statistics::Statistics;
use strata_store::{Result, StorageError};

use super::{FORMAT, Texts, damaged, details};
use crate::layout::json_text;

const OUTSIDE: &str = "a column is outside the file";

#[derive(Default)]
pub(crate) struct OutlineBuilder {
    columns: usize,
    row_groups: usize,
    page_count: u32,
    groups: Vec<u8>,
    chunks: Vec<u8>,
    pages: Vec<u8>,
    details: Vec<u8>,
}

impl OutlineBuilder {
    pub(crate) fn new(columns: usize) -> OutlineBuilder {
        OutlineBuilder { columns, ..OutlineBuilder::default() }
    }

    pub(crate) fn chunk_count(&self) -> usize {
        self.row_groups * self.columns
    }

    /// Adds the next row group, with its pages of documents. Takes the checksums of its parts, in their order: pages of
    /// documents, chunks of the other columns, bloom filters.
    pub(crate) fn push(
        &mut self,
        row_group: &RowGroupMetaData,
        pages: &[PageLocation],
        checksums: &mut dyn Iterator<Item = u32>,
    ) -> Result<()> {
        let mut checksum = || checksums.next().ok_or_else(wrong_checksums);
        let page_checksums: Vec<u32> = pages.iter().map(|_| checksum()).collect::<Result<_, _>>()?;
        let mut column_checksums = vec![0];
        for _ in row_group.columns().iter().skip(1) {
            column_checksums.push(checksum()?);
        }
        let rows = u32::try_from(row_group.num_rows())
            .map_err(|_| StorageError::Layout(format!("a row group cannot have {} rows", row_group.num_rows())))?;
        let first = row_group.columns().first().filter(|_| row_group.num_columns() == self.columns);
        let base = start_of(first.ok_or_else(|| damaged(OUTSIDE))?)?;
        self.groups.extend(base.to_le_bytes());
        put(&mut self.groups, &[rows, self.page_count]);

        let mut at = base;
        for (page, checksum) in pages.iter().zip(page_checksums) {
            let no_place = || damaged("a document page is misplaced");
            let length = u32::try_from(page.compressed_page_size).map_err(|_| no_place())?;
            let row = u32::try_from(page.first_row_index).map_err(|_| no_place())?;
            if u64::try_from(page.offset) != Ok(at) {
                return Err(no_place());
            }
            at += u64::from(length);
            put(&mut self.pages, &[u32::try_from(at - base).map_err(|_| no_place())?, row, checksum]);
            self.page_count = self.page_count.checked_add(1).ok_or_else(no_place)?;
        }
        for (column, sum) in row_group.columns().iter().zip(column_checksums) {
            let start = start_of(column)?;
            let place = start.checked_sub(base).and_then(|place| u32::try_from(place).ok());
            let stored = u32::try_from(column.compressed_size()).ok();
            let values = u32::try_from(column.num_values()).ok();
            let data = u64::try_from(column.data_page_offset()).ok().and_then(|data| data.checked_sub(start));
            let dictionary = data.and_then(|data| u32::try_from(data).ok());
            let (Some(place), Some(stored), Some(values), Some(dictionary)) = (place, stored, values, dictionary)
            else {
                return Err(damaged(OUTSIDE));
            };
            // Nothing but estimates depends on it.
            let decompressed = column.uncompressed_size().clamp(0, u32::MAX.into()) as u32;
            put(&mut self.chunks, &[place, stored, decompressed, values, dictionary, sum]);
            self.push_details(column, base, &mut checksum)?;
            let end = u32::try_from(self.details.len()).map_err(|_| damaged(OUTSIDE))?;
            put(&mut self.chunks, &[end]);
        }
        self.row_groups += 1;
        Ok(())
    }

    fn push_details(
        &mut self,
        column: &ColumnChunkMetaData,
        base: u64,
        checksum: &mut dyn FnMut() -> Result<u32>,
    ) -> Result<()> {
        let mut bits = match column.compression() {
            Compression::UNCOMPRESSED => 0,
            Compression::ZSTD(_) => details::COMPRESSED,
            _ => return Err(damaged("a column uses an unsupported compression")),
        };
        let first = self.details.len();
        self.details.push(0);
        if let (Some(offset), Some(length)) = (column.bloom_filter_offset(), column.bloom_filter_length()) {
            let offset = u64::try_from(offset).ok().and_then(|offset| u32::try_from(offset.checked_sub(base)?).ok());
            let outside = || damaged("a bloom filter is outside the file");
            let (offset, length) = offset.zip(u32::try_from(length).ok()).ok_or_else(outside)?;
            bits |= details::BLOOM;
            put(&mut self.details, &[offset, length, checksum()?]);
        }
        match column.statistics() {
            Some(Statistics::Int32(integers)) => {
                if let (Some(min), Some(max)) = (integers.min_opt(), integers.max_opt()) {
                    bits |= details::INTEGERS;
                    self.details.extend([min.to_le_bytes(), max.to_le_bytes()].as_flattened());
                }
            }
            Some(Statistics::Double(doubles)) => {
                if let (Some(min), Some(max)) = (doubles.min_opt(), doubles.max_opt()) {
                    bits |= details::DOUBLES;
                    self.details.extend([min.to_le_bytes(), max.to_le_bytes()].as_flattened());
                }
            }
            Some(Statistics::ByteArray(texts)) => {
                bits |= details::TEXTS;
                if let Some(nulls) = texts.null_count_opt() {
                    bits |= details::NULLS;
                    put(&mut self.details, &[u32::try_from(nulls).unwrap_or(u32::MAX)]);
                }
                if let (Some(min), Some(max)) = (texts.min_opt(), texts.max_opt()) {
                    bits |= details::BOUNDS;
                    put(&mut self.details, &[u32::try_from(min.len()).map_err(|_| damaged(OUTSIDE))?]);
                    self.details.extend(min.data());
                    self.details.extend(max.data());
                }
            }
            _ => {}
        }
        self.details[first] = bits;
        Ok(())
    }

    pub(crate) fn finish(mut self, texts: &Texts) -> Result<Vec<u8>> {
        let texts = json_text(texts)?.into_bytes();
        self.groups.extend(0_u64.to_le_bytes());
        put(&mut self.groups, &[0, self.page_count]);
        let mut bytes = Vec::new();
        let lengths = [self.row_groups, self.columns, self.page_count as usize, self.details.len(), texts.len()];
        put(&mut bytes, &[FORMAT]);
        for length in lengths {
            put(&mut bytes, &[u32::try_from(length).map_err(|_| damaged(OUTSIDE))?]);
        }
        let tables = [self.groups, self.chunks, self.pages, self.details, texts];
        bytes.reserve_exact(tables.iter().map(Vec::len).sum());
        tables.iter().for_each(|table| bytes.extend(table));
        Ok(bytes)
    }
}

fn start_of(column: &ColumnChunkMetaData) -> Result<u64> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    u64::try_from(start).map_err(|_| damaged(OUTSIDE))
}

fn put(table: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| table.extend(number.to_le_bytes()));
}

pub(crate) fn wrong_checksums() -> StorageError {
    StorageError::Layout("its list of checksums is invalid".to_owned())
}
