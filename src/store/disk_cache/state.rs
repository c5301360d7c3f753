//! State that the users of the cache share with its writer thread, and the fetches in flight.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::range_index::RangeIndex;
use super::segment::VersionFileId;
use crate::free_space::DiskReserve;

pub(super) struct DiskCacheState {
    pub(super) parent_directory: PathBuf,
    pub(super) capacity_bytes: u64,
    pub(super) disk_reserve: DiskReserve,
    pub(super) index: Mutex<RangeIndex>,
    pub(super) in_flight: Mutex<HashMap<RangeKey, Weak<InFlightFetch>>>,
    pub(super) queued_bytes: AtomicUsize,
}

impl DiskCacheState {
    pub(super) fn new(parent_directory: PathBuf, capacity_bytes: u64, disk_reserve: DiskReserve) -> DiskCacheState {
        DiskCacheState {
            parent_directory,
            capacity_bytes,
            disk_reserve,
            index: Mutex::default(),
            in_flight: Mutex::default(),
            queued_bytes: AtomicUsize::new(0),
        }
    }
}

pub(super) type RangeKey = (VersionFileId, Range<u64>);

pub(super) struct InFlightFetch {
    shared: Arc<DiskCacheState>,
    pub(super) key: RangeKey,
    pub(super) bytes: OnceCell<Bytes>,
}

impl InFlightFetch {
    pub(super) fn join_or_start(shared: &Arc<DiskCacheState>, key: RangeKey) -> Arc<InFlightFetch> {
        let mut in_flight = shared.in_flight.lock();
        let shared_fetch = in_flight.entry(key.clone()).or_default();
        shared_fetch.upgrade().unwrap_or_else(|| {
            let fetch = Arc::new(InFlightFetch { shared: shared.clone(), key, bytes: OnceCell::new() });
            *shared_fetch = Arc::downgrade(&fetch);
            fetch
        })
    }
}

impl Drop for InFlightFetch {
    fn drop(&mut self) {
        let mut in_flight = self.shared.in_flight.lock();
        // Another fetch of the same range may have started.
        if in_flight.get(&self.key).is_some_and(|fetch| fetch.strong_count() == 0) {
            in_flight.remove(&self.key);
        }
    }
}
