//! The keyword index of a version file: which rows contain or may contain a text, without scanning the full text.
//!
//! For example, the full text of the rows 0 to 2 is `red car`, `red bus`, and `carpet`, and 997 other rows are empty.
//! The [`tokenizer`] splits the rows into tokens. A [`segment`] stores `red` in its dictionary, with the rows 0 and 1
//! as a list of [`postings`]. The other tokens have one row, so they are stored with this row. The index answers:
//!
//! | Needle | Result |
//! |---|---|
//! | `re` | rows 0 and 1 contain it, by a search in the dictionary |
//! | `car` | rows 0 and 2 contain it, by a search in the tokens of the rows |
//! | `d c` | row 0 may contain it, because it has a token that ends with `d` and a token that starts with `c` |
//!
//! The [`indexer`] builds segments while a file is written, and [`segment_directory`] locates them in the file.
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
