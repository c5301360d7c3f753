//! What edits change at each path.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::document::Scalar;
use crate::storage::profile::lengths::Lengths;
use crate::storage::profile::values::ScalarType;
use crate::storage::profile::{PATH_BYTES, PATHS};
use crate::storage::tree::{Found, PathTree, UNKNOWN};

/// What edits do at one position of a list. Positions ascend.
#[derive(Clone, Debug, Default)]
pub struct SlotChange {
    pub gone: Option<Bytes>,
    /// Those that come in its place, or before an entity that stays.
    pub came: Vec<Bytes>,
}

/// What edits change, by path.
pub(super) struct Deltas {
    pub(super) tree: PathTree,
    /// By node of the tree.
    pub(super) by_node: Vec<Delta>,
}

impl Deltas {
    /// `None` where there are more paths, or longer ones, than a profile follows.
    pub(super) fn of(changes: &[SlotChange]) -> Option<Deltas> {
        let mut tree = PathTree::new(PATHS, PATH_BYTES);
        let mut by_node: Vec<Delta> = Vec::new();
        let (mut entity, mut is_known) = (0, true);
        for (slot, change) in changes.iter().enumerate() {
            let gone = change.gone.iter().map(|document| (false, document));
            for (came, document) in gone.chain(change.came.iter().map(|document| (true, document))) {
                entity += 1;
                tree.walk(document, true, |node, fanned, found| {
                    if node == UNKNOWN {
                        is_known = false;
                        return;
                    }
                    if by_node.len() <= node as usize {
                        by_node.resize_with(node as usize + 1, Delta::default);
                    }
                    by_node[node as usize].add(came, (slot, entity), fanned, found);
                });
            }
        }
        by_node.iter_mut().for_each(Delta::settle);
        is_known.then_some(Deltas { tree, by_node })
    }
}

/// What edits change at one path.
#[derive(Default)]
pub(super) struct Delta {
    pub(super) entities: i64,
    /// The last entity that was counted.
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
    /// Numbers that went from a position, and that came to one, but where the same ones came in the same order. Which
    /// of equal numbers is the first may change with them alone.
    pub(super) moved: [HashSet<Box<str>>; 2],
    /// The numbers of the position that is being walked.
    slot: usize,
    in_slot: [Vec<Box<str>>; 2],
}

impl Delta {
    fn add(&mut self, came: bool, (slot, entity): (usize, usize), fanned: bool, found: Found<'_>) {
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
                if self.slot != slot {
                    self.end_slot();
                    self.slot = slot;
                }
                self.in_slot[usize::from(came)].push(text.into());
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

    fn end_slot(&mut self) {
        let [gone, came] = std::mem::take(&mut self.in_slot);
        if gone != came {
            self.moved[0].extend(gone);
            self.moved[1].extend(came);
        }
    }

    fn settle(&mut self) {
        self.end_slot();
        self.values.retain(|_, more| *more != 0);
    }

    /// Whether numbers change, or their order.
    pub(super) fn moves_numbers(&self) -> bool {
        self.moved.iter().any(|texts| !texts.is_empty())
    }

    /// The texts of a type, with how many more there are.
    pub(super) fn of_type(&self, wanted: ScalarType) -> impl Iterator<Item = (&[u8], i64)> {
        let of_type = self.values.iter().filter(move |((scalar_type, _), _)| *scalar_type == wanted);
        of_type.map(|((_, text), more)| (&**text, *more))
    }

    /// Whether nothing of the path changes.
    pub(super) fn is_none(&self) -> bool {
        let counts = [self.entities, self.nulls, self.booleans, self.numbers, self.strings, self.objects, self.arrays];
        counts == [0; 7] && self.values.is_empty() && !self.moves_numbers() && self.fanned[0] == self.fanned[1]
    }
}
