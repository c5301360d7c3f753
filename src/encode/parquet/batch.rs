//! The cells of some entities, by column.

use std::sync::Arc;

use crate::document::{Columns, Text};
use crate::encode::row::Row;

/// Finds the cells of the entities of one part.
#[derive(Debug)]
pub struct BatchBuilder {
    columns: Arc<Columns>,
    row: Row,
    rows: usize,
    /// Row by row.
    cells: Vec<Placed>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    column: u32,
    cell: Cell,
}

/// A cell that is not null: its row, and where its text is. A part is far from 4 GiB, and an entity has at most one.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    row: u32,
    start: u32,
    length: u32,
}

/// The cells of one part. Missing ones take no memory.
#[derive(Debug)]
pub struct Batch {
    rows: usize,
    /// Column by column, each by row.
    cells: Vec<Cell>,
    /// The columns with cells, each with the end of its cells.
    columns: Vec<(u32, u32)>,
    text: Vec<u8>,
}

impl BatchBuilder {
    /// A builder without rows.
    pub fn new(columns: Arc<Columns>) -> BatchBuilder {
        BatchBuilder { columns, row: Row::default(), rows: 0, cells: Vec::new(), text: Vec::new() }
    }

    /// The same with room for so many bytes of text.
    pub fn with_room(mut self, text_bytes: usize) -> BatchBuilder {
        self.text.reserve(text_bytes);
        self
    }

    /// Adds a row: one entity, a canonical document. Costs its cells, not the columns.
    pub fn push(&mut self, document: &[u8]) {
        let placed = self.row.place(document, &self.columns);
        for &column in placed.filled {
            let start = self.text.len();
            match &document[placed.by_column[column as usize].clone()] {
                b"null" => continue,
                [b'"', escaped @ .., b'"'] => Text::new(escaped).unescape_into(&mut self.text),
                other => self.text.extend_from_slice(other),
            }
            let cell = Cell { row: self.rows as u32, start: start as u32, length: (self.text.len() - start) as u32 };
            self.cells.push(Placed { column, cell });
        }
        self.rows += 1;
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the cells so far, and of what [`BatchBuilder::finish`] makes of them.
    pub fn size_bytes(&self) -> usize {
        self.text.len() + self.cells.len() * (size_of::<Placed>() + size_of::<Cell>())
    }

    /// The rows, for [`ParquetStream::push`](super::ParquetStream::push). Costs the columns, once.
    pub fn finish(mut self) -> Batch {
        let mut places = vec![0_u32; self.columns.len()];
        for placed in &self.cells {
            places[placed.column as usize] += 1;
        }
        let mut columns = Vec::new();
        let mut end = 0;
        for (column, place) in places.iter_mut().enumerate() {
            let count = std::mem::replace(place, end);
            end += count;
            if count > 0 {
                columns.push((column as u32, end));
            }
        }
        let mut cells = vec![Cell::default(); self.cells.len()];
        for placed in &self.cells {
            let place = &mut places[placed.column as usize];
            cells[*place as usize] = placed.cell;
            *place += 1;
        }
        columns.shrink_to_fit();
        // It grew by doubling.
        self.text.shrink_to_fit();
        Batch { rows: self.rows, cells, columns, text: self.text }
    }
}

impl Batch {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that it holds.
    pub fn size_bytes(&self) -> usize {
        self.text.capacity() + self.cells.len() * size_of::<Cell>() + self.columns.len() * size_of::<(u32, u32)>()
    }

    /// The rows and texts of a column's cells.
    pub(super) fn column(&self, column: usize) -> impl Iterator<Item = (u32, &[u8])> + Clone {
        let cells = match self.columns.binary_search_by_key(&(column as u32), |&(column, _)| column) {
            Ok(at) => {
                let start = at.checked_sub(1).map_or(0, |before| self.columns[before].1);
                &self.cells[start as usize..self.columns[at].1 as usize]
            }
            Err(_) => &[],
        };
        cells.iter().map(|cell| (cell.row, &self.text[cell.start as usize..][..cell.length as usize]))
    }
}
