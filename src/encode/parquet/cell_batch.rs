//! The table cells of some entities, grouped by column.
//!
//! The text of a cell is copied once, from the document to the values of its column. There it has the form of a Parquet
//! page: each text follows its length in four bytes, little-endian. So a page consists of a few long copies, and
//! readers of a column's values access memory sequentially. Typed values have their final form, too: eight bytes for a
//! number, one byte for a boolean.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use strata_json::{JsonStr, TableColumnNames, find_either_byte, nearest_double};

use super::column_types::{ColumnType, LENGTH_PREFIX_BYTES};
use crate::buffer_pool::BufferPool;
use crate::row_buffer::RowBuffer;

const MAX_REUSED_BUFFER_BYTES: usize = 2 << 20;

/// Creates the cell batches of a response, which reuse the memory of finished batches.
#[derive(Clone, Debug)]
pub struct CellBatchFactory {
    columns: Arc<TableColumnNames>,
    column_types: Option<Arc<[ColumnType]>>,
    row_buffers: Arc<BufferPool<RowBuffer>>,
    spare_buffers: Arc<Mutex<SpareBuffers>>,
}

/// Memory of finished builders and dropped batches. Later builders reuse it, because new memory would cost more than
/// writing to it.
#[derive(Debug, Default)]
struct SpareBuffers {
    builder_buffers: Vec<BuffersByColumn>,
    cell_buffers: Vec<CellBuffers>,
}

#[derive(Debug)]
pub struct CellBatchBuilder {
    factory: CellBatchFactory,
    pub rows: usize,
    column_buffers: BuffersByColumn,
    /// Bytes of cells in the batch. Spare capacity does not count, so that equal entities always form equal batches.
    cell_bytes: usize,
}

#[derive(Debug, Default)]
struct BuffersByColumn {
    /// For each column, the index of its buffer in `buffers` plus 1, or 0 if the column has no buffer.
    buffer_numbers: Vec<u32>,
    buffers: Vec<ColumnBuffer>,
}

#[derive(Debug)]
struct ColumnBuffer {
    column: u32,
    cell_count: u32,
    /// The row number of each cell. Empty if the cells are in the first rows without gaps.
    rows: Vec<u32>,
    values: Vec<u8>,
}

#[derive(Debug)]
pub struct CellBatch {
    pub rows: usize,
    /// The columns with at least one cell, in ascending order.
    columns: Vec<BatchColumn>,
    cells: CellBuffers,
    spare_buffers: Arc<Mutex<SpareBuffers>>,
}

#[derive(Debug, Default)]
struct CellBuffers {
    rows: Vec<u32>,
    values: Vec<u8>,
}

impl CellBuffers {
    fn with_min_capacity(self, rows: usize, values: usize) -> CellBuffers {
        CellBuffers { rows: clear_or_allocate(self.rows, rows), values: clear_or_allocate(self.values, values) }
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() + self.rows.capacity() * size_of::<u32>()
    }
}

/// Returns an empty vector with the requested capacity: `spare` if large enough, or a new vector with a margin.
fn clear_or_allocate<T>(mut spare: Vec<T>, capacity: usize) -> Vec<T> {
    if spare.capacity() < capacity {
        return Vec::with_capacity(capacity + capacity / 8);
    }
    spare.clear();
    spare
}

impl Drop for CellBatch {
    fn drop(&mut self) {
        let cells = std::mem::take(&mut self.cells);
        if cells.memory_bytes() <= MAX_REUSED_BUFFER_BYTES {
            self.spare_buffers.lock().cell_buffers.push(cells);
        }
    }
}

/// A column of a batch: the ends of its row numbers and values in buffers that all columns share (below 4 GiB).
#[derive(Clone, Copy, Debug)]
struct BatchColumn {
    column: u32,
    cell_count: u32,
    rows_end: u32,
    values_end: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchColumnCells<'b> {
    pub count: usize,
    /// The row number of each cell, ascending. Empty if the cells are in the first rows without gaps.
    rows: &'b [u32],
    /// The values of the cells. Each text follows its length; other values have a fixed width and are little-endian.
    pub values: &'b [u8],
}

