//! The cells of one entity, placed in the columns of a table.

use std::convert::Infallible;
use std::ops::Range;

use strata_json::{Columns, Name, Place, Shape};

/// Working memory for rows, kept from one entity to the next. It serves only one set of columns.
#[derive(Debug, Default)]
pub(super) struct Row {
    shape: Shape,
    cells: Cells,
}

#[derive(Debug, Default)]
pub(super) struct Cells {
    /// For each column, which bytes of the document its value is; empty where the entity has none.
    pub by_column: Vec<Range<usize>>,
    /// The columns with a value, each once, in the order in which they got one.
    pub filled: Vec<u32>,
}

impl Cells {
    /// Places a value that begins at `start` in the document, if it has a column.
    #[inline]
    pub(super) fn set(&mut self, column: u32, start: usize, value: &[u8]) {
        if let Some(cell) = self.by_column.get_mut(column as usize) {
            if cell.start == cell.end {
                self.filled.push(column);
            }
            *cell = start..start + value.len();
        }
    }
}

impl Row {
    /// Places the cells of a canonical document. If a name occurs twice, the last value counts.
    pub(super) fn place(&mut self, document: &[u8], columns: &Columns) -> &Cells {
        let Row { shape, cells } = self;
        cells.by_column.resize(columns.len(), 0..0);
        for column in cells.filled.drain(..) {
            cells.by_column[column as usize] = 0..0;
        }
        let Ok(()) = shape.walk(document, &mut Placing { columns, cells });
        cells
    }
}

struct Placing<'r> {
    columns: &'r Columns,
    cells: &'r mut Cells,
}

impl Place for Placing<'_> {
    type Error = Infallible;

    fn column(&mut self, name: Name<'_>) -> Result<u32, Infallible> {
        // A name without a column has a number past the last column.
        Ok(self.columns.position(&name.spell()).unwrap_or(self.columns.len()) as u32)
    }

    #[inline]
    fn cell(&mut self, column: u32, start: usize, value: &[u8]) {
        self.cells.set(column, start, value);
    }
}
