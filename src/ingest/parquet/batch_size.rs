//! Chooses the number of rows in a batch. A batch refers to all pages that contain its rows, so the page headers
//! determine its memory. For columns with one value per row, the computed memory is exact. For lists, it is an estimate
//! that assumes rows of equal length; `page_reader` enforces the limit.

use std::collections::VecDeque;
use std::fs::File;

use arrow::datatypes::{DataType, Fields};
use parquet::file::metadata::RowGroupMetaData;

use super::super::error::SourceError;
use super::super::expansion_guard::ExpansionGuard;
use super::super::source_input::check_source_size;
use super::page_header::{self, PageType};
use super::page_reader::{CheckedColumnChunk, VALUE_MEMORY_BYTES};
use super::{damaged_file_error, memory_limit_error};

/// The target memory of a batch, without the pages to which the batch refers.
const TARGET_BATCH_BYTES: u64 = 4 << 20;
const MAX_BATCH_ROWS_LOG2: usize = 10;
/// The number of candidate batch sizes, which are the powers of two.
const BATCH_SIZE_COUNT: usize = MAX_BATCH_ROWS_LOG2 + 1;

/// The decoded size of the pages and page headers of a file so far. It is not taken from the footer, whose sizes might
/// be wrong, or ignore pages that columns share.
pub(super) struct DecodedSize {
    pub(super) expansion: ExpansionGuard,
    pub(super) max_bytes: u64,
    pub(super) decoded_bytes: u64,
}

impl DecodedSize {
    fn add_decoded_bytes(&mut self, bytes: u64) -> Result<(), SourceError> {
        self.decoded_bytes = self.decoded_bytes.saturating_add(bytes);
        check_source_size(self.decoded_bytes, self.max_bytes)?;
        self.expansion.check_expanded(self.decoded_bytes)
    }
}

/// Returns the number of rows in a batch, a power of two. Adds the decoded size of the pages to `decoded_size`.
pub(super) fn choose_batch_rows(
    file: &File,
    row_group: &RowGroupMetaData,
    columns: &[CheckedColumnChunk],
    fields: &Fields,
    limit_bytes: u64,
    decoded_size: &mut DecodedSize,
) -> Result<usize, SourceError> {
    let rows = u64::try_from(row_group.num_rows())
        .map_err(|_| damaged_file_error("a row group has a negative number of rows"))?;
    let bytes = u64::try_from(row_group.total_byte_size()).unwrap_or(0);
    let mut memory_bytes = [0_u64; BATCH_SIZE_COUNT];
    for column in columns {
        let column_bytes =
            memory_by_batch_size(file, column, rows, decoded_size).map_err(|error| column.add_column_name(error))?;
        for (total, column) in memory_bytes.iter_mut().zip(column_bytes) {
            *total = total.saturating_add(column);
        }
    }
    let padding: u64 = fields.iter().map(|field| fixed_size_list_bytes(field.data_type())).fold(0, u64::saturating_add);
    for (log, total) in memory_bytes.iter_mut().enumerate() {
        *total = total.saturating_add(padding.saturating_mul(1 << log));
    }
    if memory_bytes[0] > limit_bytes {
        return Err(memory_limit_error("one row of a row group, including its pages,", memory_bytes[0], limit_bytes));
    }
    let row_bytes = (bytes / rows.max(1)).max(1);
    let max_log = (TARGET_BATCH_BYTES / row_bytes).max(1).ilog2() as usize;
    // Half of the memory limit remains for sizes that the page headers do not show.
    let fits = |log: &usize| memory_bytes[*log] <= (limit_bytes / 2).max(memory_bytes[0]);
    let log = (0..=max_log.min(MAX_BATCH_ROWS_LOG2)).rev().find(fits).unwrap_or(0);
    Ok(1 << log)
}