impl CellBatchFactory {
    /// Creates the factory of batches. All values of a column must have the type of the column in `column_types`.
    pub fn new(columns: Arc<TableColumnNames>, column_types: Option<Arc<[ColumnType]>>) -> CellBatchFactory {
        CellBatchFactory { columns, column_types, row_buffers: Arc::default(), spare_buffers: Arc::default() }
    }

    pub fn new_builder(&self) -> CellBatchBuilder {
        let mut column_buffers = self.spare_buffers.lock().builder_buffers.pop().unwrap_or_default();
        column_buffers.buffer_numbers.resize(self.columns.len(), 0);
        CellBatchBuilder { factory: self.clone(), rows: 0, column_buffers, cell_bytes: 0 }
    }

    pub fn free_spare_buffers(&self) {
        *self.spare_buffers.lock() = SpareBuffers::default();
    }
}

impl CellBatchBuilder {
    /// Adds an entity (a canonical JSON document). The cost depends on the number of its cells, not of columns.
    pub fn add_entity(&mut self, document: &[u8]) {
        let CellBatchBuilder { factory, rows, column_buffers, cell_bytes } = self;
        let BuffersByColumn { buffer_numbers, buffers } = column_buffers;
        let number = *rows as u32;
        factory.row_buffers.with_buffer(|row| {
            let placed = row.flatten_to_cells(document, &factory.columns);
            for &column in &placed.filled_columns {
                let cell = placed.ranges_by_column[column as usize].clone();
                // Among JSON values, only null begins with `n`.
                if document.get(cell.start) == Some(&b'n') {
                    continue;
                }
                let buffer_number = &mut buffer_numbers[column as usize];
                if *buffer_number == 0 {
                    buffers.push(ColumnBuffer { column, cell_count: 0, rows: Vec::new(), values: Vec::new() });
                    *buffer_number = buffers.len() as u32;
                }
                if let Some(buffer) = buffers.get_mut(*buffer_number as usize - 1) {
                    if buffer.cell_count == 0 {
                        *cell_bytes += size_of::<ColumnBuffer>();
                    }
                    let column_type = factory.column_types.as_ref().map_or(ColumnType::Text, |t| t[column as usize]);
                    *cell_bytes += buffer.push_cell(number, document, cell, column_type);
                }
            }
        });
        *rows += 1;
    }

    /// The bytes of the cells that were added so far. The builder can use twice as much memory until
    /// [`CellBatchBuilder::finish`].
    pub fn size_bytes(&self) -> usize {
        self.cell_bytes
    }

    pub fn finish(self) -> CellBatch {
        let CellBatchBuilder { factory, rows, mut column_buffers, .. } = self;
        let mut order: Vec<&ColumnBuffer> = column_buffers.buffers.iter().filter(|b| b.cell_count > 0).collect();
        order.sort_unstable_by_key(|buffer| buffer.column);
        let spare = factory.spare_buffers.lock().cell_buffers.pop().unwrap_or_default();
        let sum = |size: fn(&ColumnBuffer) -> usize| order.iter().map(|buffer| size(buffer)).sum();
        let mut cells = spare.with_min_capacity(sum(|buffer| buffer.rows.len()), sum(|buffer| buffer.values.len()));
        let mut columns = Vec::with_capacity(order.len());
        for buffer in order {
            cells.rows.extend_from_slice(&buffer.rows);
            cells.values.extend_from_slice(&buffer.values);
            columns.push(BatchColumn {
                column: buffer.column,
                cell_count: buffer.cell_count,
                rows_end: cells.rows.len() as u32,
                values_end: cells.values.len() as u32,
            });
        }
        if column_buffers.memory_bytes() <= MAX_REUSED_BUFFER_BYTES {
            column_buffers.buffers.iter_mut().for_each(ColumnBuffer::clear);
            factory.spare_buffers.lock().builder_buffers.push(column_buffers);
        }
        CellBatch { rows, columns, cells, spare_buffers: factory.spare_buffers }
    }
}

impl BuffersByColumn {
    fn memory_bytes(&self) -> usize {
        let cells = self.buffers.iter().map(|b| b.values.capacity() + b.rows.capacity() * size_of::<u32>());
        cells.sum::<usize>()
            + self.buffers.capacity() * size_of::<ColumnBuffer>()
            + self.buffer_numbers.capacity() * size_of::<u32>()
    }
}

impl ColumnBuffer {
    fn clear(&mut self) {
        self.cell_count = 0;
        self.rows.clear();
        self.values.clear();
    }

