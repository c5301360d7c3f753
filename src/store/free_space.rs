//! Free space on a disk: checks after every few writes, and handlers that free space when it is short.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How many bytes are written between two checks of the free space.
pub const LOOK_BYTES: u64 = 16 << 20;

/// Tells the free bytes of a directory's disk; `None` where the system does not tell.
type Look = dyn Fn(&Path) -> Option<u64> + Send + Sync;

/// Removes dispensable files until its argument says that this is enough.
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
        let directory = directory.to_owned();
        let look = Box::new(look);
        DiskReserve { shared: Arc::new(Shared { directory, reserve_bytes, look, give_back: Mutex::default() }) }
    }

    pub fn bytes(&self) -> u64 {
        self.shared.reserve_bytes
    }

    /// Adds a handler that frees space before the disk counts as full. It must not wait for its caller.
    pub fn on_shortage(&self, give_back: impl Fn(&dyn Fn() -> bool) + Send + Sync + 'static) {
        // Nothing panics while it is held.
        self.shared.give_back.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(give_back));
    }

    pub fn keep(&self) -> bool {
        self.keep_beside(0)
    }

    /// Whether the reserve stays free when `bytes` are written. If not, the handlers first free what they can. With a
    /// reserve of 0, only the disk refuses.
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

    /// Whether twice the reserve is free: enough for work that no one waits for.
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
