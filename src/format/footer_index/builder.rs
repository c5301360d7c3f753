//! Builds a footer index from the Parquet metadata of row groups, either while they are written or from a footer.

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::statistics::Statistics;
use strata_store::{Result, StorageError};

use super::{FOOTER_INDEX_FORMAT, FooterKeyValues, chunk_details, footer_damaged};
use crate::layout::to_json_string;

const COLUMN_OUTSIDE_FILE: &str = "a column is outside the file";

#[derive(Default)]
pub(crate) struct FooterIndexBuilder {
    columns: usize,
    row_groups: usize,
    page_count: u32,
    row_group_table: Vec<u8>,
    chunk_table: Vec<u8>,
    page_table: Vec<u8>,
    detail_bytes: Vec<u8>,
}

impl FooterIndexBuilder {
    pub(crate) fn new(columns: usize) -> FooterIndexBuilder {
        FooterIndexBuilder { columns, ..FooterIndexBuilder::default() }
    }

    pub(crate) fn chunk_count(&self) -> usize {
        self.row_groups * self.columns
    }

    /// Adds a row group. `checksums` yields checksums of its document pages and of its other column chunks.
    pub(crate) fn push_row_group(
        &mut self,
        row_group: &RowGroupMetaData,
        pages: &[PageLocation],
        checksums: &mut dyn Iterator<Item = u32>,
    ) -> Result<()> {
        let mut checksum = || checksums.next().ok_or_else(checksum_count_error);
        let page_checksums: Vec<u32> = pages.iter().map(|_| checksum()).collect::<Result<_, _>>()?;
        let mut column_checksums = vec![0];
        for _ in row_group.columns().iter().skip(1) {
            column_checksums.push(checksum()?);
        }
        let rows = u32::try_from(row_group.num_rows())
            .map_err(|_| StorageError::InvalidFile(format!("a row group cannot have {} rows", row_group.num_rows())))?;
        let first = row_group.columns().first().filter(|_| row_group.num_columns() == self.columns);
        let base = chunk_start(first.ok_or_else(|| footer_damaged(COLUMN_OUTSIDE_FILE))?)?;
        self.row_group_table.extend(base.to_le_bytes());
        put_u32s(&mut self.row_group_table, &[rows, self.page_count]);

        let mut offset = base;
        for (page, checksum) in pages.iter().zip(page_checksums) {
            let misplaced = || footer_damaged("a document page is misplaced");
            let length = u32::try_from(page.compressed_page_size).map_err(|_| misplaced())?;
            let row = u32::try_from(page.first_row_index).map_err(|_| misplaced())?;
            if u64::try_from(page.offset) != Ok(offset) {
                return Err(misplaced());
            }
            offset += u64::from(length);
            put_u32s(&mut self.page_table, &[u32::try_from(offset - base).map_err(|_| misplaced())?, row, checksum]);
            self.page_count = self.page_count.checked_add(1).ok_or_else(misplaced)?;
        }
        for (column, sum) in row_group.columns().iter().zip(column_checksums) {
            let start = chunk_start(column)?;
            let outside = || footer_damaged(COLUMN_OUTSIDE_FILE);
            let chunk_offset = start.checked_sub(base).and_then(|at| u32::try_from(at).ok()).ok_or_else(outside)?;
            let stored = u32::try_from(column.compressed_size()).map_err(|_| outside())?;
            let values = u32::try_from(column.num_values()).map_err(|_| outside())?;
            let data = u64::try_from(column.data_page_offset()).ok().and_then(|data| data.checked_sub(start));
            let dictionary = data.and_then(|data| u32::try_from(data).ok()).ok_or_else(outside)?;
            let decompressed = column.uncompressed_size().clamp(0, u32::MAX.into()) as u32;
            put_u32s(&mut self.chunk_table, &[chunk_offset, stored, decompressed, values, dictionary, sum]);
            self.push_chunk_details(column)?;
            let end = u32::try_from(self.detail_bytes.len()).map_err(|_| outside())?;
            put_u32s(&mut self.chunk_table, &[end]);
        }
        self.row_groups += 1;
        Ok(())
    }

    fn push_chunk_details(&mut self, column: &ColumnChunkMetaData) -> Result<()> {
        let mut bits = match column.compression() {
            Compression::UNCOMPRESSED => 0,
            Compression::ZSTD(_) => chunk_details::COMPRESSED_FLAG,
            _ => return Err(footer_damaged("a column uses an unsupported compression")),
        };
        let first = self.detail_bytes.len();
        self.detail_bytes.push(0);
        match column.statistics() {
            Some(Statistics::Int32(integer_range)) => {
                if let (Some(min), Some(max)) = (integer_range.min_opt(), integer_range.max_opt()) {
                    bits |= chunk_details::INTEGERS_FLAG;
                    self.detail_bytes.extend([min.to_le_bytes(), max.to_le_bytes()].as_flattened());
                }
            }
            Some(Statistics::Double(doubles)) => {
                if let (Some(min), Some(max)) = (doubles.min_opt(), doubles.max_opt()) {
                    bits |= chunk_details::DOUBLES_FLAG;
                    self.detail_bytes.extend([min.to_le_bytes(), max.to_le_bytes()].as_flattened());
                }
            }
            Some(Statistics::ByteArray(texts)) => {
                if let (Some(min), Some(max)) = (texts.min_opt(), texts.max_opt()) {
                    bits |= chunk_details::STRING_BOUNDS_FLAG;
                    let length = u32::try_from(min.len()).map_err(|_| footer_damaged(COLUMN_OUTSIDE_FILE))?;
                    put_u32s(&mut self.detail_bytes, &[length]);
                    self.detail_bytes.extend(min.data());
                    self.detail_bytes.extend(max.data());
                }
            }
            _ => {}
        }
        self.detail_bytes[first] = bits;
        Ok(())
    }

    pub(crate) fn finish(mut self, key_values: &FooterKeyValues) -> Result<Vec<u8>> {
        let key_values = to_json_string(key_values)?.into_bytes();
        self.row_group_table.extend(0_u64.to_le_bytes());
        put_u32s(&mut self.row_group_table, &[0, self.page_count]);
        let mut bytes = Vec::new();
        let lengths =
            [self.row_groups, self.columns, self.page_count as usize, self.detail_bytes.len(), key_values.len()];
        put_u32s(&mut bytes, &[FOOTER_INDEX_FORMAT]);
        for length in lengths {
            put_u32s(&mut bytes, &[u32::try_from(length).map_err(|_| footer_damaged(COLUMN_OUTSIDE_FILE))?]);
        }
        let tables = [self.row_group_table, self.chunk_table, self.page_table, self.detail_bytes, key_values];
        bytes.reserve_exact(tables.iter().map(Vec::len).sum());
        tables.iter().for_each(|table| bytes.extend(table));
        Ok(bytes)
    }
}

fn chunk_start(column: &ColumnChunkMetaData) -> Result<u64> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    u64::try_from(start).map_err(|_| footer_damaged(COLUMN_OUTSIDE_FILE))
}

fn put_u32s(table: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| table.extend(number.to_le_bytes()));
}

pub(crate) fn checksum_count_error() -> StorageError {
    StorageError::InvalidFile("its list of checksums is invalid".to_owned())
}
