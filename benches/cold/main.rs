//! Latency of the first request to a new process, with the store on the local disk and on an S3 server that delays
//! every request.
//!
//! ```text
//! cargo bench --bench cold                   100,000 entities
//! cargo bench --bench cold -- 1000000        a million; one table for each number
//! cargo bench --bench cold -- --delay 50     the delay of the S3 server in milliseconds, 20 by default
//! ```
//!
//! 1. [`support::source`] writes the entities once, and [`support::import`] imports them in a child process.
//! 2. For each request, the benchmark starts new processes, and the request is the first one that they make. The
//!    processes use the library as the server does: with a store in a directory that is not in the page cache, and with
//!    the same files on an S3 server ([`delaying`]) on the loopback interface.
//! 3. The table shows the median latency of five processes, from the catalog lookup to the last byte of the body, the
//!    number of requests for bytes of version files, and the number of these bytes. *Round trips* is the longest chain
//!    of sequential requests. It is not measured for the local disk.
//!
//! The benchmark compares responses with the expected ones. It asserts no duration.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

mod delaying;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Parser;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use strata_encode::ContentCoding;
use strata_http::params;
use strata_service::{
    AuthorizationHeader, AuthorizedRead, ClientNetwork, ProcessPurpose, ReadRequester, ReadTarget, ResponseBody,
    Services,
};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use delaying::DelayingServer;
use support::entities::{self, Generator, QueryProbes};
use support::import::{self, Hidden};
use support::process::run_self;
use support::samples::{Samples, milliseconds, thousands};
use support::sizes::Sizes;
use support::source::Source;

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of processes for each request.
const RUNS: usize = 5;

