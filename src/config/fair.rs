//! `[fair]`: how users and networks share permits and space.

use super::option::section;

section! {
    /// How users and networks share permits and space.
    Fair in "fair" {
        /// Percent of the permits left by all others that one user, or one network of anonymous clients (an IPv4
        /// address, or an IPv6 network of 64 bits), may hold. This covers heavy queries, diffs, streamed answers,
        /// Parquet and refreshes. A user or network without a permit gets any free one.
        share_percent: u64 = 50, within 1..=100;
        /// The same percentage for space: `query.memory_bytes`, `query.spill_bytes`, `sources.spool_bytes` and the part
        /// of `cache.export_bytes` that is in use.
        space_percent: u64 = 75, within 25..=100;
        /// Percent of each, rounded up, that all anonymous clients together never hold. It stays free for users.
        user_percent: u64 = 25, within 0..=90;
    }
}
