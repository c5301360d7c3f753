//! The pass over the entities: every path with its counts.

use super::bins::NumberBins;
use super::columns::{Kind, TableColumns};
use super::lengths::Lengths;
use super::values::{Shared, TypeCounts, Values};
use super::{PATH_BYTES, PATHS};
use crate::document::{self, Columns, Scalar};
use crate::storage::tree::{Found, Node, PathTree, ROOT, UNKNOWN};

#[derive(Default)]
pub(super) struct PathProfile {
    pub(super) entities: u64,
    pub(super) scalar_entities: u64,
    last_entity: u64,
    last_scalar_entity: u64,
    pub(super) types: TypeCounts,
    /// Of numbers, and of strings with their escapes.
    pub(super) text_bytes: u64,
    pub(super) fans_out: bool,
    pub(super) folds: bool,
    pub(super) values: Values,
    pub(super) lengths: Lengths,
    pub(super) bins: NumberBins,
    /// Whether a scalar of it, outside of arrays, has given a column.
    pub(super) is_column: bool,
}

/// A profile being built: one pass over the entities.
pub struct ProfileBuilder {
    pub(super) tree: PathTree,
    pub(super) paths: Vec<PathProfile>,
    shared: Shared,
    columns: TableColumns,
    entities: u64,
    document_bytes: u64,
    /// Whether values lie at paths that are not followed.
    pub(super) paths_left_out: bool,
}

impl Default for ProfileBuilder {
    fn default() -> Self {
        ProfileBuilder::new()
    }
}

impl ProfileBuilder {
    pub fn new() -> ProfileBuilder {
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

    pub fn entities(&self) -> u64 {
        self.entities
    }

    pub fn document_bytes(&self) -> u64 {
        self.document_bytes
    }

    pub fn add(&mut self, document: &[u8]) {
        self.entities += 1;
        self.document_bytes += document.len() as u64;
        let ProfileBuilder { tree, paths, shared, columns, entities, paths_left_out, .. } = self;
        tree.walk(document, true, |node, fanned, found| {
            if node == UNKNOWN {
                *paths_left_out = true;
                columns.unknown();
                return;
            }
            let index = node as usize;
            if index >= paths.len() {
                paths.resize_with(index + 1, PathProfile::default);
            }
            let path = &mut paths[index];
            path.reach(*entities);
            match found {
                Found::Scalar(scalar) => {
                    columns.value(node, fanned, Kind::Scalar);
                    if !fanned && !path.is_column {
                        columns.new_scalar(node);
                    }
                    path.add(*entities, fanned, scalar, shared);
                }
                Found::Object => {
                    columns.value(node, fanned, Kind::Object);
                    path.types.object += 1;
                }
                Found::Array => {
                    columns.value(node, fanned, Kind::Array);
                    path.types.array += 1;
                }
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

    pub(super) fn keys(&self, node: Node) -> Vec<String> {
        let keys = self.tree.keys(node).into_iter();
        keys.map(|key| document::Text::new(key).unescape().into_owned()).collect()
    }

    pub(super) fn node(&self, keys: &[String]) -> Option<Node> {
        let mut escaped = Vec::new();
        let mut node = ROOT;
        for key in keys {
            escaped.clear();
            document::escape_into(key, &mut escaped);
            node = self.tree.find(node, &escaped);
        }
        (node != UNKNOWN && (node as usize) < self.paths.len()).then_some(node)
    }
}

impl PathProfile {
    #[inline]
    fn reach(&mut self, entity: u64) {
        if self.last_entity != entity {
            self.last_entity = entity;
            self.entities += 1;
        }
    }

    #[inline]
    fn add(&mut self, entity: u64, fanned: bool, scalar: Scalar<'_>, shared: &mut Shared) {
        if self.last_scalar_entity != entity {
            self.last_scalar_entity = entity;
            self.scalar_entities += 1;
        }
        self.fans_out |= fanned;
        match scalar {
            Scalar::Null => {
                self.types.null += 1;
                return;
            }
            Scalar::Bool(_) => self.types.boolean += 1,
            Scalar::Number(text) => {
                self.types.number += 1;
                self.take_text(text.as_bytes());
                self.bins.add(text);
            }
            Scalar::String(text) => {
                self.types.string += 1;
                self.take_text(text.raw());
                self.lengths.add(text);
            }
        }
        self.values.add(scalar, shared);
    }

    #[inline]
    fn take_text(&mut self, text: &[u8]) {
        self.text_bytes += text.len() as u64;
        // A superset test is enough: an `exact` column may stay empty, it may not be missing.
        self.folds = self.folds || text.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
    }
}
