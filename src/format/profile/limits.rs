//! Limits of a profile. They limit its memory for any input: the numbers below, plus about 20 KiB for each path with
//! more than [`MAX_EXACT_DISTINCT`] values. The profile is deterministic for the same entities in the same order.

/// Max paths of a profile. Further paths have no indexed column, and filters on them read documents.
pub const MAX_PROFILE_PATHS: usize = 10_000;
/// Max length of a path: the bytes of its escaped keys, plus one for each key. Deep paths repeat the keys of their
/// ancestors, so without this limit, small entities could have large paths.
pub const MAX_PROFILE_PATH_BYTES: usize = 4_096;
/// Max distinct values that are counted exactly for a path. Above this limit, an indexed column has no dictionary.
pub const MAX_EXACT_DISTINCT: usize = 4_096;
pub(super) const MAX_EXACT_DISTINCT_TOTAL: usize = 1_000_000;
pub(super) const MAX_REPEATED_TEXT_BYTES: usize = 16 << 20;
pub const MAX_SHOWN_VALUE_BYTES: usize = 80;
pub const MAX_TOP_VALUES: usize = 10;
/// For paths with more than [`MAX_EXACT_DISTINCT`] values, one of this many scalars is sampled for frequent values.
pub(super) const SAMPLE_INTERVAL: u64 = 8;
/// Min estimated count of a frequent value in such a path.
pub(super) const MIN_FREQUENT_COUNT: u64 = 128;
