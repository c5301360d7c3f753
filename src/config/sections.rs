//! The sections whose options are numbers and paths, checked by their ranges alone.

use std::path::PathBuf;

use strata_types::user::Plan;

use super::memory::LEAST_QUERY_BYTES;
use super::option::section;

section! {
    /// Where the service stores its local files.
    Data in "data" {
        /// Data directory, which strata creates if it does not exist. strata resolves a relative path against the
        /// current directory. The directory contains temporary files. It also contains the metadata database and the
        /// store, unless `catalog.url` and `store.url` specify other locations.
        directory: PathBuf = PathBuf::from("./strata-data");
    }
}

/// The SQLite catalog in the data directory, unless `catalog.url` names another.
pub const CATALOG_FILE: &str = "catalog.sqlite";

/// The store in the data directory, unless `store.url` names another.
pub const STORE_FOLDER: &str = "store";

section! {
    /// When unused files are removed.
    Sweep in "sweep" {
        /// Time in seconds between two sweeps of a running server. 0 disables sweeps.
        interval_s: u64 = 3_600, within 0..=2_592_000;
        /// Time in seconds for which strata retains an unused file. The time starts when the file loses its last
        /// reference from a version or alternate. If there never was a reference, the time starts when the file was
        /// written. During this time, reads that started earlier can still use the file, in any process. The value must
        /// therefore exceed the sum of twice `query.timeout_s` (or `query.diff_timeout_s` if that is more), four times
        /// `query.heavy_wait_s`, and `server.answer_timeout_s`.
        older_than_s: u64 = 86_400, within 1..=31_536_000;
    }
}

section! {
    /// How often a running server checks files for damage.
    Scrub in "scrub" {
        /// Time in seconds between the end of a scrub and the start of the next one. 0 disables scrubs. A scrub reads
        /// every version file once. If several processes share a metadata database, one of them runs the scrub. After a
        /// restart, the scrub resumes where it stopped.
        interval_s: u64 = 2_592_000, within 0..=31_536_000;
        /// Average number of bytes of version files that a scrub reads per second. 0 means no limit.
        bytes_per_s: u64 = 8_388_608;
    }
}

section! {
    /// How long a session lasts.
    Sessions in "sessions" {
        /// Time in seconds without a request after which a session ends.
        idle_s: u64 = 1_209_600, within 60..=31_536_000;
        /// Time in seconds after login at which a session ends, even if it is in use.
        absolute_s: u64 = 7_776_000, within 60..=31_536_000;
    }
}

section! {
    /// The caches, in memory and on disk.
    Cache in "cache" {
        /// Size in bytes of the memory cache for decoded parts of version files. 0 disables this cache. The default is
        /// a quarter of the memory that the process can use, but at least 64 MiB. That is the memory of the machine, or
        /// less if a control group sets a lower limit (a container, or `MemoryMax` in systemd).
        memory_bytes: Option<u64> = None;
        /// Size in bytes of the memory cache for small responses. strata caches compressed responses, and also
        /// uncompressed pages that are requested again. 0 disables this cache.
        response_bytes: u64 = 64 << 20;
        /// Size in bytes of the memory cache for diffs, which need 16 bytes for each change. 0 disables this cache.
        /// Responses in progress can use diffs that strata has evicted from the cache. The evicted diffs use at most
        /// the same amount of memory again.
        diff_bytes: u64 = 64 << 20;
        /// Size in bytes of the disk cache for Parquet exports in the data directory. strata serves range requests from
        /// these files. 0 disables this cache.
        export_bytes: u64 = 4 << 30;
        /// Maximum space in bytes in the store for Parquet exports that nodes share. strata shares exports only if the
        /// metadata database is PostgreSQL and `store.url` starts with `s3://`. One node builds an export, and the
        /// others fetch it from the store. If the space is full, strata removes the least recently fetched exports
        /// first. It also removes exports that no node has fetched for `sweep.older_than_s`. One export can use a
        /// quarter of the space. 0 disables sharing.
        shared_export_bytes: u64 = 16 << 30;
        /// Size in bytes of the disk cache for parts of version files, which strata caches in their stored form in the
        /// data directory. strata uses this cache only if `store.url` starts with `s3://`. Reads can still use the
        /// cached parts after a restart. 0 disables this cache.
        disk_bytes: u64 = 0;
        /// Number of requested Parquet exports that the process remembers. If an export of `active` or `latest` is
        /// requested often, strata builds it in the background when a different version becomes active or latest. 0
        /// disables these background builds.
        exports_ahead: u64 = 256, within 0..=10_000;
    }
}

