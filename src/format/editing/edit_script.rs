//! Edits of an entity list: insertions, replacements, and removals by position.

use std::collections::BTreeMap;

use bytes::Bytes;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionEdit {
    pub inserts: Vec<Bytes>,
    /// `Some(Some(document))` replaces the entity at the position, and `Some(None)` removes it.
    pub change: Option<Option<Bytes>>,
}

/// Edits of an entity list by position. At the position after the last entity, only inserts are allowed.
pub type EditScript = BTreeMap<u64, PositionEdit>;
