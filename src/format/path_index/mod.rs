//! Path index: the path of each scalar in the full-text column.
//!
//! The *structure* of an entity is the sequence of its scalars' paths and kinds in document order, with run lengths.
//! The full-text column has the same order, so the ordinal of a match in this column determines its path. Entities
//! repeat their structures, so a row group has a dictionary of distinct structures, and one code for each row.
//!
//! The module does no I/O. Callers verify checksums first; bytes that are damaged nevertheless cause an error or wrong
//! paths, but no panic. `benches/reads` measures the index, and the tests `query::shapes` check its results.

pub mod builder;
pub mod directory;
pub mod structure_dictionary;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path index is damaged: {0}")]
pub struct PathIndexError(&'static str);

/// Max size of a row group's path index before compression. Writers discard larger ones, and readers reject them.
pub const MAX_PATH_INDEX_RAW_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScalarKind {
    Text = 0,
    Number = 1,
    Null = 2,
}

impl ScalarKind {
    pub const ALL: [ScalarKind; 3] = [ScalarKind::Text, ScalarKind::Number, ScalarKind::Null];
}