section! {
    /// The resources of one process and of one request.
    Query in "query" {
        /// Number of threads for each class of queries (light, medium, and heavy), and for long responses. 0 means one
        /// per core.
        threads: u64 = 0, within 0..=1_024;
        /// Maximum memory in bytes that all running queries can use in total, in addition to the cache. The default is
        /// an eighth of the memory that the process can use, but at least 128 MiB.
        memory_bytes: Option<u64> = None, within LEAST_QUERY_BYTES..=1 << 50;
        /// Maximum disk space in bytes that all running queries can use in total to spill data to the data directory.
        spill_bytes: u64 = 100 << 30;
        /// Maximum time in seconds that a request can take before its response begins.
        timeout_s: u64 = 30, within 1..=86_400;
        /// Maximum time in seconds that a comparison of two versions can take before its response begins.
        diff_timeout_s: u64 = 300, within 1..=86_400;
        /// Estimated work in bytes above which a query is heavy. strata counts the documents that the query has to
        /// read, or a quarter of them if the full-text column is sufficient. It adds 16 bytes per entity for each
        /// filter, sort, or dedup that uses a stored column.
        heavy_bytes: u64 = 16 << 20, within 1..=1 << 50;
        /// Maximum number of heavy queries that run at the same time. 0 means one per thread, but at least 4.
        heavy_queries: u64 = 0, within 0..=10_000;
        /// Estimated work in bytes above which a query that is not heavy is medium. The default corresponds to a few
        /// milliseconds of one thread.
        medium_bytes: u64 = 1 << 20, within 1..=1 << 50;
        /// Maximum number of medium queries that run at the same time. 0 means three per thread, but at least 6.
        medium_queries: u64 = 0, within 0..=10_000;
        /// Maximum number of heavy queries that can wait for a permit. The same limit applies separately to diffs, to
        /// streamed responses, and to Parquet exports. strata rejects further requests with 503.
        heavy_queue: u64 = 64, within 0..=100_000;
        /// Maximum time in seconds that a query, diff, streamed response, or Parquet export can wait for a permit.
        /// After that, the request returns 503.
        heavy_wait_s: u64 = 10, within 1..=3_600;
        /// Maximum number of version diffs that run at the same time. 0 means half the number of heavy queries.
        diffs: u64 = 0, within 0..=10_000;
        /// Maximum number of light queries that run at the same time. A query is light if it is neither heavy nor
        /// medium. 0 means 32 per thread.
        light_queries: u64 = 0, within 0..=100_000;
        /// Maximum number of light queries that can wait for a permit. The same limit applies separately to medium
        /// queries. strata rejects further requests with 503.
        light_queue: u64 = 4_096, within 0..=1_000_000;
        /// Maximum number of streamed responses that strata sends at the same time. Responses of more than about 1 MiB
        /// are streamed.
        streams: u64 = 1_024, within 1..=100_000;
        /// Memory in bytes for responses that strata encodes before clients receive them, for all responses in total.
        /// Above this limit, strata encodes each streamed response about 64 KiB at a time. Large responses that are
        /// built as a whole (profiles, explanations, and dashboard pages) have a separate limit of the same size.
        /// Streams with entities larger than 32 KiB have a third one. A request that exceeds the second or third limit
        /// waits for up to `query.heavy_wait_s`, and then returns 503.
        stream_bytes: u64 = 64 << 20, within 1 << 20..=1 << 40;
    }
}

section! {
    /// How users and networks share permits and space.
    Fair in "fair" {
        /// Percentage of the available permits that one user or one network of anonymous clients can hold. A permit is
        /// available if no one else holds it. A network is one IPv4 address or one 64-bit IPv6 network. The percentage
        /// applies to heavy queries, diffs, streamed responses, Parquet exports, and refreshes. A user or network that
        /// holds no permit can take any free one.
        share_percent: u64 = 50, within 1..=100;
        /// Percentage of the available space that one user or network can use, by the same rule as
        /// `fair.share_percent`. It applies to `query.memory_bytes`, `query.spill_bytes`, `sources.spool_bytes`, and
        /// the part of `cache.export_bytes` that is in use.
        space_percent: u64 = 75, within 25..=100;
        /// Percentage of the permits and of the space, rounded up, that strata reserves for users. Anonymous clients
        /// can never use this part.
        user_percent: u64 = 25, within 0..=90;
    }
}

section! {
    /// The POST request after each refresh.
    Webhook in "webhook" {
        /// Maximum total time in seconds for a webhook request, from the lookup of the receiver's host name to the head
        /// of its response.
        timeout_s: u64 = 10, within 1..=300;
    }
}

section! {
    /// What each plan includes.
    Plans in "plans" {
        /// Maximum number of datasets that a user on the free plan can have. Frozen datasets do not count.
        free_active_datasets: u64 = 3;
        /// Maximum number of datasets that a user on the pro plan can have. Frozen datasets do not count.
        pro_active_datasets: u64 = 50;
        /// Maximum number of datasets that a user on the scale plan can have. Frozen datasets do not count.
        scale_active_datasets: u64 = 1_000;
    }
}

impl Plans {
    /// How many active datasets a plan allows.
    pub fn active_datasets(&self, plan: Plan) -> u64 {
        match plan {
            Plan::Free => self.free_active_datasets,
            Plan::Pro => self.pro_active_datasets,
            Plan::Scale => self.scale_active_datasets,
        }
    }
}
