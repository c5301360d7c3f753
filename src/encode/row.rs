//! The cells of one entity, placed in the columns of a table.

use std::convert::Infallible;
use std::ops::Range;

use crate::document::{Columns, Name, Place, Shape};

/// Working memory for rows, kept from one entity to the next. It serves only one set of columns.
#[derive(Debug, Default)]
pub(super) struct Row {
    shape: Shape,
    cells: Vec<Range<usize>>,
    filled: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cells<'r> {
    /// For each column, which bytes of the document its value is; empty where the entity has none.
    pub by_column: &'r [Range<usize>],
    /// The columns with a value, each once, in no order.
    pub filled: &'r [u32],
}

impl Row {
    /// Places the cells of a canonical document. Of two values of one name the last counts. Names outside of the
    /// columns are left out.
    pub(super) fn place(&mut self, document: &[u8], columns: &Columns) -> Cells<'_> {
        self.cells.resize(columns.len(), 0..0);
        for column in self.filled.drain(..) {
            self.cells[column as usize] = 0..0;
        }
        let mut placing = Placing { columns, cells: &mut self.cells, filled: &mut self.filled };
        let Ok(()) = self.shape.walk(document, &mut placing);
        Cells { by_column: &self.cells, filled: &self.filled }
    }
}

struct Placing<'r> {
    columns: &'r Columns,
    cells: &'r mut [Range<usize>],
    filled: &'r mut Vec<u32>,
}

impl Place for Placing<'_> {
    type Error = Infallible;

    fn column(&mut self, name: Name<'_>) -> Result<u32, Infallible> {
        // A name without a column has a number past the last column.
        Ok(self.columns.position(&name.spell()).unwrap_or(self.columns.len()) as u32)
    }

    #[inline]
    fn cell(&mut self, column: u32, start: usize, value: &[u8]) {
        if let Some(cell) = self.cells.get_mut(column as usize) {
            if cell.start == cell.end {
                self.filled.push(column);
            }
            *cell = start..start + value.len();
        }
    }
}
