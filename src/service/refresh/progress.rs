//! Tracks the running refreshes of this process, for clients that watch their progress.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use strata_types::ids::{DatasetId, UserId};
use strata_types::limits::MAX_USER_REFRESH_STREAMS;

use crate::refresh::RefreshService;
use crate::refresh::decoding::{RefreshCounters, RefreshStage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshProgress {
    pub stage: RefreshStage,
    /// The received bytes of the source, before decompression.
    pub bytes: u64,
    pub entities_decoded: u64,
    pub entities_written: u64,
}

impl From<&RefreshCounters> for RefreshProgress {
    fn from(progress: &RefreshCounters) -> RefreshProgress {
        let received = progress.receive_progress.get().map_or(0, |received| received.read_bytes());
        RefreshProgress {
            stage: *progress.stage.lock(),
            bytes: received.max(progress.bytes_read.load(Ordering::Relaxed)),
            entities_decoded: progress.entities_decoded.load(Ordering::Relaxed),
            entities_written: progress.entities_written.load(Ordering::Relaxed),
        }
    }
}

pub(crate) struct RunningRefreshes {
    refreshes: Mutex<HashMap<DatasetId, Arc<RefreshCounters>>>,
    watches_by_user: Mutex<HashMap<UserId, usize>>,
    /// Maximum number of concurrent watches of all users (`limits.refresh_streams`).
    max_watches: usize,
}

impl RunningRefreshes {
    pub(crate) fn new(max_watches: usize) -> RunningRefreshes {
        RunningRefreshes { refreshes: Mutex::default(), watches_by_user: Mutex::default(), max_watches }
    }

    pub(super) fn register(self: &Arc<Self>, id: DatasetId, progress: &Arc<RefreshCounters>) -> RunningRefreshGuard {
        self.refreshes.lock().insert(id, progress.clone());
        RunningRefreshGuard { running: self.clone(), dataset: id, progress: progress.clone() }
    }
}

pub(super) struct RunningRefreshGuard {
    running: Arc<RunningRefreshes>,
    dataset: DatasetId,
    progress: Arc<RefreshCounters>,
}

impl Drop for RunningRefreshGuard {
    fn drop(&mut self) {
        let mut refreshes = self.running.refreshes.lock();
        // If this refresh has lost its lease, the next refresh of the dataset may have replaced the entry already.
        if refreshes.get(&self.dataset).is_some_and(|progress| Arc::ptr_eq(progress, &self.progress)) {
            refreshes.remove(&self.dataset);
        }
    }
}

/// A client's watch of a running refresh, which counts toward the limits of watches until it is dropped.
pub struct ProgressWatch {
    running: Arc<RunningRefreshes>,
    user: UserId,
}

impl Drop for ProgressWatch {
    fn drop(&mut self) {
        if let Entry::Occupied(mut watches) = self.running.watches_by_user.lock().entry(self.user) {
            *watches.get_mut() -= 1;
            if *watches.get() == 0 {
                watches.remove();
            }
        }
    }
}

impl RefreshService {
    /// Returns the progress of a dataset's refresh if the refresh is running in this process.
    pub fn progress(&self, dataset: DatasetId) -> Option<RefreshProgress> {
        self.running_refreshes.refreshes.lock().get(&dataset).map(|counters| RefreshProgress::from(&**counters))
    }

    /// Starts a watch. Returns `None` if the user or all users together have reached the maximum number of watches.
    pub fn try_watch(&self, user: UserId) -> Option<ProgressWatch> {
        let mut watches_by_user = self.running_refreshes.watches_by_user.lock();
        if watches_by_user.values().sum::<usize>() >= self.running_refreshes.max_watches
            || watches_by_user.get(&user).copied() >= Some(MAX_USER_REFRESH_STREAMS)
        {
            return None;
        }
        *watches_by_user.entry(user).or_default() += 1;
        Some(ProgressWatch { running: self.running_refreshes.clone(), user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_refresh_does_not_hide_its_successor() {
        let running = Arc::new(RunningRefreshes::new(1));
        let dataset = DatasetId::new(1);
        let [first_counters, second_counters] = [(); 2].map(|()| Arc::new(RefreshCounters::default()));
        let first = running.register(dataset, &first_counters);
        let second = running.register(dataset, &second_counters);
        drop(first);
        assert!(Arc::ptr_eq(&running.refreshes.lock()[&dataset], &second_counters));
        drop(second);
        assert!(running.refreshes.lock().is_empty());
    }
}
