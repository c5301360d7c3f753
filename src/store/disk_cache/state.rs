//! State that the users of the disk cache share with its writer thread, and the fetches in flight.

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
    /// Directory that contains the directories of all processes.
    pub(super) parent_directory: PathBuf,
    pub(super) capacity_bytes: u64,
    pub(super) disk_reserve: DiskReserve,
    pub(super) index: Mutex<RangeIndex>,
    pub(super) in_flight: Mutex<HashMap<RangeKey, Weak<InFlightFetch>>>,
    /// Bytes of the ranges that wait for the writer thread.
    pub(super) queued_bytes: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RangeKey {
    pub(super) file: VersionFileId,
    pub(super) range: Range<u64>,
}

/// A range that is being fetched, or that waits for the writer. Readers of the range share its bytes.
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
        // Another fetch of the same range may have replaced this one, and must not be removed.
        if in_flight.get(&self.key).is_some_and(|fetch| fetch.strong_count() == 0) {
            in_flight.remove(&self.key);
        }
    }
}
