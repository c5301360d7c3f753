//! The keyword index of a version file: which rows hold a text, or may hold it, without a look at their search text.
//!
//! Nothing here does I/O. Bytes are verified by their checksums before they come here; what is damaged nonetheless
//! gives an error or other rows, and no panic.
//!
//! Measured by the rows `keyword, …` of `benches/reads`; `query::keyword_index` compares its answers.

pub mod cut;
pub mod indexing;
pub mod postings;
pub mod segment;
pub mod stored;

/// Bytes are not those of an index that this build writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keyword index is damaged: {part}: {cause}")]
pub struct Damaged {
    pub part: &'static str,
    pub cause: &'static str,
}

impl Damaged {
    fn new(part: &'static str, cause: &'static str) -> Damaged {
        Damaged { part, cause }
    }
}
