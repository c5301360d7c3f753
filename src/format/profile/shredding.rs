//! Which paths get a shredded column, and why others get none.

use serde::{Deserialize, Serialize};
use strata_types::index::IndexSettings;
use strata_types::path::Path;
use utoipa::ToSchema;

use super::builder::{PathProfile, ProfileBuilder};
use crate::layout::ShreddedColumn;
use crate::tree::Node;

#[derive(Clone, Copy, Debug)]
pub struct ShreddingBounds {
    /// Most shredded columns. What an index asks for comes on top, and is bounded by
    /// [`strata_types::index::INDEX_PATHS`].
    pub shredded_columns: usize,
    /// A path must reach a scalar in at least one of this many entities.
    pub one_in: u64,
    /// Longest mean text, in bytes: longer texts are found through the search text.
    pub mean_text_bytes: u64,
    /// The shredded columns' texts together, as a share of the documents' bytes.
    pub text_share: f64,
}

impl Default for ShreddingBounds {
    fn default() -> Self {
        ShreddingBounds { shredded_columns: 64, one_in: 50, mean_text_bytes: 96, text_share: 0.6 }
    }
}

/// The reason why a path has no indexed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotShredded {
    /// The path reaches only objects and arrays.
    NoScalar,
    /// Fewer than one in 50 entities have a scalar at the path.
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
    /// By node: why a path has none.
    pub(super) none: Vec<Option<NotShredded>>,
    /// Paths that the index asks for and that have none all the same.
    pub(super) unmet: Vec<(Path, NotShredded)>,
}

impl ProfileBuilder {
    /// Chooses the shredded columns: those that the index asks for; and of the other paths that it does not exclude
    /// those that most entities have, with short enough texts, within the bounds. What is asked for takes no room from
    /// the others.
    pub fn choose_shredded(&self, bounds: &ShreddingBounds, index: &IndexSettings) -> ShreddingChoice {
        let mut none: Vec<Option<NotShredded>> = self.paths.iter().map(|path| self.obstacle(path, bounds)).collect();
        for node in index.never().iter().filter_map(|path| self.node(path.keys())) {
            none[node as usize].get_or_insert(NotShredded::Excluded);
        }
        self.fill(bounds, &mut none);
        let mut unmet = Vec::new();
        for path in index.always() {
            match self.node(path.keys()) {
                Some(node) if self.paths[node as usize].scalar_entities > 0 => none[node as usize] = None,
                // Nothing tells what lies at paths that are not followed.
                None if self.paths_left_out => unmet.push((path.clone(), NotShredded::NotFollowed)),
                Some(_) | None => unmet.push((path.clone(), NotShredded::NoScalar)),
            }
        }
        let chosen = self.nodes().filter(|(node, _)| none[*node as usize].is_none());
        let shredded_columns = chosen.map(|(node, path)| self.shredded(node, path)).collect();
        ShreddingChoice { shredded_columns, none, unmet }
    }

    /// What keeps a path from having a shredded column, whatever the others are.
    fn obstacle(&self, path: &PathProfile, bounds: &ShreddingBounds) -> Option<NotShredded> {
        if path.scalar_entities == 0 {
            Some(NotShredded::NoScalar)
        } else if path.scalar_entities * bounds.one_in < self.entities {
            Some(NotShredded::TooRare)
        } else if shredded_text_bytes(path) > path.counts.types.scalars() * bounds.mean_text_bytes {
            Some(NotShredded::TextsTooLong)
        } else {
            None
        }
    }

    /// Marks paths without an obstacle for which there is no room.
    fn fill(&self, bounds: &ShreddingBounds, none: &mut [Option<NotShredded>]) {
        let mut candidates: Vec<(Node, &PathProfile)> =
            self.nodes().filter(|(node, _)| none[*node as usize].is_none()).collect();
        // Frequent paths first; among those, cheap ones. The node breaks ties, so the choice is deterministic.
        candidates
            .sort_by_key(|(node, path)| (std::cmp::Reverse(path.scalar_entities), shredded_text_bytes(path), *node));
        let mut budget = (self.document_bytes as f64 * bounds.text_share) as u64;
        let mut chosen = 0;
        for (node, path) in candidates {
            let cost = match path.values.are_many() {
                // A scalar costs its text, or a code where texts repeat, and a little for its kind and place.
                true => shredded_text_bytes(path) + 2 * path.counts.types.scalars(),
                false => 3 * path.counts.types.scalars(),
            };
            if chosen == bounds.shredded_columns || cost > budget {
                none[node as usize] = Some(NotShredded::NoRoom);
                continue;
            }
            budget -= cost;
            chosen += 1;
        }
    }

    fn shredded(&self, node: Node, path: &PathProfile) -> ShreddedColumn {
        ShreddedColumn {
            keys: self.tree.keys(node),
            fans_out: path.counts.fans_out,
            dictionary: !path.values.are_many(),
            has_exact: path.folds,
            has_numbers: path.counts.types.number > 0,
            retired: false,
        }
    }
}

fn shredded_text_bytes(path: &PathProfile) -> u64 {
    path.counts.text_bytes + 4 * (path.counts.types.null + path.counts.types.boolean)
}
