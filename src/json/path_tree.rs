//! Finds the scalars that many paths reach in an entity (docs/reference/paths-and-values.md, Paths), in one walk.
//!
//! The paths become a tree of keys, which is walked together with the entity. What no path names is skipped. An object
//! is left as soon as all keys that paths name in it were found, because keys do not repeat.
//!
//! What a path reaches inside an array is known when the array ends. Outside of arrays a key stands once: when its
//! value ends, nothing more is reached by the paths that go through it. A [`Visitor`] is told so, and can end the walk
//! early when it missed something.

use std::ops::{ControlFlow, Range};

use strata_types::path::Path;

use super::MAX_DEPTH;
use super::cursor::{Cursor, JsonType, Scalar};
use super::reach::{fan_out, scalar_or_skip};
use super::text::{Text, escape_into};

/// Paths as a tree of their keys. Each path ends at a node, and equal ones at the same. What is below a node follows
/// it.
#[derive(Clone, Debug)]
pub struct PathTree {
    /// The first one is the entity.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// By key, in canonical escapes, in the order of their bytes.
    children: Vec<(Box<[u8]>, usize)>,
    /// The node after those below this one.
    end: usize,
    is_end: bool,
}

/// What is told of a walk. A break ends it.
pub trait Visitor {
    /// The paths that end at `node` reach this scalar.
    fn scalar(&mut self, node: usize, scalar: Scalar<'_>) -> ControlFlow<()>;

    /// The paths that end at these nodes reach nothing more.
    fn ended(&mut self, nodes: Range<usize>) -> ControlFlow<()>;
}

impl PathTree {
    /// The tree of some paths, and the node at which each of them ends.
    pub fn of<'p>(paths: impl IntoIterator<Item = &'p Path>) -> (PathTree, Vec<usize>) {
        let mut sorted: Vec<(usize, Vec<Box<[u8]>>)> = paths.into_iter().map(keys).enumerate().collect();
        let mut ends = vec![0; sorted.len()];
        // In this order, what is below a node is made right after it, and children in the order of their keys.
        sorted.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
        let mut nodes = vec![Node::default()];
        for (number, keys) in sorted {
            let mut way = vec![0];
            for key in keys {
                let above = way[way.len() - 1];
                let next = nodes.len();
                let node = match nodes[above].children.last() {
                    Some((last, child)) if *last == key => *child,
                    _ => {
                        nodes[above].children.push((key, next));
                        nodes.push(Node::default());
                        next
                    }
                };
                way.push(node);
            }
            let end = nodes.len();
            way.iter().for_each(|node| nodes[*node].end = end);
            let last = way[way.len() - 1];
            nodes[last].is_end = true;
            ends[number] = last;
        }
        (PathTree { nodes }, ends)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Calls `visit` with every value that a path reaches in an entity, and with the node at which the path ends, in
    /// document order. An object or an array at the end of a path is one value
    /// ([`reach_values`](super::reach_values)).
    pub fn reach_values<'a>(&self, document: &'a [u8], mut visit: impl FnMut(usize, &'a [u8])) {
        self.values_inside(&mut Cursor::new(document), 0, 1, &mut visit);
    }

    /// Visits the values that paths through `node` reach inside the next value, at level `depth`. Steps over that
    /// value.
    fn values_inside<'a>(
        &self,
        cursor: &mut Cursor<'a>,
        node: usize,
        depth: usize,
        visit: &mut impl FnMut(usize, &'a [u8]),
    ) {
        match cursor.peek() {
            Some(JsonType::Object) if depth <= MAX_DEPTH => {
                cursor.enter();
                let mut missing = self.nodes[node].children.len();
                while missing > 0 {
                    let Some(key) = cursor.next_key() else { return };
                    let Some(child) = self.child(node, key) else {
                        cursor.skip_value();
                        continue;
                    };
                    missing -= 1;
                    let Node { children, is_end, .. } = &self.nodes[child];
                    if children.is_empty() {
                        visit(child, cursor.skip_value());
                        continue;
                    }
                    if *is_end {
                        visit(child, cursor.clone().skip_value());
                    }
                    self.values_inside(cursor, child, depth + 1, visit);
                }
                // At the top, the rest is not read.
                if depth > 1 {
                    cursor.leave();
                }
            }
            Some(JsonType::Array) if depth <= MAX_DEPTH => {
                cursor.enter();
                while cursor.next_element() {
                    self.values_inside(cursor, node, depth + 1, visit);
                }
            }
            _ => {
                cursor.skip_value();
            }
        }
    }

    /// Tells `visitor` what the paths reach in an entity, in document order.
    pub fn reach(&self, document: &[u8], visitor: &mut impl Visitor) {
        let _ = self.members(&mut Cursor::new(document), 0, Level { depth: 1, alone: true }, visitor);
    }

    fn child(&self, node: usize, key: Text<'_>) -> Option<usize> {
        const MAX_COMPARED: usize = 4;
        // A string has one canonical spelling.
        let children = &self.nodes[node].children;
        if children.len() <= MAX_COMPARED {
            return children.iter().find(|(other, _)| other.as_ref() == key.raw()).map(|(_, child)| *child);
        }
        let place = children.binary_search_by(|(other, _)| other.as_ref().cmp(key.raw())).ok()?;
        Some(children[place].1)
    }

    /// Visits the members of the object that comes next.
    fn members(
        &self,
        cursor: &mut Cursor<'_>,
        node: usize,
        level: Level,
        visitor: &mut impl Visitor,
    ) -> ControlFlow<()> {
        cursor.enter();
        let mut missing = self.nodes[node].children.len();
        while missing > 0 {
            let Some(key) = cursor.next_key() else { return ControlFlow::Continue(()) };
            let Some(child) = self.child(node, key) else {
                cursor.skip_value();
                continue;
            };
            missing -= 1;
            self.value(cursor, child, level.below(), visitor)?;
            if level.alone {
                visitor.ended(child..self.nodes[child].end)?;
            }
        }
        // At the top, the rest is not read.
        if level.depth > 1 {
            cursor.leave();
        }
        ControlFlow::Continue(())
    }

    /// Visits the value that comes next, whose level counts only if it is an object or an array. Steps over that value.
    fn value(&self, cursor: &mut Cursor<'_>, node: usize, level: Level, visitor: &mut impl Visitor) -> ControlFlow<()> {
        let Node { children, is_end, .. } = &self.nodes[node];
        if children.is_empty() {
            return fan_out(cursor, &mut |scalar| visitor.scalar(node, scalar));
        }
        match cursor.peek() {
            Some(JsonType::Object) if level.depth <= MAX_DEPTH => return self.members(cursor, node, level, visitor),
            Some(JsonType::Array) if level.depth <= MAX_DEPTH => {
                cursor.enter();
                while cursor.next_element() {
                    self.value(cursor, node, Level { alone: false, ..level.below() }, visitor)?;
                }
            }
            _ => {
                if let Some(scalar) = scalar_or_skip(cursor)
                    && *is_end
                {
                    visitor.scalar(node, scalar)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

#[derive(Clone, Copy)]
struct Level {
    /// From 1 for the entity.
    depth: usize,
    /// Whether no array is around it.
    alone: bool,
}

impl Level {
    fn below(self) -> Level {
        Level { depth: self.depth + 1, ..self }
    }
}

fn keys(path: &Path) -> Vec<Box<[u8]>> {
    let escaped = |key: &String| {
        let mut raw = Vec::with_capacity(key.len());
        escape_into(key, &mut raw);
        raw.into_boxed_slice()
    };
    path.keys().iter().map(escaped).collect()
}
