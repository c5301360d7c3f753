//! Requests over several connections at the same time, each on a thread of its own.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::binary::Binary;
use super::blocking_client::Client;
use super::samples::Samples;

/// Connections to one server, which stay open.
pub struct Connections<'a> {
    server: &'a Binary,
    clients: Vec<Client>,
}

/// What requests took.
#[derive(Clone, Default)]
pub struct Load {
    /// How long each took, from the first byte of the request to the last one of the answer.
    pub samples: Samples,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Processor time of the server, where the system tells.
    pub cpu: Option<Duration>,
}

impl Load {
    /// Adds more of the same.
    pub fn add(&mut self, other: Load) {
        self.cpu = if self.samples.len() == 0 { other.cpu } else { self.cpu.zip(other.cpu).map(|(a, b)| a + b) };
        self.samples.merge(other.samples);
        self.elapsed += other.elapsed;
    }

    /// Requests per second, of all connections.
    pub fn per_second(&self) -> f64 {
        self.samples.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds of the server's processor time for each request.
    pub fn cpu_microseconds(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.samples.len() as f64)
    }
}

impl Connections<'_> {
    /// So many.
    pub fn open(server: &Binary, count: usize) -> Connections<'_> {
        let connect = |_| Client::connect(server.address);
        let connections = Connections { server, clients: (0..count).map(connect).collect() };
        // Until the server has accepted them, which is no part of a request.
        std::thread::sleep(Duration::from_millis(20));
        connections
    }

    /// Asks over all connections at once. `next` tells which of the targets a connection asks for on its n-th turn,
    /// both from 0, and nothing when it is done. `check` is shown each answer.
    pub fn ask(
        &mut self,
        targets: &[String],
        next: impl Fn(usize, usize) -> Option<usize> + Sync,
        check: impl Fn(usize, &[u8]) + Sync,
    ) -> Load {
        let ready = Barrier::new(self.clients.len() + 1);
        let before = self.server.times();
        let (samples, elapsed) = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (connection, client) in self.clients.iter_mut().enumerate() {
                let (ready, next, check) = (&ready, &next, &check);
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
        Load { samples, elapsed, cpu }
    }
}

/// The target of a read: the path of the version, and a query whose characters outside of ASCII are encoded.
pub fn target(path: &str, query: &str) -> String {
    format!("{path}?{}", percent_encoding::utf8_percent_encode(query, percent_encoding::CONTROLS))
}
