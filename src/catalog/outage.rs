//! A circuit breaker for a database server.
//!
//! While the server does not answer, one call at a time waits for it, and all others fail at once. The first call that
//! succeeds ends the outage. A connection made before the last failure is tested before its next use.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, MutexGuard};

const REST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Outage {
    started: Instant,
    /// Milliseconds after `started`.
    last_success: AtomicU64,
    /// Milliseconds after `started`; 0 if there was none.
    last_failure: AtomicU64,
    down: AtomicBool,
    /// Locked while a call waits for a server that is down.
    probing: Mutex<()>,
    /// Locked while a call tries whether connections can be made.
    looking: Mutex<()>,
}

#[derive(Debug)]
pub(super) struct Attempt<'a>(Option<MutexGuard<'a, ()>>);

impl Outage {
    pub(super) fn none() -> Outage {
        Outage {
            started: Instant::now(),
            last_success: AtomicU64::new(0),
            last_failure: AtomicU64::new(0),
            down: AtomicBool::new(false),
            probing: Mutex::const_new(()),
            looking: Mutex::const_new(()),
        }
    }

    /// Permission to wait for a connection; `None` while the server is down and another call waits, or did in vain.
    pub(super) fn attempt(&self) -> Option<Attempt<'_>> {
        if !self.is_down() {
            return Some(Attempt(None));
        }
        if self.now() < self.last_failure.load(Ordering::SeqCst) + millis(REST) {
            return None;
        }
        self.probing.try_lock().ok().map(|probe| Attempt(Some(probe)))
    }

    pub(super) fn succeeded(&self) {
        self.last_success.store(self.now(), Ordering::SeqCst);
        if self.is_down() {
            self.down.store(false, Ordering::SeqCst);
        }
    }

    pub(super) fn connection_failed(&self) {
        self.last_failure.store(self.now().max(1), Ordering::SeqCst);
    }

    pub(super) fn refused(&self) {
        self.connection_failed();
        self.down.store(true, Ordering::SeqCst);
    }

    /// No connection came within `waited`. Whether the server is down: nothing else has succeeded meanwhile.
    pub(super) fn waited_in_vain(&self, waited: Duration) -> bool {
        let down = !self.succeeded_within(waited);
        if down {
            self.refused();
        }
        down
    }

    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    pub(super) fn succeeded_within(&self, time: Duration) -> bool {
        self.last_success.load(Ordering::SeqCst) > self.now().saturating_sub(millis(time))
    }

    /// Permission for a call to try whether connections can be made. `None` while another call tries.
    pub(super) fn look(&self) -> Option<MutexGuard<'_, ()>> {
        self.looking.try_lock().ok()
    }

    /// Whether a connection of this age was made before the last failure.
    pub(super) fn is_suspect(&self, age: Duration) -> bool {
        let made = self.now().saturating_sub(millis(age));
        made <= self.last_failure.load(Ordering::SeqCst)
    }

    fn now(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

impl Attempt<'_> {
    pub(super) fn probes(&self) -> bool {
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
    fn only_one_call_waits_for_a_server_that_is_down() {
        let outage = Outage::none();
        std::thread::sleep(Duration::from_millis(5));
        outage.succeeded();
        assert!(!outage.waited_in_vain(Duration::from_secs(5)), "a full pool is no outage");
        assert!(outage.attempt().is_some_and(|attempt| !attempt.probes()));
        assert!(!outage.is_suspect(Duration::from_millis(1)));
        assert!(outage.waited_in_vain(Duration::ZERO) && outage.is_down());
        assert!(outage.is_suspect(Duration::from_millis(1)), "the connection is from before the failure");
        assert!(outage.attempt().is_none(), "the failure was a moment ago");
        std::thread::sleep(2 * REST);
        assert!(!outage.is_suspect(Duration::ZERO));
        let probe = outage.attempt();
        assert!(probe.as_ref().is_some_and(Attempt::probes) && outage.attempt().is_none());
        drop(probe);
        assert!(outage.attempt().is_some());
        outage.succeeded();
        assert!(outage.attempt().is_some_and(|attempt| !attempt.probes()));
    }
}
