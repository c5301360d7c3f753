//! What the users of the cache and its thread share, and the ranges that are being fetched.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::index::Index;
use super::segment::FileId;
use crate::free_space::DiskReserve;

pub(super) struct Shared {
    pub(super) parent: PathBuf,
    pub(super) capacity_bytes: u64,
    pub(super) disk: DiskReserve,
    pub(super) index: Mutex<Index>,
    /// What is fetched or waits to be written.
    pub(super) flights: Mutex<HashMap<Key, Weak<Flight>>>,
    pub(super) waiting_bytes: AtomicUsize,
}

impl Shared {
    pub(super) fn new(parent: PathBuf, capacity_bytes: u64, disk: DiskReserve) -> Shared {
        Shared {
            parent,
            capacity_bytes,
            disk,
            index: Mutex::default(),
            flights: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
        }
    }
}

pub(super) type Key = (FileId, Range<u64>);

/// Nothing panics while one of these is held.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A range that is being fetched, once for all who want it now.
pub(super) struct Flight {
    shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) bytes: OnceCell<Bytes>,
}

impl Flight {
    pub(super) fn join(shared: &Arc<Shared>, key: Key) -> Arc<Flight> {
        let mut flights = lock(&shared.flights);
        let others = flights.entry(key.clone()).or_default();
        others.upgrade().unwrap_or_else(|| {
            let flight = Arc::new(Flight { shared: shared.clone(), key, bytes: OnceCell::new() });
            *others = Arc::downgrade(&flight);
            flight
        })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = lock(&self.shared.flights);
        // Another one for the same may have begun.
        if flights.get(&self.key).is_some_and(|flight| flight.strong_count() == 0) {
            flights.remove(&self.key);
        }
    }
}
