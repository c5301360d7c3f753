//! Sections of the configuration whose values need no checks except for the ranges of numbers.

use std::path::PathBuf;

use strata_types::user::UserPlan;

use super::memory::MIN_QUERY_MEMORY_BYTES;
use super::option::section;

section! {
    /// Local files of the service.
    DataDirectoryConfig in "data" {
        /// Data directory for temporary files. It also contains the metadata database and the store, unless
        /// `catalog.url` and `store.url` specify other locations. strata creates the directory if it does not exist,
        /// and resolves a relative path against the current directory.
        directory: PathBuf = PathBuf::from("./strata-data");
    }
}

/// The default SQLite database in the data directory.
pub const CATALOG_FILE_NAME: &str = "catalog.sqlite";

/// The default store in the data directory.
pub const STORE_FOLDER_NAME: &str = "store";

section! {
    /// Removal of unused files.
    SweepConfig in "sweep" {
        /// Interval in seconds between sweeps. 0 disables sweeps.
        interval_s: u64 = 3_600, within 0..=2_592_000;
        /// Time in seconds for which strata keeps an unused file, so that reads in progress can still use it. The time
        /// starts when the last version or alternate stops referring to the file. For a file that nothing ever referred
        /// to, the time starts when the file was written. The value must exceed the sum of `server.answer_timeout_s`,
        /// four times `query.heavy_wait_s`, and either twice `query.timeout_s` or `query.diff_timeout_s`, whichever is
        /// greater.
        older_than_s: u64 = 86_400, within 1..=31_536_000;
    }
}

section! {
    /// How often a running server checks files for damage.
    ScrubConfig in "scrub" {
        /// Time in seconds from the end of one scrub to the start of the next. A scrub reads every version file once.
        /// If several processes share a metadata database, only one of them performs the scrub. After a restart, the
        /// scrub resumes where it stopped. 0 disables scrubs.
        interval_s: u64 = 2_592_000, within 0..=31_536_000;
        /// Average rate at which a scrub reads version files, in bytes per second. 0 means no limit.
        bytes_per_s: u64 = 8_388_608;
    }
}

section! {
    /// Lifetime of login sessions.
    LoginSessionConfig in "sessions" {
        /// Time in seconds after which an unused session ends.
        idle_s: u64 = 1_209_600, within 60..=31_536_000;
        /// Maximum lifetime of a session in seconds, even if it is in use.
        absolute_s: u64 = 7_776_000, within 60..=31_536_000;
    }
}

section! {
    /// The caches, in memory and on disk.
    CacheConfig in "cache" {
        /// Size in bytes of the memory cache for decoded parts of version files. The default is a quarter of the memory
        /// that the process can use, but at least 64 MiB. The memory of the process can be limited, for example by a
        /// container or by `MemoryMax` in systemd. 0 disables this cache.
        memory_bytes: Option<u64> = None;
        /// Size in bytes of the memory cache for small responses. strata caches compressed responses, and uncompressed
        /// pages that clients request repeatedly. 0 disables this cache.
        response_bytes: u64 = 64 << 20;
        /// Size in bytes of the memory cache for diffs. A diff uses 16 bytes for each change. Evicted diffs that
        /// responses are still using can occupy up to the same amount of additional memory. 0 disables this cache.
        diff_bytes: u64 = 64 << 20;
        /// Size in bytes of the Parquet export cache in the data directory. strata serves range requests from this
        /// cache. 0 disables this cache.
        export_bytes: u64 = 4 << 30;
        /// Maximum space in bytes that shared Parquet exports can use in the store. One node builds a shared export,
        /// and the other nodes fetch it. Sharing requires PostgreSQL and a `store.url` that starts with `s3://`. strata
        /// removes exports that are older than `sweep.older_than_s` seconds. If the space is full, strata also removes
        /// the oldest exports. One export can use up to a quarter of the space. 0 disables sharing.
        shared_export_bytes: u64 = 16 << 30;
        /// Size in bytes of the disk cache, which stores parts of version files in the data directory. The cache
        /// survives restarts. strata uses this cache only if `store.url` starts with `s3://`. 0 disables this cache.
        disk_bytes: u64 = 0;
        /// Number of requested Parquet exports that the process tracks. If clients often request an export of `active`
        /// or `latest`, strata builds the new export in the background when another version becomes active or latest. 0
        /// disables these background builds.
        exports_ahead: u64 = 256, within 0..=10_000;
    }
}

