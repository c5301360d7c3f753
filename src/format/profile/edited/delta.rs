//! What edits change at each path.

use std::collections::HashMap;

use bytes::Bytes;
use strata_json::Scalar;

use crate::profile::builder::PathCounts;
use crate::profile::limits::{PATH_BYTES, PATHS};
use crate::profile::values::ScalarType;
use crate::tree::{Found, PathTree, UNKNOWN};

pub(super) struct Deltas {
    pub(super) tree: PathTree,
    pub(super) by_node: Vec<Delta>,
}

impl Deltas {
    /// `None` where there are more paths, or longer ones, than a profile follows.
    pub(super) fn try_new(removed: &[Bytes], added: &[Bytes]) -> Option<Deltas> {
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
    /// Of the entities that went, and of those that came.
    pub(super) counts: [PathCounts; 2],
    /// Values that are not null, by their type and text: how many more there are.
    pub(super) values: HashMap<(ScalarType, Vec<u8>), i64>,
}

impl Delta {
    fn add(&mut self, came: bool, entity: u64, fanned: bool, found: Found<'_>) {
        self.counts[usize::from(came)].add(entity, fanned, found);
        let value = match found {
            Found::Object | Found::Array | Found::Scalar(Scalar::Null) => return,
            Found::Scalar(Scalar::Bool(value)) => (ScalarType::Boolean, value.to_string().into_bytes()),
            Found::Scalar(Scalar::Number(text)) => (ScalarType::Number, text.as_bytes().to_vec()),
            Found::Scalar(Scalar::String(text)) => (ScalarType::String, text.raw().to_vec()),
        };
        *self.values.entry(value).or_default() += if came { 1 } else { -1 };
    }

    pub(super) fn of_type(&self, wanted: ScalarType) -> impl Iterator<Item = (&[u8], i64)> {
        let of_type = self.values.iter().filter(move |((scalar_type, _), _)| *scalar_type == wanted);
        of_type.map(|((_, text), more)| (&**text, *more))
    }

    pub(super) fn is_none(&self) -> bool {
        let [gone, came] = &self.counts;
        let are_same = (gone.entities, gone.types, gone.fans_out) == (came.entities, came.types, came.fans_out);
        are_same && self.values.is_empty()
    }
}
