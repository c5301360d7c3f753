//! Paths of a version, numbered, and the walk that finds an entity's scalars by number.
//!
//! Arrays are transparent, as in paths: the elements of an array stand at the array's own node.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use strata_json::{Cursor, Scalar, Text, Token};

pub type Node = u32;

pub const ROOT: Node = 0;

/// Below every path that the tree does not hold.
pub const UNKNOWN: Node = u32::MAX;

/// A value that a walk finds. An object or an array comes before its contents.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    Scalar(Scalar<'a>),
    Object,
    Array,
}

struct Entry {
    parent: Node,
    /// The key in canonical escapes, which are unique for each key.
    key: Box<[u8]>,
    /// Bytes of the keys from the root to this one, and one for each.
    path_bytes: usize,
    /// The sibling that followed this one the last time, tried first: entities repeat their key order.
    next_guess: Node,
    first_guess: Node,
}

/// A tree of keys. Lookups cost one comparison when entities repeat their key order, one hash otherwise.
pub struct PathTree {
    entries: Vec<Entry>,
    table: HashTable<Node>,
    hasher: foldhash::fast::FixedState,
    capacity: usize,
    path_bytes: usize,
    key_bytes: usize,
}

impl PathTree {
    /// A tree of the root alone that will not grow past `capacity` nodes, nor take paths whose keys, each with a byte
    /// more, have more than `path_bytes`.
    pub fn new(capacity: usize, path_bytes: usize) -> PathTree {
        let root =
            Entry { parent: UNKNOWN, key: Box::default(), path_bytes: 0, next_guess: UNKNOWN, first_guess: UNKNOWN };
        PathTree {
            entries: vec![root],
            table: HashTable::new(),
            hasher: foldhash::fast::FixedState::default(),
            capacity: capacity.max(1),
            path_bytes,
            key_bytes: 0,
        }
    }

    /// Lets it grow to so many nodes, but not below those that there are.
    pub fn bound(&mut self, capacity: usize) {
        self.capacity = capacity.max(self.entries.len());
    }

    pub fn truncate(&mut self, length: usize) {
        let length = length.max(1);
        if length >= self.entries.len() {
            return;
        }
        self.table.retain(|node| (*node as usize) < length);
        // A guess that names a forgotten node is compared before it is believed.
        let forgotten = self.entries.drain(length..);
        self.key_bytes -= forgotten.map(|entry| entry.key.len()).sum::<usize>();
    }

    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// The node above one, and its key below that in canonical escapes. The root stands above itself.
    pub fn parent_and_key(&self, node: Node) -> (Node, &[u8]) {
        match self.entries.get(node as usize) {
            Some(entry) if entry.parent != UNKNOWN => (entry.parent, &entry.key),
            _ => (ROOT, &[]),
        }
    }

    pub fn node_count(&self) -> usize {
        self.entries.len()
    }

    pub fn keys(&self, mut node: Node) -> Vec<String> {
        let mut keys = Vec::new();
        while node != ROOT {
            let entry = &self.entries[node as usize];
            keys.push(Text::new(&entry.key).unescape().into_owned());
            node = entry.parent;
        }
        keys.reverse();
        keys
    }

    /// The node of a path with these keys, made when it is missing.
    pub fn insert_path(&mut self, keys: &[String]) -> Node {
        let mut escaped = Vec::new();
        keys.iter().fold(ROOT, |node, key| {
            escaped.clear();
            strata_json::escape_into(key, &mut escaped);
            self.insert(node, &escaped)
        })
    }

    /// The child of `parent` under `key`, made when it is missing; [`UNKNOWN`] when the tree is full, or the path too
    /// long.
    pub fn insert(&mut self, parent: Node, key: &[u8]) -> Node {
        let found = self.find(parent, key);
        if found != UNKNOWN || parent == UNKNOWN || self.entries.len() >= self.capacity {
            return found;
        }
        let path_bytes = self.entries[parent as usize].path_bytes + key.len() + 1;
        if path_bytes > self.path_bytes {
            return UNKNOWN;
        }
        let node = self.entries.len() as Node;
        self.key_bytes += key.len();
        self.entries.push(Entry { parent, key: key.into(), path_bytes, next_guess: UNKNOWN, first_guess: UNKNOWN });
        let entries = &self.entries;
        let hasher = &self.hasher;
        self.table.insert_unique(hash(hasher, parent, key), node, |other| {
            let entry = &entries[*other as usize];
            hash(hasher, entry.parent, &entry.key)
        });
        node
    }

    pub fn find(&self, parent: Node, key: &[u8]) -> Node {
        if parent == UNKNOWN {
            return UNKNOWN;
        }
        let found = self.table.find(hash(&self.hasher, parent, key), |node| self.is(*node, parent, key));
        found.copied().unwrap_or(UNKNOWN)
    }

    fn is(&self, node: Node, parent: Node, key: &[u8]) -> bool {
        self.entries.get(node as usize).is_some_and(|entry| entry.parent == parent && *entry.key == *key)
    }

    /// Visits every value of a canonical document with its node, whether an array lies above it, and itself, in
    /// document order. With `grow`, paths that the tree does not hold are added.
    pub fn walk<'a>(&mut self, document: &'a [u8], grow: bool, mut visit: impl FnMut(Node, bool, Found<'a>)) {
        // Each open container: the node of its values, the child last seen in it, and whether an array is above.
        let mut open: Vec<(Node, Node, bool)> = Vec::with_capacity(16);
        let mut node = ROOT;
        let mut fanned = false;
        for token in Cursor::new(document) {
            match token {
                Token::Key(text) => {
                    let Some((parent, last, _)) = open.last_mut() else { continue };
                    let parent = *parent;
                    let key = text.raw();
                    if parent == UNKNOWN {
                        node = UNKNOWN;
                        continue;
                    }
                    let guess = match *last {
                        UNKNOWN => self.entries[parent as usize].first_guess,
                        before => self.entries[before as usize].next_guess,
                    };
                    node = if self.is(guess, parent, key) {
                        guess
                    } else {
                        let found = if grow { self.insert(parent, key) } else { self.find(parent, key) };
                        if found != UNKNOWN {
                            match *last {
                                UNKNOWN => self.entries[parent as usize].first_guess = found,
                                before => self.entries[before as usize].next_guess = found,
                            }
                        }
                        found
                    };
                    if node != UNKNOWN {
                        *last = node;
                    }
                }
                Token::ObjectStart => {
                    visit(node, fanned, Found::Object);
                    open.push((node, UNKNOWN, fanned));
                }
                Token::ArrayStart => {
                    visit(node, fanned, Found::Array);
                    open.push((node, UNKNOWN, fanned));
                    fanned = true;
                }
                Token::ObjectEnd | Token::ArrayEnd => {
                    if let Some((above, _, was_fanned)) = open.pop() {
                        (node, fanned) = (above, was_fanned);
                    }
                }
                Token::Scalar(scalar) => visit(node, fanned, Found::Scalar(scalar)),
            }
        }
    }
}

fn hash(hasher: &foldhash::fast::FixedState, parent: Node, key: &[u8]) -> u64 {
    hasher.hash_one((parent, key))
}