/// Returns the maximum memory of a column in a batch of 1, 2, 4, … rows: the dictionary, the pages, and the values.
fn memory_by_batch_size(
    file: &File,
    column: &CheckedColumnChunk,
    rows: u64,
    decoded_size: &mut DecodedSize,
) -> Result<[u64; BATCH_SIZE_COUNT], SourceError> {
    let mut position = column.start;
    let mut dictionary = 0;
    let mut windows: [PageWindow; BATCH_SIZE_COUNT] =
        std::array::from_fn(|log| PageWindow { rows: 1 << log, ..PageWindow::default() });
    let mut row = 0_u64;
    let mut values = 0_u64;
    let mut max_compressed_bytes = 0;
    while position < column.end {
        let (header, header_bytes) = page_header::read_page_header(file, position, column.end)?;
        position += header_bytes + u64::from(header.compressed_bytes);
        let bytes = u64::from(header.uncompressed_bytes);
        decoded_size.add_decoded_bytes(header_bytes + bytes)?;
        max_compressed_bytes = max_compressed_bytes.max(u64::from(header.compressed_bytes));
        match header.page_type {
            PageType::Index => {}
            PageType::Dictionary => {
                if u64::from(header.value_count) * column.type_width_bytes as u64 > bytes {
                    return Err(damaged_file_error("a dictionary has more entries than its bytes can contain"));
                }
                dictionary = bytes.saturating_add(u64::from(header.value_count) * column.value_memory_bytes());
            }
            PageType::Data { .. } | PageType::DataV2 { .. } => {
                values = values.saturating_add(header.value_count.into());
                // For lists in a version 1 page, the row count is an estimate. A page can contain less than one row.
                let page_rows = match header.page_type {
                    _ if !column.is_list() => u64::from(header.value_count),
                    PageType::DataV2 { row_count, .. } => row_count.into(),
                    _ => (rows.saturating_mul(header.value_count.into()) / column.value_count.max(1)).max(1),
                };
                windows.iter_mut().for_each(|window| window.add_page(row, page_rows, bytes));
                row = row.saturating_add(page_rows);
            }
        }
    }
    // Lists use the mean number of values per row. All other columns have one value per row.
    let values_per_row = if column.is_list() { values / rows.max(1) + 1 } else { 1 };
    Ok(std::array::from_fn(|log| {
        let values = values_per_row.saturating_mul(column.value_memory_bytes()).saturating_mul(1 << log);
        dictionary.saturating_add(max_compressed_bytes).saturating_add(windows[log].max_bytes).saturating_add(values)
    }))
}

/// The maximum size of the pages that contain any `rows` consecutive rows.
#[derive(Default)]
struct PageWindow {
    rows: u64,
    /// For each page in the window, the first row after the page, and the size of the page in bytes.
    pages: VecDeque<(u64, u64)>,
    bytes: u64,
    max_bytes: u64,
}

impl PageWindow {
    fn add_page(&mut self, start: u64, rows: u64, bytes: u64) {
        // The window of rows ends with the first row of the added page.
        let first = (start + 1).saturating_sub(self.rows);
        while let Some((end, bytes)) = self.pages.front().copied()
            && end <= first
        {
            self.pages.pop_front();
            self.bytes -= bytes;
        }
        // A page without rows counts only on its own, because the Parquet library does not retain it.
        if rows > 0 {
            self.pages.push_back((start.saturating_add(rows), bytes));
            self.bytes = self.bytes.saturating_add(bytes);
            self.max_bytes = self.max_bytes.max(self.bytes);
        } else {
            self.max_bytes = self.max_bytes.max(self.bytes.saturating_add(bytes));
        }
    }
}

/// Returns the memory per row of fixed-size lists and binary values.
fn fixed_size_list_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeList(item, length) => {
            // A null in a column of fixed-size lists takes as much memory as any other list.
            let length = u64::try_from(*length).unwrap_or(0);
            length.saturating_mul(VALUE_MEMORY_BYTES.saturating_add(fixed_size_list_bytes(item.data_type())))
        }
        DataType::FixedSizeBinary(length) => u64::try_from(*length).unwrap_or(0),
        DataType::Struct(fields) => {
            fields.iter().map(|field| fixed_size_list_bytes(field.data_type())).fold(0, u64::saturating_add)
        }
        _ => 0,
    }
}
