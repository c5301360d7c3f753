//! Import and reads through the library as the server uses it, compared with baselines of the same run.
//!
//! ```text
//! cargo bench --bench reads                      100,000 entities
//! cargo bench --bench reads -- 1000000           a million; one table for each number
//! cargo bench --bench reads -- all               100,000 and 1,000,000
//! cargo bench --bench reads -- --only contains   the rows whose name contains the text
//! cargo bench --bench reads -- --http            over HTTP, with the server's processor time, see `http`
//! cargo bench --bench reads -- --memory          a mix of reads with caches of several sizes, see `memory`
//! cargo bench --bench reads -- --large 5000000   time and peak memory of large responses, see `large`
//! cargo bench --bench reads -- --scale           1,000,000 entities and 10,000,000, see `scale`
//! ```
//!
//! For each size:
//! 1. [`support::source`] generates the entities ([`support::entities`]) once. The file remains in the build directory
//!    (1 GB for a million), as do the expected results. The data directory is deleted at the end.
//! 2. [`import`] imports the file in a child process with a small cache, and reports time and peak memory.
//! 3. Each of the [`cases`] runs *cold*, on a new application with an empty cache (but with the page cache of the
//!    operating system); the result is the median of up to three runs. Then it runs *warm*, on one application for all
//!    cases, repeatedly after one request. The benchmark panics if the response to this request is wrong.
//!
//! Reads are measured from the catalog lookup to the last byte of the body, on a thread of the server's runtime. Rows
//! named HTTP use a connection on the loopback interface, where client and server share the cores. The baselines are
//! copying the same number of bytes on one thread and, for HTTP, a handler that returns the same bytes and takes turns
//! with the service. No duration is asserted.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

mod cases;
mod http;
mod large;
mod memory;
mod scale;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod support;
mod table;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use futures::StreamExt;
use strata_encode::ContentCoding;
use strata_http::params;
use strata_service::{
    AuthorizationHeader, AuthorizedRead, ProcessPurpose, ReadRequester, ReadResponse, ReadTarget, ResponseBody,
    Services,
};
use strata_types::ids::DatasetId;
use strata_types::read_request::ReadRequest;
use strata_types::version::VersionSelector;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use cases::{Against, Rate, ReadCase};
use support::blocking_client::{self, BlockingClient};
use support::copying::Memcpy;
use support::import::{self, Hidden, ImportReport};
use support::process;
use support::requests::{CheckedRequest, Expected};
use support::samples::{Samples, thousands};
use support::sizes::Sizes;
use support::source::Source;
use table::{Baseline, LatencyRow, table};

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures import and reads, and prints one table per size
#[derive(Parser)]
struct ReadArguments {
    #[command(flatten)]
    sizes: Sizes,
    /// Run only the reads whose name holds this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The reads over HTTP at one connection and at several, with the processor time of the server
    #[arg(long, group = "other")]
    http: bool,
    /// A mix of reads, with caches that hold a part of the version
    #[arg(long, group = "other")]
    memory: bool,
    /// Requests of the mix at each size of the cache, with --memory
    #[arg(long, default_value_t = 2_000)]
    requests: usize,
    /// Answers over versions that the default cache does not hold, each in a process of its own
    #[arg(long, group = "other")]
    large: bool,
    /// The same reads of versions of several sizes, each in a process of its own; 1,000,000 and 10,000,000 if no other
    /// size is given
    #[arg(long, group = "other")]
    scale: bool,
    #[command(flatten)]
    hidden: Hidden,
    /// The child process that reads
    #[arg(long, num_args = 3, hide = true)]
    read: Option<Vec<String>>,
    /// The child process that reads the same again and again
    #[arg(long, num_args = 3, hide = true)]
    read_again: Option<Vec<String>>,
    /// The child process that returns the bytes of a file
    #[arg(long, hide = true)]
    serve_static: Option<PathBuf>,
}

