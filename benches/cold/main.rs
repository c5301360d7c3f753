//! First requests of a new process: to the local disk, and to an S3 server that lets every request wait.
//!
//! ```text
//! cargo bench --bench cold                   100,000 entities
//! cargo bench --bench cold -- 1000000        a million; any numbers, one table each
//! cargo bench --bench cold -- --delay 50     milliseconds that a request to the S3 server waits, 20 when not given
//! ```
//!
//! 1. [`support::source`] makes the entities, once; [`support::import`] imports them in a child process.
//! 2. Each request is made by processes of their own, the first one that they make, through the library as the server
//!    runs it: with the store in a directory whose files the operating system was asked to forget, and with the same
//!    files behind an S3 server ([`delaying`]) on the loopback interface.
//! 3. The table has the median time of five, from the look-up in the catalog to the last byte of the body, and the
//!    requests for bytes of version files, with those bytes. *Round trips* are the longest chain of such requests of
//!    which each was made after the answer to the one before; the local disk's are not looked at.
//!
//! Answers are compared with what the generator knows. No duration is asserted.

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
use strata_service::{AnswerBody, Authorization, AuthorizedRead, Client, Purpose, ReadTarget, Requester, Services};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use delaying::Delaying;
use support::entities::{self, Generator, Probes};
use support::import::{self, Hidden};
use support::process::run_self;
use support::samples::{Samples, milliseconds, thousands};
use support::sizes::Sizes;
use support::source::Source;

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Processes that make each request.
const RUNS: usize = 5;

/// Measures the first requests of new processes, on the local disk and over a slow network
#[derive(Parser)]
struct Arguments {
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

/// What a read took.
#[derive(Serialize, Deserialize)]
struct Report {
    seconds: f64,
    /// Entities in the answer, or the count.
    total: u64,
    requests: u64,
    bytes: u64,
}

fn main() {
    let arguments = Arguments::parse();
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

/// The requests, by name: everything after `?`, and how many entities it finds.
fn requests(source: &Source) -> Vec<(&'static str, String, u64)> {
    let probes = Probes::new(&Generator::new());
    let probe = |name: &str| {
        let query = probes.0.iter().find(|probe| probe.name == name).map(|probe| probe.query.clone());
        (query.expect("a question that there is"), source.matches(name).count)
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
    let source = Source::open(directory, entities).expect("the source file can be made");
    let data = directory.join(format!("data-{entities}"));
    eprintln!("importing {entities} entities");
    let imported = import::in_child(&source.path, &data);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let server = runtime.block_on(Delaying::start(&data, delay));
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
                let report: Report = run_self(&[
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
            let round_trips = if endpoint.is_empty() { "-".to_owned() } else { delaying::chain(&asked).to_string() };
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
    std::fs::remove_dir_all(&data).expect("the data can be removed");
}

/// Asks the operating system to forget the contents of all files of a directory, so that they are read from the disk.
fn forget(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            forget(&path);
        } else {
            let file = std::fs::File::open(&path).expect("a file");
            // What was not yet written cannot be forgotten.
            let _ = file.sync_all();
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

/// The child: makes one request and prints the report.
fn read(arguments: &[String]) {
    let [data, name_slug, endpoint, query] = arguments else { panic!("--read takes four texts") };
    let mut config = import::config(Path::new(data), 1 << 30);
    if !endpoint.is_empty() {
        delaying::configure(&mut config.store, endpoint);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let report = runtime.block_on(async {
        let services = Services::open(&config, Purpose::Serve).await.expect("the data directory opens");
        services.readiness.check().await.expect("catalog and store answer");
        let target =
            ReadTarget { dataset: DatasetId::new(1), name_slug: name_slug.clone(), version: VersionSelector::Active };
        let request = params::parse(Some(query)).expect("the query is valid").0;
        let before = (metric("strata_store_requests_total"), metric("strata_store_bytes_total"));
        let work = async move {
            let started = Instant::now();
            let lookup = services.lookups.find(&target).await.expect("the catalog answers");
            let anyone = Requester::Client { client: Client::Unspecified, authorization: Authorization::None };
            let admitted = lookup.authorize(anyone, request.alt).expect("a public dataset");
            let answer = services
                .reads
                .respond(AuthorizedRead::new(&admitted, &std::sync::Arc::new(request)), ContentCoding::Identity)
                .await;
            let answer = answer.expect("an answer");
            let total = answer.total;
            drain(answer.body).await;
            (started.elapsed().as_secs_f64(), total)
        };
        let (seconds, total) = tokio::spawn(work).await.expect("no panic");
        let requests = metric("strata_store_requests_total") - before.0;
        Report { seconds, total, requests, bytes: metric("strata_store_bytes_total") - before.1 }
    });
    println!("{}", serde_json::to_string(&report).expect("a report is JSON"));
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// The value of a counter of this process.
fn metric(name: &str) -> u64 {
    let rendering = strata_runtime::metrics::render();
    let line = rendering.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default() as u64
}

async fn drain(body: AnswerBody) {
    let mut chunks = match body {
        AnswerBody::Whole(_) => return,
        AnswerBody::Stream(chunks) => chunks,
        AnswerBody::Export(export) => export.whole(),
    };
    while let Some(chunk) = chunks.next().await {
        chunk.expect("the rest of the body");
    }
}
