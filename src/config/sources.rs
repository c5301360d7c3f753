//! `[sources]`: limits of sources and downloads.

use super::option::{checked_type, section};

section! {
    /// The limits of sources, and of fetching them.
    SourceConfig in "sources" {
        /// Maximum size in bytes of one source, both as received and after decompression.
        max_bytes: u64 = 16 << 30, within 1..=1 << 50;
        /// Maximum ratio of a source's decoded size to the number of bytes received. The limit applies to the
        /// decompressed bytes, to the sizes that a Parquet file declares, and to the text of the entities.
        max_expansion: u64 = 500, within 1..=1 << 50;
        /// Decoded size in bytes up to which `sources.max_expansion` does not apply, even if strata has received only a
        /// few bytes.
        free_expansion_bytes: u64 = 64 << 20, within 0..=1 << 50;
        /// Maximum window size in bytes of a Zstandard frame, rounded down to a power of two. Files compressed with
        /// `zstd --long` need 128 MiB.
        zstd_window_bytes: u64 = 128 << 20, within 1_024..=1 << 31;
        /// Maximum number of columns in a table (CSV, TSV, or Parquet).
        max_columns: u64 = 100_000, within 1..=10_000_000;
        /// Maximum memory in bytes for decoding one Parquet source, according to the sizes that the file declares. The
        /// memory includes the metadata, one page and one dictionary per column, and a batch of rows.
        parquet_memory_bytes: u64 = 512 << 20, within 1 << 20..=1 << 40;
        /// Maximum disk space in bytes that sources and pushed bodies can use in the data directory while strata
        /// receives, decodes, indexes, or writes them. All users share this space.
        spool_bytes: u64 = 128 << 30, within 1..=1 << 50;
        /// Maximum part of `sources.spool_bytes`, in bytes, that one user can use. A second limit also applies: each
        /// user can use at most `fair.space_percent` of the space that no other user is using.
        user_spool_bytes: u64 = 32 << 30, within 1..=1 << 50;
        /// Number of bytes that must remain free on the disk of the data directory. Sources, pushed bodies, Parquet
        /// exports, and spilled data cannot use this reserve. If less space is free, strata removes exports that no one
        /// is reading.
        disk_reserve_bytes: u64 = 256 << 20, within 0..=1 << 50;
        /// Maximum total time in seconds to fetch and decode one source.
        timeout_s: u64 = 3_600, within 1..=86_400;
        /// Maximum time in seconds to connect to a source's server, including the TLS handshake.
        connect_timeout_s: u64 = 10, within 1..=3_600;
        /// Maximum time in seconds between requesting a source and receiving the response head, including redirects.
        answer_timeout_s: u64 = 60, within 1..=86_400;
        /// Maximum time in seconds without data while strata receives a source or a pushed body.
        idle_timeout_s: u64 = 60, within 1..=86_400;
        /// Maximum number of redirects that strata follows for one source.
        redirects: u64 = 5, within 0..=20;
        /// Folder in the store, such as `incoming`, whose objects can be dataset sources. The path is relative to
        /// `store.url`. If this option is not set, objects in the store cannot be sources.
        prefix: Option<SourcePrefix> = None;
        /// Maximum number of sources and pushed bodies that one process receives at the same time. Further sources and
        /// bodies wait for a permit. Users share the permits according to `fair.share_percent`.
        receiving: u64 = 256, within 4..=100_000;
        /// Maximum number of refreshes whose data one process decodes and writes at the same time. A refresh needs a
        /// permit only after strata has received its source or body. Users share the permits according to
        /// `fair.share_percent`.
        concurrent: u64 = 4, within 1..=256;
        /// Maximum number of refreshes that can wait for a `sources.concurrent` permit. Further refreshes fail with
        /// 503.
        queue: u64 = 1_000, within 1..=100_000;
        /// Time in seconds over which strata spreads scheduled refreshes that are due in the same minute. The spread is
        /// at most a tenth of the schedule's interval. Each dataset always has the same position within the spread.
        schedule_spread_s: u64 = 900, within 0..=3_600;
    }
}

pub const VERSIONS_FOLDER: &str = "versions";

/// The folder of the store that contains shared Parquet exports. Its objects can never be dataset sources.
pub const SHARED_EXPORTS_FOLDER: &str = "shared-exports";

pub const RESERVED_FOLDERS: [&str; 2] = [VERSIONS_FOLDER, SHARED_EXPORTS_FOLDER];

/// Returns true for a folder of the store that can never contain dataset sources. Ignores case, like some file systems.
pub fn is_reserved_folder(name: &str) -> bool {
    RESERVED_FOLDERS.iter().any(|own| name.eq_ignore_ascii_case(own))
}

checked_type! {
    /// A folder of the store that can contain sources, without a slash at either end. It has at least one segment; no
    /// segment is empty, `.`, or `..`, and the first one is not in [`RESERVED_FOLDERS`].
    #[derive(Debug, Eq)]
    SourcePrefix(String) from String => as_str -> str, |text| {
        let folder = text.strip_prefix('/').unwrap_or(&text);
        let folder = folder.strip_suffix('/').unwrap_or(folder);
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\\', '\0']);
        if !folder.split('/').all(is_name) {
            return Err(format!(
                "{text:?} is not a folder in the store; expected a path such as incoming or data/incoming"
            ));
        }
        if folder.split('/').next().is_some_and(is_reserved_folder) {
            let [versions, exports] = RESERVED_FOLDERS;
            return Err(format!(
                "{text:?}: the folders {versions} and {exports} are reserved for strata and cannot contain sources"
            ));
        }
        Ok(folder.to_owned())
    }
}
