//! The sections whose options are numbers and paths, checked by their ranges alone.

use std::path::PathBuf;

use strata_types::user::Plan;

use super::memory::LEAST_QUERY_BYTES;
use super::option::section;

section! {
    /// Where the service keeps what it needs on local disk.
    Data in "data" {
        /// The data directory, created when missing. A relative path starts at the current directory. The directory
        /// holds temporary files. It also holds the catalog and the store, unless `catalog.url` and `store.url` name
        /// others.
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
        /// Seconds between two sweeps of a running server. 0 is never.
        interval_s: u64 = 3_600, within 0..=2_592_000;
        /// Seconds for which an unused file is kept. They count from the end of the last version or alternate that
        /// named the file. If none ever did, they count from when it was written. Earlier reads may still use it, in
        /// any process. So this must be more than the sum of twice `query.timeout_s` (or `query.diff_timeout_s`, if
        /// that is more), four times `query.heavy_wait_s` and `server.answer_timeout_s`.
        older_than_s: u64 = 86_400, within 1..=31_536_000;
    }
}

section! {
    /// How often a running server checks files for damage.
    Scrub in "scrub" {
        /// Seconds between the end of a scrub and the begin of the next. 0 is never. A scrub reads every version file
        /// once. If several processes share a catalog, one of them scrubs. After a restart the scrub continues where it
        /// was.
        interval_s: u64 = 2_592_000, within 0..=31_536_000;
        /// Bytes of version files that a scrub reads a second, on average. 0 is no bound.
        bytes_per_s: u64 = 8_388_608;
    }
}

section! {
    /// How long a log-in lasts.
    Sessions in "sessions" {
        /// Seconds without a request after which a session ends.
        idle_s: u64 = 1_209_600, within 60..=31_536_000;
        /// Seconds after its log-in at which a session ends, even if it is in use.
        absolute_s: u64 = 7_776_000, within 60..=31_536_000;
    }
}

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

section! {
    /// The resources of one process and of one request.
    Query in "query" {
        /// Threads that work on queries of each weight (light, medium, heavy) and on long answers. 0 is one per core.
        threads: u64 = 0, within 0..=1_024;
        /// Bytes of memory that all running queries may hold together, besides the cache. When not given, an eighth of
        /// the memory that the process may use, and at least 128 MiB.
        memory_bytes: Option<u64> = None, within LEAST_QUERY_BYTES..=1 << 50;
        /// Bytes of disk that all running queries may spill together, under the data directory.
        spill_bytes: u64 = 100 << 30;
        /// Seconds a request may take until its answer begins.
        timeout_s: u64 = 30, within 1..=86_400;
        /// Seconds that comparing two versions may take, until the answer begins.
        diff_timeout_s: u64 = 300, within 1..=86_400;
        /// Work above which a query is heavy, in bytes: the documents that it has to read, a quarter of them where the
        /// search text is enough, and 16 for each entity and each filter, sort or dedup that a stored column answers.
        heavy_bytes: u64 = 16 << 20, within 1..=1 << 50;
        /// Heavy queries that run at the same time. 0 is one per thread, and at least 4.
        heavy_queries: u64 = 0, within 0..=10_000;
        /// Work above which a query that is not heavy is medium, in bytes: a few milliseconds of a thread.
        medium_bytes: u64 = 1 << 20, within 1..=1 << 50;
        /// Medium queries that run at the same time. 0 is three for each thread, and at least 6.
        medium_queries: u64 = 0, within 0..=10_000;
        /// Heavy queries that may wait for a permit. The same number of diffs, of streamed answers and of Parquet
        /// exports may wait. Further ones are refused.
        heavy_queue: u64 = 64, within 0..=100_000;
        /// Seconds that a query, diff, streamed answer or Parquet export may wait for a permit.
        heavy_wait_s: u64 = 10, within 1..=3_600;
        /// Diffs of two versions that run at the same time. 0 is half as many as heavy queries.
        diffs: u64 = 0, within 0..=10_000;
        /// Light queries that run at the same time. All queries that are neither heavy nor medium are light. 0 is 32
        /// for each thread.
        light_queries: u64 = 0, within 0..=100_000;
        /// Light queries that may wait for a permit, and as many medium ones. Further ones are refused.
        light_queue: u64 = 4_096, within 0..=1_000_000;
        /// Streamed answers, of more than about 1 MiB, that are sent at the same time.
        streams: u64 = 1_024, within 1..=100_000;
        /// Bytes of answers that may be encoded ahead of their readers, all answers together. Above it, each streamed
        /// answer is encoded about 64 KiB at a time. Large responses that are built as a whole (profiles, explanations,
        /// pages of the dashboard) have a second limit of this size, and streams of entities of more than 32 KiB a
        /// third. A request above one of them waits for `query.heavy_wait_s`, and then returns 503.
        stream_bytes: u64 = 64 << 20, within 1 << 20..=1 << 40;
    }
}

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

section! {
    /// The POST after each refresh.
    Webhook in "webhook" {
        /// Seconds that a receiver may take in total, from the look-up of its name to the head of its answer.
        timeout_s: u64 = 10, within 1..=300;
    }
}

section! {
    /// What each plan includes.
    Plans in "plans" {
        /// Datasets that a user on the plan free may have. Frozen ones do not count.
        free_active_datasets: u64 = 3;
        /// Datasets that a user on the plan pro may have. Frozen ones do not count.
        pro_active_datasets: u64 = 50;
        /// Datasets that a user on the plan scale may have. Frozen ones do not count.
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
