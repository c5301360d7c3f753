//! What a version contains, found in one pass over its entities; the choice of shredded columns that follows; and
//! what of it is stored in the file.
//!
//! The pass runs on one thread, so every scalar counts: while a path has few distinct values, a scalar costs a hash and
//! a look-up; beyond, a hash, a register, a comparison with the minimum and the maximum, and for one in eight a
//! look-up among the frequent ones.

mod bins;
mod builder;
mod columns;
mod edited;
mod lengths;
mod limits;
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
pub use limits::{DISTINCT, PATH_BYTES, PATHS, TOP, VALUE_BYTES};
pub use paths::{PathFacts, PathIndex};
pub use shredding::{NotShredded, ShreddingBounds, ShreddingChoice};
pub use stored::{
    Distinct, IndexRecord, PROFILE_KEY, PathRecord, ProfileLocation, ProfileSummary, StoredProfile, TopValue, Unmet,
    ValueRecord,
};
pub use values::TypeCounts;
