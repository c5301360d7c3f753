//! Import and reads, measured through the library as the server runs it, next to baselines of the same run.
//!
//! ```text
//! cargo bench --bench reads                      100,000 entities
//! cargo bench --bench reads -- 1000000           a million; any numbers, one table each
//! cargo bench --bench reads -- all               100,000 and 1,000,000
//! cargo bench --bench reads -- --only contains   the rows whose name holds the text
//! cargo bench --bench reads -- --http            over HTTP, with processor time of the server, see `http`
//! cargo bench --bench reads -- --memory          a mix of reads beside caches of several sizes, see `memory`
//! cargo bench --bench reads -- --large 5000000   time and peak memory of large answers, see `large`
//! cargo bench --bench reads -- --scale           1,000,000 entities beside 10,000,000, see `scale`
//! ```
//!
//! Steps, per size:
//! 1. [`support::source`] makes the entities ([`support::entities`]), once: the file stays under the build directory (1
//!    GB for a million), and so does what is true of them. The data directory is removed at the end.
//! 2. [`import`] imports it in a child process with a small cache, and tells time and peak memory.
//! 3. Each of the [`cases`] runs *cold*: on an application just opened, whose cache is empty (the operating system's
//!    is not); the median of up to three. Then *warm*: on one application for all cases, again and again after one
//!    request whose answer is compared with what the generator knows. A wrong answer is not fast, it panics.
//!
//! Reads are measured from the look-up in the catalog to the last byte of the body, on a thread of the server's
//! runtime; the rows named HTTP over a connection on the loopback interface, client and server sharing the cores.
//! Baselines: copying as many bytes on one thread, and for HTTP a handler that returns the same bytes, asked in turn
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
use strata_service::{Answer, AnswerBody, Authorization, AuthorizedRead, Purpose, ReadTarget, Requester, Services};
use strata_types::ids::DatasetId;
use strata_types::request::ReadRequest;
use strata_types::version::VersionSelector;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use cases::{Against, Case, Rate};
use support::blocking_client::{self, Client};
use support::copying::Memcpy;
use support::import::{self, Hidden, Report};
use support::process;
use support::requests::{Expected, Request};
use support::samples::{Samples, thousands};
use support::sizes::Sizes;
use support::source::Source;
use table::{Baseline, Row, table};

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures import and reads, and prints one table per size
#[derive(Parser)]
struct Arguments {
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
    let arguments = Arguments::parse();
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
            Arguments { http: true, only, .. } => http::measure(&directory, entities, only),
            Arguments { memory: true, requests, .. } => memory::measure(&directory, entities, *requests),
            Arguments { large: true, only, .. } => large::measure(&directory, entities, only),
            Arguments { only, .. } => run(&directory, entities, only),
        });
    }
    print!("{tables}");
}

