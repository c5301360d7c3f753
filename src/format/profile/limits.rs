//! Limits of a version's profile. For any input, they limit its memory to the constants in this module, plus about 20
//! KiB for each path with more than [`MAX_EXACT_DISTINCT`] distinct values. The profile is deterministic for the same
//! entities in the same order.

/// Max paths of a version's profile. Further paths have no indexed column, and filters on them read documents.
pub const MAX_PROFILE_PATHS: usize = 10_000;
/// Max length of a path in a profile: the bytes of its escaped keys, plus one for each key. Deep paths repeat the keys
/// of their ancestors, so without this limit, small entities could have large paths.
pub const MAX_PROFILE_PATH_BYTES: usize = 4_096;
/// Max distinct values of a path that are counted exactly. Beyond, the path's indexed column has no dictionary.
pub const MAX_EXACT_DISTINCT: usize = 4_096;
pub(super) const MAX_EXACT_DISTINCT_TOTAL: usize = 1_000_000;
pub(super) const MAX_REPEATED_TEXT_BYTES: usize = 16 << 20;
pub const MAX_SHOWN_VALUE_BYTES: usize = 80;
pub const MAX_TOP_VALUES: usize = 10;
/// At paths with more than [`MAX_EXACT_DISTINCT`] values, one of this many scalars is sampled to find frequent values.
pub(super) const SAMPLE_INTERVAL: u64 = 8;
/// Min estimated number of occurrences of a value that was found by sampling and is listed as frequent.
pub(super) const MIN_FREQUENT_COUNT: u64 = 128;
