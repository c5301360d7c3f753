//! Ordinary reads while many connections are idle and many clients read a large export slowly.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::SoakArguments;
use crate::server::SoakServer;
use crate::statistics::{Memory, Statistics};
use crate::support::client::AsyncClient;
use crate::traffic::{Choice, Mix, RequestOutcome};

/// The number of connections that make ordinary reads.
const ORDINARY: u64 = 4;

/// The number of bytes that a slow reader reads at a time, and the interval between its reads.
const SIP_BYTES: usize = 4 << 10;
const SIP_PAUSE: Duration = Duration::from_millis(250);

/// The receive buffer of a slow reader, in bytes.
const BUFFER_BYTES: u32 = 16 << 10;

/// Runs the benchmark. Returns the number of errors, including slow and idle connections that the server closed.
pub async fn run(server: &SoakServer, arguments: &SoakArguments) -> u64 {
    eprintln!("warming up");
    let mix = Mix::learn(server).await.ordinary();
    let before = ordinary(server, &mix, arguments.seconds.min(10)).await;
    print_part("before", before, server);

    eprintln!("{} idle connections, {} slow readers", arguments.idle, arguments.readers);
    let mut idle = Vec::new();
    for _ in 0..arguments.idle {
        let mut client = AsyncClient::connect(server.address).await;
        let head =
            client.ask(&format!("{}?limit=1", server.measurements), None).await.expect("failed to get a response");
        client.body(&head).await.expect("failed to read the response");
        idle.push(client);
    }
    let target = format!("{}?format=json", server.catalogue);
    let mut readers = JoinSet::new();
    for _ in 0..arguments.readers {
        let mut client = AsyncClient::connect_buffering(server.address, BUFFER_BYTES).await;
        let head = client.ask(&target, None).await.expect("failed to get a response");
        assert_eq!(head.status, 200, "an export is refused");
        readers.spawn(async move {
            while client.some(SIP_BYTES).await.is_ok_and(|read| read > 0) {
                tokio::time::sleep(SIP_PAUSE).await;
            }
        });
    }
    let begun = Instant::now();
    let mut memory = Memory::default();
    let duration = Duration::from_secs(arguments.seconds);
    let watch = async {
        while begun.elapsed() < duration {
            tokio::time::sleep(Duration::from_secs(1)).await;
            memory.add(begun.elapsed(), server.resident_bytes());
        }
    };
    let (during, ()) = tokio::join!(ordinary(server, &mix, arguments.seconds), watch);
    let errors = print_part("during", during, server);
    print!("{}", memory.report());

    let mut lost = 0;
    while readers.try_join_next().is_some() {
        lost += 1;
    }
    let mut gone = 0;
    for client in &mut idle {
        if client.ask("/healthz", None).await.is_err() {
            gone += 1;
        }
    }
    println!("slow readers that lost their export: {lost}; idle connections that were closed: {gone}");
    drop(readers);
    drop(idle);
    let after = ordinary(server, &mix, arguments.seconds.min(10)).await;
    errors + print_part("after", after, server) + lost + gone
}

fn print_part(title: &str, statistics: Statistics, server: &SoakServer) -> u64 {
    let resident =
        server.resident_bytes().map_or("unknown".to_owned(), |bytes| format!("{:.1} MB", bytes as f64 / 1e6));
    println!("{title} (resident memory {resident}):\n{}", statistics.table());
    statistics.errors()
}

/// Makes ordinary reads on a few connections for `seconds` seconds.
async fn ordinary(server: &SoakServer, mix: &Mix, seconds: u64) -> Statistics {
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for number in 0..ORDINARY {
        let mix = mix.clone();
        let address = server.address;
        tasks.spawn(async move {
            let mut statistics = Statistics::default();
            let mut client = AsyncClient::connect(address).await;
            let mut choice = Choice::new(number);
            while begun.elapsed() < Duration::from_secs(seconds) {
                let request = mix.choose(&mut choice);
                let started = Instant::now();
                let outcome = mix.make(&mut client, request, &mut choice).await;
                statistics.add(request.kind, started.elapsed(), &outcome);
                if let RequestOutcome::Failed(_) = outcome {
                    client = AsyncClient::connect(address).await;
                }
            }
            statistics
        });
    }
    let mut all = Statistics::default();
    while let Some(statistics) = tasks.join_next().await {
        all.merge(statistics.expect("a thread panicked"));
    }
    all
}
