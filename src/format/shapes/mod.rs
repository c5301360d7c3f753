//! Shapes: which path each text of the search text belongs to.
//!
//! The *shape* of an entity is the paths of its scalars in document order, as runs of equal ones. Scalars have the same
//! order in the search text, so the ordinal of a hit there names its path. The distinct shapes of a row group are a
//! dictionary, and each row has a code: entities repeat their shape.
//!
//! Nothing here does I/O. Bytes are verified by their checksums before they come here; what is damaged nonetheless
//! gives an error or other paths, and no panic.
//!
//! Measured by the rows `not shredded: filter …` of `benches/reads`; `query::shapes` compares its answers.

pub mod builder;
pub mod decoded;
pub mod stored;

/// Bytes are not shapes that this build writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path index is damaged: {0}")]
pub struct Damaged(&'static str);

/// Most bytes of the shapes of a row group before they are compressed. A writer leaves out what takes more, and a
/// reader refuses it.
pub const RAW_BYTES: usize = 8 << 20;

/// What kind of scalar stands at a place, as far as comparisons tell kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScalarKind {
    Text = 0,
    Number = 1,
    /// Null, which has no text.
    Null = 2,
}

impl ScalarKind {
    pub const ALL: [ScalarKind; 3] = [ScalarKind::Text, ScalarKind::Number, ScalarKind::Null];
}
