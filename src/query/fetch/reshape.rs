//! Steps 2 to 5 of the pipeline: `include_source`, `denull`, `keep_field`, `drop_field`.
//!
//! They change entities before anything selects them, and yet run on few: predicates are answered as if they had
//! run ([`Reshape::sees`] tells which paths are left; what `denull` takes away is known of each scalar), and documents
//! are reshaped when they are returned, or where nothing else tells.

use crate::document::{self, Projection};
use crate::model::path::Path;
use crate::model::request::ReadRequest;

/// The reshaping of every entity before the selection.
#[derive(Clone, Debug)]
pub struct Reshape {
    include_source: bool,
    denull: bool,
    keep: Vec<Path>,
    drop: Vec<Path>,
    projection: Projection,
}

/// Working memory of [`Reshape::apply`].
#[derive(Debug, Default)]
pub struct ReshapeScratch {
    without_nulls: Vec<u8>,
    projected: Vec<u8>,
}

impl Reshape {
    /// The reshaping of a request.
    pub fn of(request: &ReadRequest) -> Reshape {
        Reshape::new(request.include_source, request.denull, request.keep.clone(), request.drop.clone())
    }

    /// A reshaping from its parts.
    pub fn new(include_source: bool, denull: bool, keep: Vec<Path>, drop: Vec<Path>) -> Reshape {
        let projection = Projection::new(include_source, &keep, &drop);
        Reshape { include_source, denull, keep, drop, projection }
    }

    /// `include_source`.
    pub fn include_source(&self) -> bool {
        self.include_source
    }

    /// `denull`.
    pub fn denull(&self) -> bool {
        self.denull
    }

    /// `keep_field`.
    pub fn keep(&self) -> &[Path] {
        &self.keep
    }

    /// `drop_field`.
    pub fn drop(&self) -> &[Path] {
        &self.drop
    }

    /// Whether every entity stays as it is.
    pub fn is_identity(&self) -> bool {
        !self.denull && self.projection.is_identity()
    }

    /// Whether no field but `_source` may change: the stored hash, which leaves it out, is then still the entity's.
    pub fn changes_source_alone(&self) -> bool {
        !self.denull && self.keep.is_empty() && self.drop.is_empty()
    }

    /// Whether fields are taken away, whatever their values.
    pub fn hides_fields(&self) -> bool {
        !self.projection.is_identity()
    }

    /// Whether the scalars that a path reaches are left: all of them, or none. A path above a kept one has lost its
    /// scalars, one above a dropped one has not.
    pub fn sees(&self, keys: &[String]) -> bool {
        let covers = |path: &Path| keys.starts_with(path.keys());
        (self.include_source || keys.first().is_none_or(|key| key != "_source"))
            && (self.keep.is_empty() || self.keep.iter().any(covers))
            && !self.drop.iter().any(covers)
    }

    /// The entity that is left.
    pub fn apply<'a>(&self, document: &'a [u8], scratch: &'a mut ReshapeScratch) -> &'a [u8] {
        let mut entity = document;
        if self.denull {
            scratch.without_nulls.clear();
            document::denull(entity, &mut scratch.without_nulls);
            entity = &scratch.without_nulls;
        }
        if !self.projection.is_identity() {
            scratch.projected.clear();
            self.projection.apply(entity, &mut scratch.projected);
            entity = &scratch.projected;
        }
        entity
    }
}
