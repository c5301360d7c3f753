//! Durations: the median and the 99th percentile; and numbers as text.

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

    /// Adds those of another.
    pub fn merge(&mut self, other: Samples) {
        self.0.extend(other.0);
    }

    /// The one in the middle; zero of none.
    pub fn median(&self) -> Duration {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The one that so many of 100 do not pass, 1 to 100: of 99, the longest one of less than 100. Zero of none.
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

pub fn milliseconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1e3)
}
