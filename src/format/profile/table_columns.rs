//! Collects the table columns of a version (docs/reference/formats.md, csv and tsv) in the pass of the profile.
//!
//! Flattening every entity would be a second pass. Therefore, an entity is flattened only if it may have a new column:
//!
//! - A scalar outside of arrays has a new column only if its path had no column before.
//! - The columns of an outermost array follow from its structure: the sequence of its paths, with the kind (object,
//!   array, or scalar) at each step. They can only be new if the structure is new.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use strata_json::{TableColumnNames, TableColumnNamesBuilder};

use crate::path_tree::{PathNode, VisitedValue};

/// Max table columns, and max bytes of their names, in a profile. If there are more, each export computes them.
const MAX_TABLE_COLUMNS: usize = 10_000;
const MAX_COLUMN_NAME_BYTES: usize = 512 << 10;
/// Max total length of the remembered array structures (sequences of paths), and of one structure. Entities with other
/// structures are flattened to find their table columns.
const MAX_STRUCTURE_STEPS_TOTAL: usize = 1 << 16;
const MAX_STRUCTURE_STEPS: usize = 1 << 10;

pub(super) struct TableColumnCollector {
    builder: Option<TableColumnNamesBuilder>,
    known_arrays: ArrayStructureSet,
    array_steps: Vec<u32>,
    new_scalars: Vec<PathNode>,
    /// Set if the current entity may have a new column below an array, or at a path beyond the limits of the profile.
    pub(super) may_have_new_column: bool,
}

impl Default for TableColumnCollector {
    fn default() -> Self {
        TableColumnCollector {
            builder: Some(TableColumnNamesBuilder::new(MAX_TABLE_COLUMNS)),
            known_arrays: ArrayStructureSet::default(),
            array_steps: Vec::new(),
            new_scalars: Vec::new(),
            may_have_new_column: false,
        }
    }
}

impl TableColumnCollector {
    #[cold]
    pub(super) fn add_new_scalar(&mut self, node: PathNode) {
        self.new_scalars.push(node);
    }

    #[inline]
    pub(super) fn visit_value(&mut self, node: PathNode, is_in_array: bool, value: VisitedValue<'_>) {
        if !is_in_array {
            if !self.array_steps.is_empty() {
                self.end_array();
            }
            if !matches!(value, VisitedValue::Array) {
                return;
            }
        }
        let kind = match value {
            VisitedValue::Scalar(_) => 0,
            VisitedValue::Object => 1,
            VisitedValue::Array => 2,
        };
        let step = node << 2 | kind;
        // Consecutive scalars at one path count once, because their number does not affect the table columns.
        let is_repeated = kind == 0 && self.array_steps.last() == Some(&step);
        // A structure with one step more than the maximum is recognized as too long.
        if !is_repeated && self.array_steps.len() <= MAX_STRUCTURE_STEPS {
            self.array_steps.push(step);
        }
    }

    fn end_array(&mut self) {
        if self.builder.is_some() {
            self.may_have_new_column |= !self.known_arrays.contains_or_insert(&self.array_steps);
        }
        self.array_steps.clear();
    }

    /// Ends an entity. Calls `mark_table_column` with the paths that get a table column by this entity.
    #[inline]
    pub(super) fn end_entity(&mut self, document: &[u8], mark_table_column: impl FnMut(PathNode)) {
        if !self.array_steps.is_empty() {
            self.end_array();
        }
        if self.may_have_new_column || !self.new_scalars.is_empty() {
            self.collect_column_names(document, mark_table_column);
        }
    }

    fn collect_column_names(&mut self, document: &[u8], mark_table_column: impl FnMut(PathNode)) {
        self.may_have_new_column = false;
        if let Some(builder) = &mut self.builder
            && (builder.add_entity(document).is_err() || builder.name_bytes() > MAX_COLUMN_NAME_BYTES)
        {
            self.builder = None;
            self.known_arrays = ArrayStructureSet::default();
        }
        self.new_scalars.drain(..).for_each(mark_table_column);
    }

    pub(super) fn columns(&self) -> Option<TableColumnNames> {
        self.builder.as_ref().map(TableColumnNamesBuilder::columns)
    }
}

#[derive(Default)]
struct ArrayStructureSet {
    steps: Vec<u32>,
    ranges: HashTable<(u32, u32)>,
    hasher: RandomState,
}

impl ArrayStructureSet {
    fn contains_or_insert(&mut self, array: &[u32]) -> bool {
        let ArrayStructureSet { steps, ranges, hasher } = self;
        let hash = hasher.hash_one(array);
        if ranges.find(hash, |&(start, end)| steps[start as usize..end as usize] == *array).is_some() {
            return true;
        }
        if array.len() <= MAX_STRUCTURE_STEPS && steps.len() + array.len() <= MAX_STRUCTURE_STEPS_TOTAL {
            let start = steps.len() as u32;
            steps.extend_from_slice(array);
            ranges.insert_unique(hash, (start, steps.len() as u32), |&(start, end)| {
                hasher.hash_one(&steps[start as usize..end as usize])
            });
        }
        false
    }
}
