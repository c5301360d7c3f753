//! What edits change at each path.

use std::collections::HashMap;

use bytes::Bytes;

use crate::document::Scalar;
use crate::storage::profile::lengths::Lengths;
use crate::storage::profile::values::ScalarType;
use crate::storage::profile::{PATH_BYTES, PATHS};
use crate::storage::tree::{Found, PathTree, UNKNOWN};

pub(super) struct Deltas {
    pub(super) tree: PathTree,
    pub(super) by_node: Vec<Delta>,
}

impl Deltas {
    /// `None` where there are more paths, or longer ones, than a profile follows.
    pub(super) fn of(removed: &[Bytes], added: &[Bytes]) -> Option<Deltas> {
        let mut tree = PathTree::new(PATHS, PATH_BYTES);
        let mut by_node: Vec<Delta> = Vec::new();
        let mut is_known = true;
        let removed = removed.iter().map(|document| (false, document));
        let documents = removed.chain(added.iter().map(|document| (true, document)));
        for (entity, (came, document)) in (1..).zip(documents) {
            tree.walk(document, true, |node, fanned, found| {
                if node == UNKNOWN {
                    is_known = false;
                    return;
                }
                if by_node.len() <= node as usize {
                    by_node.resize_with(node as usize + 1, Delta::default);
                }
                by_node[node as usize].add(came, entity, fanned, found);
            });
        }
        by_node.iter_mut().for_each(|delta| delta.values.retain(|_, more| *more != 0));
        is_known.then_some(Deltas { tree, by_node })
    }
}

#[derive(Default)]
pub(super) struct Delta {
    pub(super) entities: i64,
    last: usize,
    pub(super) nulls: i64,
    pub(super) booleans: i64,
    pub(super) numbers: i64,
    pub(super) strings: i64,
    pub(super) objects: i64,
    pub(super) arrays: i64,
    pub(super) text_bytes: i64,
    /// Of strings that went, and that came.
    pub(super) lengths: [Lengths; 2],
    /// Whether scalars below an array went, and came.
    pub(super) fanned: [bool; 2],
    /// Values that are not null, by their type and text: how many more there are.
    pub(super) values: HashMap<(ScalarType, Vec<u8>), i64>,
}

impl Delta {
    fn add(&mut self, came: bool, entity: usize, fanned: bool, found: Found<'_>) {
        let sign = if came { 1 } else { -1 };
        if self.last != entity {
            self.last = entity;
            self.entities += sign;
        }
        let scalar = match found {
            Found::Object => return self.objects += sign,
            Found::Array => return self.arrays += sign,
            Found::Scalar(scalar) => scalar,
        };
        self.fanned[usize::from(came)] |= fanned;
        let value = match scalar {
            Scalar::Null => return self.nulls += sign,
            Scalar::Bool(value) => {
                self.booleans += sign;
                (ScalarType::Boolean, if value { b"true".to_vec() } else { b"false".to_vec() })
            }
            Scalar::Number(text) => {
                self.numbers += sign;
                self.text_bytes += sign * text.len() as i64;
                (ScalarType::Number, text.as_bytes().to_vec())
            }
            Scalar::String(text) => {
                self.strings += sign;
                self.text_bytes += sign * text.raw().len() as i64;
                self.lengths[usize::from(came)].add(text);
                (ScalarType::String, text.raw().to_vec())
            }
        };
        *self.values.entry(value).or_default() += sign;
    }

    pub(super) fn of_type(&self, wanted: ScalarType) -> impl Iterator<Item = (&[u8], i64)> {
        let of_type = self.values.iter().filter(move |((scalar_type, _), _)| *scalar_type == wanted);
        of_type.map(|((_, text), more)| (&**text, *more))
    }

    pub(super) fn is_none(&self) -> bool {
        let counts = [self.entities, self.nulls, self.booleans, self.numbers, self.strings, self.objects, self.arrays];
        counts == [0; 7] && self.values.is_empty() && self.fanned[0] == self.fanned[1]
    }
}
