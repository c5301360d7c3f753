//! The removed and added values at each path, which an edit of an entity list causes.

use std::collections::HashMap;

use bytes::Bytes;
use strata_json::JsonScalar;

use crate::path_tree::{MissingPaths, NumberedPathTree, UNKNOWN_NODE, VisitedValue};
use crate::profile::builder::PathCounts;
use crate::profile::limits::{MAX_PROFILE_PATH_BYTES, MAX_PROFILE_PATHS};
use crate::profile::value_statistics::ScalarType;

pub(super) struct ProfileChanges {
    pub(super) tree: NumberedPathTree,
    pub(super) by_node: Vec<PathChange>,
}

impl ProfileChanges {
    pub(super) fn try_new(removed: &[Bytes], added: &[Bytes]) -> Option<ProfileChanges> {
        let mut tree = NumberedPathTree::new(MAX_PROFILE_PATHS, MAX_PROFILE_PATH_BYTES);
        let mut by_node: Vec<PathChange> = Vec::new();
        let mut is_known = true;
        let removed = removed.iter().map(|document| (false, document));
        let documents = removed.chain(added.iter().map(|document| (true, document)));
        for (entity, (is_added, document)) in (1..).zip(documents) {
            tree.walk(document, MissingPaths::Insert, |node, is_in_array, value| {
                if node == UNKNOWN_NODE {
                    is_known = false;
                    return;
                }
                if by_node.len() <= node as usize {
                    by_node.resize_with(node as usize + 1, PathChange::default);
                }
                by_node[node as usize].add_value(is_added, entity, is_in_array, value);
            });
        }
        by_node.iter_mut().for_each(|change| change.values.retain(|_, count_change| *count_change != 0));
        is_known.then_some(ProfileChanges { tree, by_node })
    }
}

#[derive(Default)]
pub(super) struct PathChange {
    pub(super) counts: [PathCounts; 2],
    /// Change in the number of occurrences of each non-null value, by type and text.
    pub(super) values: HashMap<(ScalarType, Vec<u8>), i64>,
}

impl PathChange {
    fn add_value(&mut self, is_added: bool, entity: u64, is_in_array: bool, visited: VisitedValue<'_>) {
        self.counts[usize::from(is_added)].add_value(entity, is_in_array, visited);
        let value = match visited {
            VisitedValue::Object | VisitedValue::Array | VisitedValue::Scalar(JsonScalar::Null) => return,
            VisitedValue::Scalar(JsonScalar::Bool(value)) => (ScalarType::Boolean, value.to_string().into_bytes()),
            VisitedValue::Scalar(JsonScalar::Number(text)) => (ScalarType::Number, text.as_bytes().to_vec()),
            VisitedValue::Scalar(JsonScalar::String(text)) => (ScalarType::String, text.raw().to_vec()),
        };
        *self.values.entry(value).or_default() += if is_added { 1 } else { -1 };
    }

    pub(super) fn values_of_type(&self, expected: ScalarType) -> impl Iterator<Item = (&[u8], i64)> {
        let values = self.values.iter().filter(move |((scalar_type, _), _)| *scalar_type == expected);
        values.map(|((_, text), count_change)| (&**text, *count_change))
    }

    pub(super) fn is_unchanged(&self) -> bool {
        let [removed, added] = &self.counts;
        let are_same =
            (removed.entities, removed.types, removed.fans_out) == (added.entities, added.types, added.fans_out);
        are_same && self.values.is_empty()
    }
}