    /// Adds the value in the range `cell` of the document, which is not null. Returns the number of bytes of the cell.
    #[inline]
    fn push_cell(&mut self, row: u32, document: &[u8], cell: Range<usize>, column_type: ColumnType) -> usize {
        let before = self.values.len() + self.rows.len() * size_of::<u32>();
        let value = &document[cell.clone()];
        // Parsing cannot fail, because the type of the column was inferred from its values.
        let number = || std::str::from_utf8(value).unwrap_or_default();
        match (column_type, value) {
            (ColumnType::Boolean, value) => self.values.push(u8::from(value == b"true")),
            (ColumnType::Int64, _) => {
                self.values.extend_from_slice(&number().parse::<i64>().unwrap_or_default().to_le_bytes());
            }
            (ColumnType::Double, _) => {
                // JSON `-0` is an integer, which has no negative zero.
                let double = if value == b"-0" { None } else { nearest_double(number()) };
                self.values.extend_from_slice(&double.unwrap_or_default().to_le_bytes());
            }
            (ColumnType::Text, [b'"', text @ .., b'"']) => {
                if find_either_byte(document, cell.start + 1, cell.end - 1, [b'\\'; 2]) == cell.end - 1 {
                    self.push_text(text);
                } else {
                    let start = self.values.len();
                    self.values.extend_from_slice(&[0; LENGTH_PREFIX_BYTES]);
                    JsonStr::new(text).unescape_into(&mut self.values);
                    let length = (self.values.len() - start - LENGTH_PREFIX_BYTES) as u32;
                    self.values[start..start + LENGTH_PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
                }
            }
            (ColumnType::Text, other) => self.push_text(other),
        }
        if !self.rows.is_empty() || row != self.cell_count {
            if self.rows.is_empty() {
                self.rows.extend(0..self.cell_count);
            }
            self.rows.push(row);
        }
        self.cell_count += 1;
        self.values.len() + self.rows.len() * size_of::<u32>() - before
    }

    #[inline]
    fn push_text(&mut self, text: &[u8]) {
        self.values.reserve(LENGTH_PREFIX_BYTES + text.len());
        self.values.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.values.extend_from_slice(text);
    }
}

impl CellBatch {
    pub fn size_bytes(&self) -> usize {
        self.cells.values.len() + size_of_val(&self.cells.rows[..]) + size_of_val(&self.columns[..])
    }

    pub(crate) fn column_cells(&self, column: usize) -> Option<BatchColumnCells<'_>> {
        let at = self.columns.binary_search_by_key(&(column as u32), |column| column.column).ok()?;
        let batch_column = &self.columns[at];
        let (rows_start, values_start) =
            at.checked_sub(1).map_or((0, 0), |before| (self.columns[before].rows_end, self.columns[before].values_end));
        Some(BatchColumnCells {
            count: batch_column.cell_count as usize,
            rows: &self.cells.rows[rows_start as usize..batch_column.rows_end as usize],
            values: &self.cells.values[values_start as usize..batch_column.values_end as usize],
        })
    }

    pub(super) fn add_column_sizes(&self, sizes: &mut [u64]) {
        let mut start = 0;
        for column in &self.columns {
            sizes[column.column as usize] += u64::from(column.values_end - start);
            start = column.values_end;
        }
    }
}

impl<'b> BatchColumnCells<'b> {
    #[inline]
    pub(crate) fn row_of_cell(&self, cell: usize) -> u32 {
        self.rows.get(cell).copied().unwrap_or(cell as u32)
    }
}

/// Iterates over encoded values: each has `width` bytes, or follows its length if `width` is `None`.
#[derive(Clone, Debug)]
pub(crate) struct EncodedValues<'b> {
    pub bytes: &'b [u8],
    pub width: Option<usize>,
}

impl<'b> Iterator for EncodedValues<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let (width, rest) = match self.width {
            Some(width) => (width, self.bytes),
            None => {
                let (length, rest) = self.bytes.split_first_chunk::<LENGTH_PREFIX_BYTES>()?;
                (u32::from_le_bytes(*length) as usize, rest)
            }
        };
        let (value, rest) = rest.split_at_checked(width)?;
        self.bytes = rest;
        Some(value)
    }
}