fn main() {
    let arguments = ReadArguments::parse();
    if arguments.hidden.imported() {
        return;
    }
    if let Some(arguments) = &arguments.read {
        return large::run(arguments);
    }
    if let Some(arguments) = &arguments.read_again {
        return scale::run(arguments);
    }
    if let Some(file) = &arguments.serve_static {
        return http::serve_static(file);
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-reads");
    if arguments.scale {
        let given = arguments.sizes.each();
        let sizes = if given == [100_000] { vec![1_000_000, 10_000_000] } else { given };
        print!("{}", scale::measure(&directory, &sizes, &arguments.only));
        return;
    }
    let mut tables = String::new();
    for entities in arguments.sizes.each() {
        tables.push_str(&match &arguments {
            ReadArguments { http: true, only, .. } => http::measure(&directory, entities, only),
            ReadArguments { memory: true, requests, .. } => memory::measure(&directory, entities, *requests),
            ReadArguments { large: true, only, .. } => large::measure(&directory, entities, only),
            ReadArguments { only, .. } => run(&directory, entities, only),
        });
    }
    print!("{tables}");
}

/// Measures one size and returns a table.
fn run(directory: &Path, entities: u64, only: &str) -> String {
    let source = Source::open(directory, entities).expect("failed to generate the source file");
    let data = directory.join(format!("data-{entities}"));
    let mut memcpy = Memcpy::new();

    eprintln!("importing {entities} entities");
    let mut times = Samples::default();
    let started = Instant::now();
    let mut reports: Vec<ImportReport> = Vec::new();
    // At least two imports, because the source file may not be in the page cache during the first.
    while reports.len() < 2 || (reports.len() < 5 && started.elapsed() < Duration::from_secs(10)) {
        let report = import::in_child(&source.path, &data);
        assert_eq!(report.entities, entities);
        times.add(Duration::from_secs_f64(report.seconds));
        reports.push(report);
    }
    let stored = process::directory_bytes(&data.join("store"));
    let peak = reports.iter().filter_map(|report| report.peak_bytes).max();
    let cpu_seconds = reports.iter().filter_map(|report| report.cpu_seconds).reduce(f64::min);
    let before = reports.iter().filter_map(|report| report.before_bytes).max();
    let mut rows = vec![LatencyRow {
        name: "import".to_owned(),
        entities,
        bytes: source.json_bytes,
        cold: Samples::default(),
        warm: times,
        rate_bytes: Some(source.json_bytes),
        baseline: Some(Baseline::Memcpy(memcpy.duration(source.json_bytes))),
    }];

    let cache_bytes = whole_version(&source);
    let report = reports.pop().expect("an import was made");
    let bench = ReadBenchmark {
        runtime: tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads"),
        source: Arc::new(source),
        data: data.clone(),
        cache_bytes,
        target: ReadTarget {
            dataset: DatasetId::new(report.dataset_id),
            name_slug: report.name_slug.clone(),
            version: VersionSelector::Active,
        },
        path: report.path(),
    };
    let services = bench.open();
    for case in cases::cases(&bench.source) {
        if !case.name.contains(only) {
            continue;
        }
        eprintln!("{}", case.name);
        rows.push(bench.case(&services, &case, &mut memcpy));
    }
    drop(services);
    let ReadBenchmark { runtime, source, .. } = bench;
    runtime.shutdown_timeout(Duration::from_secs(5));
    std::fs::remove_dir_all(&data).expect("failed to remove the data");

    let cpu = cpu_seconds.map_or("unknown".to_owned(), |seconds| {
        format!("{seconds:.2} s, {:.0} MB of JSON per second of it", source.json_bytes as f64 / 1e6 / seconds)
    });
    let megabytes = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), |bytes| (bytes / 1_000_000).to_string());
    format!(
        "\n{} entities, {} bytes of JSON, {:.0} each; {} cores; cache.memory_bytes = {}\n\
         on disk: {} bytes, {:.3} of the JSON\n\
         processor time of the import: {cpu}\n\
         peak resident memory of the import: {} MB ({} MB before it began)\n\n{}",
        thousands(entities),
        thousands(source.json_bytes),
        source.json_bytes as f64 / entities as f64,
        std::thread::available_parallelism().map_or(1, usize::from),
        thousands(cache_bytes),
        thousands(stored),
        stored as f64 / source.json_bytes as f64,
        megabytes(peak),
        megabytes(before),
        table(&rows)
    )
}

/// Returns a cache size that holds all decoded data of the reads: documents, full-text columns, and indexed columns.
fn whole_version(source: &Source) -> u64 {
    (6 * source.json_bytes).max(1 << 30)
}

/// The data that all cases share.
struct ReadBenchmark {
    runtime: Runtime,
    source: Arc<Source>,
    data: PathBuf,
    cache_bytes: u64,
    target: ReadTarget,
    path: String,
}

