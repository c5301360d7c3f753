//! Finds the columns of an entity's values, without spelling out names.
//!
//! Entities of one dataset repeat their keys, mostly in one order. So the places of values are kept as a tree. A place
//! is a member of an object, or an element of an array of objects. A place remembers its column and the place that
//! followed it last time. To walk an entity (docs/reference/select-fields.md, flatten) is then, for each member, to:
//!
//! 1. compare its key with that of the expected next place, or of the few after it, in case fields are left out;
//! 2. otherwise look it up by hash, or add it, and expect it next time;
//! 3. at a value that is a cell, take the place's column. The first time, spell out the place's name and ask for the
//!    column of that name. Two places may have one name (`{"a.b":1,"a":{"b":2}}`).

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::MAX_DEPTH;
use super::cursor::{Cursor, JsonType};
use super::text::Text;

/// Most places and key bytes. Above these the tree is dropped and learned again, so entities that never repeat a key do
/// not fill the memory. One entity may exceed them while it is walked. A body with a slow reader keeps its trees, one
/// for each thread.
const MAX_PLACES: usize = 1 << 15;
const MAX_KEY_BYTES: usize = 1 << 20;

/// Places that are compared before a key is looked up.
const GUESSES: usize = 4;

const ROOT: u32 = 0;
/// No place, or no column yet.
const NONE: u32 = u32::MAX;

pub trait Place {
    type Error;

    /// The number of the column of this name, below `u32::MAX`. Asked once per place and tree.
    fn column(&mut self, name: Name<'_>) -> Result<u32, Self::Error>;

    /// Takes a cell: a scalar or an array, which is the document from byte `start` on. A column may come again; the
    /// last value counts.
    fn cell(&mut self, column: u32, start: usize, value: &[u8]);
}

/// The places seen so far. They serve only one set of columns.
#[derive(Debug)]
pub struct Shape {
    nodes: Vec<Node>,
    /// The keys of all members, in canonical escapes, one after the other, each with its quotes and a colon.
    keys: Vec<u8>,
    members: HashTable<u32>,
    /// A new seed each time, because anybody can choose the keys.
    hasher: RandomState,
}

#[derive(Debug)]
struct Node {
    parent: u32,
    step: Step,
    /// The column of the value here, once asked for.
    column: u32,
    next: u32,
    /// The member expected first, if this is an object.
    first_member: u32,
    /// Element 0, if this is an array of objects.
    first_element: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Root,
    /// By the key that stands here in `keys`, inside its quotes.
    Member {
        start: usize,
        length: usize,
    },
    Element(usize),
}

impl Default for Shape {
    fn default() -> Self {
        let mut shape =
            Shape { nodes: Vec::new(), keys: Vec::new(), members: HashTable::new(), hasher: RandomState::default() };
        shape.add(NONE, Step::Root);
        shape
    }
}

impl Shape {
    /// Calls `place` with every cell of the flattened entity, in order. A name that two fields give comes twice.
    pub fn walk<P: Place>(&mut self, document: &[u8], place: &mut P) -> Result<(), P::Error> {
        let mut cursor = Cursor::new(document);
        let walked = match cursor.peek() {
            Some(JsonType::Object) => self.members(&mut cursor, ROOT, 1, place),
            _ => Ok(()),
        };
        if self.nodes.len() > MAX_PLACES || self.keys.len() > MAX_KEY_BYTES {
            *self = Shape::default();
        }
        walked
    }

    /// Takes the members of the object that comes next, at level `depth`.
    fn members<P: Place>(
        &mut self,
        cursor: &mut Cursor<'_>,
        parent: u32,
        depth: usize,
        place: &mut P,
    ) -> Result<(), P::Error> {
        cursor.enter();
        let mut previous = NONE;
        loop {
            previous = match self.expected(cursor, parent, previous) {
                Some(node) => node,
                None => match cursor.next_key() {
                    Some(key) => self.unexpected(parent, previous, key.raw()),
                    None => return Ok(()),
                },
            };
            self.value(cursor, previous, depth + 1, place)?;
        }
    }

    /// Takes the value that comes next, at level `depth` if it has one.
    #[inline]
    fn value<P: Place>(
        &mut self,
        cursor: &mut Cursor<'_>,
        node: u32,
        depth: usize,
        place: &mut P,
    ) -> Result<(), P::Error> {
        match cursor.peek() {
            Some(JsonType::Object) if depth <= MAX_DEPTH => self.members(cursor, node, depth, place),
            Some(JsonType::Array) if depth <= MAX_DEPTH && holds_objects_only(cursor.clone()) => {
                cursor.enter();
                let mut previous = NONE;
                while cursor.next_element() {
                    previous = self.element(node, previous);
                    self.members(cursor, previous, depth + 1, place)?;
                }
                Ok(())
            }
            _ => {
                let value = cursor.skip_value();
                let column = match self.nodes[node as usize].column {
                    NONE => {
                        let column = place.column(Name { shape: self, node })?;
                        self.nodes[node as usize].column = column;
                        column
                    }
                    column => column,
                };
                place.cell(column, cursor.offset() - value.len(), value);
                Ok(())
            }
        }
    }

