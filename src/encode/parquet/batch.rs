//! The cells of some entities, by column.
//!
//! A typed column's values have their final form, too: eight bytes of a number, one of a boolean.
//!
//! A cell's text is copied once, out of the document to those of its column. They stand there as a page of Parquet has
//! them: each after its length, in four bytes, little-endian. So a page is made of a few long copies, and who looks at
//! a column's values reads memory from front to back.

use std::ops::Range;
use std::sync::Arc;

use super::types::ColumnType;
use crate::document::{Columns, Text, find_either, nearest_double};
use crate::encode::pool::Pool;
use crate::encode::row::Row;

/// Bytes of a value's length.
pub(super) const LENGTH_BYTES: usize = size_of::<u32>();

/// The batches of one answer. They share what is learned of its entities.
#[derive(Clone, Debug)]
pub struct Batches {
    columns: Arc<Columns>,
    /// The types of the columns; none where all are text.
    types: Option<Arc<[ColumnType]>>,
    rows: Arc<Pool<Row>>,
}

/// Finds the cells of the entities of one part.
#[derive(Debug)]
pub struct BatchBuilder {
    batches: Batches,
    rows: usize,
    /// For each column, its place in `filled`, counted from 1; 0 without any cell.
    places: Vec<u32>,
    /// The columns with cells, in order of first appearance.
    filled: Vec<Filled>,
    /// Bytes of all values with their lengths, and of the numbers of rows.
    cell_bytes: usize,
}

/// The cells of a column.
#[derive(Debug)]
struct Filled {
    column: u32,
    cells: u32,
    /// The row of each cell; none while they are the first rows.
    rows: Vec<u32>,
    values: Vec<u8>,
}

/// The cells of one part. Missing ones take no memory.
#[derive(Debug)]
pub struct Batch {
    rows: usize,
    /// The columns with cells, ascending.
    columns: Vec<BatchColumn>,
    cell_rows: Vec<u32>,
    values: Vec<u8>,
}

/// A column's cells, and the ends of what it has of all rows and values. A part is far from 4 GiB, and an entity has at
/// most one.
#[derive(Clone, Copy, Debug)]
struct BatchColumn {
    column: u32,
    cells: u32,
    rows_end: u32,
    values_end: u32,
}

/// The cells of one column in a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells<'b> {
    /// How many they are.
    pub count: usize,
    /// The row of each, ascending; none if they are those of the first rows.
    rows: &'b [u32],
    /// The values: each text after its length, others in bytes of one width, little-endian.
    pub values: &'b [u8],
}

impl Batches {
    /// Batches of these columns.
    pub fn new(columns: Arc<Columns>) -> Batches {
        Batches { columns, types: None, rows: Arc::default() }
    }

    /// Batches of these columns, of which each has a type. All values that they will hold must be of it.
    pub fn typed(columns: Arc<Columns>, types: Arc<[ColumnType]>) -> Batches {
        Batches { columns, types: Some(types), rows: Arc::default() }
    }

    /// A batch without rows.
    pub fn begin(&self) -> BatchBuilder {
        let places = vec![0; self.columns.len()];
        BatchBuilder { batches: self.clone(), rows: 0, places, filled: Vec::new(), cell_bytes: 0 }
    }
}

