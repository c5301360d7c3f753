//! Chooses fields: `include_source`, `keep_field` and `drop_field` (docs/reference/select-fields.md, include_source;
//! docs/reference/select-fields.md, keep_field; docs/reference/select-fields.md, drop_field).
//!
//! The paths become two trees of keys, which are walked together with the entity in one pass. The result is the same as
//! keeping first and dropping afterwards: whether a value is kept depends only on its type, never on fields dropped
//! inside it. A value that neither tree reaches into is copied unchanged.

use strata_types::path::Path;

use super::cursor::Cursor;
use super::rewrite::{Rules, write_rest};
use super::text::{Text, escape_into};

/// The fields that a request leaves of every entity, prepared once.
///
/// In the pipeline `denull` stands between `include_source` and `keep_field`. Removing the top-level `_source` earlier
/// or later does not change the other members. So the order is [`denull`](super::denull()), then
/// [`apply`](Projection::apply). The reverse order differs, because keeping may empty an array.
#[derive(Clone, Debug)]
pub struct Projection {
    keep: Option<Node>,
    drop: Node,
}

/// The keys that the paths name inside one value, each with the keys inside its value.
#[derive(Clone, Debug, Default)]
struct Node {
    whole: bool,
    /// By key, in canonical escapes, in the order of their bytes.
    children: Vec<(Vec<u8>, Node)>,
}

impl Projection {
    /// Keeps only what `keep` names, or everything when it names nothing, and then removes what `drop` names, and the
    /// top-level `_source` unless `include_source`. A kept `a` includes a kept `a.b`; `_source` is kept only if named.
    pub fn new(include_source: bool, keep: &[Path], drop: &[Path]) -> Projection {
        let mut dropped = Node::from_paths(drop);
        if !include_source {
            dropped.insert(["_source"].into_iter());
        }
        Projection { keep: (!keep.is_empty()).then(|| Node::from_paths(keep)), drop: dropped }
    }

    pub fn is_identity(&self) -> bool {
        self.keep.is_none() && self.drop.children.is_empty()
    }

    /// Appends the rest of the entity. Key order stays. Parents that become empty stay.
    pub fn apply(&self, document: &[u8], out: &mut Vec<u8>) {
        if self.is_identity() {
            out.extend_from_slice(document);
            return;
        }
        out.reserve(document.len());
        write_rest(&mut Cursor::new(document), self.entity(), 1, out);
    }

    /// What is left inside an entity.
    pub fn entity(&self) -> Inside<'_> {
        Inside { keep: self.keep.as_ref(), drop: Some(&self.drop) }
    }
}

impl Node {
    fn from_paths(paths: &[Path]) -> Node {
        let mut node = Node::default();
        for path in paths {
            node.insert(path.keys().iter().map(String::as_str));
        }
        node
    }

    fn insert<'k>(&mut self, mut keys: impl Iterator<Item = &'k str>) {
        let Some(key) = keys.next() else {
            self.whole = true;
            return;
        };
        let mut raw = Vec::with_capacity(key.len());
        escape_into(key, &mut raw);
        let place = match self.children.binary_search_by(|(other, _)| other.cmp(&raw)) {
            Ok(place) => place,
            Err(place) => {
                self.children.insert(place, (raw, Node::default()));
                place
            }
        };
        self.children[place].1.insert(keys);
    }

    #[inline]
    fn child(&self, key: Text<'_>) -> Option<&Node> {
        // A string has one canonical spelling.
        let place = self.children.binary_search_by(|(other, _)| other.as_slice().cmp(key.raw())).ok()?;
        Some(&self.children[place].1)
    }
}

/// What is left inside one value.
#[derive(Clone, Copy)]
pub struct Inside<'p> {
    /// The fields to keep; `None` for all.
    keep: Option<&'p Node>,
    /// The fields to remove; `None` for none.
    drop: Option<&'p Node>,
}

impl<'p> Inside<'p> {
    /// What is left inside the value of a member; `None` where the member is removed.
    #[inline]
    pub fn member(self, key: Text<'_>) -> Option<Inside<'p>> {
        let keep = match self.keep {
            None => None,
            Some(keep) => Some(keep.child(key)?).filter(|inner| !inner.whole),
        };
        let drop = self.drop.and_then(|drop| drop.child(key));
        (!drop.is_some_and(|drop| drop.whole)).then_some(Inside { keep, drop })
    }

    /// Whether a scalar stays.
    pub fn keeps_scalars(self) -> bool {
        self.keep.is_none()
    }
}

impl Rules for Inside<'_> {
    #[inline]
    fn member(self, key: Text<'_>) -> Option<Self> {
        Inside::member(self, key)
    }

    fn max_members(self) -> usize {
        self.keep.map_or(usize::MAX, |keep| keep.children.len())
    }

    fn keeps(self, _: &[u8]) -> bool {
        self.keeps_scalars()
    }

    fn change_nothing(self) -> bool {
        self.keep.is_none() && self.drop.is_none()
    }
}
