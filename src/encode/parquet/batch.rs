//! The cells of some entities, by column.
//!
//! A typed column's values have their final form, too: eight bytes of a number, one of a boolean.
//!
//! A cell's text is copied once, out of the document to those of its column. They stand there as a page of Parquet has
//! them: each after its length, in four bytes, little-endian. So a page is made of a few long copies, and who looks at
//! a column's values reads memory from front to back.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strata_json::{Columns, Text, find_either, nearest_double};

use super::types::{ColumnType, LENGTH_BYTES};
use crate::pool::Pool;
use crate::row::Row;

/// Memory of a batch that is kept for another one, most.
const KEPT_BYTES: usize = 2 << 20;

/// The batches of one answer. They share what is learned of its entities, and the memory of those that are finished.
#[derive(Clone, Debug)]
pub struct Batches {
    columns: Arc<Columns>,
    /// The types of the columns; none where all are text.
    types: Option<Arc<[ColumnType]>>,
    rows: Arc<Pool<Row>>,
    spare: Spare,
}

/// Memory for batches to come: of those in the making, and of those that are gone. Fresh memory costs more than what is
/// written to it.
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
    /// Bytes of all values with their lengths, of the numbers of rows, and of columns with cells. It does not depend on
    /// memory that is used again: where batches end makes a difference.
    cell_bytes: usize,
}

/// The cells of a batch in the making, by column. Without any it is memory for another batch.
#[derive(Debug, Default)]
struct Growing {
    /// For each column, its place in `filled`, counted from 1; 0 where it has none.
    places: Vec<u32>,
    /// The columns that have had cells, in order of first appearance.
    filled: Vec<Filled>,
}

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
    pub rows: usize,
    /// The columns with cells, ascending.
    columns: Vec<BatchColumn>,
    cells: Finished,
    spare: Spare,
}

/// The cells of a finished batch, column after column. Without any it is memory for another one.
#[derive(Debug, Default)]
struct Finished {
    rows: Vec<u32>,
    values: Vec<u8>,
}

impl Finished {
    /// Without cells, with room for so many rows and bytes of values.
    fn with_room(self, rows: usize, values: usize) -> Finished {
        Finished { rows: with_room(self.rows, rows), values: with_room(self.values, values) }
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() + self.rows.capacity() * size_of::<u32>()
    }
}

/// An empty vector with so much room: this one, if it has it. Otherwise a little more, as others may need.
fn with_room<T>(mut kept: Vec<T>, room: usize) -> Vec<T> {
    if kept.capacity() < room {
        // What it holds need not be copied.
        return Vec::with_capacity(room + room / 8);
    }
    kept.clear();
    kept
}

impl Drop for Batch {
    fn drop(&mut self) {
        let cells = std::mem::take(&mut self.cells);
        if cells.memory_bytes() <= KEPT_BYTES {
            self.spare.memory().finished.push(cells);
        }
    }
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

#[derive(Clone, Copy, Debug)]
pub(super) struct Cells<'b> {
    pub count: usize,
    /// The row of each, ascending; none if they are those of the first rows.
    rows: &'b [u32],
    /// The values: each text after its length, others in bytes of one width, little-endian.
    pub values: &'b [u8],
}

impl Batches {
    pub fn new(columns: Arc<Columns>) -> Batches {
        Batches { columns, types: None, rows: Arc::default(), spare: Spare::default() }
    }

    /// Batches of these columns, of which each has a type. All values that they will hold must be of it.
    pub fn typed(columns: Arc<Columns>, types: Arc<[ColumnType]>) -> Batches {
        Batches { columns, types: Some(types), rows: Arc::default(), spare: Spare::default() }
    }

    pub fn begin(&self) -> BatchBuilder {
        let mut growing = self.spare.memory().growing.pop().unwrap_or_default();
        growing.places.resize(self.columns.len(), 0);
        BatchBuilder { batches: self.clone(), rows: 0, growing, cell_bytes: 0 }
    }

    /// Frees the memory that is kept for batches to come: as much as those had that were there at once. Before work
    /// pauses.
    pub fn free_spare(&self) {
        let memory = std::mem::take(&mut *self.spare.memory());
        drop(memory);
    }
}

impl BatchBuilder {
    /// Adds a row: one entity, a canonical document. Costs its cells, not the columns.
    pub fn push(&mut self, document: &[u8]) {
        let BatchBuilder { batches, rows, growing: Growing { places, filled }, cell_bytes } = self;
        let number = *rows as u32;
        batches.rows.with(|row| {
            let placed = row.place(document, &batches.columns);
            for &column in &placed.filled {
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

    /// Bytes of the cells so far. They may take twice as many until [`BatchBuilder::finish`].
    pub fn size_bytes(&self) -> usize {
        self.cell_bytes
    }

    /// The rows, for [`ParquetStream::push`](super::ParquetStream::push).
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
            let (rows_end, values_end) = (cells.rows.len() as u32, cells.values.len() as u32);
            columns.push(BatchColumn { column: filled.column, cells: filled.cells, rows_end, values_end });
        }
        // Growing anew for each batch costs fresh memory and copies.
        if growing.memory_bytes() <= KEPT_BYTES {
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
    /// Takes the cells away, and keeps their memory.
    fn clear(&mut self) {
        self.cells = 0;
        self.rows.clear();
        self.values.clear();
    }

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
    #[inline]
    pub(super) fn row(&self, cell: usize) -> u32 {
        self.rows.get(cell).copied().unwrap_or(cell as u32)
    }
}

/// Values that stand one after another: all of one width, or each after its length.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Entities with some of six keys, whose values have some bytes, and now and then nulls.
    fn parts() -> impl Strategy<Value = Vec<Vec<String>>> {
        let value = prop_oneof!["\"[a-c]{0,20}\"", Just("null".to_owned()), Just("\"a\\nb\"".to_owned()), "[1-9]{1,3}"];
        let entity = proptest::collection::btree_map(0..6, value, 0..6).prop_map(|members| {
            let members: Vec<String> = members.iter().map(|(key, value)| format!("\"k{key}\":{value}")).collect();
            format!("{{{}}}", members.join(","))
        });
        proptest::collection::vec(proptest::collection::vec(entity, 0..20), 1..6)
    }

    fn made(batches: &Batches, part: &[String]) -> (Vec<usize>, String) {
        let mut batch = batches.begin();
        let sizes = part.iter().map(|entity| {
            batch.push(entity.as_bytes());
            batch.size_bytes()
        });
        let sizes = sizes.collect();
        let batch = batch.finish();
        (sizes, format!("{} {:?} {:?} {}", batch.rows, batch.columns, batch.cells, batch.size_bytes()))
    }

    proptest! {
        /// Memory that is used again shows nowhere: neither in the cells, nor in the sizes that decide where a part
        /// ends.
        #[test]
        fn a_batch_does_not_depend_on_those_before_it(parts in parts(), free in any::<bool>()) {
            let columns: Arc<Columns> = Arc::new(Columns::from((0..6).map(|key| format!("k{key}")).collect::<Vec<_>>()));
            let shared = Batches::new(columns.clone());
            for part in &parts {
                // Two at once take the memory of two.
                let other = shared.begin();
                prop_assert_eq!(made(&shared, part), made(&Batches::new(columns.clone()), part));
                drop(other.finish());
                if free {
                    shared.free_spare();
                }
            }
            let spare = shared.spare.memory();
            prop_assert_eq!((spare.growing.is_empty(), spare.finished.is_empty()), (free, free));
        }
    }
}
