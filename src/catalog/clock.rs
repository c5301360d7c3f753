//! The clock of the metadata database, which tests can control.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};

/// A clock with microsecond precision, like the times in the database. Clones share a manual clock.
#[derive(Clone, Debug)]
pub struct CatalogClock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    System,
    /// A time that tests set, in microseconds since 1970-01-01T00:00:00Z.
    Manual(Arc<AtomicI64>),
}

impl CatalogClock {
    /// Returns the system clock. Clocks of processes that share a database should differ by seconds, less than a lease.
    pub fn system() -> CatalogClock {
        CatalogClock(ClockSource::System)
    }

    pub fn manual(start: DateTime<Utc>) -> CatalogClock {
        CatalogClock(ClockSource::Manual(Arc::new(AtomicI64::new(start.timestamp_micros()))))
    }

    pub fn now(&self) -> DateTime<Utc> {
        match &self.0 {
            ClockSource::System => Utc::now().trunc_subsecs(6),
            ClockSource::Manual(micros) => {
                DateTime::from_timestamp_micros(micros.load(Ordering::SeqCst)).unwrap_or(DateTime::<Utc>::MAX_UTC)
            }
        }
    }

    pub fn advance(&self, by: Duration) {
        if let ClockSource::Manual(micros) = &self.0 {
            let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
            let _ = micros.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(now.saturating_add(by)));
        }
    }
}

pub(super) fn saturating_add(time: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    chrono::TimeDelta::from_std(by).ok().and_then(|by| time.checked_add_signed(by)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

pub(super) fn saturating_sub(time: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    chrono::TimeDelta::from_std(by).ok().and_then(|by| time.checked_sub_signed(by)).unwrap_or(DateTime::UNIX_EPOCH)
}
