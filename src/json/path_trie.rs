//! Evaluates many paths on an entity (docs/reference/paths-and-values.md, Paths) in one walk.
//!
//! A trie of keys is walked together with the entity. Keys that no path contains are skipped. Keys do not repeat in an
//! object, so the walk leaves an object once it has found all keys that the paths contain.
//!
//! The values of a path inside an array are complete when the array ends. Outside of arrays, a path is complete when
//! its value ends. A [`PathVisitor`] is notified of this, and can end the walk early.

use std::ops::{ControlFlow, Range};

use strata_types::field_path::FieldPath;

use super::MAX_NESTING_DEPTH;
use super::cursor::{JsonCursor, JsonScalar, JsonType};
use super::json_str::{JsonStr, escape_into};
use super::path_eval::{next_scalar_or_skip, visit_nested_scalars};

/// A trie of paths. Equal paths end at the same node. In the list of nodes, the descendants of a node follow it.
#[derive(Clone, Debug)]
pub struct PathTrie {
    /// The first node represents the entity, at which all paths begin.
    nodes: Vec<PathTrieNode>,
}

#[derive(Clone, Debug, Default)]
struct PathTrieNode {
    /// The child nodes: their keys in canonical escapes, in the order of the bytes, and their indexes.
    children: Vec<(Box<[u8]>, usize)>,
    subtree_end: usize,
    is_path_end: bool,
}

