//! The table of results.

use std::time::Duration;

use crate::support::samples::{Samples, milliseconds, thousands};
use crate::support::table::aligned;

/// The baseline of a measurement.
pub enum Baseline {
    /// The time to copy the same number of bytes.
    Memcpy(Duration),
    /// The latency of a handler that returns the same bytes with the same server.
    StaticHandler(Duration),
}

impl Baseline {
    fn duration(&self) -> Duration {
        match self {
            Baseline::Memcpy(duration) | Baseline::StaticHandler(duration) => *duration,
        }
    }
}

/// A row of the table.
pub struct LatencyRow {
    /// The name of the measured case.
    pub name: String,
    /// The number of entities in the response, or the count that it contains.
    pub entities: u64,
    pub bytes: u64,
    /// The latencies of first requests.
    pub cold: Samples,
    /// The latencies of all later requests.
    pub warm: Samples,
    /// The number of processed bytes, if a rate in bytes per second is useful.
    pub rate_bytes: Option<u64>,
    /// The baseline, if there is one.
    pub baseline: Option<Baseline>,
}

pub const HEADINGS: [&str; 10] =
    ["measure", "entities", "bytes", "cold ms", "median ms", "p99 ms", "runs", "rate", "baseline ms", "ratio"];

impl LatencyRow {
    fn cells(&self) -> [String; 10] {
        let median = self.warm.median();
        let rate = self.rate_bytes.map(|bytes| bytes as f64 / median.as_secs_f64());
        let baseline = self.baseline.as_ref().map(|baseline| match baseline {
            Baseline::Memcpy(duration) => format!("memcpy {}", milliseconds(*duration)),
            Baseline::StaticHandler(duration) => format!("static {}", milliseconds(*duration)),
        });
        let ratio = self.baseline.as_ref().map(|baseline| {
            format!("{:.1}", median.as_secs_f64() / baseline.duration().as_secs_f64().max(f64::MIN_POSITIVE))
        });
        [
            self.name.clone(),
            thousands(self.entities),
            thousands(self.bytes),
            if self.cold.len() == 0 { String::new() } else { milliseconds(self.cold.median()) },
            milliseconds(median),
            milliseconds(self.warm.percentile(99)),
            self.warm.len().to_string(),
            rate.map_or_else(String::new, per_second),
            baseline.unwrap_or_default(),
            ratio.unwrap_or_default(),
        ]
    }
}

/// Formats the rows as fixed-width text.
pub fn table(rows: &[LatencyRow]) -> String {
    aligned(HEADINGS, rows.iter().map(LatencyRow::cells))
}

pub fn per_second(bytes: f64) -> String {
    if bytes >= 1e9 { format!("{:.2} GB/s", bytes / 1e9) } else { format!("{:.0} MB/s", bytes / 1e6) }
}
