//! The pass over the entities: every path with its counts.

use strata_json::{Columns, Scalar};

use super::bins::StoredBins;
use super::columns::TableColumns;
use super::lengths::count_length;
use super::limits::{PATH_BYTES, PATHS};
use super::values::{Shared, TypeCounts, Values};
use crate::tree::{Found, Node, PathTree, ROOT, UNKNOWN};

#[derive(Default)]
pub(super) struct PathCounts {
    pub(super) entities: u64,
    last_entity: u64,
    pub(super) types: TypeCounts,
    /// Of numbers, and of strings with their escapes.
    pub(super) text_bytes: u64,
    /// Whether scalars stand below an array.
    pub(super) fans_out: bool,
    pub(super) string_lengths: Vec<u64>,
}

impl PathCounts {
    /// Counts a value of an entity, which has a number from 1 on.
    #[inline]
    pub(super) fn add(&mut self, entity: u64, fanned: bool, found: Found<'_>) {
        if self.last_entity != entity {
            self.last_entity = entity;
            self.entities += 1;
        }
        let scalar = match found {
            Found::Object => return self.types.object += 1,
            Found::Array => return self.types.array += 1,
            Found::Scalar(scalar) => scalar,
        };
        self.fans_out |= fanned;
        match scalar {
            Scalar::Null => self.types.null += 1,
            Scalar::Bool(_) => self.types.boolean += 1,
            Scalar::Number(text) => {
                self.types.number += 1;
                self.text_bytes += text.len() as u64;
            }
            Scalar::String(text) => {
                self.types.string += 1;
                self.text_bytes += text.raw().len() as u64;
                count_length(&mut self.string_lengths, text);
            }
        }
    }
}

#[derive(Default)]
pub(super) struct PathProfile {
    pub(super) counts: PathCounts,
    pub(super) scalar_entities: u64,
    last_scalar_entity: u64,
    pub(super) folds: bool,
    pub(super) values: Values,
    pub(super) bins: StoredBins,
    /// Whether a scalar of it, outside of arrays, has given a column.
    pub(super) is_column: bool,
}

pub struct ProfileBuilder {
    pub(super) tree: PathTree,
    pub(super) paths: Vec<PathProfile>,
    shared: Shared,
    columns: TableColumns,
    pub entities: u64,
    pub document_bytes: u64,
    /// Whether values lie at paths that are not followed.
    pub(super) paths_left_out: bool,
}

impl Default for ProfileBuilder {
    fn default() -> ProfileBuilder {
        ProfileBuilder {
            tree: PathTree::new(PATHS, PATH_BYTES),
            paths: Vec::new(),
            shared: Shared::default(),
            columns: TableColumns::default(),
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
        let ProfileBuilder { tree, paths, shared, columns, entities, paths_left_out, .. } = self;
        tree.walk(document, true, |node, fanned, found| {
            if node == UNKNOWN {
                *paths_left_out = true;
                columns.may_be_new = true;
                return;
            }
            let index = node as usize;
            if index >= paths.len() {
                paths.resize_with(index + 1, PathProfile::default);
            }
            let path = &mut paths[index];
            path.counts.add(*entities, fanned, found);
            columns.value(node, fanned, found);
            if let Found::Scalar(scalar) = found {
                if !fanned && !path.is_column {
                    columns.new_scalar(node);
                }
                path.add(*entities, scalar, shared);
            }
        });
        columns.end(document, |node| paths[node as usize].is_column = true);
    }

    /// The columns of all entities as a table, in order of first appearance; `None` where they are too many to be kept.
    pub fn columns(&self) -> Option<Columns> {
        self.columns.columns()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (Node, &PathProfile)> {
        self.paths.iter().enumerate().map(|(node, path)| (node as Node, path)).filter(|(node, _)| *node != ROOT)
    }

    pub(super) fn node(&self, keys: &[String]) -> Option<Node> {
        let mut escaped = Vec::new();
        let mut node = ROOT;
        for key in keys {
            escaped.clear();
            strata_json::escape_into(key, &mut escaped);
            node = self.tree.find(node, &escaped);
        }
        (node != UNKNOWN && (node as usize) < self.paths.len()).then_some(node)
    }
}

impl PathProfile {
    #[inline]
    fn add(&mut self, entity: u64, scalar: Scalar<'_>, shared: &mut Shared) {
        if self.last_scalar_entity != entity {
            self.last_scalar_entity = entity;
            self.scalar_entities += 1;
        }
        let mut double = None;
        let text: &[u8] = match scalar {
            Scalar::Null | Scalar::Bool(_) => &[],
            Scalar::Number(text) => {
                double = self.bins.add(text, 1);
                text.as_bytes()
            }
            Scalar::String(text) => text.raw(),
        };
        // A superset test is enough: an `exact` column may stay empty, it may not be missing.
        self.folds = self.folds || text.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        self.values.add(scalar, double, shared);
    }
}
