//! The refreshes that run in this process, for those who watch: how far each is. What runs elsewhere is known from the
//! record of its attempt alone.

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
    /// Bytes of the source that have come, compressed as they came.
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
    /// Requests of all users together that may watch at the same time: `limits.refresh_streams`.
    most_watches: usize,
}

impl Running {
    pub(crate) fn new(most_watches: usize) -> Running {
        Running { refreshes: Mutex::default(), watches: Mutex::default(), most_watches }
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
        // One whose lease was lost may end after the one that took over has begun.
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
    /// How far the refresh of a dataset is, if one runs in this process.
    pub fn progress(&self, dataset: DatasetId) -> Option<RefreshProgress> {
        locked(&self.running.refreshes).get(&dataset).map(|progress| RefreshProgress::from(&**progress))
    }

    /// Counts a request of a user that watches; `None` where there are as many as there may be, of the user or of all.
    pub fn watch(&self, user: UserId) -> Option<Watch> {
        let mut watches = locked(&self.running.watches);
        if watches.values().sum::<usize>() >= self.running.most_watches
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
    fn a_refresh_is_shown_until_it_ends_and_the_one_that_took_over_stays() {
        let (running, dataset) = (Arc::new(Running::new(1)), DatasetId::new(1));
        let (one, other) = (Arc::new(ImportProgress::default()), Arc::new(ImportProgress::default()));
        let first = running.enter(dataset, &one);
        let second = running.enter(dataset, &other);
        drop(first);
        assert!(Arc::ptr_eq(&locked(&running.refreshes)[&dataset], &other));
        drop(second);
        assert!(locked(&running.refreshes).is_empty());
    }
}
