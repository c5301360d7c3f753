//! Requests on several connections at the same time, each on its own thread.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::binary::ServerProcess;
use super::blocking_client::BlockingClient;
use super::samples::Samples;

/// Several keep-alive connections to one server.
pub struct Connections<'a> {
    server: &'a ServerProcess,
    clients: Vec<BlockingClient>,
}

/// The measurement of several requests.
#[derive(Clone, Default)]
pub struct LoadResults {
    /// The latency of each request, from the first byte of the request to the last byte of the response.
    pub samples: Samples,
    /// The time from the first request to the last response.
    pub elapsed: Duration,
    /// The processor time of the server, if the system reports it.
    pub cpu: Option<Duration>,
}

impl LoadResults {
    /// Adds the measurement of further requests.
    pub fn add(&mut self, other: LoadResults) {
        self.cpu = if self.samples.len() == 0 { other.cpu } else { self.cpu.zip(other.cpu).map(|(a, b)| a + b) };
        self.samples.merge(other.samples);
        self.elapsed += other.elapsed;
    }

    /// Returns the number of requests per second on all connections.
    pub fn per_second(&self) -> f64 {
        self.samples.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the processor time of the server per request, in microseconds.
    pub fn cpu_microseconds(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.samples.len() as f64)
    }
}

impl Connections<'_> {
    /// Opens `count` connections.
    pub fn open(server: &ServerProcess, count: usize) -> Connections<'_> {
        let connect = |_| BlockingClient::connect(server.address);
        let connections = Connections { server, clients: (0..count).map(connect).collect() };
        // Waits until the server has accepted the connections, which is not part of a request.
        std::thread::sleep(Duration::from_millis(20));
        connections
    }

    /// Makes requests on all connections at once. `next` gets the index of a connection and the number of its requests
    /// so far, and returns the index of the next target, or `None` if the connection is done. `check` gets each
    /// response.
    pub fn ask(
        &mut self,
        targets: &[String],
        next: impl Fn(usize, usize) -> Option<usize> + Sync,
        check: impl Fn(usize, &[u8]) + Sync,
    ) -> LoadResults {
        let ready = Barrier::new(self.clients.len() + 1);
        let before = self.server.times();
        let (samples, elapsed) = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (connection, client) in self.clients.iter_mut().enumerate() {
                let ready = &ready;
                let next = &next;
                let check = &check;
                threads.push(scope.spawn(move || {
                    let mut body = Vec::with_capacity(1 << 20);
                    let mut samples = Samples::default();
                    ready.wait();
                    for turn in 0.. {
                        let Some(number) = next(connection, turn) else { break };
                        let started = Instant::now();
                        client.get(&targets[number], &mut body);
                        samples.add(started.elapsed());
                        check(number, &body);
                    }
                    samples
                }));
            }
            ready.wait();
            let started = Instant::now();
            let mut samples = Samples::default();
            for thread in threads {
                samples.merge(thread.join().expect("the right answers"));
            }
            (samples, started.elapsed())
        });
        let cpu = before.zip(self.server.times()).map(|(before, after)| after.since(&before));
        LoadResults { samples, elapsed, cpu }
    }
}

/// Returns the target of a read: the path of the version and the query, in which non-ASCII characters are
/// percent-encoded.
pub fn target(path: &str, query: &str) -> String {
    format!("{path}?{}", percent_encoding::utf8_percent_encode(query, percent_encoding::CONTROLS))
}
