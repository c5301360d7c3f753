//! What the service measures about itself, for Prometheus.
//!
//! Every metric is a documented field of [`Metrics`]. Only this field holds its name, its labels and its meaning. The
//! table of docs/reference/metrics.md and the `# HELP` lines are made from it ([`all`]). Each process has one recorder,
//! shared by all services in it. Nothing listens here: `http` serves the text of [`render`].
//!
//! Label values come from fixed sets (routes, statuses, formats, …), never from a request. So no caller can make new
//! series, and no series names a dataset.
//!
//! [`request_log`] carries facts about one request to its log line. [`routes`] holds the series of each route.

#[cfg(target_os = "linux")]
mod process;
pub mod request_log;
pub mod routes;

use std::marker::PhantomData;
use std::sync::LazyLock;

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// One metric, as documentation knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    /// The values of each label, if they are few: all of its series then exist from the start.
    pub values: &'static [&'static [&'static str]],
    pub about: &'static str,
}

impl Metric {
    /// The label values of each series that exists from the start.
    fn series(&self) -> Vec<Vec<SharedString>> {
        let mut series = if self.values.is_empty() { Vec::new() } else { vec![Vec::new()] };
        for values in self.values {
            let longer = |begun: &Vec<SharedString>, value: &'static str| {
                begun.iter().cloned().chain([value.into()]).collect::<Vec<SharedString>>()
            };
            series = series.iter().flat_map(|begun| values.iter().map(|value| longer(begun, value))).collect();
        }
        series
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric without labels, or one series of a family.
trait Handle {
    const KIND: MetricKind;

    fn register(key: &Key) -> Self;
}

macro_rules! handles {
    ($($kind:ident: $register:ident),+) => { $(
        impl Handle for $kind {
            const KIND: MetricKind = MetricKind::$kind;

            fn register(key: &Key) -> Self {
                RECORDER.$register(key, &METADATA)
            }
        }
    )+ };
}

handles!(Counter: register_counter, Gauge: register_gauge, Histogram: register_histogram);

/// A series for each combination of label values.
pub struct Family<T> {
    name: &'static str,
    labels: &'static [&'static str],
    handle: PhantomData<fn() -> T>,
}

type Counters = Family<Counter>;
type Gauges = Family<Gauge>;
type Histograms = Family<Histogram>;

#[expect(private_bounds)]
impl<T: Handle> Family<T> {
    /// The series of these label values, in the order of the labels. Costs a look-up: some hundred nanoseconds.
    pub fn of<const N: usize>(&self, values: [SharedString; N]) -> T {
        let labels: Vec<Label> = self.labels.iter().zip(values).map(|(name, value)| Label::new(*name, value)).collect();
        T::register(&Key::from_parts(self.name, labels))
    }
}

/// What a field of [`Metrics`] may be.
trait Registered {
    const KIND: MetricKind;

