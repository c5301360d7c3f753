//! What a version contains, found in one pass over its entities; the choice of shredded columns that follows; and
//! what of it is stored in the file.
//!
//! | Module | Holds |
//! |---|---|
//! | `builder` | the pass: every path with its counts |
//! | `values` | the values of one path: how many, which are frequent, the minimum and the maximum |
//! | `min_max` | the minimum and the maximum |
//! | `edited` | the profile of a list after edits |
//! | `lengths` | how long its strings are |
//! | `bins` | how its numbers are spread |
//! | `sketch` | the number of distinct values and the frequent ones, where there are too many to keep |
//! | `shredding` | which paths get a shredded column, and why others get none |
//! | `stored` | what is told of a version, and its form in the file |
//! | `columns` | the columns of the version as a table |
//! | `paths` | the paths and columns alone, for reads that need no more |
//!
//! The pass runs on one thread, so every scalar counts: while a path has few distinct values, a scalar costs a hash and
//! a look-up; beyond, a hash, a register, a comparison with the minimum and the maximum, and for one in [`SAMPLED`] a
//! look-up among the frequent ones.
//!
//! Memory is bounded whatever the entities are: at most [`PATHS`] paths of [`PATH_BYTES`] are followed, at most
//! [`DISTINCT_TOTAL`] value hashes and [`TEXT_TOTAL_BYTES`] of values are kept, and up to about 20 KiB for each path
//! beyond [`DISTINCT`]. All is deterministic: the same entities in the same order give the same profile.

mod bins;
mod builder;
mod columns;
mod edited;
mod lengths;
mod min_max;
mod paths;
mod shredding;
mod sketch;
mod stored;
mod values;

pub use bins::{NumberRange, StoredBins};
pub use builder::ProfileBuilder;
pub use edited::{bytes_of, edited};
pub use lengths::lengths_at;
pub use paths::{PathFacts, PathIndex};
pub use shredding::{NotShredded, ShreddingBounds, ShreddingChoice};
pub use stored::{
    Distinct, IndexRecord, PROFILE_KEY, PathRecord, ProfileLocation, ProfileSummary, StoredProfile, TopValue, Unmet,
    ValueRecord,
};
pub use values::TypeCounts;

/// Most paths that a profile follows. Paths beyond that get no shredded column; their filters are answered from the
/// documents.
pub const PATHS: usize = 10_000;

/// The longest path that a profile follows, in bytes of its keys with their escapes, and one for each. A path repeats
/// the keys above it, so that without a bound few bytes of entities would make many of paths. Longer ones are to a
/// profile as those beyond [`PATHS`].
pub const PATH_BYTES: usize = 4_096;

/// Most distinct values that are counted one by one for a path; above it a shredded column keeps no dictionary.
pub const DISTINCT: usize = 4_096;

pub const DISTINCT_TOTAL: usize = 1_000_000;

pub const TEXT_TOTAL_BYTES: usize = 16 << 20;

pub const VALUE_BYTES: usize = 80;

pub const TOP: usize = 10;

/// Of a path with more than [`DISTINCT`] values, one scalar in this many is looked at for frequent values.
pub const SAMPLED: u64 = 8;

/// Such a path's values are shown as frequent when they seem to occur at least this often.
pub const FREQUENT: u64 = 128;
