//! Maps the values of entities to columns without formatting column names.
//!
//! Entities of one dataset mostly repeat their keys in the same order. The flattener therefore learns a tree. Each node
//! is an object member or an element of an array of objects, and stores its column and the node that followed it last
//! time. To flatten an entity (docs/reference/select-fields.md, flatten), each member goes through these steps:
//!
//! 1. Compare the key with the expected next node, and with a few nodes after it, because members can be missing.
//! 2. Otherwise find the node by hash, or insert it, and expect it next time.
//! 3. If the value is a cell, use the column of the node. The first time, request the column from the [`CellSink`] by
//!    name. Two nodes can have the same name (`{"a.b":1,"a":{"b":2}}`).

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::MAX_NESTING_DEPTH;
use super::cursor::{JsonCursor, JsonType};
use super::json_str::JsonStr;

/// Limits of a flattener's tree. Above either limit the tree is discarded and learned again, so that entities that
/// never repeat a key do not exhaust the memory. A single entity can exceed the limits while it is flattened.
const MAX_TREE_NODES: usize = 1 << 15;
const MAX_TREE_KEY_BYTES: usize = 1 << 20;
const MAX_EXPECTED_KEYS: usize = 4;
const ROOT_NODE: u32 = 0;
/// Marks a missing node or column.
const NO_NODE: u32 = u32::MAX;

pub trait CellSink {
    type Error;

    /// Returns the number of the column named `name`, below `u32::MAX`. Called once for each node of a tree.
    fn resolve_column_number(&mut self, name: FlattenedKey<'_>) -> Result<u32, Self::Error>;

    /// Receives a cell: a scalar or an array at byte `start` of the document. The last value of a column counts.
    fn write_cell(&mut self, column: u32, start: usize, value: &[u8]);
}

/// The tree of keys that a flattener has learned so far. One flattener serves only one set of columns.
#[derive(Debug)]
pub struct EntityFlattener {
    nodes: Vec<FlattenNode>,
    /// The keys of all members in canonical escapes, each with its quotes and a colon.
    keys: Vec<u8>,
    members: HashTable<u32>,
    /// Randomly seeded for each instance, because clients choose the keys (hash flooding).
    hasher: RandomState,
}

#[derive(Debug)]
struct FlattenNode {
    parent: u32,
    step: FlattenStep,
    column: u32,
    next: u32,
    first_member: u32,
    first_element: u32,
}

#[derive(Clone, Copy, Debug)]
enum FlattenStep {
    Root,
    /// An object member. Its key is this range of [`EntityFlattener::keys`], without the quotes.
    Member {
        start: usize,
        length: usize,
    },
    Element(usize),
}

impl Default for EntityFlattener {
    fn default() -> Self {
        let hasher = RandomState::default();
        let mut flattener = EntityFlattener { nodes: Vec::new(), keys: Vec::new(), members: HashTable::new(), hasher };
        flattener.push_node(NO_NODE, FlattenStep::Root);
        flattener
    }
}

impl EntityFlattener {
    /// Calls `sink` with every cell of the flattened entity, in order. A name that two fields share occurs twice.
    pub fn flatten<P: CellSink>(&mut self, document: &[u8], sink: &mut P) -> Result<(), P::Error> {
        let mut cursor = JsonCursor::new(document);
        let walked = match cursor.peek_type() {
            Some(JsonType::Object) => self.flatten_members(&mut cursor, ROOT_NODE, 1, sink),
            _ => Ok(()),
        };
        if self.nodes.len() > MAX_TREE_NODES || self.keys.len() > MAX_TREE_KEY_BYTES {
            *self = EntityFlattener::default();
        }
        walked
    }

    fn flatten_members<P: CellSink>(
        &mut self,
        cursor: &mut JsonCursor<'_>,
        parent: u32,
        depth: usize,
        sink: &mut P,
    ) -> Result<(), P::Error> {
        cursor.enter();
        let mut previous = NO_NODE;
        loop {
            previous = match self.next_expected_member(cursor, parent, previous) {
                Some(node) => node,
                None => match cursor.next_key() {
                    Some(key) => self.find_member_and_link_after(parent, previous, key.raw()),
                    None => return Ok(()),
                },
            };
            self.flatten_value(cursor, previous, depth + 1, sink)?;
        }
    }

    #[inline]
    fn flatten_value<P: CellSink>(
        &mut self,
        cursor: &mut JsonCursor<'_>,
        node: u32,
        depth: usize,
        sink: &mut P,
    ) -> Result<(), P::Error> {
        match cursor.peek_type() {
            Some(JsonType::Object) if depth <= MAX_NESTING_DEPTH => self.flatten_members(cursor, node, depth, sink),
            Some(JsonType::Array) if depth <= MAX_NESTING_DEPTH && is_array_of_objects(cursor.clone()) => {
                cursor.enter();
                let mut previous = NO_NODE;
                while cursor.next_element() {
                    previous = self.next_element_node(node, previous);
                    self.flatten_members(cursor, previous, depth + 1, sink)?;
                }
                Ok(())
            }
            _ => {
                let value = cursor.skip_value();
                let column = match self.nodes[node as usize].column {
                    NO_NODE => {
                        let column = sink.resolve_column_number(FlattenedKey { flattener: self, node })?;
                        self.nodes[node as usize].column = column;
                        column
                    }
                    column => column,
                };
                sink.write_cell(column, cursor.offset() - value.len(), value);
                Ok(())
            }
        }
    }