impl BatchBuilder {
    /// Adds a row: one entity, a canonical document. Costs its cells, not the columns.
    pub fn push(&mut self, document: &[u8]) {
        let BatchBuilder { batches, rows, places, filled, cell_bytes } = self;
        let number = *rows as u32;
        batches.rows.with(|row| {
            let placed = row.place(document, &batches.columns);
            for &column in placed.filled {
                let cell = placed.by_column[column as usize].clone();
                // Only null begins so.
                if document.get(cell.start) == Some(&b'n') {
                    continue;
                }
                let place = &mut places[column as usize];
                if *place == 0 {
                    filled.push(Filled { column, cells: 0, rows: Vec::new(), values: Vec::new() });
                    *place = filled.len() as u32;
                }
                if let Some(filled) = filled.get_mut(*place as usize - 1) {
                    let column_type = batches.types.as_ref().map_or(ColumnType::Text, |types| types[column as usize]);
                    *cell_bytes += filled.push(number, document, cell, column_type);
                }
            }
        });
        *rows += 1;
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the cells so far. They may take twice as many until [`BatchBuilder::finish`].
    pub fn size_bytes(&self) -> usize {
        self.cell_bytes + self.filled.len() * size_of::<Filled>()
    }

    /// The rows, for [`ParquetStream::push`](super::ParquetStream::push).
    pub fn finish(self) -> Batch {
        let BatchBuilder { rows, places, mut filled, .. } = self;
        drop(places);
        filled.sort_unstable_by_key(|filled| filled.column);
        let mut batch = Batch {
            rows,
            columns: Vec::with_capacity(filled.len()),
            cell_rows: Vec::with_capacity(filled.iter().map(|filled| filled.rows.len()).sum()),
            values: Vec::with_capacity(filled.iter().map(|filled| filled.values.len()).sum()),
        };
        for Filled { column, cells, rows, values } in filled {
            batch.cell_rows.extend_from_slice(&rows);
            batch.values.extend_from_slice(&values);
            let (rows_end, values_end) = (batch.cell_rows.len() as u32, batch.values.len() as u32);
            batch.columns.push(BatchColumn { column, cells, rows_end, values_end });
        }
        batch
    }
}

impl Filled {
    /// Adds a cell: the value there in the document, which is not null. Returns the bytes that it takes.
    #[inline]
    fn push(&mut self, row: u32, document: &[u8], cell: Range<usize>, column_type: ColumnType) -> usize {
        let before = self.values.len() + self.rows.len() * size_of::<u32>();
        let value = &document[cell.clone()];
        // Typed by these very values, so that every one has the type.
        let number = || std::str::from_utf8(value).unwrap_or_default();
        match (column_type, value) {
            (ColumnType::Boolean, value) => self.values.push(u8::from(value == b"true")),
            (ColumnType::Int64, _) => {
                self.values.extend_from_slice(&number().parse::<i64>().unwrap_or_default().to_le_bytes());
            }
            (ColumnType::Double, _) => {
                // An integer has no sign of zero.
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
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that it holds.
    pub fn size_bytes(&self) -> usize {
        self.values.len() + size_of_val(&self.cell_rows[..]) + size_of_val(&self.columns[..])
    }

    /// The cells of a column, if there are any.
    pub(super) fn column(&self, column: usize) -> Option<Cells<'_>> {
        let at = self.columns.binary_search_by_key(&(column as u32), |column| column.column).ok()?;
        let found = &self.columns[at];
        let (rows_start, values_start) =
            at.checked_sub(1).map_or((0, 0), |before| (self.columns[before].rows_end, self.columns[before].values_end));
        Some(Cells {
            count: found.cells as usize,
            rows: &self.cell_rows[rows_start as usize..found.rows_end as usize],
            values: &self.values[values_start as usize..found.values_end as usize],
        })
    }

    /// Adds the bytes of each column's values to those of other batches.
    pub(super) fn add_sizes(&self, sizes: &mut [u64]) {
        let mut start = 0;
        for column in &self.columns {
            sizes[column.column as usize] += u64::from(column.values_end - start);
            start = column.values_end;
        }
    }
}

impl<'b> Cells<'b> {
    /// The row of a cell.
    #[inline]
    pub(super) fn row(&self, cell: usize) -> u32 {
        self.rows.get(cell).copied().unwrap_or(cell as u32)
    }
}

/// Values that stand one after another: all of one width, or each after its length.
#[derive(Clone, Debug)]
pub(super) struct Values<'b> {
    bytes: &'b [u8],
    width: Option<usize>,
}

impl<'b> Values<'b> {
    pub(super) fn new(bytes: &'b [u8], width: Option<usize>) -> Values<'b> {
        Values { bytes, width }
    }
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
