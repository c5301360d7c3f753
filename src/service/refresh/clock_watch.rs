//! Notices that the system clock was set back.
//!
//! A time that was computed while the clock was ahead is wrong once the clock is right again. For example: the clock
//! jumps from 2026 to 2030, a nightly run is claimed and its next run is stored as tomorrow of 2030, and the clock
//! returns to 2026.

use std::sync::Mutex;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use crate::locked;

/// How far the clock can be set back without notice. A run that is late by less does not matter.
const TOLERANCE: TimeDelta = TimeDelta::seconds(2);

/// Compares the system clock with the time that has passed since the process used it.
///
/// - Holds the use for which the clock was furthest ahead.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch(Mutex<Option<ClockReading>>);

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    time: DateTime<Utc>,
    instant: Instant,
}

impl ClockReading {
    /// What the clock shows at `instant` if it was not set in between.
    fn time_at(self, instant: Instant) -> DateTime<Utc> {
        let passed = instant.saturating_duration_since(self.instant);
        let passed = TimeDelta::from_std(passed).unwrap_or(TimeDelta::MAX);
        self.time.checked_add_signed(passed).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }
}

impl ClockWatch {
    /// Notes that the process computes a time by the clock, which shows `time` at `instant`.
    pub(super) fn note(&self, time: DateTime<Utc>, instant: Instant) {
        let mut reading = locked(&self.0);
        if reading.is_none_or(|earlier| time >= earlier.time_at(instant)) {
            *reading = Some(ClockReading { time, instant });
        }
    }

    /// Whether the clock, which shows `time` at `instant`, was set back since a noted use. Reports each case once.
    pub(super) fn was_set_back(&self, time: DateTime<Utc>, instant: Instant) -> bool {
        let mut reading = locked(&self.0);
        reading.take_if(|earlier| earlier.time_at(instant).checked_sub_signed(TOLERANCE) > Some(time)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clock_that_returns_is_reported_once() {
        let watch = ClockWatch::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let time = |text: &str| text.parse::<DateTime<Utc>>().expect("a time");
        assert!(!watch.was_set_back(time("2026-01-01T00:00:00Z"), start), "nothing was computed");
        watch.note(time("2026-01-01T00:00:00Z"), start);
        assert!(!watch.was_set_back(time("2026-01-01T00:00:59Z"), after(60)), "a second is within the tolerance");
        // The clock jumps ahead, and returns while schedules are still being claimed.
        watch.note(time("2030-01-01T00:01:00Z"), after(60));
        watch.note(time("2026-01-01T00:01:10Z"), after(70));
        assert!(!watch.was_set_back(time("2030-01-01T00:01:20Z"), after(80)));
        assert!(watch.was_set_back(time("2026-01-01T00:01:20Z"), after(80)));
        assert!(!watch.was_set_back(time("2026-01-01T00:01:21Z"), after(81)));
    }
}
