//! Metrics of the process, for Prometheus.
//!
//! Each metric is a documented field of [`Metrics`], which defines its name, labels, and meaning. The table in
//! docs/reference/metrics.md and the `# HELP` lines are generated from the fields. All services of a process share one
//! recorder, and `http` serves the text of [`render_prometheus`].
//!
//! Label values come from fixed sets (routes, statuses, formats), never from a request, so that clients cannot create
//! series. No series names a dataset.

#[cfg(target_os = "linux")]
mod process;
mod registry;
pub mod request_log;
pub mod routes;

use std::sync::LazyLock;

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

pub use self::registry::{MetricDescription, MetricFamily, MetricKind};
use self::registry::{RegistryField, registry};

type CounterFamily = MetricFamily<Counter>;
type GaugeFamily = MetricFamily<Gauge>;
type HistogramFamily = MetricFamily<Histogram>;

/// Returns the metrics of the process. The first call registers them.
pub fn metrics() -> &'static Metrics {
    &METRICS
}

/// Returns the descriptions of all fields of [`Metrics`], in their order.
pub fn metric_descriptions() -> &'static [MetricDescription] {
    METRIC_DESCRIPTIONS
}

/// Returns all metrics in the Prometheus text format, version 0.0.4.
pub fn render_prometheus() -> String {
    LazyLock::force(&METRICS);
    #[cfg(target_os = "linux")]
    ::metrics::with_local_recorder(&*RECORDER, process::update_process_metrics);
    PROMETHEUS_HANDLE.render()
}

/// Aggregates the samples of histograms, which otherwise accumulate until the next [`render_prometheus`].
pub fn aggregate_histogram_samples() {
    PROMETHEUS_HANDLE.run_upkeep();
}

