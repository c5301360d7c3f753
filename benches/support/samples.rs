//! Durations with their median and 99th percentile, and numbers as text.

use std::time::{Duration, Instant};

/// The maximum number of measurements for one case.
const RUNS: usize = 2_000;

/// The time after which one case has been measured long enough.
const BUDGET: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// Returns whether to measure again. At least `min_runs` measurements are made.
    pub fn wants_more(&self, since: Instant, min_runs: usize) -> bool {
        self.0.len() < min_runs || (self.0.len() < RUNS && since.elapsed() < BUDGET)
    }

    /// Returns the number of durations.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the durations of another set.
    pub fn merge(&mut self, other: Samples) {
        self.0.extend(other.0);
    }

    /// Returns the median, or zero if there are no durations.
    pub fn median(&self) -> Duration {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// Returns a percentile between 1 and 100. The 99th percentile of fewer than 100 durations is the longest one.
    /// Without durations, the result is zero.
    pub fn percentile(&self, hundredth: usize) -> Duration {
        let sorted = self.sorted();
        let place = (sorted.len() * hundredth).div_ceil(100).saturating_sub(1);
        sorted.get(place).copied().unwrap_or_default()
    }

    fn sorted(&self) -> Vec<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted
    }
}

/// Formats `1234567` as `1,234,567`.
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

pub fn milliseconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1e3)
}
