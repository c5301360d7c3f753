//! `[cache]`: the caches, in memory and on disk.

use super::option::section;

section! {
    /// The caches, in memory and on disk.
    Cache in "cache" {
        /// Bytes of memory for decoded parts of version files. 0 keeps nothing.
        memory_bytes: u64 = 1 << 30;
        /// Bytes of memory for small compressed answers. 0 keeps none.
        response_bytes: u64 = 64 << 20;
        /// Bytes of memory for diffs, 16 for each change. 0 keeps nothing. Running answers may use diffs that the cache
        /// has dropped. These hold at most as much again.
        diff_bytes: u64 = 64 << 20;
        /// Bytes of disk in the data directory for Parquet exports. Ranges are served from there. 0 keeps none.
        export_bytes: u64 = 4 << 30;
    }
}
