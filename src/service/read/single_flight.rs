//! Runs equal requests that are in flight at the same time only once.
//!
//! All callers poll one shared future, so the work continues if a caller is dropped, and stops when all are dropped.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

use futures::FutureExt;
use futures::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;

use crate::ReadError;

/// If this number of requests is in flight, requests for which no caller waits are removed from the map.
const MAX_TRACKED_FLIGHTS: usize = 1_024;

type FlightWork<V> = BoxFuture<'static, Result<V, ReadError>>;

pub(crate) struct SingleFlight<K, V: Clone> {
    flights: Mutex<HashMap<K, WeakShared<FlightWork<V>>>>,
}

pub(crate) struct FlightResult<V> {
    pub value: V,
    pub is_leader: bool,
}

impl<K, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        SingleFlight { flights: Mutex::default() }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Runs the work of a key once for all concurrent callers. If the work fails because the first caller used up its
    /// own limit, each other caller runs the work itself.
    pub(crate) async fn run(&self, key: K, start: impl Fn() -> FlightWork<V>) -> Result<FlightResult<V>, ReadError> {
        let since = Instant::now();
        let mut is_leader = false;
        let work = {
            let mut flights = self.flights.lock();
            let work = flights.get(&key).and_then(WeakShared::upgrade);
            work.unwrap_or_else(|| {
                is_leader = true;
                let work = start().shared();
                if flights.len() >= MAX_TRACKED_FLIGHTS {
                    flights.retain(|_, work| work.upgrade().is_some());
                }
                flights.extend(work.downgrade().map(|work| (key, work)));
                work
            })
        };
        let outcome = work.await;
        if is_leader {
            self.flights.lock().remove(&key);
        }
        let value = match outcome {
            Err(error) if !is_leader && error.is_retryable_by_waiter(since) => start().await?,
            outcome => outcome?,
        };
        Ok(FlightResult { value, is_leader })
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.lock().values().all(|work| work.upgrade().is_none())
    }
}
