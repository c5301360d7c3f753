//! `[query]`: the resources of one process and of one request.

use super::memory::LEAST_QUERY_BYTES;
use super::option::section;

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
