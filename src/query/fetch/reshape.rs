//! Steps 2 to 5 of the pipeline: `include_source`, `denull`, `keep_field`, `drop_field`.
//!
//! They precede all other steps, but are applied to few documents: predicates are evaluated as if these steps had run
//! ([`Reshape::sees`]), and documents are reshaped when they are returned, or if a predicate cannot be evaluated
//! otherwise.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use strata_json::{Columns, Projection};
use strata_types::path::Path;
use strata_types::request::ReadRequest;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reshape {
    pub include_source: bool,
    pub denull: bool,
    pub keep: Vec<Path>,
    pub drop: Vec<Path>,
    #[serde(skip)]
    projection: OnceLock<Projection>,
}

#[derive(Debug, Default)]
pub struct ReshapeScratch {
    without_nulls: Vec<u8>,
    projected: Vec<u8>,
}

impl Reshape {
    pub fn of(request: &ReadRequest) -> Reshape {
        Reshape::new(request.include_source, request.denull, request.keep.clone(), request.drop.clone())
    }

    pub fn new(include_source: bool, denull: bool, keep: Vec<Path>, drop: Vec<Path>) -> Reshape {
        Reshape { include_source, denull, keep, drop, projection: OnceLock::new() }
    }

    pub(crate) fn projection(&self) -> &Projection {
        self.projection.get_or_init(|| Projection::new(self.include_source, &self.keep, &self.drop))
    }

    pub fn is_identity(&self) -> bool {
        !self.denull && self.projection().is_identity()
    }

    /// Whether no field except `_source` can change. Then the stored hash, which ignores `_source`, is still valid.
    pub fn changes_source_alone(&self) -> bool {
        !self.denull && self.keep.is_empty() && self.drop.is_empty()
    }

    /// Whether fields are removed regardless of their values.
    pub fn hides_fields(&self) -> bool {
        !self.projection().is_identity()
    }

    /// Whether the scalars at a path are left: all of them, or none. The parent of a kept path has no scalars, but the
    /// parent of a dropped path can have some.
    pub fn sees(&self, keys: &[String]) -> bool {
        let covers = |path: &Path| keys.starts_with(path.keys());
        (self.include_source || keys.first().is_none_or(|key| key != "_source"))
            && (self.keep.is_empty() || self.keep.iter().any(covers))
            && !self.drop.iter().any(covers)
    }

    /// The columns of the reshaped entities. `None` if the names of the stored columns do not decide.
    pub fn columns_left(&self, columns: &Columns) -> Option<Columns> {
        if self.denull {
            return None;
        }
        let mut keep = Vec::new();
        let mut drop = Vec::new();
        for (paths, keys) in [(&self.keep, &mut keep), (&self.drop, &mut drop)] {
            for path in paths {
                match path.keys() {
                    [key] if names_itself(key) => keys.push(key.as_str()),
                    _ => return None,
                }
            }
        }
        if !self.include_source {
            drop.push("_source");
        }
        // A name that continues after a key can belong to a value below the key, or to another key.
        let continues = |name: &str, key: &&str| {
            name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.') || begins_with_element(rest))
        };
        let mut left = Vec::new();
        for name in columns.names() {
            if keep.iter().chain(&drop).any(|key| continues(name, key)) {
                return None;
            }
            if (keep.is_empty() || keep.contains(&name.as_str())) && !drop.contains(&name.as_str()) {
                left.push(name.clone());
            }
        }
        Some(Columns::from(left))
    }

    pub fn apply<'a>(&self, document: &'a [u8], scratch: &'a mut ReshapeScratch) -> &'a [u8] {
        let mut entity = document;
        if self.denull {
            scratch.without_nulls.clear();
            strata_json::denull(entity, &mut scratch.without_nulls);
            entity = &scratch.without_nulls;
        }
        let projection = self.projection();
        if !projection.is_identity() {
            scratch.projected.clear();
            projection.apply(entity, &mut scratch.projected);
            entity = &scratch.projected;
        }
        entity
    }
}

/// Whether only a top-level key can have this flattened name, because it has no dot and no number of an element.
fn names_itself(key: &str) -> bool {
    !key.contains('.') && !key.match_indices('_').any(|(at, _)| begins_with_element(&key[at..]))
}

/// Whether a name begins with the number of an element, such as `_0_`.
fn begins_with_element(name: &str) -> bool {
    let digits = name.strip_prefix('_').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    digits.is_some_and(|rest| rest.starts_with('_') && rest.len() + 1 < name.len())
}
