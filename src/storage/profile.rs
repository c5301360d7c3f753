//! What a version contains, gathered in one pass over its entities, and the choice of leaves that follows.
//!
//! The profile is bounded whatever the entities are: at most [`PATHS`] paths are followed and at most
//! [`DISTINCT_TOTAL`] value hashes are kept. Paths beyond that get no leaf; their filters are answered from
//! the documents.

use hashbrown::HashSet;
use std::hash::BuildHasher;

use super::layout::Leaf;
use super::tree::{Node, PathTree, UNKNOWN};
use crate::document::{self, Scalar};

/// Most paths that a profile follows.
pub const PATHS: usize = 10_000;

/// Most distinct texts counted for one path; above it a leaf keeps no dictionary.
pub const DISTINCT: usize = 4_096;

/// Most value hashes kept over all paths.
pub const DISTINCT_TOTAL: usize = 2_000_000;

/// Bounds on which paths get a leaf.
#[derive(Clone, Copy, Debug)]
pub struct LeafBounds {
    /// Most leaves.
    pub leaves: usize,
    /// A path must reach a scalar in at least one of this many entities.
    pub one_in: u64,
    /// Longest mean text, in bytes: longer texts are found through the search text.
    pub mean_text_bytes: u64,
    /// The leaves' texts together, as a share of the documents' bytes.
    pub text_share: f64,
}

impl Default for LeafBounds {
    fn default() -> Self {
        LeafBounds { leaves: 64, one_in: 50, mean_text_bytes: 96, text_share: 0.6 }
    }
}

/// What is known of one path.
#[derive(Default)]
struct PathProfile {
    /// Entities in which the path reaches a scalar.
    entities: u64,
    /// The last entity counted in `entities`, plus one.
    last_entity: u64,
    scalars: u64,
    numbers: u64,
    text_bytes: u64,
    fans_out: bool,
    folds: bool,
    distinct: HashSet<u64, foldhash::fast::FixedState>,
    many_distinct: bool,
}

/// A profile being gathered.
pub struct Profile {
    tree: PathTree,
    paths: Vec<PathProfile>,
    hasher: foldhash::fast::FixedState,
    distinct_total: usize,
    entities: u64,
    document_bytes: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Profile::new()
    }
}

impl Profile {
    /// A profile of nothing.
    pub fn new() -> Profile {
        Profile {
            tree: PathTree::new(PATHS),
            paths: Vec::new(),
            hasher: foldhash::fast::FixedState::default(),
            distinct_total: 0,
            entities: 0,
            document_bytes: 0,
        }
    }

    /// Entities so far.
    pub fn entities(&self) -> u64 {
        self.entities
    }

    /// Bytes of all documents so far.
    pub fn document_bytes(&self) -> u64 {
        self.document_bytes
    }

    /// Adds one entity, a canonical document.
    pub fn add(&mut self, document: &[u8]) {
        self.entities += 1;
        self.document_bytes += document.len() as u64;
        let Profile { tree, paths, hasher, distinct_total, entities, .. } = self;
        tree.walk(document, true, |node, fanned, scalar| {
            if node == UNKNOWN {
                return;
            }
            let index = node as usize;
            if index >= paths.len() {
                paths.resize_with(index + 1, PathProfile::default);
            }
            paths[index].add(*entities, fanned, scalar, hasher, distinct_total);
        });
    }

    /// Chooses the leaves: the paths that most entities have, with short enough texts, within the bounds.
    pub fn choose_leaves(&self, bounds: &LeafBounds) -> Vec<Leaf> {
        let mut candidates: Vec<(Node, &PathProfile)> = self
            .paths
            .iter()
            .enumerate()
            .map(|(node, path)| (node as Node, path))
            .filter(|(_, path)| {
                path.entities > 0
                    && path.entities * bounds.one_in >= self.entities
                    && path.text_bytes <= path.scalars * bounds.mean_text_bytes
            })
            .collect();
        // Frequent paths first; among those, cheap ones. The node breaks ties, so the choice is deterministic.
        candidates.sort_by_key(|(node, path)| (std::cmp::Reverse(path.entities), path.text_bytes, *node));
        let mut budget = (self.document_bytes as f64 * bounds.text_share) as u64;
        let mut chosen = Vec::new();
        for (node, path) in candidates {
            if chosen.len() == bounds.leaves {
                break;
            }
            // A scalar costs its text, or a code where texts repeat, and a little for its kind and place.
            let cost = if path.many_distinct { path.text_bytes + 2 * path.scalars } else { 3 * path.scalars };
            if cost > budget {
                continue;
            }
            budget -= cost;
            chosen.push(node);
        }
        chosen.sort_unstable();
        chosen.into_iter().map(|node| self.leaf(node)).collect()
    }

    fn leaf(&self, node: Node) -> Leaf {
        let path = &self.paths[node as usize];
        let keys = self.tree.keys(node).into_iter().map(|key| document::Text::new(key).unescape().into_owned());
        Leaf {
            keys: keys.collect(),
            fans_out: path.fans_out,
            dictionary: !path.many_distinct,
            has_exact: path.folds,
            has_numbers: path.numbers > 0,
        }
    }
}

impl PathProfile {
    fn add(
        &mut self,
        entity: u64,
        fanned: bool,
        scalar: Scalar<'_>,
        hasher: &foldhash::fast::FixedState,
        distinct_total: &mut usize,
    ) {
        self.scalars += 1;
        if self.last_entity != entity {
            self.last_entity = entity;
            self.entities += 1;
        }
        self.fans_out |= fanned;
        let text: &[u8] = match scalar {
            Scalar::Null | Scalar::Bool(_) => {
                self.text_bytes += 4;
                return;
            }
            Scalar::Number(text) => {
                self.numbers += 1;
                text.as_bytes()
            }
            Scalar::String(text) => text.raw(),
        };
        self.text_bytes += text.len() as u64;
        // A superset test is enough: an `exact` column may stay empty, it may not be missing.
        self.folds = self.folds || text.iter().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii());
        if self.many_distinct {
            return;
        }
        if self.distinct.insert(hasher.hash_one(text)) {
            *distinct_total += 1;
            if self.distinct.len() > DISTINCT || *distinct_total > DISTINCT_TOTAL {
                *distinct_total -= self.distinct.len();
                self.distinct = HashSet::default();
                self.many_distinct = true;
            }
        }
    }
}
