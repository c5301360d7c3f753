//! Equal requests that are in flight at the same time run once.
//!
//! All callers drive the work. It stops when all of them have left, so that a caller that leaves breaks no other
//! caller's response.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Instant;

use futures::FutureExt;
use futures::future::{BoxFuture, WeakShared};

use crate::{ReadError, locked};

/// Number of entries beyond which those without callers are removed.
const MAX_ENTRIES: usize = 1_024;

type Work<V> = BoxFuture<'static, Result<V, ReadError>>;

pub(crate) struct SingleFlight<K, V: Clone> {
    flights: Mutex<HashMap<K, WeakShared<Work<V>>>>,
}

pub(crate) struct Flight<V> {
    pub value: V,
    /// Whether this caller started the work.
    pub is_leader: bool,
}

impl<K, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        SingleFlight { flights: Mutex::default() }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Waits for the work in flight for `key`, or starts it.
    ///
    /// If the work failed because the caller who started it had used up a limit of its own, which says nothing about
    /// other callers, each of them runs it for itself.
    pub(crate) async fn run(&self, key: K, start: impl Fn() -> Work<V>) -> Result<Flight<V>, ReadError> {
        let since = Instant::now();
        let mut is_leader = false;
        let work = {
            let mut flights = locked(&self.flights);
            let work = flights.get(&key).and_then(WeakShared::upgrade);
            work.unwrap_or_else(|| {
                is_leader = true;
                let work = start().shared();
                if flights.len() >= MAX_ENTRIES {
                    flights.retain(|_, work| work.upgrade().is_some());
                }
                flights.extend(work.downgrade().map(|work| (key, work)));
                work
            })
        };
        let outcome = work.await;
        if is_leader {
            locked(&self.flights).remove(&key);
        }
        let value = match outcome {
            Err(error) if !is_leader && error.is_anothers(since) => start().await?,
            outcome => outcome?,
        };
        Ok(Flight { value, is_leader })
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        locked(&self.flights).values().all(|work| work.upgrade().is_none())
    }
}
