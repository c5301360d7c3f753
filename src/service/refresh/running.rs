//! The progress of the refreshes in this process, for requests that watch them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use strata_types::ids::{DatasetId, UserId};
use strata_types::limits::REFRESH_STREAMS;

use crate::locked;
use crate::refresh::Refreshes;
use crate::refresh::decoding::{ImportProgress, RefreshStage};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshProgress {
    pub stage: RefreshStage,
    /// Received bytes of the source, before decompression.
    pub bytes: u64,
    pub entities: u64,
    pub written: u64,
}

impl From<&ImportProgress> for RefreshProgress {
    fn from(progress: &ImportProgress) -> RefreshProgress {
        let received = progress.received.get().map_or(0, |received| received.read_bytes());
        RefreshProgress {
            stage: *locked(&progress.stage),
            bytes: received.max(progress.bytes_read.load(Ordering::Relaxed)),
            entities: progress.entities_decoded.load(Ordering::Relaxed),
            written: progress.entities_written.load(Ordering::Relaxed),
        }
    }
}

pub(crate) struct Running {
    refreshes: Mutex<HashMap<DatasetId, Arc<ImportProgress>>>,
    watches: Mutex<HashMap<UserId, usize>>,
    /// The maximum number of requests of all users that watch at the same time (`limits.refresh_streams`).
    max_watches: usize,
}

impl Running {
    pub(crate) fn new(max_watches: usize) -> Running {
        Running { refreshes: Mutex::default(), watches: Mutex::default(), max_watches }
    }

    pub(super) fn enter(self: &Arc<Self>, dataset: DatasetId, progress: &Arc<ImportProgress>) -> Entered {
        locked(&self.refreshes).insert(dataset, progress.clone());
        Entered { running: self.clone(), dataset, progress: progress.clone() }
    }
}

pub(super) struct Entered {
    running: Arc<Running>,
    dataset: DatasetId,
    progress: Arc<ImportProgress>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut refreshes = locked(&self.running.refreshes);
        // A refresh that lost its lease can end after another one has begun.
        if refreshes.get(&self.dataset).is_some_and(|progress| Arc::ptr_eq(progress, &self.progress)) {
            refreshes.remove(&self.dataset);
        }
    }
}

/// A request that watches. It counts until it is dropped.
pub struct Watch {
    running: Arc<Running>,
    user: UserId,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Entry::Occupied(mut watches) = locked(&self.running.watches).entry(self.user) {
            *watches.get_mut() -= 1;
            if *watches.get() == 0 {
                watches.remove();
            }
        }
    }
}

impl Refreshes {
    /// The progress of a dataset's refresh, if it runs in this process.
    pub fn progress(&self, dataset: DatasetId) -> Option<RefreshProgress> {
        locked(&self.running.refreshes).get(&dataset).map(|progress| RefreshProgress::from(&**progress))
    }

    /// Counts a request that watches; `None` if the user or all users have the maximum number.
    pub fn watch(&self, user: UserId) -> Option<Watch> {
        let mut watches = locked(&self.running.watches);
        if watches.values().sum::<usize>() >= self.running.max_watches
            || watches.get(&user).copied() >= Some(REFRESH_STREAMS)
        {
            return None;
        }
        *watches.entry(user).or_default() += 1;
        Some(Watch { running: self.running.clone(), user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_refresh_does_not_hide_its_successor() {
        let running = Arc::new(Running::new(1));
        let dataset = DatasetId::new(1);
        let [one, other] = [(); 2].map(|()| Arc::new(ImportProgress::default()));
        let first = running.enter(dataset, &one);
        let second = running.enter(dataset, &other);
        drop(first);
        assert!(Arc::ptr_eq(&locked(&running.refreshes)[&dataset], &other));
        drop(second);
        assert!(locked(&running.refreshes).is_empty());
    }
}
