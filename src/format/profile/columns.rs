//! The columns that a version has as a table (docs/reference/formats.md, csv and tsv), found in the pass of the
//! profile.
//!
//! To flatten every entity would be a second pass. The profile's walk tells of most entities that they have no new
//! column:
//!
//! - A scalar outside of arrays is a cell. Its path gave a column before.
//! - The cells of an outermost array follow from its structure: its paths in their order, and at each an object, an
//!   array or a scalar. Every element that is an object stands in it, so it tells the places, too. Of an array with
//!   other elements, which is one cell, it tells that. An array of the same structure came before.
//!
//! Only the others are flattened.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use strata_json::{Columns, ColumnsBuilder};

use crate::tree::{Found, Node};

/// Most columns, and bytes of their names, that a profile keeps. A version with more has none there, and each export
/// finds them.
const KEPT_COLUMNS: usize = 10_000;
const KEPT_NAME_BYTES: usize = 512 << 10;

/// Steps of all structures that are kept, and of a single one. Entities with others are flattened.
const KEPT_STEPS: usize = 1 << 16;
const KEPT_STEPS_EACH: usize = 1 << 10;

pub(super) struct TableColumns {
    found: Option<ColumnsBuilder>,
    structures: Structures,
    /// The structure of the current array, as far as it is walked.
    array: Vec<u32>,
    /// The paths of the current entity's scalars that gave no column before.
    scalars: Vec<Node>,
    /// Whether the current entity may have a new column otherwise, as where it has paths that are not followed.
    pub(super) may_be_new: bool,
}

impl Default for TableColumns {
    fn default() -> Self {
        TableColumns {
            found: Some(ColumnsBuilder::new(KEPT_COLUMNS)),
            structures: Structures::default(),
            array: Vec::new(),
            scalars: Vec::new(),
            may_be_new: false,
        }
    }
}

impl TableColumns {
    /// A scalar outside of arrays, at a path that has given no column.
    #[cold]
    pub(super) fn new_scalar(&mut self, node: Node) {
        self.scalars.push(node);
    }

    /// Any value, and whether it is inside of an array.
    #[inline]
    pub(super) fn value(&mut self, node: Node, fanned: bool, found: Found<'_>) {
        if !fanned {
            if !self.array.is_empty() {
                self.end_array();
            }
            if !matches!(found, Found::Array) {
                return;
            }
        }
        let kind = match found {
            Found::Scalar(_) => 0,
            Found::Object => 1,
            Found::Array => 2,
        };
        let step = node << 2 | kind;
        // How many scalars come one after another makes no difference: they are elements.
        let repeats = kind == 0 && self.array.last() == Some(&step);
        // One step too many tells that it is too long to be kept.
        if !repeats && self.array.len() <= KEPT_STEPS_EACH {
            self.array.push(step);
        }
    }

    fn end_array(&mut self) {
        if self.found.is_some() {
            self.may_be_new |= !self.structures.holds(&self.array);
        }
        self.array.clear();
    }

    /// Ends the entity. Names the paths that have given a column now.
    #[inline]
    pub(super) fn end(&mut self, document: &[u8], is_column: impl FnMut(Node)) {
        if !self.array.is_empty() {
            self.end_array();
        }
        if self.may_be_new || !self.scalars.is_empty() {
            self.flatten(document, is_column);
        }
    }

    fn flatten(&mut self, document: &[u8], is_column: impl FnMut(Node)) {
        self.may_be_new = false;
        if let Some(found) = &mut self.found
            && (found.add(document).is_err() || found.name_bytes() > KEPT_NAME_BYTES)
        {
            (self.found, self.structures) = (None, Structures::default());
        }
        self.scalars.drain(..).for_each(is_column);
    }

    pub(super) fn columns(&self) -> Option<Columns> {
        self.found.as_ref().map(ColumnsBuilder::columns)
    }
}

#[derive(Default)]
struct Structures {
    steps: Vec<u32>,
    places: HashTable<(u32, u32)>,
    hasher: RandomState,
}

impl Structures {
    /// Whether this one is among them. If not, it is from now on, if there is room.
    fn holds(&mut self, array: &[u32]) -> bool {
        let Structures { steps, places, hasher } = self;
        let hash = hasher.hash_one(array);
        if places.find(hash, |&(start, end)| steps[start as usize..end as usize] == *array).is_some() {
            return true;
        }
        if array.len() <= KEPT_STEPS_EACH && steps.len() + array.len() <= KEPT_STEPS {
            let start = steps.len() as u32;
            steps.extend_from_slice(array);
            places.insert_unique(hash, (start, steps.len() as u32), |&(start, end)| {
                hasher.hash_one(&steps[start as usize..end as usize])
            });
        }
        false
    }
}
