//! The time, for everything that expires or is recorded with its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};

/// Tells the time to the microsecond, as the database keeps it. Clones tell the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    /// Microseconds since 1970-01-01T00:00:00Z.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The machine's clock. Processes that share a catalog should agree to within seconds, less than a lease lasts.
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that stands still at `start` until it is moved, for tests.
    pub fn manual(start: DateTime<Utc>) -> Clock {
        Clock(Source::Manual(Arc::new(AtomicI64::new(start.timestamp_micros()))))
    }

    pub fn now(&self) -> DateTime<Utc> {
        match &self.0 {
            Source::System => Utc::now().trunc_subsecs(6),
            Source::Manual(micros) => {
                DateTime::from_timestamp_micros(micros.load(Ordering::SeqCst)).unwrap_or(DateTime::<Utc>::MAX_UTC)
            }
        }
    }

    /// Moves a manual clock on. The machine's clock goes its own way.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(micros) = &self.0 {
            let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
            let _ = micros.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(by)));
        }
    }
}

/// The moment that lies `by` after `time`, or the last one there is.
pub(super) fn after(time: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    chrono::TimeDelta::from_std(by).ok().and_then(|by| time.checked_add_signed(by)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// The moment that lies `by` before `time`, or the first one there is.
pub(super) fn before(time: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    chrono::TimeDelta::from_std(by).ok().and_then(|by| time.checked_sub_signed(by)).unwrap_or(DateTime::UNIX_EPOCH)
}
