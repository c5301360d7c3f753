//! Builds a profile in one pass over the entities.

use strata_json::{JsonScalar, TableColumnNames};

use super::histogram::NumberHistogram;
use super::limits::{MAX_PROFILE_PATH_BYTES, MAX_PROFILE_PATHS};
use super::string_lengths::count_string_length;
use super::table_columns::TableColumnCollector;
use super::value_statistics::{SharedValueBudget, TypeCounts, ValueStatistics};
use crate::path_tree::{MissingPaths, NumberedPathTree, PathNode, ROOT_NODE, UNKNOWN_NODE, VisitedValue};

#[derive(Default)]
pub(super) struct PathCounts {
    pub(super) entities: u64,
    last_entity: u64,
    pub(super) types: TypeCounts,
    /// Total bytes of the numbers and strings at a path. Strings count with their escapes.
    pub(super) text_bytes: u64,
    pub(super) fans_out: bool,
    pub(super) string_lengths: Vec<u64>,
}

impl PathCounts {
    /// Counts a value. `entity` is the number of the entity that contains the value, starting at 1.
    #[inline]
    pub(super) fn add_value(&mut self, entity: u64, is_in_array: bool, value: VisitedValue<'_>) {
        if self.last_entity != entity {
            self.last_entity = entity;
            self.entities += 1;
        }
        let scalar = match value {
            VisitedValue::Object => return self.types.object += 1,
            VisitedValue::Array => return self.types.array += 1,
            VisitedValue::Scalar(scalar) => scalar,
        };
        self.fans_out |= is_in_array;
        match scalar {
            JsonScalar::Null => self.types.null += 1,
            JsonScalar::Bool(_) => self.types.boolean += 1,
            JsonScalar::Number(text) => {
                self.types.number += 1;
                self.text_bytes += text.len() as u64;
            }
            JsonScalar::String(text) => {
                self.types.string += 1;
                self.text_bytes += text.raw().len() as u64;
                count_string_length(&mut self.string_lengths, text);
            }
        }
    }
}

#[derive(Default)]
pub(super) struct PathProfile {
    pub(super) counts: PathCounts,
    pub(super) scalar_entities: u64,
    last_scalar_entity: u64,
    pub(super) needs_folding: bool,
    pub(super) values: ValueStatistics,
    pub(super) number_histogram: NumberHistogram,
    pub(super) has_table_column: bool,
}

pub struct ProfileBuilder {
    pub(super) tree: NumberedPathTree,
    pub(super) paths: Vec<PathProfile>,
    value_budget: SharedValueBudget,
    table_columns: TableColumnCollector,
    pub entities: u64,
    pub document_bytes: u64,
    pub(super) paths_left_out: bool,
}

impl Default for ProfileBuilder {
    fn default() -> ProfileBuilder {
        ProfileBuilder {
            tree: NumberedPathTree::new(MAX_PROFILE_PATHS, MAX_PROFILE_PATH_BYTES),
            paths: Vec::new(),
            value_budget: SharedValueBudget::default(),
            table_columns: TableColumnCollector::default(),
            entities: 0,
            document_bytes: 0,
            paths_left_out: false,
        }
    }
}

impl ProfileBuilder {
    pub fn add(&mut self, document: &[u8]) {
        self.entities += 1;
        self.document_bytes += document.len() as u64;
        let ProfileBuilder { tree, paths, value_budget, table_columns, entities, paths_left_out, .. } = self;
        tree.walk(document, MissingPaths::Insert, |node, is_in_array, value| {
            if node == UNKNOWN_NODE {
                *paths_left_out = true;
                table_columns.may_have_new_column = true;
                return;
            }
            let index = node as usize;
            if index >= paths.len() {
                paths.resize_with(index + 1, PathProfile::default);
            }
            let path = &mut paths[index];
            path.counts.add_value(*entities, is_in_array, value);
            table_columns.visit_value(node, is_in_array, value);
            if let VisitedValue::Scalar(scalar) = value {
                if !is_in_array && !path.has_table_column {
                    table_columns.add_new_scalar(node);
                }
                path.add_scalar(*entities, scalar, value_budget);
            }
        });
        table_columns.end_entity(document, |node| paths[node as usize].has_table_column = true);
    }

    pub fn columns(&self) -> Option<TableColumnNames> {
        self.table_columns.columns()
    }

    pub(super) fn path_nodes(&self) -> impl Iterator<Item = (PathNode, &PathProfile)> {
        (ROOT_NODE..).zip(&self.paths).skip(1)
    }

    pub(super) fn find_node(&self, keys: &[String]) -> Option<PathNode> {
        let mut escaped = Vec::new();
        let mut node = ROOT_NODE;
        for key in keys {
            escaped.clear();
            strata_json::escape_into(key, &mut escaped);
            node = self.tree.find_child(node, &escaped);
        }
        (node != UNKNOWN_NODE && (node as usize) < self.paths.len()).then_some(node)
    }
}

impl PathProfile {
    #[inline]
    fn add_scalar(&mut self, entity: u64, scalar: JsonScalar<'_>, value_budget: &mut SharedValueBudget) {
        if self.last_scalar_entity != entity {
            self.last_scalar_entity = entity;
            self.scalar_entities += 1;
        }
        let mut double = None;
        let text: &[u8] = match scalar {
            JsonScalar::Null | JsonScalar::Bool(_) => &[],
            JsonScalar::Number(text) => {
                double = self.number_histogram.add(text, 1);
                text.as_bytes()
            }
            JsonScalar::String(text) => text.raw(),
        };
        // Many characters outside of ASCII have no case, but then folding only takes time.
        self.needs_folding =
            self.needs_folding || text.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        self.values.add(scalar, double, value_budget);
    }
}
