//! The files of the export cache, their owners, and their eviction.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use strata_store::free_space::Looks;
use tokio::sync::watch;

use crate::export_cache::MAX_FILES;
use crate::export_cache::file::{CachedFile, Progress};
use crate::export_cache::quota::{ExportQuota, Space};
use crate::{CacheKey, Principal};

pub(super) struct Index {
    pub(super) entries: HashMap<CacheKey, Entry>,
    /// Exports that were too large, so that they are not tried again each time.
    pub(super) too_large: HashSet<CacheKey>,
    /// Includes the files that are being written.
    pub(super) quota: ExportQuota,
    /// The job of each principal that continues without readers.
    lingering: HashMap<Principal, Weak<()>>,
    pub(super) looks: Looks,
    /// Counts uses, for the order of last use.
    uses: u64,
    pub(super) files: u64,
}

/// A file that is being written, or is complete.
pub(super) struct Entry {
    pub(super) progress: watch::Sender<Progress>,
    pub(super) holder: Principal,
    used: u64,
}

impl Entry {
    /// The length of a complete file that still exists.
    pub(super) fn whole_bytes(&self) -> Option<u64> {
        self.progress.borrow().whole().filter(|written| written.file.path.exists()).map(|written| written.sums.bytes)
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.progress.borrow().whole().is_none()
    }

    /// The length of a complete file without readers. New readers must lock the index.
    pub(super) fn idle_bytes(&self) -> Option<u64> {
        let progress = self.progress.borrow();
        progress.whole().filter(|_| self.progress.receiver_count() == 0).map(|written| written.sums.bytes)
    }
}

impl Index {
    pub(super) fn new(quota: ExportQuota) -> Index {
        Index {
            entries: HashMap::new(),
            too_large: HashSet::new(),
            quota,
            lingering: HashMap::new(),
            looks: Looks::default(),
            uses: 0,
            files: 0,
        }
    }

    pub(super) fn insert(&mut self, key: CacheKey, holder: Principal, progress: watch::Sender<Progress>) {
        self.entries.insert(key, Entry { progress, holder, used: 0 });
    }

    /// The export of this key, which becomes the one that was used last.
    pub(super) fn touch(&mut self, key: &CacheKey) -> Option<&Entry> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.uses;
        Some(entry)
    }

    /// A token that a job holds while it continues without readers; `None` if another job of the principal holds it.
    pub(super) fn linger(&mut self, holder: Principal) -> Option<Arc<()>> {
        self.lingering.retain(|_, token| token.strong_count() > 0);
        let token = Arc::new(());
        let weak = Arc::downgrade(&token);
        self.lingering.entry(holder).or_insert_with(|| weak.clone()).ptr_eq(&weak).then_some(token)
    }

    /// Reserves space for a principal, and evicts files without readers if necessary. Whether there is enough.
    pub(super) fn take(&mut self, holder: Principal, bytes: u64, files: u64) -> bool {
        let wanted = Space { bytes, files };
        while !self.quota.can_reserve(holder, wanted, || self.in_use()) {
            if self.drop_idle(wanted, |quota, from| quota.may_take_from(holder, wanted, from)).is_none() {
                return false;
            }
        }
        self.quota.reserve(holder, wanted);
        true
    }

    fn in_use(&self) -> HashMap<Principal, u64> {
        let mut in_use: HashMap<Principal, u64> = self.quota.bytes_by_principal().collect();
        for entry in self.entries.values() {
            if let Some(bytes) = in_use.get_mut(&entry.holder) {
                *bytes -= entry.idle_bytes().unwrap_or_default();
            }
        }
        in_use
    }

    /// Evicts files without readers, regardless of their owners, because the disk is short for all.
    pub(super) fn shrink(&mut self, is_enough: &dyn Fn() -> bool) {
        while !is_enough() && self.shrink_by(1) {}
    }

    /// Evicts files without readers until their sum is at least `bytes`. Whether there was one.
    pub(super) fn shrink_by(&mut self, bytes: u64) -> bool {
        let mut dropped = None;
        while dropped.is_none_or(|dropped| dropped < bytes)
            && let Some(more) = self.drop_idle(Space { bytes: 1, files: 0 }, |_, _| true)
        {
            dropped = Some(dropped.unwrap_or(0).saturating_add(more));
        }
        dropped.is_some()
    }

    /// Evicts the least recently used file without readers of the principal that has most of `wanted`. Returns its
    /// length.
    fn drop_idle(&mut self, wanted: Space, of: impl Fn(&ExportQuota, Principal) -> bool) -> Option<u64> {
        let idle = self.entries.iter().filter_map(|(key, entry)| Some((*key, entry, entry.idle_bytes()?)));
        let idle = idle.filter(|(_, entry, _)| of(&self.quota, entry.holder));
        let victim =
            idle.max_by_key(|(_, entry, _)| (self.quota.weight(entry.holder, wanted), std::cmp::Reverse(entry.used)));
        let (key, _, bytes) = victim?;
        self.forget(&key);
        Some(bytes)
    }

    pub(super) fn remember_too_large(&mut self, key: CacheKey) {
        // Forgetting all of them costs one more attempt for each.
        if self.too_large.len() >= MAX_FILES {
            self.too_large.clear();
        }
        self.too_large.insert(key);
    }

    /// Drops a damaged file, unless another one has replaced it.
    pub(super) fn forget_damaged(&mut self, key: &CacheKey, damaged: &Arc<CachedFile>) {
        let is_it = |entry: &Entry| entry.progress.borrow().whole().is_some_and(|it| Arc::ptr_eq(&it.file, damaged));
        if self.entries.get(key).is_some_and(is_it) {
            self.forget(key);
        }
    }

    /// Drops a complete file.
    pub(super) fn forget(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key)
            && let Some(written) = entry.progress.borrow().whole()
        {
            self.quota.release(entry.holder, Space { bytes: written.sums.bytes, files: 1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::export_cache::fixture::{HOUR, chunks, setup};

    #[tokio::test]
    async fn least_recently_used_file_is_evicted_unless_read() {
        let setup = setup(30, HOUR);
        let (ten, made) = chunks(&[&[7; 10]]);
        for number in [1, 2, 3, 1] {
            setup.read(number, &ten).await.expect("kept");
        }
        assert_eq!((made.load(Ordering::SeqCst), setup.accounted()), (3, (3, 30)));
        // The second is the oldest, but is being read: the third goes.
        let held = setup.exports.index().entries[&CacheKey::numbered(2)].progress.subscribe();
        setup.read(4, &ten).await.expect("kept");
        assert_eq!((setup.files(), setup.accounted()), (vec![10; 3], (3, 30)));
        drop(held);
        for number in [1, 2, 4] {
            setup.read(number, &ten).await.expect("kept");
        }
        assert_eq!(made.load(Ordering::SeqCst), 4);
        setup.read(3, &ten).await.expect("kept");
        assert_eq!(made.load(Ordering::SeqCst), 5);

        // Where all are being read, there is no room, for now.
        let mut held = Vec::new();
        for number in [2, 3, 4] {
            held.push(setup.get(number, &ten).await.expect("no error").expect("an export"));
        }
        assert!(setup.get(9, &ten).await.expect("no error").is_none());
        drop(held);
        assert!(setup.get(9, &ten).await.expect("no error").is_some());
    }
}
