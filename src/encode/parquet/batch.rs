//! The cells of some entities, by column.
//!
//! The text of a cell is copied once, from the document to the values of its column. There it has the form of a page of
//! Parquet: each text follows its length in four bytes, little-endian. So a page consists of a few long copies, and
//! readers of a column's values access memory sequentially. Typed values have their final form, too: eight bytes of a
//! number, one of a boolean.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strata_json::{Columns, Text, find_either, nearest_double};

use super::types::{ColumnType, LENGTH_BYTES};
use crate::pool::Pool;
use crate::row::Row;

/// The most memory of a batch that another one reuses.
const MAX_SPARE_BYTES: usize = 2 << 20;

/// The batches of a response. They share the memory of finished ones.
#[derive(Clone, Debug)]
pub struct Batches {
    columns: Arc<Columns>,
    /// `None` if all columns are text.
    types: Option<Arc<[ColumnType]>>,
    rows: Arc<Pool<Row>>,
    spare: Spare,
}

/// Memory of finished builders and dropped batches. New memory would cost more than writing to it.
#[derive(Clone, Debug, Default)]
struct Spare(Arc<Mutex<SpareMemory>>);

#[derive(Debug, Default)]
struct SpareMemory {
    growing: Vec<Growing>,
    finished: Vec<Finished>,
}

impl Spare {
    fn memory(&self) -> MutexGuard<'_, SpareMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct BatchBuilder {
    batches: Batches,
    pub rows: usize,
    growing: Growing,
    /// Bytes of values, row numbers and columns. They do not depend on reused memory, because they decide where batches
    /// end.
    cell_bytes: usize,
}

#[derive(Debug, Default)]
struct Growing {
    /// For each column, its index in `filled` plus 1, or 0.
    places: Vec<u32>,
    filled: Vec<Filled>,
}

#[derive(Debug)]
struct Filled {
    column: u32,
    cells: u32,
    /// The row of each cell. Empty if they are the first rows.
    rows: Vec<u32>,
    values: Vec<u8>,
}

#[derive(Debug)]
pub struct Batch {
    pub rows: usize,
    /// Ascending, without columns that have no cells.
    columns: Vec<BatchColumn>,
    cells: Finished,
    spare: Spare,
}

#[derive(Debug, Default)]
struct Finished {
    rows: Vec<u32>,
    values: Vec<u8>,
}

impl Finished {
    fn with_room(self, rows: usize, values: usize) -> Finished {
        Finished { rows: with_room(self.rows, rows), values: with_room(self.values, values) }
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() + self.rows.capacity() * size_of::<u32>()
    }
}

/// An empty vector with this capacity: `kept` if it has it, otherwise a new one with a margin for later batches.
fn with_room<T>(mut kept: Vec<T>, room: usize) -> Vec<T> {
    if kept.capacity() < room {
        return Vec::with_capacity(room + room / 8);
    }
    kept.clear();
    kept
}

impl Drop for Batch {
    fn drop(&mut self) {
        let cells = std::mem::take(&mut self.cells);
        if cells.memory_bytes() <= MAX_SPARE_BYTES {
            self.spare.memory().finished.push(cells);
        }
    }
}

/// The cells of a column: the ends of its rows and values. Parts are smaller than 4 GiB.
#[derive(Clone, Copy, Debug)]
struct BatchColumn {
    column: u32,
    cells: u32,
    rows_end: u32,
    values_end: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cells<'b> {
    pub count: usize,
    /// The row of each, ascending. Empty if they are the first rows.
    rows: &'b [u32],
    /// Each text follows its length. Other values have a fixed width, little-endian.
    pub values: &'b [u8],
}

impl Batches {
    /// Batches of these columns. All of their values must have the types.
    pub fn new(columns: Arc<Columns>, types: Option<Arc<[ColumnType]>>) -> Batches {
        Batches { columns, types, rows: Arc::default(), spare: Spare::default() }
    }

    pub fn begin(&self) -> BatchBuilder {
        let mut growing = self.spare.memory().growing.pop().unwrap_or_default();
        growing.places.resize(self.columns.len(), 0);
        BatchBuilder { batches: self.clone(), rows: 0, growing, cell_bytes: 0 }
    }

    /// Frees the memory for later batches.
    pub fn free_spare(&self) {
        *self.spare.memory() = SpareMemory::default();
    }
}

impl BatchBuilder {
    /// Adds an entity, a canonical document. The cost depends on its cells, not on the columns.
    pub fn push(&mut self, document: &[u8]) {
        let BatchBuilder { batches, rows, growing: Growing { places, filled }, cell_bytes } = self;
        let number = *rows as u32;
        batches.rows.with(|row| {
            let placed = row.place(document, &batches.columns);
            for &column in &placed.filled {
                let cell = placed.by_column[column as usize].clone();
                // Only null begins with `n`.
                if document.get(cell.start) == Some(&b'n') {
                    continue;
                }
                let place = &mut places[column as usize];
                if *place == 0 {
                    filled.push(Filled { column, cells: 0, rows: Vec::new(), values: Vec::new() });
                    *place = filled.len() as u32;
                }
                if let Some(filled) = filled.get_mut(*place as usize - 1) {
                    if filled.cells == 0 {
                        *cell_bytes += size_of::<Filled>();
                    }
                    let column_type = batches.types.as_ref().map_or(ColumnType::Text, |types| types[column as usize]);
                    *cell_bytes += filled.push(number, document, cell, column_type);
                }
            }
        });
        *rows += 1;
    }

    /// Bytes of the cells so far. The memory can be twice as much until [`BatchBuilder::finish`].
    pub fn size_bytes(&self) -> usize {
        self.cell_bytes
    }

