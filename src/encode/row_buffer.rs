//! The cells of one entity, placed in the columns of a table.

use std::convert::Infallible;
use std::ops::Range;

use strata_json::{CellSink, EntityFlattener, FlattenedKey, TableColumnNames};

/// Memory for the cells of one entity, reused for the next one. A buffer serves only one set of columns.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    flattener: EntityFlattener,
    cells: RowCells,
}

#[derive(Debug, Default)]
pub(super) struct RowCells {
    /// The byte range of each column's value in the document. Empty if the entity has no value for the column.
    pub ranges_by_column: Vec<Range<usize>>,
    /// The columns for which the entity has a value, each once, in the order of their first value.
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
    /// Assigns the values of a canonical document to the columns. If a name occurs twice, the last value counts.
    pub(super) fn flatten_to_cells(&mut self, document: &[u8], columns: &TableColumnNames) -> &RowCells {
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
    columns: &'r TableColumnNames,
    cells: &'r mut RowCells,
}

impl CellSink for RowCellSink<'_> {
    type Error = Infallible;

    fn resolve_column_number(&mut self, name: FlattenedKey<'_>) -> Result<u32, Infallible> {
        // A name that is not a column gets a number past the last column, so that its cells are ignored.
        Ok(self.columns.position(&name.unescape()).unwrap_or(self.columns.len()) as u32)
    }

    #[inline]
    fn write_cell(&mut self, column: u32, start: usize, value: &[u8]) {
        self.cells.set_cell(column, start, value);
    }
}