registry! {
    /// Always 1. `version` is the version of the running build.
    build_info: GaugeFamily = "strata_build_info" ["version": &[env!("CARGO_PKG_VERSION")]];
    /// Requests whose response has ended, whether complete or interrupted. `route` is the path pattern, or `none` if no
    /// route matches. `status` is `none` if the client disconnected before the response started. `format` is the format
    /// of the response body.
    requests: CounterFamily = "strata_http_requests_total" ["route", "status", "format"];
    /// Seconds from the end of the request head to the response head.
    response_start_seconds: HistogramFamily = "strata_http_answer_start_seconds" ["route"];
    /// Seconds from the end of the request head to the end of the response body, including the time that the client
    /// takes to read the body.
    response_seconds: HistogramFamily = "strata_http_answer_seconds" ["route"];
    /// Bytes of response bodies written to connections.
    sent_bytes: CounterFamily = "strata_http_sent_bytes_total" ["route"];
    /// Response bodies that ended early because the client disconnected or was too slow, or because strata could not
    /// read the rest of the data.
    interrupted_bodies: Counter = "strata_http_cut_bodies_total";
    /// Open connections.
    connections: Gauge = "strata_connections";
    /// Accepted connections.
    accepted_connections: Counter = "strata_connections_accepted_total";
    /// Connections that were waiting for their clients, and that strata closed to make room for new connections. This
    /// happens if `server.connections` or `server.connections_per_client` is reached, or if the process has run out of
    /// file descriptors.
    released_connections: Counter = "strata_connections_released_total";
    /// Refused connections. `reason` is `client` (the client has reached `server.connections_per_client`), `full` (the
    /// server has reached `server.connections`, and many of the connections belong to this client), or `descriptors`
    /// (the process has run out of file descriptors).
    refused_connections: CounterFamily = "strata_connections_refused_total" ["reason": &["client", "descriptors", "full"]];
    /// Connections closed because a response took longer than `server.answer_timeout_s` seconds, or because the client
    /// read nothing for `server.write_stall_s` seconds.
    overdue_connections: Counter = "strata_connections_overdue_total";
    /// Connections closed because the client sent too many HTTP/2 frames that do not belong to requests (PING,
    /// SETTINGS, WINDOW_UPDATE, or empty DATA frames).
    flooding_connections: Counter = "strata_connections_flooding_total";
    /// Number of times that a request handler blocked a connection thread for more than 10 ms. Other requests on the
    /// same thread had to wait.
    slow_polls: Counter = "strata_long_polls_total";
    /// Rate limit decisions. `bucket` is `public` or `private`. `decision` is `allowed`, `refused`, or `free` (the
    /// request was for a range of an export whose download had already been counted).
    rate_limit_decisions: CounterFamily = "strata_limiter_decisions_total"
        ["bucket": &["public", "private"], "decision": &["allowed", "refused", "free"]];
    /// 1 while this process shares counters in Redis (`limits.redis_url`), and 0 while it uses its own counters.
    redis_up: Gauge = "strata_redis_up";
    /// Calls to Redis. `outcome` is `answered`, `late` (no response within `limits.redis_timeout_ms` milliseconds),
    /// `failed`, `away` (not sent because Redis had stopped responding), or `full` (not sent because too many calls
    /// were pending). If a call receives no response, the process uses its own counters.
    redis_calls: CounterFamily = "strata_redis_calls_total" ["outcome": &["answered", "late", "failed", "away", "full"]];
    /// Seconds that Redis took to respond. Only calls with the outcome `answered` count.
    redis_seconds: Histogram = "strata_redis_seconds";
    /// MCP tool calls that have ended. `tool` is `none` if the requested tool does not exist. `outcome` is `done`,
    /// `refused` (the caller made an error), `failed` (strata caused an error), or `left` (the client disconnected).
    tool_calls: CounterFamily = "strata_tool_calls_total" [
        "tool": &[
            "list_datasets", "list_public_datasets", "profile", "read", "explain", "diff", "changes",
            "pull_for_edit", "push_alt_version", "edit_alt_version", "none"
        ],
        "outcome": &["done", "refused", "failed", "left"]
    ];
    /// Refreshes that have ended, regardless of their trigger. The import that creates a dataset does not count.
    /// `outcome` is `published` or `failed`.
    refreshes: CounterFamily = "strata_refreshes_total" ["trigger", "outcome"];
    /// Seconds that the refreshes in `strata_refreshes_total` took, from acquiring the dataset's lease to the end.
    refresh_seconds: Histogram = "strata_refresh_seconds";
    /// Compactions that have ended: versions with many extents that strata rewrites as complete files. `outcome` is
    /// `compacted`, `conflict` (the version had another file by then), `damaged` (a file of the version is damaged), or
    /// `failed`. The next refresh retries failed compactions.
    compactions: CounterFamily = "strata_compactions_total" ["outcome": &["compacted", "conflict", "damaged", "failed"]];
    /// Nodes that are registered in the metadata database, as seen by this node. `state` is `alive` or `lost` (no
    /// heartbeat for `cluster.lost_after_s` seconds). strata removes lost nodes after a day. If the service does not
    /// register nodes, both values are 0.
    nodes: GaugeFamily = "strata_nodes" ["state": &["alive", "lost"]];
    /// Online nodes that have the role `role` (see `server.roles`). You should set an alert for roles without nodes.
    node_roles: GaugeFamily = "strata_node_roles" ["role": &["http", "refresh", "query"]];
    /// Queries and diff steps that this node distributed because they had to read more than `cluster.distribute_bytes`
    /// bytes. `outcome` is `answered` or `repeated` (the distributed run failed or took too long, so this node repeated
    /// the work alone).
    distributed_queries: CounterFamily = "strata_distributed_queries_total" ["outcome": &["answered", "repeated"]];
    /// Tasks that this node received from other nodes. `outcome` is `done`, `failed`, `stopped` (the other node
    /// disconnected or needed no more results), `busy` (no `cluster.tasks` permit was available within 2 s), or
    /// `refused`. `refused` counts requests without a valid token, which only nodes of the same service and version
    /// have. It also counts connections that strata closed because they sent no valid token or because too many were
    /// open.
    node_tasks: CounterFamily = "strata_node_tasks_total" ["outcome": &["done", "failed", "stopped", "busy", "refused"]];
    /// Unix time in seconds at which this node's certificate (`cluster.tls_certificate`) expires, or 0 if there is no
    /// certificate.
    node_certificate_expires: Gauge = "strata_node_certificate_expires";
    /// Notifications of metadata database changes. After each notification, the process cleared its cached lookups. The
    /// process's own changes count, too. This counter increases only with PostgreSQL.
    catalog_notifications: Counter = "strata_heard_changes_total";
    /// Webhook requests that strata sent. `outcome` is `accepted` (a 2xx status), `rejected` (any other status), or
    /// `unanswered` (no response).
    webhooks: CounterFamily = "strata_webhooks_total" ["outcome": &["accepted", "rejected", "unanswered"]];
    /// Requests that are missing from `/dataset/usage`. Either strata could not save counts to the metadata database
    /// for a long time, or clients queried too many datasets at the same time.
    usage_lost_requests: Counter = "strata_usage_lost_requests_total";
    /// Files that a sweep tried to remove from the store. `outcome` is `removed` or `failed`.
    swept_files: CounterFamily = "strata_swept_files_total" ["outcome": &["removed", "failed"]];
    /// Bytes of version files that scrubs have read.
    scrubbed_bytes: Counter = "strata_scrubbed_bytes_total";
    /// Damaged version files that scrubs have found. Each scrub counts a damaged file again.
    scrubbed_damaged_files: Counter = "strata_scrubbed_damaged_files_total";
    /// Parquet exports that strata tried to build before a client requested them. `outcome` is `made`, `gave_way`
    /// (postponed because requests were waiting, or because memory or disk space was low), `no_room` (strata could not
    /// cache the export), or `failed`.
    export_prewarms: CounterFamily = "strata_exports_ahead_total" ["outcome": &["made", "gave_way", "no_room", "failed"]];
    /// Parquet exports that nodes share. `outcome` is `stored` (built by this node and written to the store), `fetched`
    /// (read from the store instead of being built), `second` (built by this node and another node at the same time),
    /// `damaged` (the stored export was missing or damaged, so this node built its own), `busy` (this node timed out
    /// waiting for other transfers or for the store), or `failed` (the store returned an error). After `busy` or
    /// `failed`, this node continues without sharing the export.
    shared_exports: CounterFamily = "strata_shared_exports_total"
        ["outcome": &["stored", "fetched", "second", "damaged", "busy", "failed"]];
    /// Heavy queries that are selecting entities or determining the columns of a table.
    heavy_queries_running: Gauge = "strata_heavy_queries_running";
    /// Heavy queries that are waiting for a permit.
    heavy_queries_waiting: Gauge = "strata_heavy_queries_waiting";
    /// Panics in strata's background loops. `loop` is the name of the loop: `scheduler`, `deliveries`, `sweep`,
    /// `scrub`, `exports`, `usage`, `nodes`, `changes`, or `damage`. strata restarts the loop after a short delay.
    loop_panics: CounterFamily = "strata_loop_panics_total"
        ["loop": &["changes", "damage", "deliveries", "exports", "nodes", "scheduler", "scrub", "sweep", "usage"]];
    /// Requests that have reached a gate. `outcome` is `entered`, `full` (the queue was full), `late` (the request
    /// waited too long), or `left` (the client disconnected). These gates have an option: `heavy`
    /// (`query.heavy_queries`), `medium` (`query.medium_queries`), `light` (`query.light_queries`), `diff`
    /// (`query.diffs`), `stream` (`query.streams`), `catalog_write` (`catalog.writes`), `catalog_look_up`
    /// (`catalog.look_ups`), `receive` (`sources.receiving`), and `refresh` (`sources.concurrent`). The other gates
    /// limit logins (`login`), bytes of large management request bodies (`body`), memory for Parquet exports
    /// (`parquet`), bytes of large responses built as a whole (`response`), bytes of streams of large entities
    /// (`stream_unit`), and chunks of streamed responses (`unit`, or `long_unit` after the first 4 MiB of a response).
    limit_outcomes: CounterFamily = "strata_gate_total" ["gate", "outcome"];
    /// Seconds that requests waited at a gate, including requests that did not wait or were refused.
    limit_wait_seconds: HistogramFamily = "strata_gate_wait_seconds" ["gate"];
    /// Units that a gate can grant in total: concurrent requests or bytes. `gate` can also be `ahead`
    /// (`query.stream_bytes`).
    limit_units: GaugeFamily = "strata_gate_units" ["gate"];
    /// Units of a gate that are in use.
    limit_used_units: GaugeFamily = "strata_gate_held_units" ["gate"];
    /// Requests that are waiting at a gate.
    limit_waiting_requests: GaugeFamily = "strata_gate_waiting" ["gate"];
    /// Streamed response bodies that are being sent.
    response_streams: Gauge = "strata_streams";
    /// Bytes of encoded response bodies that client connections have not accepted yet.
    buffered_response_bytes: Gauge = "strata_stream_buffered_bytes";
    /// Queries that have ended. `outcome` is `settled` (successful), `timeout`, `memory` (not enough memory), `disk`
    /// (not enough disk space), `failed`, or `cancelled`.
    queries: CounterFamily = "strata_queries_total" ["outcome": &["settled", "timeout", "memory", "disk", "failed", "cancelled"]];
    /// Seconds to select entities or to compare two versions, excluding the time spent waiting for a permit.
    query_seconds: Histogram = "strata_query_seconds";
    /// Bytes of memory that running queries use, according to the memory pool.
    query_memory_bytes: Gauge = "strata_query_memory_bytes";
    /// Maximum number of bytes of memory that running queries can use: `query.memory_bytes`.
    query_memory_limit_bytes: Gauge = "strata_query_memory_limit_bytes";
    /// Bytes that sorts, `dedup`, and diffs have written to disk.
    spilled_bytes: Counter = "strata_query_spilled_bytes_total";
    /// Entities in row groups that queries scanned, whether or not the queries had predicates.
    scanned_rows: Counter = "strata_scanned_rows_total";
    /// Entities in row groups that queries skipped because of statistics or indexes.
    pruned_rows: Counter = "strata_pruned_rows_total";
    /// Entities encoded into response bodies.
    sent_rows: Counter = "strata_sent_rows_total";
    /// Bytes of decoded columns and document pages used by queries and responses, whether cached or not.
    scanned_bytes: Counter = "strata_scanned_bytes_total";
    /// Parts of version files that failed verification or that the store could not return. If this counter increases,
    /// check the log.
    damaged_parts: Counter = "strata_damaged_parts_total";
    /// Stored bytes of the row groups that queries skipped.
    pruned_bytes: Counter = "strata_pruned_bytes_total";
    /// Row groups in which a text search used the keyword index. `outcome` is `exact` (the index identified the
    /// matching entities), `candidates` (the index returned entities to verify), or `scan` (the index could not help,
    /// so strata scanned the column or the documents).
    keyword_index_uses: CounterFamily = "strata_keyword_index_total" ["outcome": &["exact", "candidates", "scan"]];
    /// Cache lookups. `cache` is `diffs` for the diff cache, and otherwise the type of the cached part: `footers`,
    /// `documents`, `columns`, `paths`, `keywords`, or `derived`. `outcome` is `hit` or `miss`.
    cache_lookups: CounterFamily = "strata_cache_lookups_total" [
        "cache": &["footers", "documents", "columns", "paths", "keywords", "derived", "diffs"],
        "outcome": &["hit", "miss"]
    ];
    /// Bytes of decoded parts in the cache.
    cache_bytes: Gauge = "strata_cache_bytes";
    /// Maximum size of the cache in bytes: `cache.memory_bytes`.
    cache_limit_bytes: Gauge = "strata_cache_limit_bytes";
    /// Bytes of version file ranges in the disk cache, up to `cache.disk_bytes`.
    disk_cache_bytes: Gauge = "strata_disk_cache_bytes";
    /// Ranges of version files that were found in the disk cache.
    disk_cache_hits: Counter = "strata_disk_cache_hits_total";
    /// Ranges of version files that were missing from the disk cache and were fetched from the store.
    disk_cache_misses: Counter = "strata_disk_cache_misses_total";
    /// Ranges in the disk cache that failed verification and were fetched again, and cache files that a killed process
    /// left incomplete. A high number indicates a failing disk.
    disk_cache_damaged: Counter = "strata_disk_cache_damaged_total";
    /// Bytes of memory that the process can use: the machine's memory, or less if a control group limits it. The
    /// defaults of `cache.memory_bytes` and `query.memory_bytes` are fractions of this value.
    available_memory_bytes: Gauge = "strata_memory_bytes";
    /// Bytes of disk space for sources and pushed bodies that strata is receiving, decoding, or writing.
    spooled_bytes: Gauge = "strata_spooled_bytes";
    /// Ranges of version files and shared exports that strata has requested from the store.
    store_requests: Counter = "strata_store_requests_total";
    /// Bytes of the ranges in `strata_store_requests_total`.
    store_bytes: Counter = "strata_store_bytes_total";
}