    /// The member of `parent` that comes next, if it is one of those expected after the member `previous`. Its key is
    /// compared as it stands, so nothing looks for its end.
    #[inline]
    fn expected(&self, cursor: &mut Cursor<'_>, parent: u32, previous: u32) -> Option<u32> {
        let mut guess = match previous {
            NONE => self.nodes[parent as usize].first_member,
            _ => self.nodes[previous as usize].next,
        };
        for _ in 0..GUESSES {
            let node = self.nodes.get(guess as usize)?;
            let Step::Member { start, length } = node.step else { return None };
            if cursor.next_key_is(&self.keys[start - 1..start + length + 2]) {
                return Some(guess);
            }
            guess = node.next;
        }
        None
    }

    /// The member `key` of `parent`, which will be expected after the member `previous`.
    #[cold]
    fn unexpected(&mut self, parent: u32, previous: u32, key: &[u8]) -> u32 {
        let found = self.look_up(parent, key);
        match previous {
            NONE => self.nodes[parent as usize].first_member = found,
            _ => self.nodes[previous as usize].next = found,
        }
        found
    }

    fn look_up(&mut self, parent: u32, key: &[u8]) -> u32 {
        let hash_of_key = hash(&self.hasher, parent, key);
        let is_it = |&node: &u32| {
            let node = &self.nodes[node as usize];
            node.parent == parent && key_of(node, &self.keys) == key
        };
        if let Some(&node) = self.members.find(hash_of_key, is_it) {
            return node;
        }
        let start = self.keys.len() + 1;
        self.keys.push(b'"');
        self.keys.extend_from_slice(key);
        self.keys.extend_from_slice(b"\":");
        let node = self.add(parent, Step::Member { start, length: key.len() });
        let Shape { nodes, keys, members, hasher } = self;
        members.insert_unique(hash_of_key, node, |&node| {
            let node = &nodes[node as usize];
            hash(hasher, node.parent, key_of(node, keys))
        });
        node
    }

    /// The element of `parent` after the element `previous`.
    fn element(&mut self, parent: u32, previous: u32) -> u32 {
        let (expected, number) = match previous {
            NONE => (self.nodes[parent as usize].first_element, 0),
            _ => match self.nodes[previous as usize] {
                Node { next, step: Step::Element(number), .. } => (next, number + 1),
                Node { next, .. } => (next, 0),
            },
        };
        if expected != NONE {
            return expected;
        }
        let node = self.add(parent, Step::Element(number));
        match previous {
            NONE => self.nodes[parent as usize].first_element = node,
            _ => self.nodes[previous as usize].next = node,
        }
        node
    }

    fn add(&mut self, parent: u32, step: Step) -> u32 {
        // Memory ends before the numbers do: a node is larger than a byte.
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { parent, step, column: NONE, next: NONE, first_member: NONE, first_element: NONE });
        node
    }
}

#[inline]
fn key_of<'k>(node: &Node, keys: &'k [u8]) -> &'k [u8] {
    match node.step {
        Step::Member { start, length } => &keys[start..start + length],
        Step::Root | Step::Element(_) => &[],
    }
}

fn hash(hasher: &RandomState, parent: u32, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_u32(parent);
    hasher.write(key);
    hasher.finish()
}

/// The name of a place, not yet spelled out.
pub struct Name<'s> {
    shape: &'s Shape,
    node: u32,
}

impl Name<'_> {
    /// The bytes of the name, in canonical escapes: at least as many as it has.
    pub fn escaped_bytes(&self) -> usize {
        let mut bytes = 0;
        self.for_each_step(|step, follows_element| {
            bytes += match step {
                Step::Member { length, .. } => length + usize::from(!follows_element),
                Step::Element(_) => 22,
                Step::Root => 0,
            };
        });
        bytes
    }

    pub fn spell(&self) -> String {
        Text::new(&self.spell_escaped()).unescape().into_owned()
    }

    pub fn spell_escaped(&self) -> Vec<u8> {
        let mut steps = Vec::new();
        self.for_each_step(|step, follows_element| steps.push((step, follows_element)));
        let mut name = Vec::with_capacity(self.escaped_bytes());
        let mut follows_root = true;
        for (step, follows_element) in steps.into_iter().rev() {
            match step {
                Step::Root => continue,
                Step::Member { start, length } => {
                    if !follows_root && !follows_element {
                        name.push(b'.');
                    }
                    name.extend_from_slice(&self.shape.keys[start..start + length]);
                }
                Step::Element(number) => name.extend_from_slice(format!("_{number}_").as_bytes()),
            }
            follows_root = false;
        }
        name
    }

    /// Calls `visit` with the steps from the place up to the root, and whether each comes right after an element.
    fn for_each_step(&self, mut visit: impl FnMut(Step, bool)) {
        let mut node = &self.shape.nodes[self.node as usize];
        while let Some(parent) = self.shape.nodes.get(node.parent as usize) {
            visit(node.step, matches!(parent.step, Step::Element(_)));
            node = parent;
        }
    }
}

/// Whether the array that comes next has elements, and they are all objects.
fn holds_objects_only(mut cursor: Cursor<'_>) -> bool {
    cursor.enter();
    let mut any = false;
    while cursor.next_element() {
        if cursor.peek() != Some(JsonType::Object) {
            return false;
        }
        cursor.skip_value();
        any = true;
    }
    any
}
