//! `[sources]`: the bounds of sources and of fetching them.

use serde::Deserialize;

use super::option::section;

section! {
    /// The bounds of sources and of fetching them.
    Sources in "sources" {
        /// Bytes of one source, as it comes and after decompression.
        max_bytes: u64 = 16 << 30, within 1..=1 << 50;
        /// How many times the bytes received from a source its decoded size may be. This bounds decompressed bytes, the
        /// sizes that a Parquet file announces, and the text of its entities.
        max_expansion: u64 = 500, within 1..=1 << 50;
        /// Decoded bytes that any source may have, even if few bytes were received.
        free_expansion_bytes: u64 = 64 << 20, within 0..=1 << 50;
        /// Bytes of history that a Zstandard frame may need, rounded down to a power of two. `zstd --long` needs 128
        /// MiB.
        zstd_window_bytes: u64 = 128 << 20, within 1_024..=1 << 31;
        /// Columns that a table (csv, tsv, parquet) may have.
        max_columns: u64 = 100_000, within 1..=10_000_000;
        /// Bytes of memory that decoding one Parquet source may take, as the file announces: its metadata, a page and a
        /// dictionary of each column, and a batch of rows.
        parquet_memory_bytes: u64 = 512 << 20, within 1 << 20..=1 << 40;
        /// Bytes of disk in the data directory that sources and pushed bodies may take while they are received, decoded
        /// and written, all users together.
        spool_bytes: u64 = 128 << 30, within 1..=1 << 50;
        /// Bytes of `sources.spool_bytes` that one user may take. A user also has at most `fair.space_percent` of what
        /// the others leave.
        user_spool_bytes: u64 = 32 << 30, within 1..=1 << 50;
        /// Bytes of the data directory's disk that sources, pushed bodies, Parquet exports and what queries spill leave
        /// free. Exports that nobody reads are dropped where there is less.
        disk_reserve_bytes: u64 = 256 << 20, within 0..=1 << 50;
        /// Seconds that fetching one source may take in total, with its decoding.
        timeout_s: u64 = 3_600, within 1..=86_400;
        /// Seconds for a connection to a source's server, TLS included.
        connect_timeout_s: u64 = 10, within 1..=3_600;
        /// Seconds from the request to the head of the answer, redirects included.
        answer_timeout_s: u64 = 60, within 1..=86_400;
        /// Seconds that a source, or a pushed body, may send nothing.
        idle_timeout_s: u64 = 60, within 1..=86_400;
        /// Redirects that are followed for one source.
        redirects: u64 = 5, within 0..=20;
        /// The folder of the store (below `store.url`) whose objects datasets may have as sources, such as `incoming`.
        /// None when not given.
        prefix: Option<SourcePrefix> = None;
        /// Sources and pushed bodies that one process receives at the same time. Further ones wait for a permit. Users
        /// share the permits by `fair.share_percent`.
        receiving: u64 = 256, within 4..=100_000;
        /// Refreshes that one process decodes and writes at the same time. A refresh needs a permit once its source or
        /// body is received. Further ones wait. Users share the permits by `fair.share_percent`.
        concurrent: u64 = 4, within 1..=256;
        /// Refreshes that may wait for a permit of `sources.concurrent`. Further ones are refused.
        queue: u64 = 1_000, within 1..=100_000;
        /// Seconds over which scheduled refreshes are spread, so that those of one minute do not all start at once. The
        /// spread is at most a tenth of the schedule's interval. A dataset's share of it never changes.
        schedule_spread_s: u64 = 900, within 0..=3_600;
    }
}

/// A folder of the store that is open to sources.
///
/// - Its names are separated by `/`; there is at least one, and none is empty, `.` or `..`.
/// - It is none of the folders of the service, [`OWN_FOLDERS`], and inside none of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SourcePrefix(String);

impl SourcePrefix {
    /// The folder, without a slash at either end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The folder of the version files, which is never a source.
pub const VERSIONS_FOLDER: &str = "versions";

/// The folder of the exports that servers share, which is never a source either.
pub const SHARED_EXPORTS_FOLDER: &str = "shared-exports";

/// The folders of the store that hold what the service keeps.
pub const OWN_FOLDERS: [&str; 2] = [VERSIONS_FOLDER, SHARED_EXPORTS_FOLDER];

/// Whether a folder directly below the store's root is the service's own, however its file system takes case.
pub fn is_own_folder(name: &str) -> bool {
    OWN_FOLDERS.iter().any(|own| name.eq_ignore_ascii_case(own))
}

impl TryFrom<String> for SourcePrefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let folder = text.strip_prefix('/').unwrap_or(&text);
        let folder = folder.strip_suffix('/').unwrap_or(folder);
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['\\', '\0']);
        if !folder.split('/').all(is_name) {
            return Err(format!("{text:?} is not a folder below the store's root, such as incoming or data/incoming"));
        }
        if folder.split('/').next().is_some_and(is_own_folder) {
            let [versions, exports] = OWN_FOLDERS;
            return Err(format!(
                "{text:?}: the folders {versions} and {exports} hold what the service keeps and are never sources"
            ));
        }
        Ok(Self(folder.to_owned()))
    }
}