/// Measures the first requests of new processes, on the local disk and over a slow network
#[derive(Parser)]
struct ColdArguments {
    #[command(flatten)]
    sizes: Sizes,
    /// Milliseconds that a request to the S3 server waits
    #[arg(long, default_value_t = 20)]
    delay: u64,
    #[command(flatten)]
    hidden: Hidden,
    /// The child process that reads
    #[arg(long, num_args = 4, hide = true)]
    read: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct ColdReport {
    seconds: f64,
    /// The number of entities in the response, or the count.
    total: u64,
    requests: u64,
    bytes: u64,
}

fn main() {
    let arguments = ColdArguments::parse();
    if arguments.hidden.imported() {
        return;
    }
    if let Some(arguments) = &arguments.read {
        return read(arguments);
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-cold");
    let delay = Duration::from_millis(arguments.delay);
    for entities in arguments.sizes.each() {
        measure(&directory, entities, delay);
    }
}

/// Returns the requests: name, query string, and number of matching entities.
fn requests(source: &Source) -> Vec<(&'static str, String, u64)> {
    let probes = QueryProbes::new(&Generator::new());
    let probe = |name: &str| {
        let query = probes.0.iter().find(|probe| probe.name == name).map(|probe| probe.query.clone());
        (query.expect("unknown query"), source.matches(name).count)
    };
    let (word, holding) = probe("keyword rare");
    let unique = entities::id(source.entities / 3 * 2);
    vec![
        ("first page of 100", "limit=100&pretty=false".to_owned(), 100),
        ("first filter, one match", format!("filter=id:{unique}&limit=100&pretty=false"), 1),
        ("first keyword count", format!("{word}&count=true"), holding),
        ("first sort, 100", format!("{}&limit=100&pretty=false", probe("sort price").0), 100),
    ]
}

fn measure(directory: &Path, entities: u64, delay: Duration) {
    let source = Source::open(directory, entities).expect("failed to generate the source file");
    let data = directory.join(format!("data-{entities}"));
    eprintln!("importing {entities} entities");
    let imported = import::in_child(&source.path, &data);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads");
    let server = runtime.block_on(DelayingServer::start(&data, delay));
    println!(
        "\n{} entities, {} bytes of JSON; {} cores; {} ms for each request to the S3 server\n\n{:<28}{:<8}{:>10}{:>13}{:>14}{:>11}",
        thousands(entities),
        thousands(source.json_bytes),
        std::thread::available_parallelism().map_or(1, usize::from),
        delay.as_millis(),
        "request",
        "store",
        "requests",
        "round trips",
        "bytes",
        "median ms",
    );
    for (name, query, total) in requests(&source) {
        for (store, endpoint) in [("disk", ""), ("S3", server.endpoint())] {
            let mut samples = Samples::default();
            let mut last = None;
            for _ in 0..RUNS {
                forget(&data.join("store"));
                server.take();
                let data = data.as_os_str();
                let report: ColdReport = run_self(&[
                    "--read".as_ref(),
                    data,
                    imported.name_slug.as_ref(),
                    endpoint.as_ref(),
                    query.as_ref(),
                ]);
                assert_eq!(report.total, total, "{query}");
                samples.add(Duration::from_secs_f64(report.seconds));
                last = Some((report, server.take()));
            }
            let (report, asked) = last.expect("it ran");
            let round_trips =
                if endpoint.is_empty() { "-".to_owned() } else { delaying::round_trips(&asked).to_string() };
            println!(
                "{name:<28}{store:<8}{:>10}{round_trips:>13}{:>14}{:>11}",
                thousands(report.requests),
                thousands(report.bytes),
                milliseconds(samples.median()),
            );
        }
    }
    drop(server);
    runtime.shutdown_timeout(Duration::from_secs(5));
    std::fs::remove_dir_all(&data).expect("failed to remove the data");
}

/// Removes the contents of all files in a directory from the page cache, so that the next read uses the disk.
fn forget(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("failed to create a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            forget(&path);
        } else {
            let file = std::fs::File::open(&path).expect("failed to open the file");
            // The page cache cannot drop data that is not yet on the disk.
            let _ = file.sync_all();
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// Makes one request in the child process and prints the report.
fn read(arguments: &[String]) {
    let [data, name_slug, endpoint, query] = arguments else { panic!("--read takes four texts") };
    let mut config = import::config(Path::new(data), 1 << 30);
    if !endpoint.is_empty() {
        delaying::configure(&mut config.store, endpoint);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads");
    let report = runtime.block_on(async {
        let services = Services::open(&config, ProcessPurpose::Serve).await.expect("failed to open the data directory");
        services.readiness.check().await.expect("failed to query the catalog and the store");
        let target =
            ReadTarget { dataset: DatasetId::new(1), name_slug: name_slug.clone(), version: VersionSelector::Active };
        let request = params::parse_query(Some(query)).expect("failed to parse the query").0;
        let requests_before = metric("strata_store_requests_total");
        let bytes_before = metric("strata_store_bytes_total");
        let work = async move {
            let started = Instant::now();
            let lookup = services.lookups.find(&target).await.expect("failed to query the catalog");
            let anyone =
                ReadRequester::Client { client: ClientNetwork::Unspecified, authorization: AuthorizationHeader::None };
            let admitted = lookup.authorize(anyone, request.variant()).expect("the dataset is not public");
            let answer = services
                .reads
                .respond(AuthorizedRead::new(&admitted, &std::sync::Arc::new(request)), ContentCoding::Identity)
                .await;
            let answer = answer.expect("failed to get a response");
            let total = answer.total;
            drain(answer.body).await;
            (started.elapsed().as_secs_f64(), total)
        };
        let (seconds, total) = tokio::spawn(work).await.expect("a thread panicked");
        let requests = metric("strata_store_requests_total") - requests_before;
        let bytes = metric("strata_store_bytes_total") - bytes_before;
        ColdReport { seconds, total, requests, bytes }
    });
    println!("{}", serde_json::to_string(&report).expect("failed to parse the report"));
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// Returns the value of a counter of this process.
fn metric(name: &str) -> u64 {
    let rendering = strata_runtime::metrics::render_prometheus();
    let line = rendering.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default() as u64
}

async fn drain(body: ResponseBody) {
    let mut chunks = match body {
        ResponseBody::Whole(_) => return,
        ResponseBody::Stream(chunks) => chunks,
        ResponseBody::Export(export) => export.into_chunks(),
    };
    while let Some(chunk) = chunks.next().await {
        chunk.expect("failed to read the body");
    }
}
