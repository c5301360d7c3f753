//! Work that equal requests share while it is under way.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};

use crate::locked;

/// Entries beyond which those that nobody waits for are removed.
const MOST_ENTRIES: usize = 1_024;

/// Work that is under way. All who wait for it drive it; it stops when they have all left.
pub(crate) type Work<T> = Shared<BoxFuture<'static, T>>;

pub(crate) struct SingleFlight<K, T: Clone> {
    works: Mutex<HashMap<K, WeakShared<BoxFuture<'static, T>>>>,
}

impl<K, T: Clone> Default for SingleFlight<K, T> {
    fn default() -> Self {
        SingleFlight { works: Mutex::default() }
    }
}

impl<K: Eq + Hash, T: Clone> SingleFlight<K, T> {
    /// The work for `key`, and whether `begin` has just begun it, because there was none.
    pub(crate) fn join(&self, key: K, begin: impl FnOnce() -> BoxFuture<'static, T>) -> (Work<T>, bool) {
        let mut works = locked(&self.works);
        if let Some(work) = works.get(&key).and_then(WeakShared::upgrade) {
            return (work, false);
        }
        let work = begin().shared();
        // Those whose callers have all left go when there are many.
        if works.len() >= MOST_ENTRIES {
            works.retain(|_, work| work.upgrade().is_some());
        }
        works.extend(work.downgrade().map(|work| (key, work)));
        (work, true)
    }

    /// Forgets the work for `key`: to be called by who has begun it, when it has ended.
    pub(crate) fn ended(&self, key: &K) {
        locked(&self.works).remove(key);
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        locked(&self.works).values().all(|work| work.upgrade().is_none())
    }
}
