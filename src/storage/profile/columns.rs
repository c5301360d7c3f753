//! The columns that a version has as a table (docs/semantics.md, csv and tsv), found in the pass of the profile.
//!
//! To flatten every entity would be a second pass. The profile's walk tells most entities that have no new column: each
//! of their cells stands at a path that gave one before. A cell is a scalar outside of arrays, or an outermost array.
//! Only the others are flattened: entities with a new cell, and those with objects in arrays, whose columns depend on
//! the place in the array.

use crate::document::{Columns, ColumnsBuilder};
use crate::storage::tree::Node;

/// Most columns, and bytes of their names, that a profile keeps. A version with more has none there, and each export
/// finds them.
const KEPT_COLUMNS: usize = 10_000;
const KEPT_NAME_BYTES: usize = 512 << 10;

/// The columns so far.
pub(super) struct TableColumns {
    /// `None` once they are too many.
    found: Option<ColumnsBuilder>,
    /// The paths of the current entity's cells that may be new, and whether it is an array there.
    cells: Vec<(Node, bool)>,
    object_in_array: bool,
    unknown: bool,
}

impl Default for TableColumns {
    fn default() -> Self {
        let found = Some(ColumnsBuilder::new(KEPT_COLUMNS));
        TableColumns { found, cells: Vec::new(), object_in_array: false, unknown: false }
    }
}

impl TableColumns {
    /// Begins an entity.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.cells.clear();
        (self.object_in_array, self.unknown) = (false, false);
    }

    /// A value at a path that is not followed.
    pub(super) fn unknown(&mut self) {
        self.unknown = true;
    }

    /// An object inside of an array.
    #[inline]
    pub(super) fn object_in_array(&mut self) {
        self.object_in_array = true;
    }

    /// A cell, or an array that may be one, at a path that has given no column.
    #[cold]
    pub(super) fn new_cell(&mut self, node: Node, is_array: bool) {
        if self.found.is_some() {
            self.cells.push((node, is_array));
        }
    }

    /// Ends the entity. Names the paths that have given a column now.
    #[inline]
    pub(super) fn end(&mut self, document: &[u8], is_column: impl FnMut(Node)) {
        if self.object_in_array || self.unknown || !self.cells.is_empty() {
            self.flatten(document, is_column);
        }
    }

    fn flatten(&mut self, document: &[u8], mut is_column: impl FnMut(Node)) {
        let Some(found) = &mut self.found else { return };
        if found.add(document).is_err() || found.name_bytes() > KEPT_NAME_BYTES {
            self.found = None;
            return;
        }
        // Without objects in arrays, every array is a cell.
        for (node, is_array) in self.cells.drain(..) {
            if !is_array || !self.object_in_array {
                is_column(node);
            }
        }
    }

    /// The columns; `None` where they are too many.
    pub(super) fn columns(&self) -> Option<Columns> {
        self.found.as_ref().map(ColumnsBuilder::columns)
    }
}
