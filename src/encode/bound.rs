//! Bounds the size of an entity as it is written.
//!
//! Some forms of an answer repeat parts of an entity. Indentation repeats blanks for every value, flattened names
//! repeat the keys above them, and XML repeats the tag of an array for each of its elements. So a small entity can have
//! a form that fits into no memory. An entity is written as a whole.

use crate::model::limits::ENCODED_EXPANSION;

#[derive(Clone, Copy, Debug)]
pub struct EntityBound {
    most_bytes: usize,
}

/// An entity would take more bytes than it may (`limits.encoded_entity_bytes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entity would take more than {limit_bytes} bytes")]
pub struct EntityTooLarge {
    pub limit_bytes: usize,
}

impl EntityBound {
    /// A bound of this many bytes, or four times the entity's JSON if that is more.
    pub fn new(most_bytes: u64) -> EntityBound {
        EntityBound { most_bytes: usize::try_from(most_bytes).unwrap_or(usize::MAX) }
    }

    pub(super) fn bytes(self, document_bytes: usize) -> usize {
        self.most_bytes.max(document_bytes.saturating_mul(ENCODED_EXPANSION))
    }

    pub(super) fn check(self, document_bytes: usize, bytes: usize) -> Result<(), EntityTooLarge> {
        let limit_bytes = self.bytes(document_bytes);
        if bytes <= limit_bytes { Ok(()) } else { Err(EntityTooLarge { limit_bytes }) }
    }
}