/// Measures one size.
fn run(directory: &Path, entities: u64, only: &str) -> String {
    let source = Source::open(directory, entities).expect("the source file can be made");
    let data = directory.join(format!("data-{entities}"));
    let mut memcpy = Memcpy::new();

    eprintln!("importing {entities} entities");
    let mut times = Samples::default();
    let started = Instant::now();
    let mut reports: Vec<Report> = Vec::new();
    // A few, and at least two: the first one may find the source file not yet in memory.
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
    let mut rows = vec![Row {
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
    let bench = Bench {
        runtime: tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads"),
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
    for case in cases::all(&bench.source) {
        if !case.name.contains(only) {
            continue;
        }
        eprintln!("{}", case.name);
        rows.push(bench.case(&services, &case, &mut memcpy));
    }
    drop(services);
    let Bench { runtime, source, .. } = bench;
    runtime.shutdown_timeout(Duration::from_secs(5));
    std::fs::remove_dir_all(&data).expect("the data can be removed");

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

/// Bytes of a cache for everything that the reads touch, decoded: documents, search text, shredded columns.
fn whole_version(source: &Source) -> u64 {
    (6 * source.json_bytes).max(1 << 30)
}

/// What all cases share.
struct Bench {
    runtime: Runtime,
    source: Arc<Source>,
    data: PathBuf,
    cache_bytes: u64,
    target: ReadTarget,
    /// The path of the version in URLs.
    path: String,
}

impl Bench {
    /// An application with nothing in its cache, whose catalog and store have answered once.
    fn open(&self) -> Arc<Services> {
        self.runtime.block_on(async {
            let services = Services::open(&import::config(&self.data, self.cache_bytes), Purpose::Serve)
                .await
                .expect("the data directory opens");
            services.readiness.check().await.expect("catalog and store answer");
            services
        })
    }

    fn case(&self, services: &Arc<Services>, case: &Case, memcpy: &mut Memcpy) -> Row {
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
        Row {
            name: case.name.clone(),
            entities: case.requests[0].expected.total(&self.source),
            bytes,
            cold,
            warm,
            rate_bytes: match case.rate {
                Rate::None => None,
                Rate::Answer => Some(bytes),
                Rate::Version => Some(self.source.json_bytes),
            },
            baseline,
        }
    }

    /// First requests, each of an application of its own.
    fn cold(&self, case: &Case) -> Samples {
        let mut samples = Samples::default();
        let started = Instant::now();
        while samples.len() == 0 || (samples.len() < 3 && started.elapsed() < Duration::from_secs(1)) {
            let services = self.open();
            let request = &case.requests[samples.len() % case.requests.len()];
            if case.against == Against::StaticHandler {
                let (begin_shutdown, shutdown) = oneshot::channel::<()>();
                let address = self.serve(services, shutdown);
                let mut client = Client::connect(address);
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

    fn warm(&self, services: &Arc<Services>, case: &Case) -> Samples {
        let requests: Vec<ReadRequest> = case.requests.iter().map(parsed).collect();
        let mut samples = Samples::default();
        let started = Instant::now();
        while samples.wants_more(started, 5) {
            // Several on the server's thread at a time where they are short, so that handing them over does not count.
            let request = &requests[samples.len() % requests.len()];
            let times = if requests.len() == 1 { 16 } else { 1 };
            let (durations, _) = self.timed(services, request.clone(), times);
            durations.into_iter().for_each(|duration| samples.add(duration));
        }
        samples
    }

    /// How long a request takes, up to so many times within a tenth of a second; and the bytes of its last answer.
    fn timed(&self, services: &Arc<Services>, request: ReadRequest, times: usize) -> (Vec<Duration>, u64) {
        let (services, target) = (services.clone(), self.target.clone());
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
        self.runtime.block_on(self.runtime.spawn(work)).expect("no panic")
    }

    /// Compares the answers with what the generator knows; the bytes of the first one.
    fn check(&self, services: &Arc<Services>, requests: &[Request]) -> u64 {
        let mut first_bytes = None;
        for request in requests {
            let (services, target, source, request) =
                (services.clone(), self.target.clone(), self.source.clone(), request.clone());
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
                    Expected::All(least) => assert!(bytes >= least * source.entities, "{query}: {bytes} bytes"),
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

    /// A page over HTTP, in turn with a handler that returns the same bytes: the times of both.
    fn over_http(&self, services: &Arc<Services>, request: &Request) -> (Samples, Samples) {
        let expected = Bytes::from(request.expected.body(&self.source).expect("a page"));
        let (begin_shutdown, shutdown) = oneshot::channel::<()>();
        let (begin_static_shutdown, static_shutdown) = oneshot::channel::<()>();
        let mut service = Client::connect(self.serve(services.clone(), shutdown));
        let (address, listener) = self.listener();
        self.runtime.spawn(blocking_client::serve_static(expected.clone(), listener, static_shutdown));
        let mut fixed = Client::connect(address);

        let target = format!("{}?{}", self.path, request.query);
        let mut body = Vec::with_capacity(1 << 20);
        let (mut samples, mut baseline) = (Samples::default(), Samples::default());
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

    /// Serves the application on a port of its own, until `shutdown`.
    fn serve(&self, services: Arc<Services>, shutdown: oneshot::Receiver<()>) -> SocketAddr {
        let (address, listener) = self.listener();
        self.runtime.spawn(async { strata_http::serve(services, listener, shutdown).await.expect("the server runs") });
        address
    }

    fn listener(&self) -> (SocketAddr, TcpListener) {
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        (listener.local_addr().expect("it is bound"), listener)
    }
}

/// A read of the public dataset, as the endpoint does it.
async fn read(services: &Arc<Services>, target: &ReadTarget, request: ReadRequest) -> Answer {
    let lookup = services.lookups.find(target).await.expect("the catalog answers");
    let anyone = Requester::Client { client: strata_service::Client::Unspecified, authorization: Authorization::None };
    let admitted = lookup.authorize(anyone, request.alt).expect("a public dataset");
    services
        .reads
        .respond(AuthorizedRead::new(&admitted, &Arc::new(request)), ContentCoding::Identity)
        .await
        .expect("an answer")
}

/// A request's parameters, as the read endpoint parses them.
fn parsed(request: &Request) -> ReadRequest {
    params::parse(Some(&request.query)).expect("the query is valid").0
}

/// Takes a body to its end; its bytes.
async fn drain(body: AnswerBody, mut each: impl FnMut(Bytes)) -> u64 {
    let mut chunks = match body {
        AnswerBody::Whole(bytes) => {
            let length = bytes.len() as u64;
            each(bytes);
            return length;
        }
        AnswerBody::Stream(chunks) => chunks,
        AnswerBody::Export(export) => export.whole(),
    };
    let mut length = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.expect("the rest of the body");
        length += chunk.len() as u64;
        each(chunk);
    }
    length
}
