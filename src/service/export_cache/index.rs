//! The index of the export cache: its files, the principals that they are charged to, and their eviction.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use strata_store::free_space::FreeSpaceCheckInterval;
use tokio::sync::watch;

use crate::export_cache::MAX_EXPORT_FILES;
use crate::export_cache::file::{CachedExportFile, ExportProgress};
use crate::export_cache::quota::{ExportQuota, ExportSpace};
use crate::{CacheKey, Principal};

pub(super) struct ExportIndex {
    pub(super) entries: HashMap<CacheKey, ExportEntry>,
    /// Keys of exports that did not fit in the cache, so that requests do not build them in vain.
    pub(super) too_large: HashSet<CacheKey>,
    pub(super) quota: ExportQuota,
    /// For each principal, the token of its only export job that can continue without readers for a grace period.
    grace_tokens: HashMap<Principal, Weak<()>>,
    pub(super) disk_checks: FreeSpaceCheckInterval,
    use_counter: u64,
    pub(super) file_counter: u64,
}

pub(super) struct ExportEntry {
    pub(super) progress: watch::Sender<ExportProgress>,
    pub(super) principal: Principal,
    last_used: u64,
}

impl ExportEntry {
    pub(super) fn complete_file_bytes(&self) -> Option<u64> {
        let progress = self.progress.borrow();
        let written = progress.complete_file().filter(|written| written.file.path.exists());
        written.map(|written| written.checksums.size_bytes)
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.progress.borrow().complete_file().is_none()
    }

    /// Returns the length of a complete file without readers. While the index is locked, no reader can be added.
    pub(super) fn evictable_bytes(&self) -> Option<u64> {
        let progress = self.progress.borrow();
        let written = progress.complete_file().filter(|_| self.progress.receiver_count() == 0);
        written.map(|written| written.checksums.size_bytes)
    }
}

impl ExportIndex {
    pub(super) fn new(quota: ExportQuota) -> ExportIndex {
        ExportIndex {
            entries: HashMap::new(),
            too_large: HashSet::new(),
            quota,
            grace_tokens: HashMap::new(),
            disk_checks: FreeSpaceCheckInterval::default(),
            use_counter: 0,
            file_counter: 0,
        }
    }

    pub(super) fn insert(&mut self, key: CacheKey, principal: Principal, progress: watch::Sender<ExportProgress>) {
        self.entries.insert(key, ExportEntry { progress, principal, last_used: 0 });
    }

    pub(super) fn touch(&mut self, key: &CacheKey) -> Option<&ExportEntry> {
        self.use_counter += 1;
        let entry = self.entries.get_mut(key)?;
        entry.last_used = self.use_counter;
        Some(entry)
    }

    /// Returns a token with which a job can continue without readers; `None` if another job of the principal has one.
    pub(super) fn try_start_grace_period(&mut self, principal: Principal) -> Option<Arc<()>> {
        self.grace_tokens.retain(|_, token| token.strong_count() > 0);
        let token = Arc::new(());
        let weak = Arc::downgrade(&token);
        self.grace_tokens.entry(principal).or_insert_with(|| weak.clone()).ptr_eq(&weak).then_some(token)
    }

    /// Reserves space for a principal, and evicts files without readers if necessary. Returns whether there is enough.
    pub(super) fn try_reserve(&mut self, principal: Principal, bytes: u64, files: u64) -> bool {
        let wanted = ExportSpace { bytes, files };
        while !self.quota.can_reserve(principal, wanted, || self.bytes_in_use_by_principal()) {
            if self.evict_one(wanted, |quota, from| quota.can_evict_from(principal, wanted, from)).is_none() {
                return false;
            }
        }
        self.quota.reserve(principal, wanted);
        true
    }

    fn bytes_in_use_by_principal(&self) -> HashMap<Principal, u64> {
        let mut in_use: HashMap<Principal, u64> = self.quota.bytes_by_principal().collect();
        for entry in self.entries.values() {
            if let Some(bytes) = in_use.get_mut(&entry.principal) {
                *bytes -= entry.evictable_bytes().unwrap_or_default();
            }
        }
        in_use
    }