impl ReadBenchmark {
    /// Opens an application with an empty cache, whose catalog and store have responded once.
    fn open(&self) -> Arc<Services> {
        self.runtime.block_on(async {
            let services = Services::open(&import::config(&self.data, self.cache_bytes), ProcessPurpose::Serve)
                .await
                .expect("failed to open the data directory");
            services.readiness.check().await.expect("failed to query the catalog and the store");
            services
        })
    }

    fn case(&self, services: &Arc<Services>, case: &ReadCase, memcpy: &mut Memcpy) -> LatencyRow {
        let cold = self.cold(case);
        let bytes = self.check(services, &case.requests);
        let (warm, baseline) = match case.against {
            Against::StaticHandler => {
                let (warm, baseline) = self.over_http(services, &case.requests[0]);
                (warm, Some(Baseline::StaticHandler(baseline.median())))
            }
            Against::Memcpy => (self.warm(services, case), Some(Baseline::Memcpy(memcpy.duration(bytes)))),
            Against::Nothing => (self.warm(services, case), None),
        };
        LatencyRow {
            name: case.name.clone(),
            entities: case.requests[0].expected.total(&self.source),
            bytes,
            cold,
            warm,
            rate_bytes: match case.rate {
                Rate::None => None,
                Rate::Response => Some(bytes),
                Rate::Version => Some(self.source.json_bytes),
            },
            baseline,
        }
    }

    /// Measures first requests, each on a new application.
    fn cold(&self, case: &ReadCase) -> Samples {
        let mut samples = Samples::default();
        let started = Instant::now();
        while samples.len() == 0 || (samples.len() < 3 && started.elapsed() < Duration::from_secs(1)) {
            let services = self.open();
            let request = &case.requests[samples.len() % case.requests.len()];
            if case.against == Against::StaticHandler {
                let (begin_shutdown, shutdown) = oneshot::channel::<()>();
                let address = self.serve(services, shutdown);
                let mut client = BlockingClient::connect(address);
                let target = format!("{}?{}", self.path, request.query);
                let mut body = Vec::with_capacity(1 << 20);
                let started = Instant::now();
                client.get(&target, &mut body);
                samples.add(started.elapsed());
                let _ = begin_shutdown.send(());
            } else {
                samples.add(self.timed(&services, parsed(request), 1).0[0]);
            }
        }
        samples
    }

    fn warm(&self, services: &Arc<Services>, case: &ReadCase) -> Samples {
        let requests: Vec<ReadRequest> = case.requests.iter().map(parsed).collect();
        let mut samples = Samples::default();
        let started = Instant::now();
        while samples.wants_more(started, 5) {
            // Short requests run in groups on the server's thread, so that the cost of thread changes is negligible.
            let request = &requests[samples.len() % requests.len()];
            let times = if requests.len() == 1 { 16 } else { 1 };
            let (durations, _) = self.timed(services, request.clone(), times);
            durations.into_iter().for_each(|duration| samples.add(duration));
        }
        samples
    }

    /// Returns the latency of up to `times` requests within a tenth of a second, and the length of the last response.
    fn timed(&self, services: &Arc<Services>, request: ReadRequest, times: usize) -> (Vec<Duration>, u64) {
        let services = services.clone();
        let target = self.target.clone();
        let work = async move {
            let begun = Instant::now();
            let mut durations = Vec::with_capacity(times);
            let mut bytes = 0;
            while durations.len() < times && (durations.is_empty() || begun.elapsed() < Duration::from_millis(100)) {
                let request = request.clone();
                let started = Instant::now();
                let answer = read(&services, &target, request).await;
                bytes = drain(answer.body, |_| {}).await;
                durations.push(started.elapsed());
            }
            (durations, bytes)
        };
        self.runtime.block_on(self.runtime.spawn(work)).expect("a thread panicked")
    }