/// Receives the values that a walk of an entity finds, and can end the walk with `Break`.
pub trait PathVisitor {
    fn visit_scalar(&mut self, node: usize, scalar: JsonScalar<'_>) -> ControlFlow<()>;

    /// Reports that the paths that end at `nodes` have no more scalars.
    fn finish_nodes(&mut self, nodes: Range<usize>) -> ControlFlow<()>;
}

impl PathTrie {
    /// Builds the trie of `paths`. Also returns the node at which each path ends.
    pub fn from_paths<'p>(paths: impl IntoIterator<Item = &'p FieldPath>) -> (PathTrie, Vec<usize>) {
        let mut sorted: Vec<(usize, Vec<Box<[u8]>>)> = paths.into_iter().map(escaped_keys).enumerate().collect();
        let mut ends = vec![0; sorted.len()];
        // With sorted paths, descendants are inserted right after their node, and children in the order of their keys.
        sorted.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
        let mut nodes = vec![PathTrieNode::default()];
        for (number, keys) in sorted {
            let mut ancestors = vec![0];
            for key in keys {
                let parent = ancestors[ancestors.len() - 1];
                let next = nodes.len();
                let node = match nodes[parent].children.last() {
                    Some((last, child)) if *last == key => *child,
                    _ => {
                        nodes[parent].children.push((key, next));
                        nodes.push(PathTrieNode::default());
                        next
                    }
                };
                ancestors.push(node);
            }
            let end = nodes.len();
            ancestors.iter().for_each(|node| nodes[*node].subtree_end = end);
            let last = ancestors[ancestors.len() - 1];
            nodes[last].is_path_end = true;
            ends[number] = last;
        }
        (PathTrie { nodes }, ends)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Calls `visit` with every value of a path (as in [`visit_values_at`](super::visit_values_at)), and with the node.
    pub fn visit_values<'a>(&self, document: &'a [u8], mut visit: impl FnMut(usize, &'a [u8])) {
        self.visit_values_inside(&mut JsonCursor::new(document), 0, 1, &mut visit);
    }

    /// Visits the values of all paths through `node` inside the next value of the cursor.
    fn visit_values_inside<'a>(
        &self,
        cursor: &mut JsonCursor<'a>,
        node: usize,
        depth: usize,
        visit: &mut impl FnMut(usize, &'a [u8]),
    ) {
        match cursor.peek_type() {
            Some(JsonType::Object) if depth <= MAX_NESTING_DEPTH => {
                cursor.enter();
                let mut missing = self.nodes[node].children.len();
                while missing > 0 {
                    let Some(key) = cursor.next_key() else { return };
                    let Some(child) = self.find_child(node, key) else {
                        cursor.skip_value();
                        continue;
                    };
                    missing -= 1;
                    let PathTrieNode { children, is_path_end, .. } = &self.nodes[child];
                    if children.is_empty() {
                        visit(child, cursor.skip_value());
                        continue;
                    }
                    if *is_path_end {
                        visit(child, cursor.clone().skip_value());
                    }
                    self.visit_values_inside(cursor, child, depth + 1, visit);
                }
                // The rest of the top-level object need not be skipped, because nothing follows the object.
                if depth > 1 {
                    cursor.leave();
                }
            }
            Some(JsonType::Array) if depth <= MAX_NESTING_DEPTH => {
                cursor.enter();
                while cursor.next_element() {
                    self.visit_values_inside(cursor, node, depth + 1, visit);
                }
            }
            _ => {
                cursor.skip_value();
            }
        }
    }

    pub fn visit_scalars(&self, document: &[u8], visitor: &mut impl PathVisitor) {
        let level = WalkLevel { depth: 1, is_outside_arrays: true };
        let _ = self.visit_members(&mut JsonCursor::new(document), 0, level, visitor);
    }

    fn find_child(&self, node: usize, key: JsonStr<'_>) -> Option<usize> {
        const MAX_LINEAR_SEARCH_CHILDREN: usize = 4;
        // Each JSON string has one canonical spelling, so the raw bytes of keys can be compared.
        let children = &self.nodes[node].children;
        if children.len() <= MAX_LINEAR_SEARCH_CHILDREN {
            return children.iter().find(|(other, _)| other.as_ref() == key.raw()).map(|(_, child)| *child);
        }
        let place = children.binary_search_by(|(other, _)| other.as_ref().cmp(key.raw())).ok()?;
        Some(children[place].1)
    }

    fn visit_members(
        &self,
        cursor: &mut JsonCursor<'_>,
        node: usize,
        level: WalkLevel,
        visitor: &mut impl PathVisitor,
    ) -> ControlFlow<()> {
        cursor.enter();
        let inner = WalkLevel { depth: level.depth + 1, ..level };
        let mut missing = self.nodes[node].children.len();
        while missing > 0 {
            let Some(key) = cursor.next_key() else { return ControlFlow::Continue(()) };
            let Some(child) = self.find_child(node, key) else {
                cursor.skip_value();
                continue;
            };
            missing -= 1;
            self.visit_value(cursor, child, inner, visitor)?;
            if level.is_outside_arrays {
                visitor.finish_nodes(child..self.nodes[child].subtree_end)?;
            }
        }
        // The rest of the top-level object need not be skipped, because nothing follows the object.
        if level.depth > 1 {
            cursor.leave();
        }
        ControlFlow::Continue(())
    }

    fn visit_value(
        &self,
        cursor: &mut JsonCursor<'_>,
        node: usize,
        level: WalkLevel,
        visitor: &mut impl PathVisitor,
    ) -> ControlFlow<()> {
        let PathTrieNode { children, is_path_end, .. } = &self.nodes[node];
        if children.is_empty() {
            return visit_nested_scalars(cursor, &mut |scalar| visitor.visit_scalar(node, scalar));
        }
        match cursor.peek_type() {
            Some(JsonType::Object) if level.depth <= MAX_NESTING_DEPTH => {
                return self.visit_members(cursor, node, level, visitor);
            }
            Some(JsonType::Array) if level.depth <= MAX_NESTING_DEPTH => {
                cursor.enter();
                let inner = WalkLevel { depth: level.depth + 1, is_outside_arrays: false };
                while cursor.next_element() {
                    self.visit_value(cursor, node, inner, visitor)?;
                }
            }
            _ => {
                if let Some(scalar) = next_scalar_or_skip(cursor)
                    && *is_path_end
                {
                    visitor.visit_scalar(node, scalar)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

#[derive(Clone, Copy)]
struct WalkLevel {
    depth: usize,
    is_outside_arrays: bool,
}

fn escaped_keys(path: &FieldPath) -> Vec<Box<[u8]>> {
    let escaped = |key: &String| {
        let mut raw = Vec::with_capacity(key.len());
        escape_into(key, &mut raw);
        raw.into_boxed_slice()
    };
    path.keys().iter().map(escaped).collect()
}
