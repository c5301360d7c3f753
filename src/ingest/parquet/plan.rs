//! Chooses how many rows of a row group make a batch.
//!
//! A batch refers to all pages that its rows touch, so the headers of pages tell its memory. For columns with one value
//! per row this is exact. For lists it assumes rows of equal length (`pages` counts the real memory).

use std::collections::VecDeque;
use std::fs::File;

use arrow::datatypes::{DataType, Fields};
use parquet::file::metadata::RowGroupMetaData;

use super::super::error::SourceError;
use super::super::expansion::Expansion;
use super::super::input::check_size;
use super::header::{self, PageType};
use super::pages::Column;
use super::{damaged, over_memory_limit};

/// The size that a batch of rows should have in memory, pages not counted.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_ROWS_LOG_MAX: usize = 10;
/// The number of batch sizes that are considered: the powers of two.
const SIZES: usize = BATCH_ROWS_LOG_MAX + 1;

/// The decoded size of a file's pages with their headers, as far as they have been read. The page headers announce it,
/// and `pages` enforces it. The footer's numbers may lie, or leave out that row groups share pages.
pub(super) struct Became {
    pub(super) expansion: Expansion,
    pub(super) limit_bytes: u64,
    pub(super) bytes: u64,
}

impl Became {
    fn add(&mut self, bytes: u64) -> Result<(), SourceError> {
        self.bytes = self.bytes.saturating_add(bytes);
        check_size(self.bytes, self.limit_bytes)?;
        self.expansion.check(self.bytes)
    }
}

/// The number of rows. The decoded size of the pages is added to `became`.
pub(super) fn batch_rows(
    file: &File,
    row_group: &RowGroupMetaData,
    columns: &[Column],
    fields: &Fields,
    limit_bytes: u64,
    became: &mut Became,
) -> Result<usize, SourceError> {
    let rows = u64::try_from(row_group.num_rows()).map_err(|_| damaged("a row group has a negative number of rows"))?;
    let bytes = u64::try_from(row_group.total_byte_size()).unwrap_or(0);
    let mut taken = [0_u64; SIZES];
    for column in columns {
        let bytes = column_bytes(file, column, rows, became).map_err(|error| column.name_in(error))?;
        for (taken, more) in taken.iter_mut().zip(bytes) {
            *taken = taken.saturating_add(more);
        }
    }
    let padding: u64 = fields.iter().map(|field| fixed_bytes(field.data_type())).fold(0, u64::saturating_add);
    for (log, taken) in taken.iter_mut().enumerate() {
        *taken = taken.saturating_add(padding.saturating_mul(1 << log));
    }
    if taken[0] > limit_bytes {
        return Err(over_memory_limit("one row of a row group, including its pages,", taken[0], limit_bytes));
    }
    let row_bytes = (bytes / rows.max(1)).max(1);
    let log_max = (BATCH_BYTES / row_bytes).max(1).ilog2() as usize;
    // Half of the memory is left for sizes that the plan cannot know.
    let fits = |log: &usize| taken[*log] <= (limit_bytes / 2).max(taken[0]);
    let log = (0..=log_max.min(BATCH_ROWS_LOG_MAX)).rev().find(fits).unwrap_or(0);
    Ok(1 << log)
}

/// The most that a column takes in a batch of 1, 2, 4, … rows: dictionary, pages, values.
fn column_bytes(file: &File, column: &Column, rows: u64, became: &mut Became) -> Result<[u64; SIZES], SourceError> {
    let mut position = column.start;
    let mut dictionary = 0;
    let mut windows: [Window; SIZES] = std::array::from_fn(|log| Window::new(1 << log));
    let mut row = 0_u64;
    let mut values = 0_u64;
    let mut most_packed = 0;
    while position < column.end {
        let (header, taken) = header::read(file, position, column.end)?;
        position += taken + u64::from(header.compressed_bytes);
        let bytes = u64::from(header.uncompressed_bytes);
        became.add(taken + bytes)?;
        most_packed = most_packed.max(u64::from(header.compressed_bytes));
        match header.page_type {
            PageType::Index => {}
            PageType::Dictionary => {
                if u64::from(header.values) * column.type_bytes as u64 > bytes {
                    return Err(damaged("a dictionary has more entries than its bytes can contain"));
                }
                dictionary = bytes.saturating_add(u64::from(header.values) * column.value_bytes());
            }
            PageType::Data { .. } | PageType::DataV2 { .. } => {
                values = values.saturating_add(header.values.into());
                // How many lists a page of version 1 has is not known; perhaps not even one whole.
                let held = match header.page_type {
                    _ if !column.is_list() => u64::from(header.values),
                    PageType::DataV2 { rows, .. } => rows.into(),
                    _ => (rows.saturating_mul(header.values.into()) / column.values.max(1)).max(1),
                };
                windows.iter_mut().for_each(|window| window.add(row, held, bytes));
                row = row.saturating_add(held);
            }
        }
    }
    // Of lists the mean; of all others there is one for each row.
    let values_of_row = if column.is_list() { values / rows.max(1) + 1 } else { 1 };
    Ok(std::array::from_fn(|log| {
        let values = values_of_row.saturating_mul(column.value_bytes()).saturating_mul(1 << log);
        dictionary.saturating_add(most_packed).saturating_add(windows[log].most_bytes).saturating_add(values)
    }))
}

/// The most bytes of pages that so many rows in a row touch.
struct Window {
    rows: u64,
    /// The row after each page, and its bytes.
    pages: VecDeque<(u64, u64)>,
    bytes: u64,
    most_bytes: u64,
}

impl Window {
    fn new(rows: u64) -> Self {
        Self { rows, pages: VecDeque::new(), bytes: 0, most_bytes: 0 }
    }

    fn add(&mut self, start: u64, rows: u64, bytes: u64) {
        // The window ends with the first row of this page.
        let first = (start + 1).saturating_sub(self.rows);
        while let Some((end, bytes)) = self.pages.front().copied()
            && end <= first
        {
            self.pages.pop_front();
            self.bytes -= bytes;
        }
        // Pages without rows are not kept by anybody.
        if rows > 0 {
            self.pages.push_back((start.saturating_add(rows), bytes));
            self.bytes = self.bytes.saturating_add(bytes);
            self.most_bytes = self.most_bytes.max(self.bytes);
        } else {
            self.most_bytes = self.most_bytes.max(self.bytes.saturating_add(bytes));
        }
    }
}

/// What lists of fixed size take in a row, whatever is in them.
fn fixed_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeList(item, length) => {
            // One that is null takes as much as one that is not.
            let length = u64::try_from(*length).unwrap_or(0);
            length.saturating_mul(super::pages::VALUE_BYTES.saturating_add(fixed_bytes(item.data_type())))
        }
        DataType::FixedSizeBinary(length) => u64::try_from(*length).unwrap_or(0),
        DataType::Struct(fields) => {
            fields.iter().map(|field| fixed_bytes(field.data_type())).fold(0, u64::saturating_add)
        }
        _ => 0,
    }
}
