//! A load test of the server: mixed traffic for a while, with latencies by request kind, errors, and memory growth.
//!
//! ```text
//! cargo bench --bench soak                                    60 s, 64 connections
//! cargo bench --bench soak -- --seconds 600 --connections 200
//! cargo bench --bench soak -- --slow                          with 2,000 idle connections and 200 slow readers
//! cargo bench --bench soak -- --hostile                       an honest and a hostile user ([`hostile`])
//! ```
//!
//! 1. The binary imports two datasets: a product catalogue with about 1 KB of JSON per entity ([`support::entities`]),
//!    and measurements with about 100 bytes per entity.
//! 2. The binary serves them on the loopback interface with the default configuration, but without rate limits.
//! 3. Every request of the mix ([`traffic`]) is made once to fill the caches.
//! 4. Each connection makes one request of the mix after the other. A generator with a fixed seed chooses the requests.
//!    The benchmark checks the status of each response and that it is complete. For most requests, it also checks that
//!    the length is the same as the first time.
//! 5. The benchmark reads the server's resident memory every second and compares it with the value after 20 s.
//!
//! With `--slow`, four connections read pages, filters, and counts while other connections are idle (after one
//! response) or read an export at 16 KiB/s. Each connection needs a file descriptor on both sides. So the benchmark
//! raises its soft limit (`ulimit -n`) to twice the number of connections plus 512, which the hard limit must allow. It
//! also raises `server.header_timeout_s`, so that the server does not close idle connections.
//!
//! With `--hostile`, a table shows for each shared resource the latency of an honest user with and without a hostile
//! user. The exit code is 1 if a request failed or if the p99 is more than three times as high.
//!
//! The exit code is 1 if there was an error. The benchmark asserts no duration and no size. Client and server share the
//! cores.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

mod hostile;
mod server;
mod slow;
mod statistics;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod support;
mod traffic;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::runtime::Runtime;

use server::SoakServer;
use statistics::{Memory, Statistics};
use support::binary::with_open_files;
use support::client::AsyncClient;
use traffic::{Mix, RequestOutcome};

/// Drives the server with mixed traffic, and prints latencies, errors and memory
#[derive(Clone, Debug, Parser)]
pub struct SoakArguments {
    /// Seconds of traffic
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Connections that make requests
    #[arg(long, default_value_t = 64)]
    connections: u64,
    /// Entities of each dataset
    #[arg(long, default_value_t = 100_000)]
    entities: u64,
    /// Measure ordinary reads next to idle connections and slow readers instead
    #[arg(long)]
    slow: bool,
    /// Idle connections, with --slow
    #[arg(long, default_value_t = 2_000)]
    idle: u64,
    /// Slow readers, with --slow
    #[arg(long, default_value_t = 200)]
    readers: u64,
    /// Measure an honest user next to a hostile one instead, for each resource that they share
    #[arg(long)]
    hostile: bool,
    /// Only resources whose names contain this, with --hostile
    #[arg(long)]
    only: Option<String>,
    /// The limit of open files has been raised
    #[arg(long, hide = true)]
    raised: bool,
    /// What cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = SoakArguments::parse();
    if arguments.slow && !arguments.raised {
        return with_open_files(2 * (arguments.idle + arguments.readers) + 512);
    }
    if arguments.hostile && !arguments.raised {
        return with_open_files(8_192);
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-soak");
    let runtime = Runtime::new().expect("failed to start the threads");
    let name_server = arguments.hostile.then(|| runtime.block_on(hostile::silent_name_server()));
    let server = SoakServer::start(&directory, &arguments, name_server.as_ref().map(|(_, address)| *address));
    let errors = match (arguments.slow, arguments.hostile) {
        (true, _) => runtime.block_on(slow::run(&server, &arguments)),
        (false, true) => runtime.block_on(hostile::run(&server, &arguments)),
        (false, false) => runtime.block_on(soak(&server, &arguments)),
    };
    drop(server);
    std::fs::remove_dir_all(&directory).expect("failed to remove the data");
    match errors {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Sends the mix for the requested time. Returns the number of errors.
async fn soak(server: &SoakServer, arguments: &SoakArguments) -> u64 {
    eprintln!("warming up");
    let mix = Mix::learn(server).await;
    let duration = Duration::from_secs(arguments.seconds);
    eprintln!("{} connections for {} s", arguments.connections, arguments.seconds);
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..arguments.connections {
        let mix = mix.clone();
        let address = server.address;
        tasks.spawn(async move {
            let mut statistics = Statistics::default();
            let mut client = AsyncClient::connect(address).await;
            let mut choice = traffic::Choice::new(number);
            while begun.elapsed() < duration {
                let request = mix.choose(&mut choice);
                let started = Instant::now();
                let outcome = mix.make(&mut client, request, &mut choice).await;
                statistics.add(request.kind, started.elapsed(), &outcome);
                // A connection cannot be used after an error, and a canceled download closes it.
                if !matches!(outcome, RequestOutcome::Answered { .. }) {
                    client = AsyncClient::connect(address).await;
                }
            }
            statistics
        });
    }
    let mut memory = Memory::default();
    while begun.elapsed() < duration {
        tokio::time::sleep(Duration::from_secs(1).min(duration)).await;
        memory.add(begun.elapsed(), server.resident_bytes());
    }
    let mut all = Statistics::default();
    while let Some(statistics) = tasks.join_next().await {
        all.merge(statistics.expect("a thread panicked"));
    }
    print!("{}\n{}", all.table(), memory.report());
    all.errors()
}