    fn registered(name: &'static str, labels: &'static [&'static str]) -> Self;
}

impl<T: Handle> Registered for T {
    const KIND: MetricKind = T::KIND;

    fn registered(name: &'static str, _: &'static [&'static str]) -> Self {
        T::register(&Key::from_static_name(name))
    }
}

impl<T: Handle> Registered for Family<T> {
    const KIND: MetricKind = T::KIND;

    fn registered(name: &'static str, labels: &'static [&'static str]) -> Self {
        Family { name, labels, handle: PhantomData }
    }
}

/// Makes [`Metrics`] and its list from documented fields.
macro_rules! registry {
    ($( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $name:literal $([$($label:literal $(: $values:expr)?),+])?; )+) => {
        pub struct Metrics {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        /// The metrics in the order of the documentation.
        static ALL: &[Metric] = &[$( Metric {
            name: $name,
            kind: <$type as Registered>::KIND,
            labels: &[$($($label),+)?],
            values: &[$($($($values,)?)+)?],
            about: concat!($($doc),+),
        }, )+];

        impl Metrics {
            fn register() -> Metrics {
                for metric in ALL {
                    let (name, about) = (KeyName::from_const_str(metric.name), metric.about.trim());
                    match metric.kind {
                        MetricKind::Counter => RECORDER.describe_counter(name, None, about.into()),
                        MetricKind::Gauge => RECORDER.describe_gauge(name, None, about.into()),
                        MetricKind::Histogram => RECORDER.describe_histogram(name, None, about.into()),
                    }
                    for values in metric.series() {
                        let labels = metric.labels.iter().zip(values).map(|(name, value)| Label::new(*name, value));
                        let key = Key::from_parts(metric.name, labels.collect::<Vec<_>>());
                        match metric.kind {
                            MetricKind::Counter => drop(RECORDER.register_counter(&key, &METADATA)),
                            MetricKind::Gauge => drop(RECORDER.register_gauge(&key, &METADATA)),
                            MetricKind::Histogram => drop(RECORDER.register_histogram(&key, &METADATA)),
                        }
                    }
                }
                Metrics { $( $field: Registered::registered($name, &[$($($label),+)?]), )+ }
            }
        }
    };
}

registry! {
    /// 1, for the build that runs.
    build_info: Gauges = "strata_build_info" ["version": &[env!("CARGO_PKG_VERSION")]];
    /// Requests whose answer has ended, complete or cut. `route` is the pattern of the path, `none` for paths without
    /// one. `status` is `none` if the client left before the answer began. `format` is that of the body.
    requests: Counters = "strata_http_requests_total" ["route", "status", "format"];
    /// Seconds from the end of a request's head to the head of its answer.
    answer_start_seconds: Histograms = "strata_http_answer_start_seconds" ["route"];
    /// Seconds from the end of a request's head to the end of its answer's body, read by the client.
    answer_seconds: Histograms = "strata_http_answer_seconds" ["route"];
    /// Bytes of bodies given to connections.
    sent_bytes: Counters = "strata_http_sent_bytes_total" ["route"];
    /// Bodies that ended before they were complete: the client left or was too slow, or the rest could not be read.
    cut_bodies: Counter = "strata_http_cut_bodies_total";
    /// Connections that are open.
    connections: Gauge = "strata_connections";
    /// Connections accepted.
    accepted_connections: Counter = "strata_connections_accepted_total";
    /// Connections that waited for their clients and were closed to make room for another one. There were
    /// `server.connections`, or `server.connections_per_client` of one client, or no descriptors.
    released_connections: Counter = "strata_connections_released_total";
    /// Connections that were refused. `reason` is `client` (the client has `server.connections_per_client`), `full`
    /// (there are `server.connections`, and the client has many of them) or `descriptors` (the process has none left).
    refused_connections: Counters = "strata_connections_refused_total" ["reason": &["client", "descriptors", "full"]];
    /// Connections that were cut because an answer took longer than `server.answer_timeout_s`, or because the client
    /// took nothing of it for `server.write_stall_s`.
    overdue_connections: Counter = "strata_connections_overdue_total";
    /// Connections that were cut because their clients sent too many HTTP/2 frames beside requests (PING, SETTINGS,
    /// WINDOW_UPDATE, empty DATA).
    flooding_connections: Counter = "strata_connections_flooding_total";
    /// Polls of request handlers that took longer than 10 ms on a thread that serves connections. Other requests of
    /// the thread waited for as long.
    long_polls: Counter = "strata_long_polls_total";
    /// Decisions of the rate limits. `bucket` is `public` or `private`. `decision` is `allowed`, `refused`, or `free`
    /// (a range of an export whose download was counted before).
    limiter_decisions: Counters = "strata_limiter_decisions_total"
        ["bucket": &["public", "private"], "decision": &["allowed", "refused", "free"]];
    /// 1 while processes count together in the Redis of `limits.redis_url`, 0 while this process counts for itself.
    redis_up: Gauge = "strata_redis_up";
    /// Calls to Redis. `outcome` is `answered`, `late` (no answer within `limits.redis_timeout_ms`), `failed`, `away`
    /// (Redis did not answer before, so it was not asked) or `full` (too many calls waited). Without an answer the
    /// process counts for itself.
    redis_calls: Counters = "strata_redis_calls_total" ["outcome": &["answered", "late", "failed", "away", "full"]];
    /// Seconds of the calls that Redis answered.
    redis_seconds: Histogram = "strata_redis_seconds";
    /// Calls of tools over MCP that ended. `tool` is `none` if there is no such tool. `outcome` is `done`, `refused`
    /// (because of the caller), `failed` (because of the service) or `left` (the client left).
    tool_calls: Counters = "strata_tool_calls_total" [
        "tool": &[
            "list_datasets", "list_public_datasets", "profile", "read", "explain", "diff", "pull_for_edit",
            "push_alt_version", "edit_alt_version", "none"
        ],
        "outcome": &["done", "refused", "failed", "left"]
    ];
    /// Refreshes that ended, with any trigger. The import that creates a dataset does not count. `outcome` is
    /// `published` or `failed`.
    refreshes: Counters = "strata_refreshes_total" ["trigger", "outcome"];
    /// Seconds of these refreshes, from holding the dataset to the end.
    refresh_seconds: Histogram = "strata_refresh_seconds";
    /// Servers that have registered in the catalog, as this one sees them. `state` is `alive`, or `lost` (no sign of
    /// life for `cluster.lost_after_s`; forgotten after a day). 0 where servers do not register.
    nodes: Gauges = "strata_nodes" ["state": &["alive", "lost"]];
    /// Those that are alive and have a role of `server.roles`. Alert on a `role` that none has.
    node_roles: Gauges = "strata_node_roles" ["role": &["http", "refresh", "query"]];
    /// Queries and steps of diffs of this node that were distributed, because they had to read more than
    /// `cluster.distribute_bytes`. `outcome` is `answered`, or `repeated` (something failed or took too long, and this
    /// node ran them alone).
    distributed_queries: Counters = "strata_distributed_queries_total" ["outcome": &["answered", "repeated"]];
    /// Tasks of other nodes' queries on this node. `outcome` is `done`, `failed`, `stopped` (the other node had enough,
    /// or was gone), `busy` (no permit of `cluster.tasks` in 2 s) or `refused` (a request without a token of a node of
    /// this service and version, or a connection that was closed because it had none, or too many beside it).
    node_tasks: Counters = "strata_node_tasks_total" ["outcome": &["done", "failed", "stopped", "busy", "refused"]];
    /// When the certificate of this server (`cluster.tls_certificate`) expires, in seconds since 1970. 0 without one.
    node_certificate_expires: Gauge = "strata_node_certificate_expires";
    /// Times that the process heard of changes in the catalog, its own and those of other processes, and dropped what
    /// it had looked up. Only with PostgreSQL.
    heard_changes: Counter = "strata_heard_changes_total";
    /// Webhooks that were sent. `outcome` is `accepted` (2xx), `rejected` (another status) or `unanswered`.
    webhooks: Counters = "strata_webhooks_total" ["outcome": &["accepted", "rejected", "unanswered"]];
    /// Reads that `/dataset/usage` does not count, because the catalog took no counts for long, or too many datasets
    /// were read at once.
    usage_lost_requests: Counter = "strata_usage_lost_requests_total";
    /// Files of the store that a sweep tried to remove. `outcome` is `removed` or `failed`.
    swept_files: Counters = "strata_swept_files_total" ["outcome": &["removed", "failed"]];
    /// Bytes of version files that scrubs have read.
    scrubbed_bytes: Counter = "strata_scrubbed_bytes_total";
    /// Damaged version files that scrubs have found. Each scrub counts a file again.
    scrubbed_damaged: Counter = "strata_scrubbed_damaged_files_total";
    /// Parquet exports that were begun before they were asked for. `outcome` is `made`, `gave_way` (somebody waited, or
    /// memory or disk was short; it is tried again), `no_room` (it is not kept) or `failed`.
    exports_ahead: Counters = "strata_exports_ahead_total" ["outcome": &["made", "gave_way", "no_room", "failed"]];
    /// Parquet exports that servers share. `outcome` is `stored` (made here, and put into the store), `fetched` (from
    /// the store, instead of making it), `second` (made here while another server did), `damaged` (what the store had
    /// was none, so it was made), `busy` (the store was too slow with others, so this server does without) or `failed`
    /// (store or catalog did not answer, so this server does without).
    shared_exports: Counters = "strata_shared_exports_total"
        ["outcome": &["stored", "fetched", "second", "damaged", "busy", "failed"]];
    /// Heavy queries that select entities or find their columns.
    heavy_running: Gauge = "strata_heavy_queries_running";
    /// Heavy queries that wait for a permit.
    heavy_waiting: Gauge = "strata_heavy_queries_waiting";
    /// Panics of the loops of the service. `loop` is the name: `scheduler`, `deliveries`, `sweep`, `scrub`, `exports`,
    /// `usage`, `nodes`, `changes` or `damage`. Each loop starts again after a pause.
    loop_panics: Counters = "strata_loop_panics_total"
        ["loop": &["changes", "damage", "deliveries", "exports", "nodes", "scheduler", "scrub", "sweep", "usage"]];
    /// Requests at the gates of `query.heavy_queries` (`gate` is `heavy`), `query.medium_queries` (`medium`),
    /// `query.light_queries` (`light`), `query.diffs` (`diff`), `query.streams` (`stream`), `catalog.writes`
    /// (`catalog_write`), `catalog.look_ups` (`catalog_look_up`), `sources.receiving` (`receive`), `sources.concurrent`
    /// (`refresh`), log-ins (`login`), bytes of large bodies of management calls (`body`), the memory of Parquet
    /// exports (`parquet`), bytes of large responses that are built as a whole (`response`), bytes of streams of large
    /// entities (`stream_unit`), and parts of streamed answers (`unit`, `long_unit` after the first 4 MiB of an
    /// answer). `outcome` is `entered`, `full` (the queue was full), `late` (the request waited too long) or `left`
    /// (the client left).
    gates: Counters = "strata_gate_total" ["gate", "outcome"];
    /// Seconds for which requests waited at a gate. Requests that did not wait or were refused count, too.
    gate_wait_seconds: Histograms = "strata_gate_wait_seconds" ["gate"];
    /// Units that a gate has: requests at the same time, or bytes. `gate` may also be `ahead`, for
    /// `query.stream_bytes`.
    gate_units: Gauges = "strata_gate_units" ["gate"];
    /// Units of a gate that are held.
    gate_held: Gauges = "strata_gate_held_units" ["gate"];
    /// Requests that wait at a gate.
    gate_waiting: Gauges = "strata_gate_waiting" ["gate"];
    /// Streamed bodies that are being sent.
    streams: Gauge = "strata_streams";
    /// Bytes of bodies that are encoded and not yet taken by their clients' connections.
    buffered_bytes: Gauge = "strata_stream_buffered_bytes";
    /// Queries that ended. `outcome` is `settled`, `timeout`, `memory`, `disk`, `failed` or `cancelled`.
    queries: Counters = "strata_queries_total" ["outcome": &["settled", "timeout", "memory", "disk", "failed", "cancelled"]];
    /// Seconds to select entities, or to compare two versions, without the wait for a permit.
    query_seconds: Histogram = "strata_query_seconds";
    /// Bytes that running queries hold, as the memory pool counts them.
    query_memory_bytes: Gauge = "strata_query_memory_bytes";
    /// Bytes that running queries may hold: `query.memory_bytes`.
    query_memory_limit_bytes: Gauge = "strata_query_memory_limit_bytes";
    /// Bytes that sorts, dedups and diffs have written to disk.
    spilled_bytes: Counter = "strata_query_spilled_bytes_total";
    /// Entities in row groups that were scanned, with predicates or without any.
    scanned_rows: Counter = "strata_scanned_rows_total";
    /// Entities in row groups that statistics, bloom filters and the keyword index left out.
    pruned_rows: Counter = "strata_pruned_rows_total";
    /// Entities encoded into bodies.
    sent_rows: Counter = "strata_sent_rows_total";
    /// Bytes of decoded columns and pages that queries and answers used, from the cache or not.
    scanned_bytes: Counter = "strata_scanned_bytes_total";
    /// Parts of version files that did not verify, or that the store did not give. If there is one, look into the log.
    damaged_parts: Counter = "strata_damaged_parts_total";
    /// Bytes, as stored, of the row groups that were left out.
    pruned_bytes: Counter = "strata_pruned_bytes_total";
    /// Row groups for which searches for text asked the keyword index. `outcome` is `exact` (it named the entities),
    /// `candidates` (it named some to verify) or `scan` (it did not tell, so the search text was scanned).
    keyword_index: Counters = "strata_keyword_index_total" ["outcome": &["exact", "candidates", "scan"]];
    /// Row groups for which filters by path were put to shapes. `outcome` is `settled` (the search text decided) or
    /// `documents` (its candidates were left to documents).
    shapes: Counters = "strata_shapes_total" ["outcome": &["settled", "documents"]];
    /// Look-ups in the cache. `cache` is `footers`, `documents`, `columns`, `blooms`, `paths`, `keywords`, `shapes` or
    /// `derived`, or `diffs` for the cache of diffs. `outcome` is `hit` or `miss`.
    cache_lookups: Counters = "strata_cache_lookups_total" [
        "cache": &["footers", "documents", "columns", "blooms", "paths", "keywords", "shapes", "derived", "diffs"],
        "outcome": &["hit", "miss"]
    ];
    /// Bytes of decoded parts that the cache holds.
    cache_bytes: Gauge = "strata_cache_bytes";
    /// Bytes that the cache may hold: `cache.memory_bytes`.
    cache_limit_bytes: Gauge = "strata_cache_limit_bytes";
    /// Bytes on disk of the cache of ranges of version files: at most `cache.disk_bytes`.
    disk_cache_bytes: Gauge = "strata_disk_cache_bytes";
    /// Ranges of version files that were found on the disk.
    disk_cache_hits: Counter = "strata_disk_cache_hits_total";
    /// Ranges that were not there, and were fetched from the store.
    disk_cache_misses: Counter = "strata_disk_cache_misses_total";
    /// Ranges on the disk that did not verify and were fetched again, and files of the cache that a killed process did
    /// not finish. Where there are many, the disk is failing.
    disk_cache_damaged: Counter = "strata_disk_cache_damaged_total";
    /// Bytes of memory that the process may use: those of the machine, or fewer if a control group limits it. The
    /// defaults of `cache.memory_bytes` and `query.memory_bytes` are shares of it.
    memory_bytes: Gauge = "strata_memory_bytes";
    /// Bytes of disk that sources and pushed bodies take while they are received, decoded and written.
    spooled_bytes: Gauge = "strata_spooled_bytes";
    /// Ranges of version files that were fetched from the store.
    store_requests: Counter = "strata_store_requests_total";
    /// Bytes of these ranges.
    store_bytes: Counter = "strata_store_bytes_total";
}

/// Seconds: from a page out of the cache to an export over a slow line.
const BUCKETS: [f64; 16] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 600.0];

static METADATA: Metadata<'static> = Metadata::new("strata", Level::INFO, None);

static RECORDER: LazyLock<PrometheusRecorder> = LazyLock::new(|| {
    // Only an empty list of buckets is refused.
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS);
    builder.unwrap_or_else(|_| PrometheusBuilder::new()).build_recorder()
});

static HANDLE: LazyLock<PrometheusHandle> = LazyLock::new(|| RECORDER.handle());

static METRICS: LazyLock<Metrics> = LazyLock::new(|| {
    let metrics = Metrics::register();
    metrics.build_info.of([env!("CARGO_PKG_VERSION").into()]).set(1.0);
    metrics
});

pub fn metrics() -> &'static Metrics {
    &METRICS
}

/// Every metric, in the order of the documentation.
pub fn all() -> &'static [Metric] {
    ALL
}

/// What Prometheus reads: the text format, version 0.0.4.
pub fn render() -> String {
    LazyLock::force(&METRICS);
    #[cfg(target_os = "linux")]
    ::metrics::with_local_recorder(&*RECORDER, process::collect);
    HANDLE.render()
}

/// Counts what histograms have collected, which is otherwise kept until the next [`render`]. To be called now and then.
pub fn run_upkeep() {
    HANDLE.run_upkeep();
}

/// A decision of a rate limit (one of its values), in the bucket for private datasets or in that for public ones.
pub fn limiter_decision(private: bool, decision: &'static str) {
    /// The most frequent one, by bucket.
    static ALLOWED: LazyLock<[Counter; 2]> = LazyLock::new(|| [false, true].map(|private| counter(private, "allowed")));
    fn counter(private: bool, decision: &'static str) -> Counter {
        let bucket = if private { "private" } else { "public" };
        metrics().limiter_decisions.of([bucket.into(), decision.into()])
    }
    match decision {
        "allowed" => ALLOWED[usize::from(private)].increment(1),
        other => counter(private, other).increment(1),
    }
}
