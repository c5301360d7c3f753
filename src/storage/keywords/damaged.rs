//! What is wrong with the bytes of an index.

use std::fmt;

/// Bytes are not those of an index that this build writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    pub part: &'static str,
    pub cause: &'static str,
}

impl Damaged {
    pub(super) fn new(part: &'static str, cause: &'static str) -> Damaged {
        Damaged { part, cause }
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the keyword index is damaged: {}: {}", self.part, self.cause)
    }
}

impl std::error::Error for Damaged {}
