//! The limits of a profile. They bound its memory, whatever the entities are: the numbers below, and up to about 20 KiB
//! for each path with more than [`DISTINCT`] values. The same entities in the same order give the same profile.

/// Most paths that a profile follows. Paths beyond that get no shredded column; their filters are answered from the
/// documents.
pub const PATHS: usize = 10_000;

/// The longest path that a profile follows, in bytes of its keys with their escapes, and one for each. A path repeats
/// the keys above it, so without a limit, small entities could have large paths. A profile treats longer paths like
/// those beyond [`PATHS`].
pub const PATH_BYTES: usize = 4_096;

/// Most distinct values that are counted one by one for a path; above it a shredded column keeps no dictionary.
pub const DISTINCT: usize = 4_096;

/// Most hashes of values, of all paths together.
pub(super) const DISTINCT_TOTAL: usize = 1_000_000;

/// Bytes of values that occur more than once, of all paths together.
pub(super) const TEXT_TOTAL_BYTES: usize = 16 << 20;

pub const VALUE_BYTES: usize = 80;

pub const TOP: usize = 10;

/// Of a path with more than [`DISTINCT`] values, one scalar in this many is looked at for frequent values.
pub(super) const SAMPLED: u64 = 8;

/// Such a path's values are shown as frequent when they seem to occur at least this often.
pub(super) const FREQUENT: u64 = 128;
