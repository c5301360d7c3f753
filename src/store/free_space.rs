//! What of a disk stays free: looks at it now and then, and who gives room back where it is short.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How many bytes are written, all together, between two looks at how much of the disk is free.
pub const LOOK_BYTES: u64 = 16 << 20;

/// Tells the free bytes of a directory's disk; `None` where the system does not tell.
type Look = dyn Fn(&Path) -> Option<u64> + Send + Sync;

/// Removes what can be done without, until it is told that this is enough.
type GiveBack = dyn Fn(&dyn Fn() -> bool) + Send + Sync;

/// A disk, and how much of it is to stay free. Clones are the same one.
#[derive(Clone)]
pub struct DiskReserve {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    reserve_bytes: u64,
    look: Box<Look>,
    give_back: Mutex<Vec<Arc<GiveBack>>>,
}

impl fmt::Debug for DiskReserve {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { directory, reserve_bytes, .. } = &*self.shared;
        formatter.debug_struct("DiskReserve").field("directory", directory).field("bytes", reserve_bytes).finish()
    }
}

impl DiskReserve {
    pub fn new(directory: &Path, reserve_bytes: u64) -> DiskReserve {
        DiskReserve::looking(directory, reserve_bytes, free_bytes)
    }

    pub fn looking(
        directory: &Path,
        reserve_bytes: u64,
        look: impl Fn(&Path) -> Option<u64> + Send + Sync + 'static,
    ) -> DiskReserve {
        let (directory, look) = (directory.to_owned(), Box::new(look));
        DiskReserve { shared: Arc::new(Shared { directory, reserve_bytes, look, give_back: Mutex::default() }) }
    }

    pub fn bytes(&self) -> u64 {
        self.shared.reserve_bytes
    }

    /// Asks this, too, before a disk counts as full. It must not wait for whoever asks.
    pub fn on_shortage(&self, give_back: impl Fn(&dyn Fn() -> bool) + Send + Sync + 'static) {
        // Nothing panics while it is held.
        self.shared.give_back.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(give_back));
    }

    pub fn keep(&self) -> bool {
        self.keep_beside(0)
    }

    /// Whether so much is free beside bytes that are about to be written, after others gave back what they can if need
    /// be. A reserve of nothing leaves it to the disk to refuse.
    pub fn keep_beside(&self, bytes: u64) -> bool {
        let needed_bytes = self.shared.reserve_bytes.saturating_add(bytes);
        if self.shared.reserve_bytes == 0 || self.leaves(needed_bytes) {
            return true;
        }
        let all = self.shared.give_back.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().any(|give_back| {
            give_back(&|| self.leaves(needed_bytes));
            self.leaves(needed_bytes)
        })
    }

    /// Whether twice as much is free: enough to begin what nobody waits for.
    pub fn is_ample(&self) -> bool {
        self.leaves(self.shared.reserve_bytes.saturating_mul(2))
    }

    fn leaves(&self, bytes: u64) -> bool {
        (self.shared.look)(&self.shared.directory).is_none_or(|free| free >= bytes)
    }
}

/// Counts what is written between two looks. Many small files count as one large one does.
#[derive(Debug, Default)]
pub struct Looks {
    /// Bytes that may be written before the next look; at first there is one.
    until: u64,
}

impl Looks {
    pub fn is_due(&mut self, bytes: u64) -> bool {
        let is_due = bytes > 0 && bytes >= self.until;
        self.until = if is_due { LOOK_BYTES } else { self.until - bytes };
        is_due
    }

    pub fn again(&mut self) {
        self.until = 0;
    }
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_disk_counts_as_full_after_all_have_given_back_what_they_can() {
        let free = Arc::new(AtomicU64::new(100));
        let told = free.clone();
        let disk = DiskReserve::looking(Path::new("/"), 50, move |_| Some(told.load(Ordering::SeqCst)));
        assert!(disk.keep() && disk.is_ample());
        // Files of 10 bytes: three of one, ten of the other.
        for files in [3, 10] {
            let (free, left) = (free.clone(), AtomicU64::new(files));
            disk.on_shortage(move |is_enough| {
                while !is_enough() && left.load(Ordering::SeqCst) > 0 {
                    left.fetch_sub(1, Ordering::SeqCst);
                    free.fetch_add(10, Ordering::SeqCst);
                }
            });
        }
        let kept = |now: u64| {
            free.store(now, Ordering::SeqCst);
            (disk.keep(), disk.is_ample(), free.load(Ordering::SeqCst))
        };
        assert_eq!(kept(99), (true, false, 99));
        assert_eq!(kept(45), (true, false, 55));
        // Two files of the first, and two of the second.
        assert_eq!(kept(10), (true, false, 50));
        assert_eq!(kept(0), (true, false, 50));
        assert_eq!(kept(0), (false, false, 30));
        free.store(60, Ordering::SeqCst);
        assert_eq!((disk.keep_beside(10), disk.keep_beside(11)), (true, false));
        let nothing_kept = DiskReserve::looking(Path::new("/"), 0, |_| Some(0));
        assert!(nothing_kept.keep() && nothing_kept.keep_beside(1));
        let unknown = DiskReserve::looking(Path::new("/"), u64::MAX, |_| None);
        assert!(unknown.keep() && unknown.is_ample());
    }

    #[test]
    fn many_small_files_are_looked_at_as_one_large_one_is() {
        let mut looks = Looks::default();
        let mut due = (0..64).map(|_| looks.is_due(1 << 20));
        assert_eq!(due.by_ref().take(17).filter(|is_due| *is_due).count(), 2);
        assert_eq!(due.filter(|is_due| *is_due).count(), 2);
        assert!(!looks.is_due(0));
        looks.again();
        assert!(looks.is_due(1));
    }
}