/// Values of the label `bucket` of [`Metrics::rate_limit_decisions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitBucketLabel {
    Public,
    Private,
}

/// Values of the label `decision` of [`Metrics::rate_limit_decisions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimitDecisionLabel {
    Allowed,
    Refused,
    Free,
}

/// Counts a decision in [`Metrics::rate_limit_decisions`].
pub fn count_rate_limit_decision(bucket: RateLimitBucketLabel, decision: RateLimitDecisionLabel) {
    /// The counters of all label values, indexed by the variants of the two labels.
    static COUNTERS: LazyLock<[[Counter; 3]; 2]> = LazyLock::new(|| {
        ["public", "private"].map(|bucket| {
            ["allowed", "refused", "free"]
                .map(|decision| metrics().rate_limit_decisions.with_label_values([bucket.into(), decision.into()]))
        })
    });
    COUNTERS[bucket as usize][decision as usize].increment(1);
}

/// Histogram buckets in seconds: for durations from a cached page to an export over a slow connection.
const SECONDS_BUCKETS: [f64; 16] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 600.0];

static METRIC_METADATA: Metadata<'static> = Metadata::new("strata", Level::INFO, None);

static RECORDER: LazyLock<PrometheusRecorder> = LazyLock::new(|| {
    // `set_buckets` rejects only an empty list, so this does not fail.
    let builder = PrometheusBuilder::new().set_buckets(&SECONDS_BUCKETS);
    builder.unwrap_or_else(|_| PrometheusBuilder::new()).build_recorder()
});

static PROMETHEUS_HANDLE: LazyLock<PrometheusHandle> = LazyLock::new(|| RECORDER.handle());

static METRICS: LazyLock<Metrics> = LazyLock::new(|| {
    let metrics = Metrics::register();
    metrics.build_info.with_label_values([env!("CARGO_PKG_VERSION").into()]).set(1.0);
    metrics
});
