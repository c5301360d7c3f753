//! The reads over HTTP, at one connection and at several, cold and warm, with the processor time of the server.
//!
//! 1. The service is its binary in a process of its own. Beside it, a handler that returns the bytes of the same answer
//!    is served by the same server and layers, in a process of its own, too.
//! 2. *Cold* is the first request of each connection, all at the same time, to a server just started whose catalog and
//!    store have answered once; the median of three servers. *Warm* is one server for all reads, after one request: the
//!    connections ask again and again, for half a second the service, then for as long the static handler, three times.
//! 3. The first answer is compared with what the generator knows, every further one with the first.
//!
//! Clients and servers share the cores, so that requests per second of several connections are those of the machine.
//! Processor time is that of the server alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpListener;

use crate::cases::{self, Against, Case, Rate};
use crate::support::binary::{Binary, measured};
use crate::support::blocking_client::{self, Client};
use crate::support::import;
use crate::support::load::{Connections, Load, target};
use crate::support::requests::{Expected, Request};
use crate::support::samples::{milliseconds, thousands};
use crate::support::source::Source;
use crate::support::table::aligned;

/// Connections at the same time.
const CONNECTIONS: [usize; 2] = [1, 16];

/// Servers that are asked for the first time.
const STARTS: usize = 3;

/// How often the service and the static handler take turns.
const ROUNDS: usize = 3;

/// How long each of them is asked at a time.
const ROUND: Duration = Duration::from_millis(500);

const STATIC: &str = "/static";

/// Imports so many entities and reads them over HTTP; a table.
pub fn measure(directory: &Path, entities: u64, only: &str) -> String {
    let source = Source::open(directory, entities).expect("the source file can be made");
    let data = directory.join(format!("data-{entities}"));
    eprintln!("importing {entities} entities");
    let report = import::in_child(&source.path, &data);
    let bench = Bench {
        cache_bytes: crate::whole_version(&source),
        path: report.path(),
        answer: directory.join("answer"),
        data,
        source,
    };
    let warm = bench.service();
    let mut rows = Vec::new();
    // Exports are as long as copying their bytes takes, and the first reads of the plain table again over HTTP.
    let cases = cases::all(&bench.source);
    for case in cases.iter().filter(|case| case.rate != Rate::Answer && case.against != Against::StaticHandler) {
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
        aligned(HEADINGS, rows.iter().map(Row::cells)),
    )
}

/// What all reads share.
struct Bench {
    source: Source,
    data: PathBuf,
    cache_bytes: u64,
    /// The path of the version.
    path: String,
    /// The file of the answer that the static handler returns.
    answer: PathBuf,
}

/// The requests of a read, and their answers.
struct Asked {
    targets: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

impl Asked {
    /// Asks the server. Each connection begins elsewhere among the requests, so that they do not wait for each other.
    fn over(&self, connections: &mut Connections, next: impl Fn(usize, usize) -> Option<usize> + Sync) -> Load {
        let next = |connection, turn| next(connection, turn).map(|number| number % self.targets.len());
        connections.ask(&self.targets, next, |number, body| {
            assert!(*body == *self.bodies[number], "{}: another answer than the first time", self.targets[number]);
        })
    }

    fn first(&self, server: &Binary, connections: usize) -> Load {
        let next = |connection, turn| (turn == 0).then_some(connection);
        self.over(&mut Connections::open(server, connections), next)
    }

    fn again(&self, connections: &mut Connections, count: usize) -> Load {
        let started = Instant::now();
        self.over(connections, |connection, turn| (started.elapsed() < ROUND).then_some(connection + turn * count))
    }
}

impl Bench {
    /// The service, just started.
    fn service(&self) -> Binary {
        let server = Binary::serve(measured(&self.data, self.cache_bytes));
        Client::connect(server.address).get("/readyz", &mut Vec::new());
        server
    }

    /// The static handler, just started.
    fn fixed(&self) -> Binary {
        let mut command = Command::new(std::env::current_exe().expect("the benchmark knows its binary"));
        command.arg("--serve-static").arg(&self.answer);
        Binary::start(command)
    }

    /// A line for each number of connections, cold and warm.
    fn case(&self, warm: &Binary, case: &Case) -> Vec<Row> {
        let mut client = Client::connect(warm.address);
        let targets = case.requests.iter().map(|request| target(&self.path, &request.query)).collect::<Vec<_>>();
        let bodies =
            case.requests.iter().zip(&targets).map(|(request, target)| self.checked(&mut client, request, target));
        let read = Asked { bodies: bodies.collect(), targets };
        std::fs::write(&self.answer, &read.bodies[0]).expect("the answer can be kept");
        let same = Asked { targets: vec![STATIC.to_owned()], bodies: vec![read.bodies[0].clone()] };

        let mut rows = Vec::new();
        let mut row = |connections, state, service, fixed| {
            rows.push(Row { name: case.name.clone(), bytes: read.bodies[0].len(), connections, state, service, fixed });
        };
        let warm_fixed = self.fixed();
        for count in CONNECTIONS {
            let (mut service, mut fixed) = (Load::default(), Load::default());
            for _ in 0..STARTS {
                service.add(read.first(&self.service(), count));
                fixed.add(same.first(&self.fixed(), count));
            }
            row(count, "cold", service, fixed);
            let (mut service, mut fixed) = (Load::default(), Load::default());
            let (mut to_service, mut to_fixed) =
                (Connections::open(warm, count), Connections::open(&warm_fixed, count));
            for _ in 0..ROUNDS {
                service.add(read.again(&mut to_service, count));
                fixed.add(same.again(&mut to_fixed, count));
            }
            row(count, "warm", service, fixed);
        }
        rows
    }

    /// The answer of a request, after it was compared with what the generator knows.
    fn checked(&self, client: &mut Client, request: &Request, target: &str) -> Vec<u8> {
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

/// The child: returns the bytes of the file to everybody who asks, until it is killed.
pub fn serve_static(file: &Path) {
    let body = Bytes::from(std::fs::read(file).expect("the answer was kept"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    // On a thread of the runtime, as the service's own.
    let serving = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("listening on http://{}", listener.local_addr().expect("it is bound"));
        blocking_client::serve_static(body, listener, std::future::pending::<()>()).await;
    };
    runtime.block_on(serving);
}

/// A line of the table.
struct Row {
    name: String,
    bytes: usize,
    connections: usize,
    state: &'static str,
    service: Load,
    fixed: Load,
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

impl Row {
    fn cells(&self) -> [String; 13] {
        let cpu = |load: &Load| load.cpu_microseconds().map_or("unknown".to_owned(), |cpu| format!("{cpu:.0}"));
        let ratio = |service: f64, fixed: f64| format!("{:.1}", service / fixed.max(f64::MIN_POSITIVE));
        let median = |load: &Load| load.samples.median().as_secs_f64();
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