    /// Compares the responses with the expected ones. Returns the length of the first response.
    fn check(&self, services: &Arc<Services>, requests: &[CheckedRequest]) -> u64 {
        let mut first_bytes = None;
        for request in requests {
            let services = services.clone();
            let target = self.target.clone();
            let source = self.source.clone();
            let request = request.clone();
            let work = async move {
                let answer = read(&services, &target, parsed(&request)).await;
                let query = &request.query;
                assert_eq!(answer.total, request.expected.total(&source), "{query}");
                let expected = request.expected.body(&source);
                let mut body = Vec::new();
                let mut at = 0;
                let bytes = drain(answer.body, |chunk| match request.expected {
                    Expected::Source => {
                        let mut same = vec![0; chunk.len()];
                        source.read_at(at, &mut same);
                        assert!(*chunk == same, "the export differs from the source after byte {at}");
                        at += chunk.len() as u64;
                    }
                    Expected::All(_) => {}
                    _ => body.extend_from_slice(&chunk),
                })
                .await;
                match request.expected {
                    Expected::Source => assert_eq!(at, source.json_bytes + source.entities),
                    Expected::All(min_bytes) => assert!(bytes >= min_bytes * source.entities, "{query}: {bytes} bytes"),
                    Expected::Count(count) => {
                        let answer: serde_json::Value = serde_json::from_slice(&body).expect("a count is JSON");
                        assert_eq!(answer["count"], count, "{query}");
                    }
                    Expected::Compact(_) | Expected::Pretty(_) => {
                        assert!(expected.as_ref() == Some(&body), "{query}: other entities or another form");
                    }
                }
                bytes
            };
            let bytes = self.runtime.block_on(self.runtime.spawn(work)).expect("the right answer");
            first_bytes.get_or_insert(bytes);
        }
        first_bytes.unwrap_or_default()
    }

    /// Measures a page over HTTP, alternating with a handler that returns the same bytes. Returns the latencies of
    /// both.
    fn over_http(&self, services: &Arc<Services>, request: &CheckedRequest) -> (Samples, Samples) {
        let expected = Bytes::from(request.expected.body(&self.source).expect("a page"));
        let (begin_shutdown, shutdown) = oneshot::channel::<()>();
        let (begin_static_shutdown, static_shutdown) = oneshot::channel::<()>();
        let mut service = BlockingClient::connect(self.serve(services.clone(), shutdown));
        let (address, listener) = self.listener();
        self.runtime.spawn(blocking_client::serve_static(expected.clone(), listener, static_shutdown));
        let mut fixed = BlockingClient::connect(address);

        let target = format!("{}?{}", self.path, request.query);
        let mut body = Vec::with_capacity(1 << 20);
        let mut samples = Samples::default();
        let mut baseline = Samples::default();
        let started = Instant::now();
        while samples.wants_more(started, 5) {
            for (client, target, samples) in
                [(&mut service, target.as_str(), &mut samples), (&mut fixed, "/static", &mut baseline)]
            {
                let started = Instant::now();
                client.get(target, &mut body);
                samples.add(started.elapsed());
                assert!(*body == expected, "{target}");
            }
        }
        let _ = begin_shutdown.send(());
        let _ = begin_static_shutdown.send(());
        (samples, baseline)
    }

    /// Serves the application on a free port until `shutdown`.
    fn serve(&self, services: Arc<Services>, shutdown: oneshot::Receiver<()>) -> SocketAddr {
        let (address, listener) = self.listener();
        self.runtime
            .spawn(async { strata_http::serve(services, listener, shutdown).await.expect("failed to run the server") });
        address
    }

    fn listener(&self) -> (SocketAddr, TcpListener) {
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("failed to bind a port");
        (listener.local_addr().expect("failed to get the address"), listener)
    }
}

/// Reads the public dataset as the endpoint does.
async fn read(services: &Arc<Services>, target: &ReadTarget, request: ReadRequest) -> ReadResponse {
    let lookup = services.lookups.find(target).await.expect("failed to query the catalog");
    let anyone = ReadRequester::Client {
        client: strata_service::ClientNetwork::Unspecified,
        authorization: AuthorizationHeader::None,
    };
    let admitted = lookup.authorize(anyone, request.variant()).expect("the dataset is not public");
    services
        .reads
        .respond(AuthorizedRead::new(&admitted, &Arc::new(request)), ContentCoding::Identity)
        .await
        .expect("failed to get a response")
}

/// Parses the parameters of a request as the endpoint does.
fn parsed(request: &CheckedRequest) -> ReadRequest {
    params::parse_query(Some(&request.query)).expect("failed to parse the query").0
}

/// Reads a body to its end and returns its length.
async fn drain(body: ResponseBody, mut each: impl FnMut(Bytes)) -> u64 {
    let mut chunks = match body {
        ResponseBody::Whole(bytes) => {
            let length = bytes.len() as u64;
            each(bytes);
            return length;
        }
        ResponseBody::Stream(chunks) => chunks,
        ResponseBody::Export(export) => export.into_chunks(),
    };
    let mut length = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.expect("failed to read the body");
        length += chunk.len() as u64;
        each(chunk);
    }
    length
}
