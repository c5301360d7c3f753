//! Whether a database server answers, as its connections have learned.
//!
//! While it does not, one call at a time waits for it and all others fail at once, so that nobody queues behind a server
//! that is gone. The first call that gets through ends the outage. A connection that was made before the last failure is
//! tested before it is used again: a restarted server has forgotten it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Failures and successes of the connections to one server.
#[derive(Debug)]
pub(super) struct Outage {
    started: Instant,
    /// Milliseconds after `started`.
    last_success: AtomicU64,
    /// Milliseconds after `started`; 0 if there was none.
    last_failure: AtomicU64,
    down: AtomicBool,
    probing: AtomicBool,
}

/// A call that may wait for a connection.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    outage: &'a Outage,
    probes: bool,
}

impl Outage {
    pub fn none() -> Outage {
        Outage {
            started: Instant::now(),
            last_success: AtomicU64::new(0),
            last_failure: AtomicU64::new(0),
            down: AtomicBool::new(false),
            probing: AtomicBool::new(false),
        }
    }

    /// Lets a call wait for a connection; `None` while the server is down and another call waits already.
    pub fn attempt(&self) -> Option<Attempt<'_>> {
        if !self.down.load(Ordering::SeqCst) {
            return Some(Attempt { outage: self, probes: false });
        }
        let free = !self.probing.swap(true, Ordering::SeqCst);
        free.then_some(Attempt { outage: self, probes: true })
    }

    /// A connection was made, or a statement answered.
    pub fn succeeded(&self) {
        self.last_success.store(self.now(), Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            self.down.store(false, Ordering::SeqCst);
        }
    }

    /// A connection broke.
    pub fn connection_failed(&self) {
        self.last_failure.store(self.now().max(1), Ordering::SeqCst);
    }

    /// No connection came within `waited`. The server is down if nothing else has succeeded meanwhile: then it is not
    /// only that all connections are in use.
    pub fn waited_in_vain(&self, waited: Duration) {
        let since = self.now().saturating_sub(millis(waited));
        if self.last_success.load(Ordering::SeqCst) <= since {
            self.connection_failed();
            self.down.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a connection of this age was made before the last failure.
    pub fn is_suspect(&self, age: Duration) -> bool {
        let made = self.now().saturating_sub(millis(age));
        made <= self.last_failure.load(Ordering::SeqCst)
    }

    fn now(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.probes {
            self.outage.probing.store(false, Ordering::SeqCst);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_server_is_down_one_call_waits_and_the_others_do_not() {
        let outage = Outage::none();
        let (one, other) = (outage.attempt(), outage.attempt());
        assert!(one.is_some() && other.is_some());
        outage.waited_in_vain(Duration::ZERO);
        let probe = outage.attempt();
        assert!(probe.is_some() && outage.attempt().is_none());
        drop(probe);
        let probe = outage.attempt();
        assert!(probe.is_some());
        outage.succeeded();
        assert!(outage.attempt().is_some() && outage.attempt().is_some());
    }

    #[test]
    fn a_full_pool_is_no_outage() {
        let outage = Outage::none();
        std::thread::sleep(Duration::from_millis(2));
        outage.succeeded();
        outage.waited_in_vain(Duration::from_secs(5));
        assert!(outage.attempt().is_some() && outage.attempt().is_some());
    }

    #[test]
    fn connections_from_before_a_failure_are_suspect() {
        let outage = Outage::none();
        std::thread::sleep(Duration::from_millis(5));
        assert!(!outage.is_suspect(Duration::from_millis(1)));
        outage.connection_failed();
        assert!(outage.is_suspect(Duration::from_millis(1)));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!outage.is_suspect(Duration::ZERO));
    }
}
