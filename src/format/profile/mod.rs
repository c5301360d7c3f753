//! The profile of a version: statistics from one pass over the entities, and the choice of indexed columns.
//!
//! The pass runs on one thread, so the cost of each scalar matters. While a path has few distinct values, a scalar
//! costs a hash and a lookup. Later, it costs a hash, updates of a sketch and of the minimum and maximum, and, for one
//! in eight scalars, a lookup in the frequent values.

mod builder;
mod edited;
mod histogram;
mod limits;
mod min_max;
mod profile_paths;
mod shredding;
mod sketch;
mod stored;
mod string_lengths;
mod table_columns;
mod value_statistics;

pub use builder::ProfileBuilder;
pub use edited::{profile_after_edit, total_bytes};
pub use histogram::{NumberHistogram, NumberRange};
pub use limits::{
    MAX_EXACT_DISTINCT, MAX_PROFILE_PATH_BYTES, MAX_PROFILE_PATHS, MAX_SHOWN_VALUE_BYTES, MAX_TOP_VALUES,
};
pub use profile_paths::{PathFacts, ProfilePaths};
pub use shredding::{NotShreddedReason, ShreddingChoice, ShreddingLimits};
pub use stored::{
    PROFILE_KEY, ProfileIndexSettings, ProfileLocation, ProfilePathRecord, ProfileSummary, StoredProfile, TopValue,
    UnmetIndexPath, ValueRecord,
};
pub use string_lengths::length_range;
pub use value_statistics::{DistinctCount, TypeCounts};
