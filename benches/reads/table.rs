//! The table of what was measured.

use std::time::Duration;

use crate::support::samples::{Samples, milliseconds, thousands};
use crate::support::table::aligned;

/// What a measurement is held against.
pub enum Baseline {
    /// Copying the same number of bytes.
    Memcpy(Duration),
    /// A handler that returns the same bytes, over the same server.
    StaticHandler(Duration),
}

impl Baseline {
    fn duration(&self) -> Duration {
        match self {
            Baseline::Memcpy(duration) | Baseline::StaticHandler(duration) => *duration,
        }
    }
}

/// A line of the table.
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Entities in the answer, or the count that it holds.
    pub entities: u64,
    /// Bytes of the answer.
    pub bytes: u64,
    /// The first time.
    pub cold: Samples,
    /// The times after that.
    pub warm: Samples,
    /// Bytes that were worked through, where bytes per second mean something.
    pub rate_bytes: Option<u64>,
    /// What it is held against.
    pub baseline: Option<Baseline>,
}

pub const HEADINGS: [&str; 10] =
    ["measure", "entities", "bytes", "cold ms", "median ms", "p99 ms", "runs", "rate", "baseline ms", "ratio"];

impl Row {
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

/// The rows as fixed-width text.
pub fn table(rows: &[Row]) -> String {
    aligned(HEADINGS, rows.iter().map(Row::cells))
}

pub fn per_second(bytes: f64) -> String {
    if bytes >= 1e9 { format!("{:.2} GB/s", bytes / 1e9) } else { format!("{:.0} MB/s", bytes / 1e6) }
}
