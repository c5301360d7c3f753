//! Edits of a list, by position.

use std::collections::BTreeMap;

use bytes::Bytes;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PositionEdit {
    pub inserts: Vec<Bytes>,
    /// Replacement of the entity at the position: a document, or `None` to remove the entity.
    pub change: Option<Option<Bytes>>,
}

/// Edits of a list, by position. The position after the last entity accepts only inserts.
pub type EditScript = BTreeMap<u64, PositionEdit>;
