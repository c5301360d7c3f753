//! The server under mixed traffic for a while: latencies by kind, errors, and whether its memory grows.
//!
//! ```text
//! cargo bench --bench soak                                    60 s, 64 connections
//! cargo bench --bench soak -- --seconds 600 --connections 200
//! cargo bench --bench soak -- --slow                          beside 2,000 idle connections and 200 slow readers
//! cargo bench --bench soak -- --hostile                       an honest user beside a hostile one ([`hostile`])
//! ```
//!
//! 1. Two datasets are made and imported by the binary: a catalogue of about 1 KB of JSON an entity
//!    ([`support::entities`]), and measurements of about 100 bytes.
//! 2. The binary serves them on the loopback interface, as configured by default, but for rate limits, which are off.
//! 3. Every request of the mix ([`traffic`]) is made once, so that the cache holds what it will hold.
//! 4. The connections make requests of the mix, one after the other each, chosen by a generator with a fixed seed.
//!    Every answer is checked: its status, that it is whole, and for most that it has as many bytes as the first time.
//! 5. The resident memory of the server is looked at every second, and compared with that after 20 s.
//!
//! With `--slow`, idle connections (after one answer each) and readers that take an export at 16 KiB/s stand beside
//! four connections that read pages, filters and counts. It needs a file descriptor for each on both sides: the
//! benchmark raises its soft limit (`ulimit -n`) to twice their number and 512, which the hard limit must allow. So
//! that idle connections stay, `server.header_timeout_s` is raised.
//!
//! With `--hostile`, a table says for each shared resource how long requests of an honest user take alone, and beside a
//! hostile one; the exit code is 1 if a request failed, or if its p99 is more than three times as long.
//!
//! The exit code is 1 if there was an error. No duration and no size is asserted. Client and server share the cores.

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

use server::Server;
use statistics::{Memory, Statistics};
use support::binary::with_open_files;
use support::client::Client;
use traffic::{Mix, Outcome};

/// Drives the server with mixed traffic, and prints latencies, errors and memory
#[derive(Clone, Debug, Parser)]
pub struct Arguments {
    /// Seconds of traffic
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Connections that make requests
    #[arg(long, default_value_t = 64)]
    connections: u64,
    /// Entities of each dataset
    #[arg(long, default_value_t = 100_000)]
    entities: u64,
    /// Measure ordinary reads beside idle connections and slow readers instead
    #[arg(long)]
    slow: bool,
    /// Idle connections, with --slow
    #[arg(long, default_value_t = 2_000)]
    idle: u64,
    /// Slow readers, with --slow
    #[arg(long, default_value_t = 200)]
    readers: u64,
    /// Measure an honest user beside a hostile one instead, for each resource that they share
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
    let arguments = Arguments::parse();
    if arguments.slow && !arguments.raised {
        return with_open_files(2 * (arguments.idle + arguments.readers) + 512);
    }
    if arguments.hostile && !arguments.raised {
        return with_open_files(8_192);
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-soak");
    let runtime = Runtime::new().expect("threads");
    let silent = arguments.hostile.then(|| runtime.block_on(hostile::silent_name_server()));
    let server = Server::start(&directory, &arguments, silent.as_ref().map(|(_, address)| *address));
    let errors = match (arguments.slow, arguments.hostile) {
        (true, _) => runtime.block_on(slow::run(&server, &arguments)),
        (false, true) => runtime.block_on(hostile::run(&server, &arguments)),
        (false, false) => runtime.block_on(soak(&server, &arguments)),
    };
    drop(server);
    std::fs::remove_dir_all(&directory).expect("the data can be removed");
    match errors {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The mix for as long as asked; how many errors there were.
async fn soak(server: &Server, arguments: &Arguments) -> u64 {
    eprintln!("warming up");
    let mix = Mix::learn(server).await;
    let duration = Duration::from_secs(arguments.seconds);
    eprintln!("{} connections for {} s", arguments.connections, arguments.seconds);
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..arguments.connections {
        let (mix, address) = (mix.clone(), server.address);
        tasks.spawn(async move {
            let mut statistics = Statistics::default();
            let mut client = Client::connect(address).await;
            let mut choice = traffic::Choice::new(number);
            while begun.elapsed() < duration {
                let request = mix.choose(&mut choice);
                let started = Instant::now();
                let outcome = mix.make(&mut client, request, &mut choice).await;
                statistics.add(request.kind, started.elapsed(), &outcome);
                // After an error the connection is of no use, after a cancelled download it is closed.
                if !matches!(outcome, Outcome::Answered { .. }) {
                    client = Client::connect(address).await;
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
        all.merge(statistics.expect("no panic"));
    }
    print!("{}\n{}", all.table(), memory.report());
    all.errors()
}