section! {
    /// The resources of one process and of one request.
    QueryConfig in "query" {
        /// Number of threads for each query class and for long responses. The query classes are light, medium, and
        /// heavy. 0 means one thread per core.
        threads: u64 = 0, within 0..=1_024;
        /// Maximum memory in bytes that all running queries can use in total, in addition to the cache. The default is
        /// an eighth of the memory that the process can use, but at least 128 MiB.
        memory_bytes: Option<u64> = None, within MIN_QUERY_MEMORY_BYTES..=1 << 50;
        /// Maximum disk space in bytes that all running queries can use in total for spilled data in the data
        /// directory.
        spill_bytes: u64 = 100 << 30;
        /// Maximum time in seconds that a request can take before its response begins.
        timeout_s: u64 = 30, within 1..=86_400;
        /// Maximum time in seconds that a comparison of two versions can take before its response begins.
        diff_timeout_s: u64 = 300, within 1..=86_400;
        /// Estimated work in bytes above which a query is heavy. The work is the size of the documents that the query
        /// must read, or at most 1/128 of that size for each string that the query searches for in the keyword index.
        /// Each filter, sort, or dedup on a stored column adds 16 bytes per entity.
        heavy_bytes: u64 = 16 << 20, within 1..=1 << 50;
        /// Maximum number of heavy queries that run at the same time. 0 means one per thread, but at least 4.
        heavy_queries: u64 = 0, within 0..=10_000;
        /// Estimated work in bytes above which a query is medium, unless it is heavy. The default corresponds to a few
        /// milliseconds on one thread.
        medium_bytes: u64 = 1 << 20, within 1..=1 << 50;
        /// Maximum number of medium queries that run at the same time. 0 means three per thread, but at least 6.
        medium_queries: u64 = 0, within 0..=10_000;
        /// Maximum number of heavy queries that can wait for a permit. The same limit applies separately to diffs,
        /// streamed responses, and Parquet exports. Further requests return 503.
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
        /// queries. Further requests return 503.
        light_queue: u64 = 4_096, within 0..=1_000_000;
        /// Maximum number of streamed responses that strata sends at the same time. strata streams responses larger
        /// than about 1 MiB.
        streams: u64 = 1_024, within 1..=100_000;
        /// Maximum memory in bytes for encoded data that clients have not received yet, for all responses in total.
        /// Above this limit, strata encodes each streamed response about 64 KiB at a time. Two more limits have the
        /// same size. One is for large profiles, explanations, and dashboard pages, which strata builds as a whole. The
        /// other is for streams with entities larger than 32 KiB. A request that exceeds one of these two limits waits
        /// for up to `query.heavy_wait_s` seconds, and then returns 503.
        stream_bytes: u64 = 64 << 20, within 1 << 20..=1 << 40;
    }
}

section! {
    /// How users and networks share permits and space.
    FairShareConfig in "fair" {
        /// Percentage of the available permits that one user or one network of anonymous clients can hold. A network is
        /// an IPv4 address or a 64-bit IPv6 network. A permit is available if no one else holds it. The percentage
        /// applies to heavy queries, diffs, streamed responses, Parquet exports, and refreshes. A user or network
        /// without a permit can take any free permit.
        share_percent: u64 = 50, within 1..=100;
        /// Percentage of the available space that one user or network can use. Space is available if no one else uses
        /// it. The percentage applies to `query.memory_bytes`, `query.spill_bytes`, `sources.spool_bytes`, and the used
        /// part of `cache.export_bytes`.
        space_percent: u64 = 75, within 25..=100;
        /// Percentage of permits and space, rounded up, that strata reserves for users. Anonymous clients can never use
        /// this part.
        user_percent: u64 = 25, within 0..=90;
    }
}

section! {
    /// The POST request after each refresh.
    WebhookConfig in "webhook" {
        /// Maximum total time in seconds for a webhook request, from the lookup of the receiver's host name to the
        /// response head.
        timeout_s: u64 = 10, within 1..=300;
    }
}

section! {
    /// Limits of each plan.
    UserPlanConfig in "plans" {
        /// Maximum number of datasets that a user on the free plan can have. Frozen datasets do not count.
        free_active_datasets: u64 = 3;
        /// Maximum number of datasets that a user on the pro plan can have. Frozen datasets do not count.
        pro_active_datasets: u64 = 50;
        /// Maximum number of datasets that a user on the scale plan can have. Frozen datasets do not count.
        scale_active_datasets: u64 = 1_000;
    }
}

impl UserPlanConfig {
    pub fn max_active_datasets(&self, plan: UserPlan) -> u64 {
        match plan {
            UserPlan::Free => self.free_active_datasets,
            UserPlan::Pro => self.pro_active_datasets,
            UserPlan::Scale => self.scale_active_datasets,
        }
    }
}
