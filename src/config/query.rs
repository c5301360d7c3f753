//! `[query]`: what one process, and one request, may take.

use super::option::section;

section! {
    /// What one process, and one request, may take.
    Query in "query" {
        /// Threads that work on queries; 0 is one per core.
        threads: u64 = 0, within 0..=1_024;
        /// Bytes of memory that all running queries may hold together, besides the cache.
        memory_bytes: u64 = 1 << 30, within 16 << 20..=1 << 50;
        /// Bytes of disk that all running queries may spill together, under the data directory.
        spill_bytes: u64 = 100 << 30;
        /// Seconds a request may take until its answer begins.
        timeout_s: u64 = 30, within 1..=86_400;
    }
}
