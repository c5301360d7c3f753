//! Numbered paths of a version, and a walk that visits an entity's values with the numbers of their paths.
//!
//! Arrays do not add keys to paths: the elements of an array belong to the array's own node.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use strata_json::{JsonCursor, JsonScalar, JsonStr, JsonToken};

pub type PathNode = u32;
pub const ROOT_NODE: PathNode = 0;
/// Number of the node for all paths that the tree does not contain.
pub const UNKNOWN_NODE: PathNode = u32::MAX;

/// What a walk does at a path that the tree does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPaths {
    /// Inserts the path, unless the tree is full or the path is too long.
    Insert,
    VisitAsUnknown,
}

/// A value during a walk. Objects and arrays precede their contents.
#[derive(Clone, Copy, Debug)]
pub enum VisitedValue<'a> {
    Scalar(JsonScalar<'a>),
    Object,
    Array,
}

struct PathTreeEntry {
    parent: PathNode,
    /// The key in canonical JSON escapes, so that equal keys have equal bytes.
    key: Box<[u8]>,
    /// Sum of the key lengths from the root to this node, plus one byte for each key.
    path_bytes: usize,
    /// The key that followed this one in an earlier entity, tried first, because entities repeat their key order.
    next_sibling_guess: PathNode,
    first_child_guess: PathNode,
}

impl PathTreeEntry {
    fn new(parent: PathNode, key: &[u8], path_bytes: usize) -> PathTreeEntry {
        let [next_sibling_guess, first_child_guess] = [UNKNOWN_NODE; 2];
        PathTreeEntry { parent, key: key.into(), path_bytes, next_sibling_guess, first_child_guess }
    }
}

/// Tree of paths. Finding the next key costs one comparison if entities repeat their key order, and otherwise one hash.
pub struct NumberedPathTree {
    entries: Vec<PathTreeEntry>,
    table: HashTable<PathNode>,
    hasher: foldhash::fast::FixedState,
    max_nodes: usize,
    max_path_bytes: usize,
}

impl NumberedPathTree {
    pub fn new(max_nodes: usize, max_path_bytes: usize) -> NumberedPathTree {
        NumberedPathTree {
            entries: vec![PathTreeEntry::new(UNKNOWN_NODE, &[], 0)],
            table: HashTable::new(),
            hasher: foldhash::fast::FixedState::default(),
            max_nodes: max_nodes.max(1),
            max_path_bytes,
        }
    }

    pub fn node_count(&self) -> usize {
        self.entries.len()
    }

    pub fn keys(&self, mut node: PathNode) -> Vec<String> {
        let mut keys = Vec::new();
        while node != ROOT_NODE {
            let entry = &self.entries[node as usize];
            keys.push(JsonStr::new(&entry.key).unescape().into_owned());
            node = entry.parent;
        }
        keys.reverse();
        keys
    }

    pub fn insert_path(&mut self, keys: &[String]) -> PathNode {
        let mut escaped = Vec::new();
        keys.iter().fold(ROOT_NODE, |node, key| {
            escaped.clear();
            strata_json::escape_into(key, &mut escaped);
            self.insert_child(node, &escaped)
        })
    }

    /// Finds or inserts the child of a node with this key; [`UNKNOWN_NODE`] if the tree is full or the path too long.
    pub fn insert_child(&mut self, parent: PathNode, key: &[u8]) -> PathNode {
        let found = self.find_child(parent, key);
        if found != UNKNOWN_NODE || parent == UNKNOWN_NODE || self.entries.len() >= self.max_nodes {
            return found;
        }
        let path_bytes = self.entries[parent as usize].path_bytes + key.len() + 1;
        if path_bytes > self.max_path_bytes {
            return UNKNOWN_NODE;
        }
        let node = self.entries.len() as PathNode;
        self.entries.push(PathTreeEntry::new(parent, key, path_bytes));
        let entries = &self.entries;
        let hasher = &self.hasher;
        self.table.insert_unique(hash_child(hasher, parent, key), node, |other| {
            let entry = &entries[*other as usize];
            hash_child(hasher, entry.parent, &entry.key)
        });
        node
    }

    pub fn find_child(&self, parent: PathNode, key: &[u8]) -> PathNode {
        if parent == UNKNOWN_NODE {
            return UNKNOWN_NODE;
        }
        let found = self.table.find(hash_child(&self.hasher, parent, key), |node| self.is_child(*node, parent, key));
        found.copied().unwrap_or(UNKNOWN_NODE)
    }

    fn is_child(&self, node: PathNode, parent: PathNode, key: &[u8]) -> bool {
        self.entries.get(node as usize).is_some_and(|entry| entry.parent == parent && *entry.key == *key)
    }

    /// Visits all values of a canonical document in document order. The arguments of `visit` are the node, whether an
    /// array is above the value, and the value.
    pub fn walk<'a>(
        &mut self,
        document: &'a [u8],
        missing_paths: MissingPaths,
        mut visit: impl FnMut(PathNode, bool, VisitedValue<'a>),
    ) {
        // The objects and arrays that are open during the walk: the node of their values, the last visited child, and
        // whether an array is above.
        let mut open: Vec<(PathNode, PathNode, bool)> = Vec::with_capacity(16);
        let mut node = ROOT_NODE;
        let mut is_in_array = false;
        for token in JsonCursor::new(document) {
            match token {
                JsonToken::Key(text) => {
                    let Some((parent, last, _)) = open.last_mut() else { continue };
                    let parent = *parent;
                    let key = text.raw();
                    if parent == UNKNOWN_NODE {
                        node = UNKNOWN_NODE;
                        continue;
                    }
                    let guess = match *last {
                        UNKNOWN_NODE => self.entries[parent as usize].first_child_guess,
                        before => self.entries[before as usize].next_sibling_guess,
                    };
                    node = if self.is_child(guess, parent, key) {
                        guess
                    } else {
                        let found = match missing_paths {
                            MissingPaths::Insert => self.insert_child(parent, key),
                            MissingPaths::VisitAsUnknown => self.find_child(parent, key),
                        };
                        if found != UNKNOWN_NODE {
                            match *last {
                                UNKNOWN_NODE => self.entries[parent as usize].first_child_guess = found,
                                before => self.entries[before as usize].next_sibling_guess = found,
                            }
                        }
                        found
                    };
                    if node != UNKNOWN_NODE {
                        *last = node;
                    }
                }
                JsonToken::ObjectStart => {
                    visit(node, is_in_array, VisitedValue::Object);
                    open.push((node, UNKNOWN_NODE, is_in_array));
                }
                JsonToken::ArrayStart => {
                    visit(node, is_in_array, VisitedValue::Array);
                    open.push((node, UNKNOWN_NODE, is_in_array));
                    is_in_array = true;
                }
                JsonToken::ObjectEnd | JsonToken::ArrayEnd => {
                    if let Some((above, _, was_in_array)) = open.pop() {
                        node = above;
                        is_in_array = was_in_array;
                    }
                }
                JsonToken::Scalar(scalar) => visit(node, is_in_array, VisitedValue::Scalar(scalar)),
            }
        }
    }
}

fn hash_child(hasher: &foldhash::fast::FixedState, parent: PathNode, key: &[u8]) -> u64 {
    hasher.hash_one((parent, key))
}
