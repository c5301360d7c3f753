//! Which files there are, of whom, and which goes when another one needs its room.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use strata_store::free_space::{DiskReserve, Looks};
use tokio::sync::{Semaphore, watch};

use crate::export_cache::MOST_FILES;
use crate::export_cache::progress::{MadeFile, Progress};
use crate::export_cache::room::{Room, Space};
use crate::maintenance::scratch::Scratch;
use crate::{CacheKey, Holder, locked};

pub(super) struct Files {
    index: Mutex<Index>,
    pub(super) disk: DiskReserve,
    pub(super) linger: Duration,
    pub(super) reads: Arc<Semaphore>,
    /// Last, so that the files go before it does.
    pub(super) directory: Scratch,
}

/// Reads of blocks at once, for all readers. Each takes a thread, and an idle thread keeps freed memory for a while.
const READS: usize = 8;

pub(super) struct Index {
    pub(super) entries: HashMap<CacheKey, Entry>,
    /// Exports that turned out not to fit, so that they are not tried again each time.
    pub(super) too_large: HashSet<CacheKey>,
    /// What all files take, those in the making included.
    pub(super) room: Room,
    pub(super) lingering: HashSet<Holder>,
    pub(super) looks: Looks,
    /// Counts uses, for the order of last use.
    pub(super) uses: u64,
    pub(super) files: u64,
}

pub(super) enum Entry {
    Making { progress: watch::Sender<Progress> },
    Made { file: Arc<MadeFile>, holder: Holder, used: u64 },
}

impl Files {
    pub(super) fn new(directory: Scratch, disk: DiskReserve, room: Room, linger: Duration) -> Files {
        let index = Index {
            entries: HashMap::new(),
            too_large: HashSet::new(),
            room,
            lingering: HashSet::new(),
            looks: Looks::default(),
            uses: 0,
            files: 0,
        };
        Files { index: Mutex::new(index), disk, linger, reads: Arc::new(Semaphore::new(READS)), directory }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        locked(&self.index)
    }
}

impl Index {
    /// Takes room for more of a holder, from files that nobody reads if need be. Whether there is that much.
    pub(super) fn take(&mut self, holder: Holder, bytes: u64, files: u64) -> bool {
        let wanted = Space { bytes, files };
        loop {
            if self.room.is_there(holder, wanted, || self.in_use()) {
                self.room.take(holder, wanted);
                return true;
            }
            if self.drop_idle(wanted, |room, from| room.may_take_from(holder, wanted, from)).is_none() {
                return false;
            }
        }
    }

    fn in_use(&self) -> HashMap<Holder, u64> {
        let mut idle: HashMap<Holder, u64> = HashMap::new();
        for (_, holder, bytes, _) in self.idle() {
            *idle.entry(holder).or_default() += bytes;
        }
        self.room.bytes_by_holder().map(|(holder, bytes)| (holder, bytes - idle.get(&holder).unwrap_or(&0))).collect()
    }

    /// The files that nobody reads: when they were used, whose they are, and their bytes.
    fn idle(&self) -> impl Iterator<Item = (u64, Holder, u64, CacheKey)> {
        self.entries.iter().filter_map(|(key, entry)| match entry {
            // New readers come only through the index, which is locked.
            Entry::Made { file, holder, used } if Arc::strong_count(file) == 1 => {
                Some((*used, *holder, file.bytes, *key))
            }
            Entry::Made { .. } | Entry::Making { .. } => None,
        })
    }

    /// Drops files that nobody reads, whosever they are, until that is enough: the disk is short for everybody.
    pub(super) fn shrink(&mut self, is_enough: &dyn Fn() -> bool) {
        while !is_enough() && self.shrink_by_one().is_some() {}
    }

    /// Drops files that nobody reads, until they were so many bytes. Whether there was one.
    pub(super) fn shrink_by(&mut self, bytes: u64) -> bool {
        let mut dropped = None;
        while dropped.is_none_or(|dropped| dropped < bytes)
            && let Some(more) = self.shrink_by_one()
        {
            dropped = Some(dropped.unwrap_or(0).saturating_add(more));
        }
        dropped.is_some()
    }

    fn shrink_by_one(&mut self) -> Option<u64> {
        self.drop_idle(Space { bytes: 1, files: 0 }, |_, _| true)
    }

    /// Drops the least recently used idle file of the holder that has most of what is wanted. Returns its bytes.
    fn drop_idle(&mut self, wanted: Space, of: impl Fn(&Room, Holder) -> bool) -> Option<u64> {
        let idle = self.idle().filter(|(_, holder, ..)| of(&self.room, *holder));
        let victim =
            idle.max_by_key(|(used, holder, ..)| (self.room.weight(*holder, wanted), std::cmp::Reverse(*used)));
        let (.., bytes, key) = victim?;
        self.forget(&key);
        Some(bytes)
    }

    pub(super) fn remember_too_large(&mut self, key: CacheKey) {
        // Forgetting them all now and then costs one more try each.
        if self.too_large.len() >= MOST_FILES {
            self.too_large.clear();
        }
        self.too_large.insert(key);
    }

    /// Drops a file that turned out to be damaged, unless another one is there by now.
    pub(super) fn forget_damaged(&mut self, key: &CacheKey, damaged: &Arc<MadeFile>) {
        if matches!(self.entries.get(key), Some(Entry::Made { file, .. }) if Arc::ptr_eq(file, damaged)) {
            self.forget(key);
        }
    }

    pub(super) fn forget(&mut self, key: &CacheKey) {
        if let Some(Entry::Made { file, holder, .. }) = self.entries.remove(key) {
            self.room.give_back(holder, Space { bytes: file.bytes, files: 1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::export_cache::fixture::{HOUR, chunks, setup};

    #[tokio::test]
    async fn what_was_used_least_recently_goes_unless_it_is_read() {
        let setup = setup(30, HOUR);
        let (ten, made) = chunks(&[&[7; 10]]);
        for number in [1, 2, 3, 1] {
            setup.read(number, &ten).await.expect("kept");
        }
        assert_eq!((made.load(Ordering::SeqCst), setup.accounted()), (3, (3, 30)));
        // The second is the oldest, but is being read: the third goes.
        let held = setup.exports.files.index().entries.get(&CacheKey::numbered(2)).map(|entry| match entry {
            Entry::Made { file, .. } => file.clone(),
            Entry::Making { .. } => panic!("it is made"),
        });
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