    pub fn finish(self) -> Batch {
        let BatchBuilder { batches, rows, mut growing, .. } = self;
        let mut order: Vec<&Filled> = growing.filled.iter().filter(|filled| filled.cells > 0).collect();
        order.sort_unstable_by_key(|filled| filled.column);
        let kept = batches.spare.memory().finished.pop().unwrap_or_default();
        let sum = |of: fn(&Filled) -> usize| order.iter().map(|filled| of(filled)).sum();
        let mut cells = kept.with_room(sum(|filled| filled.rows.len()), sum(|filled| filled.values.len()));
        let mut columns = Vec::with_capacity(order.len());
        for filled in order {
            cells.rows.extend_from_slice(&filled.rows);
            cells.values.extend_from_slice(&filled.values);
            columns.push(BatchColumn {
                column: filled.column,
                cells: filled.cells,
                rows_end: cells.rows.len() as u32,
                values_end: cells.values.len() as u32,
            });
        }
        if growing.memory_bytes() <= MAX_SPARE_BYTES {
            growing.filled.iter_mut().for_each(Filled::clear);
            batches.spare.memory().growing.push(growing);
        }
        Batch { rows, columns, cells, spare: batches.spare }
    }
}

impl Growing {
    fn memory_bytes(&self) -> usize {
        let cells =
            self.filled.iter().map(|filled| filled.values.capacity() + filled.rows.capacity() * size_of::<u32>());
        cells.sum::<usize>() + self.filled.capacity() * size_of::<Filled>() + self.places.capacity() * size_of::<u32>()
    }
}

impl Filled {
    fn clear(&mut self) {
        self.cells = 0;
        self.rows.clear();
        self.values.clear();
    }

    /// Adds a value of the document that is not null. Returns the bytes of the cell.
    #[inline]
    fn push(&mut self, row: u32, document: &[u8], cell: Range<usize>, column_type: ColumnType) -> usize {
        let before = self.values.len() + self.rows.len() * size_of::<u32>();
        let value = &document[cell.clone()];
        // The types are those of these values.
        let number = || std::str::from_utf8(value).unwrap_or_default();
        match (column_type, value) {
            (ColumnType::Boolean, value) => self.values.push(u8::from(value == b"true")),
            (ColumnType::Int64, _) => {
                self.values.extend_from_slice(&number().parse::<i64>().unwrap_or_default().to_le_bytes());
            }
            (ColumnType::Double, _) => {
                // An integer has no negative zero.
                let double = if value == b"-0" { None } else { nearest_double(number()) };
                self.values.extend_from_slice(&double.unwrap_or_default().to_le_bytes());
            }
            (ColumnType::Text, [b'"', text @ .., b'"']) => {
                if find_either(document, cell.start + 1, cell.end - 1, [b'\\'; 2]) == cell.end - 1 {
                    self.add(text);
                } else {
                    let start = self.values.len();
                    self.values.extend_from_slice(&[0; LENGTH_BYTES]);
                    Text::new(text).unescape_into(&mut self.values);
                    let length = (self.values.len() - start - LENGTH_BYTES) as u32;
                    self.values[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
                }
            }
            (ColumnType::Text, other) => self.add(other),
        }
        if !self.rows.is_empty() || row != self.cells {
            if self.rows.is_empty() {
                self.rows.extend(0..self.cells);
            }
            self.rows.push(row);
        }
        self.cells += 1;
        self.values.len() + self.rows.len() * size_of::<u32>() - before
    }

    #[inline]
    fn add(&mut self, text: &[u8]) {
        self.values.reserve(LENGTH_BYTES + text.len());
        self.values.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.values.extend_from_slice(text);
    }
}

impl Batch {
    pub fn size_bytes(&self) -> usize {
        self.cells.values.len() + size_of_val(&self.cells.rows[..]) + size_of_val(&self.columns[..])
    }

    pub(super) fn column(&self, column: usize) -> Option<Cells<'_>> {
        let at = self.columns.binary_search_by_key(&(column as u32), |column| column.column).ok()?;
        let found = &self.columns[at];
        let (rows_start, values_start) =
            at.checked_sub(1).map_or((0, 0), |before| (self.columns[before].rows_end, self.columns[before].values_end));
        Some(Cells {
            count: found.cells as usize,
            rows: &self.cells.rows[rows_start as usize..found.rows_end as usize],
            values: &self.cells.values[values_start as usize..found.values_end as usize],
        })
    }

    /// Adds the size of each column's values.
    pub(super) fn add_sizes(&self, sizes: &mut [u64]) {
        let mut start = 0;
        for column in &self.columns {
            sizes[column.column as usize] += u64::from(column.values_end - start);
            start = column.values_end;
        }
    }
}

impl<'b> Cells<'b> {
    #[inline]
    pub(super) fn row(&self, cell: usize) -> u32 {
        self.rows.get(cell).copied().unwrap_or(cell as u32)
    }
}

/// Consecutive values: of one width, or each after its length.
#[derive(Clone, Debug)]
pub(super) struct Values<'b> {
    pub bytes: &'b [u8],
    pub width: Option<usize>,
}

impl<'b> Iterator for Values<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let (width, rest) = match self.width {
            Some(width) => (width, self.bytes),
            None => {
                let (length, rest) = self.bytes.split_first_chunk::<LENGTH_BYTES>()?;
                (u32::from_le_bytes(*length) as usize, rest)
            }
        };
        let (value, rest) = rest.split_at_checked(width)?;
        self.bytes = rest;
        Some(value)
    }
}
