//! Chooses fields: `include_source`, `keep_field` and `drop_field` (docs/semantics.md, include_source;
//! docs/semantics.md, keep_field; docs/semantics.md, drop_field).
//!
//! The paths become two trees of keys, which are walked together with the entity in one pass. The result is the same as
//! keeping first and dropping afterwards: whether a value is kept depends only on its type, never on fields dropped
//! inside it. A value that neither tree reaches into is copied unchanged.

use super::MAX_DEPTH;
use super::cursor::{Cursor, JsonType};
use super::text::{Text, escape_into};
use crate::model::path::Path;

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
        let mut dropped = Node::of(drop);
        if !include_source {
            dropped.insert(["_source"].into_iter());
        }
        Projection { keep: (!keep.is_empty()).then(|| Node::of(keep)), drop: dropped }
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
        write_value(&mut Cursor::new(document), self.keep.as_ref(), Some(&self.drop), 1, out);
    }
}

impl Node {
    fn of(paths: &[Path]) -> Node {
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

/// Appends the rest of the next value, at level `depth`, and returns whether there is any. `keep` are the fields to
/// keep inside it, `None` for all. `drop` are those to remove, `None` for none.
fn write_value(
    cursor: &mut Cursor<'_>,
    keep: Option<&Node>,
    drop: Option<&Node>,
    depth: usize,
    out: &mut Vec<u8>,
) -> bool {
    let json_type = cursor.peek();
    let nested = matches!(json_type, Some(JsonType::Object | JsonType::Array));
    if (keep.is_none() && drop.is_none()) || !nested || depth > MAX_DEPTH {
        let value = cursor.skip_value();
        let kept = keep.is_none();
        if kept {
            out.extend_from_slice(value);
        }
        return kept;
    }
    cursor.enter();
    if json_type == Some(JsonType::Object) {
        out.push(b'{');
        let first = out.len();
        while let Some(key) = cursor.next_key() {
            write_member(cursor, key, (keep, drop), (first, depth), out);
        }
        out.push(b'}');
    } else {
        out.push(b'[');
        let first = out.len();
        while cursor.next_element() {
            let before = out.len();
            if before > first {
                out.push(b',');
            }
            if !write_value(cursor, keep, drop, depth + 1, out) {
                out.truncate(before);
            }
        }
        out.push(b']');
    }
    true
}

/// Appends the rest of the member whose key has been read, of an object at level `depth` whose members begin at `first`
/// in the output.
#[inline]
fn write_member(
    cursor: &mut Cursor<'_>,
    key: Text<'_>,
    (keep, drop): (Option<&Node>, Option<&Node>),
    (first, depth): (usize, usize),
    out: &mut Vec<u8>,
) {
    let keep = match keep.map(|keep| keep.child(key)) {
        None => None,
        Some(Some(inner)) => (!inner.whole).then_some(inner),
        Some(None) => {
            cursor.skip_value();
            return;
        }
    };
    let drop = drop.and_then(|drop| drop.child(key));
    if drop.is_some_and(|drop| drop.whole) {
        cursor.skip_value();
        return;
    }
    let before = out.len();
    if before > first {
        out.push(b',');
    }
    out.extend_from_slice(cursor.text_since(cursor.key_start(key)));
    if !write_value(cursor, keep, drop, depth + 1, out) {
        out.truncate(before);
    }
}
