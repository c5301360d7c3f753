//! Free space on a disk: a check after every few writes, and handlers that free space when there is too little.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub const CHECK_INTERVAL_BYTES: u64 = 16 << 20;
/// Returns the free bytes of the disk that contains a directory, or `None` if the system does not report them.
type FreeSpaceProbe = dyn Fn(&Path) -> Option<u64> + Send + Sync;
/// Deletes dispensable files until its argument returns `true`, which means that enough space is free.
type SpaceReclaimer = dyn Fn(&dyn Fn() -> bool) + Send + Sync;

/// A disk and the number of bytes on it that must stay free. Clones share one state.
#[derive(Clone)]
pub struct DiskReserve {
    shared: Arc<DiskReserveState>,
}

struct DiskReserveState {
    directory: PathBuf,
    reserve_bytes: u64,
    probe: Box<FreeSpaceProbe>,
    reclaimers: Mutex<Vec<Arc<SpaceReclaimer>>>,
}

impl fmt::Debug for DiskReserve {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DiskReserveState { directory, reserve_bytes, .. } = &*self.shared;
        formatter.debug_struct("DiskReserve").field("directory", directory).field("bytes", reserve_bytes).finish()
    }
}

impl DiskReserve {
    pub fn new(directory: &Path, reserve_bytes: u64) -> DiskReserve {
        DiskReserve::with_probe(directory, reserve_bytes, free_bytes)
    }

    pub fn with_probe(
        directory: &Path,
        reserve_bytes: u64,
        probe: impl Fn(&Path) -> Option<u64> + Send + Sync + 'static,
    ) -> DiskReserve {
        let directory = directory.to_owned();
        let probe = Box::new(probe);
        DiskReserve {
            shared: Arc::new(DiskReserveState { directory, reserve_bytes, probe, reclaimers: Mutex::default() }),
        }
    }

    pub fn reserve_bytes(&self) -> u64 {
        self.shared.reserve_bytes
    }

    /// Adds a handler that frees space before the disk counts as full. The handler must not wait for its caller.
    pub fn add_reclaimer(&self, reclaim: impl Fn(&dyn Fn() -> bool) + Send + Sync + 'static) {
        self.shared.reclaimers.lock().push(Arc::new(reclaim));
    }

    pub fn ensure_free(&self) -> bool {
        self.ensure_free_after_writing(0)
    }

    pub fn ensure_free_after_writing(&self, bytes: u64) -> bool {
        let needed_bytes = self.shared.reserve_bytes.saturating_add(bytes);
        if self.shared.reserve_bytes == 0 || self.has_free_bytes(needed_bytes) {
            return true;
        }
        let reclaimers = self.shared.reclaimers.lock().clone();
        reclaimers.iter().any(|reclaim| {
            reclaim(&|| self.has_free_bytes(needed_bytes));
            self.has_free_bytes(needed_bytes)
        })
    }

    pub fn has_ample_space(&self) -> bool {
        self.has_free_bytes(self.shared.reserve_bytes.saturating_mul(2))
    }

    fn has_free_bytes(&self, bytes: u64) -> bool {
        (self.shared.probe)(&self.shared.directory).is_none_or(|free| free >= bytes)
    }
}

/// Counts written bytes between two checks of the free space. Many small files count as much as one large file.
#[derive(Debug, Default)]
pub struct FreeSpaceCheckInterval {
    /// Bytes that may be written before the next check. The initial 0 makes the first write due.
    bytes_until_check: u64,
}

impl FreeSpaceCheckInterval {
    pub fn is_due(&mut self, bytes: u64) -> bool {
        let is_due = bytes > 0 && bytes >= self.bytes_until_check;
        self.bytes_until_check = if is_due { CHECK_INTERVAL_BYTES } else { self.bytes_until_check - bytes };
        is_due
    }

    pub fn reset(&mut self) {
        self.bytes_until_check = 0;
    }
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}
