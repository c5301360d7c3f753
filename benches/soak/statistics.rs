//! Latencies by request kind, errors, and memory over time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::support::samples::Samples;
use crate::traffic::RequestOutcome;

/// The maximum number of errors whose text is stored.
const SHOWN_ERRORS: usize = 10;

/// The results of requests, by kind.
#[derive(Default)]
pub struct Statistics {
    kinds: BTreeMap<&'static str, Kind>,
    failures: Vec<String>,
}

#[derive(Default)]
struct Kind {
    samples: Samples,
    bytes: u64,
    errors: u64,
}

impl Statistics {
    /// Adds the result of one request.
    pub fn add(&mut self, kind: &'static str, duration: Duration, outcome: &RequestOutcome) {
        let entry = self.kinds.entry(kind).or_default();
        match outcome {
            RequestOutcome::Answered { bytes } => {
                entry.samples.add(duration);
                entry.bytes += bytes;
            }
            RequestOutcome::Cancelled => entry.samples.add(duration),
            RequestOutcome::Failed(why) => {
                entry.errors += 1;
                if self.failures.len() < SHOWN_ERRORS {
                    self.failures.push(why.clone());
                }
            }
        }
    }

    /// Adds the results of another connection.
    pub fn merge(&mut self, other: Statistics) {
        for (name, kind) in other.kinds {
            let entry = self.kinds.entry(name).or_default();
            entry.samples.merge(kind.samples);
            entry.bytes += kind.bytes;
            entry.errors += kind.errors;
        }
        self.failures.extend(other.failures);
        self.failures.truncate(SHOWN_ERRORS);
    }

    /// Returns the number of requests with an unexpected result.
    pub fn errors(&self) -> u64 {
        self.kinds.values().map(|kind| kind.errors).sum()
    }

    /// Formats the results as a table with a row for each kind, followed by the first errors.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<16}{:>10}{:>12}{:>12}{:>12}{:>12}{:>8}\n",
            "kind", "count", "median ms", "p99 ms", "max ms", "MB", "errors"
        );
        for (name, kind) in &self.kinds {
            let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{name:<16}{:>10}{:>12.3}{:>12.3}{:>12.3}{:>12.1}{:>8}",
                kind.samples.len(),
                ms(kind.samples.median()),
                ms(kind.samples.percentile(99)),
                ms(kind.samples.percentile(100)),
                kind.bytes as f64 / 1e6,
                kind.errors
            );
        }
        let _ = writeln!(text, "errors: {}", self.errors());
        for failure in &self.failures {
            let _ = writeln!(text, "  {failure}");
        }
        text
    }
}

/// The time during which the memory may still grow.
const SETTLING: Duration = Duration::from_secs(20);

/// Samples of the server's resident memory.
#[derive(Default)]
pub struct Memory(Vec<(Duration, u64)>);

impl Memory {
    /// Adds a sample, unless the system does not report the memory.
    pub fn add(&mut self, at: Duration, bytes: Option<u64>) {
        self.0.extend(bytes.map(|bytes| (at, bytes)));
    }

    /// Describes about a dozen samples, and the growth after the first 20 s: the mean of the last tenth of the samples
    /// compared with the mean after 20 s.
    pub fn report(&self) -> String {
        let mut text = "resident memory of the server:\n".to_owned();
        let step = (self.0.len() / 12).max(1);
        for (at, bytes) in self.0.iter().step_by(step) {
            let _ = writeln!(text, "  {:>5} s {:>8.1} MB", at.as_secs(), *bytes as f64 / 1e6);
        }
        let settled = self.0.iter().find(|(at, _)| *at >= SETTLING);
        let last = &self.0[self.0.len() - (self.0.len() / 10).max(1).min(self.0.len())..];
        match (settled, last) {
            (Some((_, then)), [_, ..]) => {
                let now = last.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / last.len() as f64;
                let growth = (now / *then as f64 - 1.0) * 100.0;
                let _ = writeln!(text, "growth after the first 20 s: {growth:+.1} %");
            }
            _ => text.push_str("growth: not known before 20 s\n"),
        }
        text
    }
}
