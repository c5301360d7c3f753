//! Edits of a list, by position.

use std::collections::BTreeMap;

use bytes::Bytes;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Canonical documents that are inserted before the position, in order.
    pub inserts: Vec<Bytes>,
    /// The change of the entity at the position, if any: another document, or `None` to remove the entity.
    pub change: Option<Option<Bytes>>,
}

/// Edits of a list, by position. The position after the last entity accepts only inserts.
pub type Slots = BTreeMap<u64, Slot>;
