//! Durations and the table that shows them.

use std::time::{Duration, Instant};

/// Most measurements of one thing.
const RUNS: usize = 2_000;

/// When one thing has been measured for as long as this, it has been measured enough times.
const BUDGET: Duration = Duration::from_secs(2);

/// Measurements of one thing.
#[derive(Clone, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a measurement.
    pub fn add(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// Whether another measurement is worth its time; `least` are made in any case.
    pub fn wants_more(&self, since: Instant, least: usize) -> bool {
        self.0.len() < least || (self.0.len() < RUNS && since.elapsed() < BUDGET)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The one in the middle.
    pub fn median(&self) -> Duration {
        let sorted = self.sorted();
        sorted[sorted.len() / 2]
    }

    /// The one that 99 of 100 do not pass: the longest one of less than 100.
    pub fn p99(&self) -> Duration {
        let sorted = self.sorted();
        sorted[(sorted.len() * 99).div_ceil(100) - 1]
    }

    fn sorted(&self) -> Vec<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted
    }
}

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

const HEADINGS: [&str; 10] =
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
            milliseconds(self.warm.p99()),
            self.warm.len().to_string(),
            rate.map_or_else(String::new, per_second),
            baseline.unwrap_or_default(),
            ratio.unwrap_or_default(),
        ]
    }
}

/// The rows as fixed-width text.
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 10] = std::array::from_fn(width);
    let mut text = String::new();
    for (number, cells) in lines.iter().enumerate() {
        let mut line = format!("{:<1$}", cells[0], widths[0]);
        for (cell, width) in cells.iter().zip(widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
        if number == 0 {
            text.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)));
            text.push('\n');
        }
    }
    text
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1e3)
}

fn per_second(bytes: f64) -> String {
    if bytes >= 1e9 { format!("{:.2} GB/s", bytes / 1e9) } else { format!("{:.0} MB/s", bytes / 1e6) }
}

/// Copies between two buffers that no cache holds once they are large.
pub struct Memcpy {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Memcpy {
    const BYTES: usize = 256 << 20;

    /// Buffers whose memory is there already.
    pub fn new() -> Memcpy {
        Memcpy { from: vec![1; Memcpy::BYTES], to: vec![2; Memcpy::BYTES] }
    }

    /// How long copying so many bytes takes on one thread: the median of a few.
    pub fn duration(&mut self, bytes: u64) -> Duration {
        let mut samples = Samples::default();
        for _ in 0..5 {
            let started = Instant::now();
            let mut left = bytes as usize;
            while left > 0 {
                let length = left.min(Memcpy::BYTES);
                self.to[..length].copy_from_slice(std::hint::black_box(&self.from[..length]));
                std::hint::black_box(&mut self.to);
                left -= length;
            }
            samples.add(started.elapsed());
        }
        samples.median()
    }
}
