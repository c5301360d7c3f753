//! The reads over HTTP, on one connection and on several, with cold and warm caches, and the processor time of the
//! server.
//!
//! 1. The service is the binary in a child process. Another child process serves the bytes of the same response as a
//!    static handler, with the same server and layers.
//! 2. *Cold* is the first request of each connection, all at the same time, to a new server whose catalog and store
//!    have responded once. The result is the median of three servers. *Warm* uses one server for all reads, after one
//!    request: the connections send requests to the service for half a second and then to the static handler for half a
//!    second, three times.
//! 3. The first response is compared with the expected one, and all others with the first.
//!
//! Clients and servers share the cores, so the requests per second on several connections are limited by the whole
//! machine. The processor time includes only the server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpListener;

use crate::cases::{self, Against, Rate, ReadCase};
use crate::support::binary::{ServerProcess, measured};
use crate::support::blocking_client::{self, BlockingClient};
use crate::support::import;
use crate::support::load::{Connections, LoadResults, target};
use crate::support::requests::{CheckedRequest, Expected};
use crate::support::samples::{milliseconds, thousands};
use crate::support::source::Source;
use crate::support::table::aligned;

/// The numbers of simultaneous connections.
const CONNECTIONS: [usize; 2] = [1, 16];

/// The number of servers for the first requests.
const STARTS: usize = 3;

/// The number of rounds in which the service and the static handler take turns.
const ROUNDS: usize = 3;

const ROUND: Duration = Duration::from_millis(500);

const STATIC: &str = "/static";

/// Imports `entities` entities and measures the reads over HTTP. Returns a table.
pub fn measure(directory: &Path, entities: u64, only: &str) -> String {
    let source = Source::open(directory, entities).expect("failed to generate the source file");
    let data = directory.join(format!("data-{entities}"));
    eprintln!("importing {entities} entities");
    let report = import::in_child(&source.path, &data);
    let bench = HttpBenchmark {
        cache_bytes: crate::whole_version(&source),
        path: report.path(),
        answer: directory.join("answer"),
        data,
        source,
    };
    let warm = bench.service();
    let mut rows = Vec::new();
    // Copying bytes dominates exports. Cases with a static handler repeat other cases over HTTP.
    let cases = cases::cases(&bench.source);
    for case in cases.iter().filter(|case| case.rate != Rate::Response && case.against != Against::StaticHandler) {
        if case.name.contains(only) {
            eprintln!("{}", case.name);
            rows.extend(bench.case(&warm, case));
        }
    }
    drop(warm);
    for file in [&bench.data, &bench.answer] {
        let _ = std::fs::remove_dir_all(file).or_else(|_| std::fs::remove_file(file));
    }
    format!(
        "\n{} entities, {} bytes of JSON, over HTTP; {} cores; cache.memory_bytes = {}\n\
         CPU: processor time of the server for each request; static: a handler that returns the same bytes\n\n{}",
        thousands(entities),
        thousands(bench.source.json_bytes),
        std::thread::available_parallelism().map_or(1, usize::from),
        thousands(bench.cache_bytes),
        aligned(HEADINGS, rows.iter().map(HttpRow::cells)),
    )
}

/// The data and the results that all reads share.
struct HttpBenchmark {
    source: Source,
    data: PathBuf,
    cache_bytes: u64,
    path: String,
    /// The file with the response that the static handler returns.
    answer: PathBuf,
}

/// The requests of a read with their responses.
struct MeasuredRead {
    targets: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

impl MeasuredRead {
    /// Sends the requests. Each connection starts at a different request, so that identical requests do not wait for
    /// each other.
    fn send(&self, connections: &mut Connections, next: impl Fn(usize, usize) -> Option<usize> + Sync) -> LoadResults {
        let next = |connection, turn| next(connection, turn).map(|number| number % self.targets.len());
        connections.ask(&self.targets, next, |number, body| {
            assert!(*body == *self.bodies[number], "{}: another answer than the first time", self.targets[number]);
        })
    }

    fn first(&self, server: &ServerProcess, connections: usize) -> LoadResults {
        let next = |connection, turn| (turn == 0).then_some(connection);
        self.send(&mut Connections::open(server, connections), next)
    }

    fn again(&self, connections: &mut Connections, count: usize) -> LoadResults {
        let started = Instant::now();
        self.send(connections, |connection, turn| (started.elapsed() < ROUND).then_some(connection + turn * count))
    }
}

impl HttpBenchmark {
    /// Starts the service.
    fn service(&self) -> ServerProcess {
        let server = ServerProcess::serve(measured(&self.data, self.cache_bytes));
        BlockingClient::connect(server.address).get("/readyz", &mut Vec::new());
        server
    }

