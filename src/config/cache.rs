//! `[cache]`: the caches, in memory and on disk.

use super::option::section;

section! {
    /// The caches, in memory and on disk.
    Cache in "cache" {
        /// Bytes of memory for decoded parts of version files. 0 keeps nothing. When not given, a quarter of the memory
        /// that the process may use, and at least 64 MiB. That is the memory of the machine, or less if a control group
        /// (a container, `MemoryMax` of systemd) says so.
        memory_bytes: Option<u64> = None;
        /// Bytes of memory for small answers: compressed ones, and plain pages that are asked for again. 0 keeps none.
        response_bytes: u64 = 64 << 20;
        /// Bytes of memory for diffs, 16 for each change. 0 keeps nothing. Running answers may use diffs that the cache
        /// has dropped. These hold at most as much again.
        diff_bytes: u64 = 64 << 20;
        /// Bytes of disk in the data directory for Parquet exports. Ranges are served from there. 0 keeps none.
        export_bytes: u64 = 4 << 30;
        /// Bytes in the store for Parquet exports that servers share, where the catalog is PostgreSQL and `store.url`
        /// is `s3://`. One server makes an export, and the others fetch it from there. What was fetched least recently
        /// goes first, and what nobody has fetched for `sweep.older_than_s`. One export may take a quarter. 0 shares
        /// none.
        shared_export_bytes: u64 = 16 << 30;
        /// Bytes of disk in the data directory for parts of version files, as they are stored, where `store.url` is
        /// `s3://`. Reads after a restart find them there. 0 keeps none.
        disk_bytes: u64 = 0;
        /// Parquet exports that the process remembers as asked for. Those that are asked for often, as `active` or
        /// `latest`, are made in the background when another version takes that place. 0 makes none.
        exports_ahead: u64 = 256, within 0..=10_000;
    }
}
