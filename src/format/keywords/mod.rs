//! The keyword index of a version file: which rows contain or may contain a text, without scanning the full text.
//!
//! The module does no I/O. Callers verify checksums first; bytes that are damaged nevertheless cause an error or wrong
//! rows, but no panic. `benches/reads` measures the index, and the tests `query::keyword_index` check its results.

pub mod indexer;
pub mod postings;
pub mod segment;
pub mod segment_directory;
pub mod tokenizer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keyword index is damaged: {part}: {cause}")]
pub struct KeywordIndexError {
    pub part: &'static str,
    pub cause: &'static str,
}

impl KeywordIndexError {
    fn new(part: &'static str, cause: &'static str) -> KeywordIndexError {
        KeywordIndexError { part, cause }
    }
}