    /// Evicts files without readers, regardless of their principals, because a full disk affects all.
    pub(super) fn evict_until(&mut self, is_enough: &dyn Fn() -> bool) {
        while !is_enough() && self.evict_bytes(1) {}
    }

    pub(super) fn evict_bytes(&mut self, bytes: u64) -> bool {
        let mut evicted = None;
        while evicted.is_none_or(|evicted| evicted < bytes)
            && let Some(more) = self.evict_one(ExportSpace { bytes: 1, files: 0 }, |_, _| true)
        {
            evicted = Some(evicted.unwrap_or(0).saturating_add(more));
        }
        evicted.is_some()
    }

    /// Evicts the least recently used idle file of the principal with the most bytes or files. Returns its length.
    fn evict_one(&mut self, wanted: ExportSpace, can_evict: impl Fn(&ExportQuota, Principal) -> bool) -> Option<u64> {
        let idle = self.entries.iter().filter_map(|(key, entry)| Some((*key, entry, entry.evictable_bytes()?)));
        let idle = idle.filter(|(_, entry, _)| can_evict(&self.quota, entry.principal));
        let victim = idle.max_by_key(|(_, entry, _)| {
            (self.quota.eviction_weight(entry.principal, wanted), std::cmp::Reverse(entry.last_used))
        });
        let (key, _, bytes) = victim?;
        self.remove_complete(&key);
        Some(bytes)
    }

    pub(super) fn mark_too_large(&mut self, key: CacheKey) {
        // After the set is cleared, each export that does not fit costs one more attempt.
        if self.too_large.len() >= MAX_EXPORT_FILES {
            self.too_large.clear();
        }
        self.too_large.insert(key);
    }

    pub(super) fn remove_damaged(&mut self, key: &CacheKey, damaged: &Arc<CachedExportFile>) {
        let is_damaged = |entry: &ExportEntry| {
            entry.progress.borrow().complete_file().is_some_and(|written| Arc::ptr_eq(&written.file, damaged))
        };
        if self.entries.get(key).is_some_and(is_damaged) {
            self.remove_complete(key);
        }
    }

    pub(super) fn remove_complete(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key)
            && let Some(written) = entry.progress.borrow().complete_file()
        {
            self.quota.release(entry.principal, ExportSpace { bytes: written.checksums.size_bytes, files: 1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::export_cache::fixture::{ONE_HOUR, counting_source, new_fixture};

    #[tokio::test]
    async fn least_recently_used_file_is_evicted_unless_read() {
        let setup = new_fixture(30, ONE_HOUR);
        let (source, build_count) = counting_source(&[&[7; 10]]);
        for number in [1, 2, 3, 1] {
            setup.read(number, &source).await.expect("export is cached");
        }
        assert_eq!((build_count.load(Ordering::SeqCst), setup.files_and_bytes()), (3, (3, 30)));
        // File 2 has been unused for the longest time but has a reader, so file 3 is evicted.
        let reader = setup.exports.lock_index().entries[&CacheKey::from_test_number(2)].progress.subscribe();
        setup.read(4, &source).await.expect("export is cached");
        assert_eq!((setup.file_sizes(), setup.files_and_bytes()), (vec![10; 3], (3, 30)));
        drop(reader);
        for number in [1, 2, 4] {
            setup.read(number, &source).await.expect("export is cached");
        }
        assert_eq!(build_count.load(Ordering::SeqCst), 4);
        setup.read(3, &source).await.expect("export is cached");
        assert_eq!(build_count.load(Ordering::SeqCst), 5);

        let mut readers = Vec::new();
        for number in [2, 3, 4] {
            readers.push(setup.get(number, &source).await.expect("no error").expect("an export"));
        }
        assert!(setup.get(9, &source).await.expect("no error").is_none());
        drop(readers);
        assert!(setup.get(9, &source).await.expect("no error").is_some());
    }
}
