//! The cells of one entity, placed in the columns of a table.

use std::convert::Infallible;
use std::ops::Range;

use strata_json::{CellSink, ColumnNames, EntityFlattener, FlattenedKey};

/// Working memory for rows, reused for the next entity. Serves only one set of columns.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    flattener: EntityFlattener,
    cells: RowCells,
}

#[derive(Debug, Default)]
pub(super) struct RowCells {
    /// The byte range in the document of each column's value. Empty if the entity has no value.
    pub ranges_by_column: Vec<Range<usize>>,
    /// The columns with a value, each once, in the order of their first value.
    pub filled_columns: Vec<u32>,
}

impl RowCells {
    #[inline]
    pub(super) fn set_cell(&mut self, column: u32, start: usize, value: &[u8]) {
        if let Some(cell) = self.ranges_by_column.get_mut(column as usize) {
            if cell.start == cell.end {
                self.filled_columns.push(column);
            }
            *cell = start..start + value.len();
        }
    }
}

impl RowBuffer {
    /// Places the cells of a canonical document. If a name occurs twice, the last value counts.
    pub(super) fn place_cells(&mut self, document: &[u8], columns: &ColumnNames) -> &RowCells {
        let RowBuffer { flattener, cells } = self;
        cells.ranges_by_column.resize(columns.len(), 0..0);
        for column in cells.filled_columns.drain(..) {
            cells.ranges_by_column[column as usize] = 0..0;
        }
        let Ok(()) = flattener.flatten(document, &mut RowCellSink { columns, cells });
        cells
    }
}

struct RowCellSink<'r> {
    columns: &'r ColumnNames,
    cells: &'r mut RowCells,
}

impl CellSink for RowCellSink<'_> {
    type Error = Infallible;

    fn column(&mut self, name: FlattenedKey<'_>) -> Result<u32, Infallible> {
        // A name without a column has a number past the last column.
        Ok(self.columns.position(&name.unescape()).unwrap_or(self.columns.len()) as u32)
    }

    #[inline]
    fn write_cell(&mut self, column: u32, start: usize, value: &[u8]) {
        self.cells.set_cell(column, start, value);
    }
}
