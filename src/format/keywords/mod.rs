//! The keyword index of a version file: which rows contain or may contain a text, without scanning the full text.
//!
//! For example, the full text of the rows 0 to 2 is `red car`, `red bus`, and `carpet`, and 997 other rows are empty.
//! The [`tokenizer`] splits the rows into tokens. A [`segment`] stores `red` with the rows 0 and 1 as a list of
//! [`postings`], and the other tokens with their row. The index answers:
//!
//! | Needle | Result |
//! |---|---|
//! | `re` | rows 0 and 1 contain it, by a search in the tokens |
//! | `car` | rows 0 and 2 contain it |
//! | `d c` | row 0 may contain it, because it has a token that ends with `d` and a token that starts with `c` |
//!
//! The index also knows in which [fields](field_set) of a row a token occurs, so that it decides a search for a part of
//! a word at a path, without the entities.
//!
//! While a file is written, the [`indexer`] collects the tokens of rows in [runs](run), which it sorts and stores in a
//! temporary file. In the end, it [merges](merge) all runs into the [pages](token_page) of a segment, because a search
//! should not read the same tokens again for each part of a file. [`segment_directory`] locates the pages in the file.
//!
//! The module does no I/O on version files. Callers verify checksums first; bytes that are damaged nevertheless cause
//! an error or wrong rows, but no panic. `benches/reads` and `benches/scale` measure the index, and the tests
//! `query::keyword_index` check its results.

mod delimited_text;
pub mod field_set;
mod hash_page;
pub mod indexer;
mod merge;
pub mod postings;
mod run;
mod run_builder;
pub mod segment;
pub mod segment_directory;
mod token_page;
mod token_table;
pub mod tokenizer;
mod trigram_index;

pub use run::RunSpace;
pub use token_page::{POSTING_BLOCK_BYTES, PageKind, TokenPage};

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