    /// Starts the static handler.
    fn static_handler(&self) -> ServerProcess {
        let mut command = Command::new(std::env::current_exe().expect("failed to find the binary"));
        command.arg("--serve-static").arg(&self.answer);
        ServerProcess::start(command)
    }

    /// Measures a case. Returns a row for each number of connections, both cold and warm.
    fn case(&self, warm: &ServerProcess, case: &ReadCase) -> Vec<HttpRow> {
        let mut client = BlockingClient::connect(warm.address);
        let targets = case.requests.iter().map(|request| target(&self.path, &request.query)).collect::<Vec<_>>();
        let bodies =
            case.requests.iter().zip(&targets).map(|(request, target)| self.checked(&mut client, request, target));
        let read = MeasuredRead { bodies: bodies.collect(), targets };
        std::fs::write(&self.answer, &read.bodies[0]).expect("failed to store the response");
        let same = MeasuredRead { targets: vec![STATIC.to_owned()], bodies: vec![read.bodies[0].clone()] };

        let mut rows = Vec::new();
        let mut row = |connections, state, service, fixed| {
            let name = case.name.clone();
            rows.push(HttpRow { name, bytes: read.bodies[0].len(), connections, state, service, fixed });
        };
        let warm_fixed = self.static_handler();
        for count in CONNECTIONS {
            let mut service = LoadResults::default();
            let mut fixed = LoadResults::default();
            for _ in 0..STARTS {
                service.add(read.first(&self.service(), count));
                fixed.add(same.first(&self.static_handler(), count));
            }
            row(count, "cold", service, fixed);
            let mut service = LoadResults::default();
            let mut fixed = LoadResults::default();
            let mut to_service = Connections::open(warm, count);
            let mut to_fixed = Connections::open(&warm_fixed, count);
            for _ in 0..ROUNDS {
                service.add(read.again(&mut to_service, count));
                fixed.add(same.again(&mut to_fixed, count));
            }
            row(count, "warm", service, fixed);
        }
        rows
    }

    /// Returns the response to a request after comparing it with the expected one.
    fn checked(&self, client: &mut BlockingClient, request: &CheckedRequest, target: &str) -> Vec<u8> {
        let mut body = Vec::new();
        client.get(target, &mut body);
        match (&request.expected, request.expected.body(&self.source)) {
            (Expected::Count(count), _) => {
                let answer: serde_json::Value = serde_json::from_slice(&body).expect("a count is JSON");
                assert_eq!(answer["count"], *count, "{target}");
            }
            (_, Some(expected)) => assert!(body == expected, "{target}: other entities or another form"),
            (_, None) => {}
        }
        body
    }
}

/// Serves the bytes of a file in the child process until it is killed.
pub fn serve_static(file: &Path) {
    let body = Bytes::from(std::fs::read(file).expect("failed to read the stored response"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads");
    // On a thread of the runtime, as in the service.
    let serving = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind a port");
        println!("listening on http://{}", listener.local_addr().expect("failed to get the address"));
        blocking_client::serve_static(body, listener, std::future::pending::<()>()).await;
    };
    runtime.block_on(serving);
}

/// A row of the table.
struct HttpRow {
    name: String,
    bytes: usize,
    connections: usize,
    state: &'static str,
    service: LoadResults,
    fixed: LoadResults,
}

const HEADINGS: [&str; 13] = [
    "measure",
    "bytes",
    "connections",
    "state",
    "median ms",
    "p99 ms",
    "requests/s",
    "CPU µs",
    "static ms",
    "static requests/s",
    "static CPU µs",
    "ratio of ms",
    "ratio of CPU",
];

impl HttpRow {
    fn cells(&self) -> [String; 13] {
        let cpu = |load: &LoadResults| load.cpu_microseconds().map_or("unknown".to_owned(), |cpu| format!("{cpu:.0}"));
        let ratio = |service: f64, fixed: f64| format!("{:.1}", service / fixed.max(f64::MIN_POSITIVE));
        let median = |load: &LoadResults| load.samples.median().as_secs_f64();
        let cpus = self.service.cpu_microseconds().zip(self.fixed.cpu_microseconds());
        [
            self.name.clone(),
            thousands(self.bytes as u64),
            self.connections.to_string(),
            self.state.to_owned(),
            milliseconds(self.service.samples.median()),
            milliseconds(self.service.samples.percentile(99)),
            format!("{:.0}", self.service.per_second()),
            cpu(&self.service),
            milliseconds(self.fixed.samples.median()),
            format!("{:.0}", self.fixed.per_second()),
            cpu(&self.fixed),
            ratio(median(&self.service), median(&self.fixed)),
            cpus.map_or("unknown".to_owned(), |(service, fixed)| ratio(service, fixed)),
        ]
    }
}