    /// Returns the node of the next member of `parent` if it is one of the nodes expected after `previous`. Compares
    /// keys without copying them.
    #[inline]
    fn next_expected_member(&self, cursor: &mut JsonCursor<'_>, parent: u32, previous: u32) -> Option<u32> {
        let mut guess = match previous {
            NO_NODE => self.nodes[parent as usize].first_member,
            _ => self.nodes[previous as usize].next,
        };
        for _ in 0..MAX_EXPECTED_KEYS {
            let node = self.nodes.get(guess as usize)?;
            let FlattenStep::Member { start, length } = node.step else { return None };
            if cursor.next_key_if_eq(&self.keys[start - 1..start + length + 2]) {
                return Some(guess);
            }
            guess = node.next;
        }
        None
    }

    /// Finds or inserts the node of the member `key` of `parent`, and expects the node after `previous` from now on.
    #[cold]
    fn find_member_and_link_after(&mut self, parent: u32, previous: u32, key: &[u8]) -> u32 {
        let node = self.find_or_insert_member(parent, key);
        match previous {
            NO_NODE => self.nodes[parent as usize].first_member = node,
            _ => self.nodes[previous as usize].next = node,
        }
        node
    }

    fn find_or_insert_member(&mut self, parent: u32, key: &[u8]) -> u32 {
        let hash = hash_member(&self.hasher, parent, key);
        let matches = |&node: &u32| {
            let node = &self.nodes[node as usize];
            node.parent == parent && node_key(node, &self.keys) == key
        };
        if let Some(&node) = self.members.find(hash, matches) {
            return node;
        }
        let start = self.keys.len() + 1;
        self.keys.push(b'"');
        self.keys.extend_from_slice(key);
        self.keys.extend_from_slice(b"\":");
        let node = self.push_node(parent, FlattenStep::Member { start, length: key.len() });
        let EntityFlattener { nodes, keys, members, hasher } = self;
        members.insert_unique(hash, node, |&node| {
            let node = &nodes[node as usize];
            hash_member(hasher, node.parent, node_key(node, keys))
        });
        node
    }

    fn next_element_node(&mut self, parent: u32, previous: u32) -> u32 {
        let (expected, number) = match previous {
            NO_NODE => (self.nodes[parent as usize].first_element, 0),
            _ => match self.nodes[previous as usize] {
                FlattenNode { next, step: FlattenStep::Element(number), .. } => (next, number + 1),
                FlattenNode { next, .. } => (next, 0),
            },
        };
        if expected != NO_NODE {
            return expected;
        }
        let node = self.push_node(parent, FlattenStep::Element(number));
        match previous {
            NO_NODE => self.nodes[parent as usize].first_element = node,
            _ => self.nodes[previous as usize].next = node,
        }
        node
    }

    fn push_node(&mut self, parent: u32, step: FlattenStep) -> u32 {
        // The memory is exhausted before the number of nodes exceeds 32 bits.
        let node = self.nodes.len() as u32;
        self.nodes.push(FlattenNode {
            parent,
            step,
            column: NO_NODE,
            next: NO_NODE,
            first_member: NO_NODE,
            first_element: NO_NODE,
        });
        node
    }
}

#[inline]
fn node_key<'k>(node: &FlattenNode, keys: &'k [u8]) -> &'k [u8] {
    match node.step {
        FlattenStep::Member { start, length } => &keys[start..start + length],
        FlattenStep::Root | FlattenStep::Element(_) => &[],
    }
}

fn hash_member(hasher: &RandomState, parent: u32, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u32(parent);
    hasher.write(key);
    hasher.finish()
}

/// A column name that has not been formatted yet.
pub struct FlattenedKey<'s> {
    flattener: &'s EntityFlattener,
    node: u32,
}

impl FlattenedKey<'_> {
    /// Returns an upper bound of the length of the column name in canonical escapes, in bytes.
    pub fn max_escaped_bytes(&self) -> usize {
        let mut bytes = 0;
        self.for_each_step(|step, follows_element| {
            bytes += match step {
                FlattenStep::Member { length, .. } => length + usize::from(!follows_element),
                FlattenStep::Element(_) => 22,
                FlattenStep::Root => 0,
            };
        });
        bytes
    }

    pub fn unescape(&self) -> String {
        JsonStr::new(&self.to_escaped()).unescape().into_owned()
    }

    pub fn to_escaped(&self) -> Vec<u8> {
        let mut steps = Vec::new();
        self.for_each_step(|step, follows_element| steps.push((step, follows_element)));
        let mut name = Vec::with_capacity(self.max_escaped_bytes());
        let mut follows_root = true;
        for (step, follows_element) in steps.into_iter().rev() {
            match step {
                FlattenStep::Root => continue,
                FlattenStep::Member { start, length } => {
                    if !follows_root && !follows_element {
                        name.push(b'.');
                    }
                    name.extend_from_slice(&self.flattener.keys[start..start + length]);
                }
                FlattenStep::Element(number) => name.extend_from_slice(format!("_{number}_").as_bytes()),
            }
            follows_root = false;
        }
        name
    }

    /// Calls `visit` with each step of a column name, from node to root, and whether it follows an array element.
    fn for_each_step(&self, mut visit: impl FnMut(FlattenStep, bool)) {
        let mut node = &self.flattener.nodes[self.node as usize];
        while let Some(parent) = self.flattener.nodes.get(node.parent as usize) {
            visit(node.step, matches!(parent.step, FlattenStep::Element(_)));
            node = parent;
        }
    }
}

/// Returns true if the next array has elements and all of them are objects.
fn is_array_of_objects(mut cursor: JsonCursor<'_>) -> bool {
    cursor.enter();
    let mut any = false;
    while cursor.next_element() {
        if cursor.peek_type() != Some(JsonType::Object) {
            return false;
        }
        cursor.skip_value();
        any = true;
    }
    any
}
