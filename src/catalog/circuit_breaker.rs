//! A circuit breaker for the database server. While the server does not respond (the breaker is open), one call at a
//! time waits for it as a probe, and all other calls fail immediately. The first success closes the breaker. A
//! connection that was created before the last failure is tested before its next use.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, MutexGuard};

const PROBE_DELAY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct DatabaseCircuitBreaker {
    started: Instant,
    /// The time of the last successful call, in milliseconds after `started`.
    last_success_ms: AtomicU64,
    /// The time of the last failed call, in milliseconds after `started`; 0 if no call has failed.
    last_failure_ms: AtomicU64,
    is_open: AtomicBool,
    /// While the breaker is open, the call that probes the database server holds this lock.
    half_open_lock: Mutex<()>,
    /// The call that tests whether the database server accepts new connections holds this lock.
    pub(super) connect_lock: Mutex<()>,
}

#[derive(Debug)]
pub(super) struct BreakerPermit<'a>(Option<MutexGuard<'a, ()>>);

impl DatabaseCircuitBreaker {
    pub(super) fn new() -> DatabaseCircuitBreaker {
        DatabaseCircuitBreaker {
            started: Instant::now(),
            last_success_ms: AtomicU64::new(0),
            last_failure_ms: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
            half_open_lock: Mutex::const_new(()),
            connect_lock: Mutex::const_new(()),
        }
    }

    /// Returns a permit to await a database connection; `None` if the breaker is open and a probe runs or just failed.
    pub(super) fn try_acquire(&self) -> Option<BreakerPermit<'_>> {
        if !self.is_open() {
            return Some(BreakerPermit(None));
        }
        if self.elapsed_ms() < self.last_failure_ms.load(Ordering::SeqCst) + millis(PROBE_DELAY) {
            return None;
        }
        self.half_open_lock.try_lock().ok().map(|probe| BreakerPermit(Some(probe)))
    }

    pub(super) fn record_success(&self) {
        self.last_success_ms.store(self.elapsed_ms(), Ordering::SeqCst);
        if self.is_open() {
            self.is_open.store(false, Ordering::SeqCst);
        }
    }

    pub(super) fn record_connection_failure(&self) {
        self.last_failure_ms.store(self.elapsed_ms().max(1), Ordering::SeqCst);
    }

    pub(super) fn trip(&self) {
        self.record_connection_failure();
        self.is_open.store(true, Ordering::SeqCst);
    }

    /// Records a timeout after `waited`. Opens the breaker and returns true if no call has succeeded in this time.
    pub(super) fn trip_if_no_success_within(&self, waited: Duration) -> bool {
        let is_down = !self.has_succeeded_within(waited);
        if is_down {
            self.trip();
        }
        is_down
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    pub(super) fn has_succeeded_within(&self, time: Duration) -> bool {
        self.last_success_ms.load(Ordering::SeqCst) > self.elapsed_ms().saturating_sub(millis(time))
    }

    pub(super) fn has_failed_within(&self, time: Duration) -> bool {
        let start_ms = self.elapsed_ms().saturating_sub(millis(time));
        start_ms <= self.last_failure_ms.load(Ordering::SeqCst)
    }

    fn elapsed_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

impl BreakerPermit<'_> {
    pub(super) fn is_probe(&self) -> bool {
        self.0.is_some()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_breaker_admits_one_probe() {
        let breaker = DatabaseCircuitBreaker::new();
        std::thread::sleep(Duration::from_millis(5));
        breaker.record_success();
        assert!(!breaker.trip_if_no_success_within(Duration::from_secs(5)), "a full pool does not open the breaker");
        assert!(breaker.try_acquire().is_some_and(|permit| !permit.is_probe()));
        assert!(!breaker.has_failed_within(Duration::from_millis(1)));
        assert!(breaker.trip_if_no_success_within(Duration::ZERO) && breaker.is_open());
        assert!(breaker.has_failed_within(Duration::from_millis(1)), "the connection is older than the failure");
        assert!(breaker.try_acquire().is_none(), "the failure is more recent than the probe delay");
        std::thread::sleep(2 * PROBE_DELAY);
        assert!(!breaker.has_failed_within(Duration::ZERO));
        let probe = breaker.try_acquire();
        assert!(probe.as_ref().is_some_and(BreakerPermit::is_probe) && breaker.try_acquire().is_none());
        drop(probe);
        assert!(breaker.try_acquire().is_some());
        breaker.record_success();
        assert!(breaker.try_acquire().is_some_and(|permit| !permit.is_probe()));
    }
}
