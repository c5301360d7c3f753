//! `[fair]`: how those who ask at the same time share what there is.

use super::option::section;

section! {
    /// How those who ask at the same time share what there is.
    Fair in "fair" {
        /// Percent of what all others leave of it that one user, or one network of anonymous clients (an IPv4 address,
        /// or an IPv6 network of 64 bits), may have of anything that is taken in turns: heavy queries, comparisons,
        /// streamed answers, Parquet, refreshes. Who has nothing gets what is free.
        share_percent: u64 = 50, within 1..=100;
        /// The same percentage for space: of `query.memory_bytes`, `query.spill_bytes`, `sources.spool_bytes` and what
        /// is in use of `cache.export_bytes`.
        space_percent: u64 = 75, within 25..=100;
        /// Percent of each, rounded up, that anonymous clients never have, all together, so that it is there for users.
        user_percent: u64 = 25, within 0..=90;
    }
}
