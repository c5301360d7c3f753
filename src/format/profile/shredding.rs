//! Selection of the paths that get an indexed column.

use serde::{Deserialize, Serialize};
use strata_types::field_path::FieldPath;
use strata_types::index_settings::IndexSettings;
use utoipa::ToSchema;

use super::builder::{PathProfile, ProfileBuilder};
use crate::keywords::field_set::{FieldTable, MAX_FIELDS};
use crate::layout::ShreddedColumn;
use crate::path_tree::PathNode;

#[derive(Clone, Copy, Debug)]
pub struct ShreddingLimits {
    /// Max indexed columns, not counting the paths that the index settings request.
    pub max_columns: usize,
    /// A path gets an indexed column only if at least one in this many entities has a scalar there.
    pub max_entities_per_scalar: u64,
    /// Max mean length of the strings in an indexed column, in bytes. The keyword index serves longer strings.
    pub max_mean_text_bytes: u64,
    /// Max size of the strings in all indexed columns, relative to the size of the documents.
    pub max_text_fraction: f64,
}

impl Default for ShreddingLimits {
    fn default() -> Self {
        ShreddingLimits {
            max_columns: 64,
            max_entities_per_scalar: 1_000,
            max_mean_text_bytes: 96,
            max_text_fraction: 0.6,
        }
    }
}

/// The reason why a path has no indexed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotShreddedReason {
    /// The path reaches only objects and arrays.
    NoScalar,
    /// Fewer than one in 1,000 entities have a scalar at the path.
    TooRare,
    /// The strings at the path are longer than 96 bytes on average.
    TextsTooLong,
    /// Other paths are more frequent: there are already 64 indexed columns, or the indexed columns have reached their
    /// maximum total size.
    NoRoom,
    /// The `index` setting of the dataset excludes the path.
    Excluded,
    /// The version has more paths than a profile covers, or the path is too long.
    NotFollowed,
    /// An edit of an alternate added the path, or added a value that the path's indexed column cannot store.
    Edited,
}

pub struct ShreddingChoice {
    pub shredded_columns: Vec<ShreddedColumn>,
    pub(super) not_shredded: Vec<Option<NotShreddedReason>>,
    pub(super) unmet_paths: Vec<(FieldPath, NotShreddedReason)>,
}

impl ProfileBuilder {
    /// Selects the requested paths, and then the most frequent of the others within the limits.
    pub fn choose_shredded(&self, limits: &ShreddingLimits, index: &IndexSettings) -> ShreddingChoice {
        let mut not_shredded: Vec<Option<NotShreddedReason>> =
            self.paths.iter().map(|path| self.exclusion_reason(path, limits)).collect();
        for node in index.never_indexed().iter().filter_map(|path| self.find_node(path.keys())) {
            not_shredded[node as usize].get_or_insert(NotShreddedReason::Excluded);
        }
        self.apply_column_limits(limits, &mut not_shredded);
        let mut unmet_paths = Vec::new();
        for path in index.always_indexed() {
            match self.find_node(path.keys()) {
                Some(node) if self.paths[node as usize].scalar_entities > 0 => not_shredded[node as usize] = None,
                // The profile omits paths beyond its limits, so it is unknown which values the requested path has.
                None if self.paths_left_out => unmet_paths.push((path.clone(), NotShreddedReason::NotFollowed)),
                Some(_) | None => unmet_paths.push((path.clone(), NotShreddedReason::NoScalar)),
            }
        }
        let selected = self.path_nodes().filter(|(node, _)| not_shredded[*node as usize].is_none());
        let shredded_columns = selected.map(|(node, path)| self.to_shredded_column(node, path)).collect();
        ShreddingChoice { shredded_columns, not_shredded, unmet_paths }
    }

    /// Selects the paths with their own field in the keyword index: those with the most text.
    pub fn choose_fields(&self) -> FieldTable {
        let with_text = self.path_nodes().filter(|(_, path)| path.counts.text_bytes > 0);
        let mut paths: Vec<(PathNode, &PathProfile)> = with_text.collect();
        // The path number breaks ties, so that the selection is deterministic.
        paths.sort_by_key(|(node, path)| (std::cmp::Reverse(path.counts.text_bytes), *node));
        paths.truncate(MAX_FIELDS - 1);
        FieldTable::new(paths.into_iter().map(|(node, _)| self.tree.keys(node)).collect())
    }

    fn exclusion_reason(&self, path: &PathProfile, limits: &ShreddingLimits) -> Option<NotShreddedReason> {
        if path.scalar_entities == 0 {
            Some(NotShreddedReason::NoScalar)
        } else if path.scalar_entities * limits.max_entities_per_scalar < self.entities {
            Some(NotShreddedReason::TooRare)
        } else if shredded_text_bytes(path) > path.counts.types.scalars() * limits.max_mean_text_bytes {
            Some(NotShreddedReason::TextsTooLong)
        } else {
            None
        }
    }

    fn apply_column_limits(&self, limits: &ShreddingLimits, not_shredded: &mut [Option<NotShreddedReason>]) {
        let mut candidates: Vec<(PathNode, &PathProfile)> =
            self.path_nodes().filter(|(node, _)| not_shredded[*node as usize].is_none()).collect();
        // Frequent paths get indexed columns first, then paths with little text. The path number breaks ties, so that
        // the selection is deterministic.
        candidates
            .sort_by_key(|(node, path)| (std::cmp::Reverse(path.scalar_entities), shredded_text_bytes(path), *node));
        let mut budget = (self.document_bytes as f64 * limits.max_text_fraction) as u64;
        let mut count = 0;
        for (node, path) in candidates {
            // In an indexed column, each scalar costs its text (or a dictionary code), plus its kind and position.
            let scalars = path.counts.types.scalars();
            let cost = if path.values.is_estimated() { shredded_text_bytes(path) + 2 * scalars } else { 3 * scalars };
            if count == limits.max_columns || cost > budget {
                not_shredded[node as usize] = Some(NotShreddedReason::NoRoom);
                continue;
            }
            budget -= cost;
            count += 1;
        }
    }

    fn to_shredded_column(&self, node: PathNode, path: &PathProfile) -> ShreddedColumn {
        ShreddedColumn {
            keys: self.tree.keys(node),
            fans_out: path.counts.fans_out,
            dictionary: !path.values.is_estimated(),
            needs_folding: path.needs_folding,
            has_numbers: path.counts.types.number > 0,
            retired: false,
        }
    }
}

fn shredded_text_bytes(path: &PathProfile) -> u64 {
    path.counts.text_bytes + 4 * (path.counts.types.null + path.counts.types.boolean)
}
