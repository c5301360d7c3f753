//! The fields of a response: `include_source`, `keep_field`, and `drop_field` (docs/reference/select-fields.md).
//!
//! The paths become two tries of keys, which are walked together with the entity in one pass. The result is the same as
//! keeping first and dropping afterwards, because `keep_field` selects values by their type, never by the fields inside
//! them. A value that neither trie reaches is copied unchanged.
//!
//! For example, `keep_field=a,b.c` and `drop_field=a.x` reduce `{"a":{"x":1,"y":2},"b":{"c":3,"d":4},"e":5}` to
//! `{"a":{"y":2},"b":{"c":3}}`.

use strata_types::field_path::FieldPath;

use super::cursor::JsonCursor;
use super::json_str::{JsonStr, escape_into};
use super::rewrite::{RewriteRules, write_rewritten};

/// What happens to the top-level field `_source` (`include_source`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceField {
    /// `_source` is treated like any other field.
    Include,
    Remove,
}

/// The field selection of a request, prepared once.
///
/// `denull` precedes `keep_field`, which can empty an array, so [`remove_nulls`](super::remove_nulls()) runs before
/// [`apply`](FieldProjection::apply). Removing `_source` commutes with `denull`.
#[derive(Clone, Debug)]
pub struct FieldProjection {
    keep: Option<FieldTrieNode>,
    drop: FieldTrieNode,
}

#[derive(Clone, Debug, Default)]
struct FieldTrieNode {
    is_path_end: bool,
    /// The child nodes with their keys in canonical escapes, in the order of the keys' bytes.
    children: Vec<(Vec<u8>, FieldTrieNode)>,
}

impl FieldProjection {
    /// Keeps only the paths in `keep`, or everything if it is empty. Then removes the paths in `drop`, and the
    /// top-level `_source` with [`SourceField::Remove`]. `a` in `keep` includes `a.b`; `_source` needs its own entry.
    pub fn new(source_field: SourceField, keep: &[FieldPath], drop: &[FieldPath]) -> FieldProjection {
        let mut dropped = FieldTrieNode::from_paths(drop);
        if source_field == SourceField::Remove {
            dropped.insert(["_source"].into_iter());
        }
        FieldProjection { keep: (!keep.is_empty()).then(|| FieldTrieNode::from_paths(keep)), drop: dropped }
    }

    pub fn is_identity(&self) -> bool {
        self.keep.is_none() && self.drop.children.is_empty()
    }

    /// Appends the selected fields of an entity. The key order is unchanged, and parents that become empty remain.
    pub fn apply(&self, document: &[u8], out: &mut Vec<u8>) {
        if self.is_identity() {
            out.extend_from_slice(document);
            return;
        }
        out.reserve(document.len());
        write_rewritten(&mut JsonCursor::new(document), self.for_entity(), 1, out);
    }

    pub fn for_entity(&self) -> ValueProjection<'_> {
        ValueProjection { keep: self.keep.as_ref(), drop: Some(&self.drop) }
    }
}

impl FieldTrieNode {
    fn from_paths(paths: &[FieldPath]) -> FieldTrieNode {
        let mut node = FieldTrieNode::default();
        paths.iter().for_each(|path| node.insert(path.keys().iter().map(String::as_str)));
        node
    }

    fn insert<'k>(&mut self, mut keys: impl Iterator<Item = &'k str>) {
        let Some(key) = keys.next() else {
            self.is_path_end = true;
            return;
        };
        let mut raw = Vec::with_capacity(key.len());
        escape_into(key, &mut raw);
        let found = self.children.binary_search_by(|(other, _)| other.cmp(&raw));
        let index = found.unwrap_or_else(|index| {
            self.children.insert(index, (raw, FieldTrieNode::default()));
            index
        });
        self.children[index].1.insert(keys);
    }

    #[inline]
    fn find_child(&self, key: JsonStr<'_>) -> Option<&FieldTrieNode> {
        // Each JSON string has one canonical spelling, so the raw bytes of keys can be compared.
        let index = self.children.binary_search_by(|(other, _)| other.as_slice().cmp(key.raw())).ok()?;
        Some(&self.children[index].1)
    }
}

#[derive(Clone, Copy)]
pub struct ValueProjection<'p> {
    keep: Option<&'p FieldTrieNode>,
    drop: Option<&'p FieldTrieNode>,
}

impl<'p> ValueProjection<'p> {
    /// Returns the projection of a member's value, or `None` if the member is removed.
    #[inline]
    pub fn for_member(self, key: JsonStr<'_>) -> Option<ValueProjection<'p>> {
        let keep = match self.keep {
            None => None,
            Some(keep) => Some(keep.find_child(key)?).filter(|inner| !inner.is_path_end),
        };
        let drop = self.drop.and_then(|drop_fields| drop_fields.find_child(key));
        (!drop.is_some_and(|drop| drop.is_path_end)).then_some(ValueProjection { keep, drop })
    }

    pub fn can_keep_scalars(self) -> bool {
        self.keep.is_none()
    }
}

impl RewriteRules for ValueProjection<'_> {
    #[inline]
    fn for_member(self, key: JsonStr<'_>) -> Option<Self> {
        ValueProjection::for_member(self, key)
    }

    fn max_members(self) -> usize {
        self.keep.map_or(usize::MAX, |keep| keep.children.len())
    }

    fn can_keep(self, _: &[u8]) -> bool {
        self.can_keep_scalars()
    }

    fn is_identity(self) -> bool {
        self.keep.is_none() && self.drop.is_none()
    }
}
