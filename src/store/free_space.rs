//! Free space on a disk: a check after every few writes, and handlers that free space when there is too little.
//!
//! Problem: if sources, exports, spilled data, and caches filled the disk of the data directory, all other writes to
//! the disk would fail. Therefore, a part of the disk must stay free, the [`DiskReserve`]. Before a write is rejected,
//! handlers delete files that the process can do without.
//!
//! A check costs a system call, so writers count their bytes in a [`FreeSpaceCheckInterval`] and check the disk once
//! per [`CHECK_INTERVAL_BYTES`]. Each of them can exceed the reserve by as much.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes that can be written between two checks of the free space.
pub const CHECK_INTERVAL_BYTES: u64 = 16 << 20;

/// A disk and the number of bytes on it that must stay free. Clones share one state.
///
/// - With a reserve of 0 bytes, and if the system does not report the free space, all checks succeed.
/// - Free space is what a process without privileges can use.
#[derive(Clone)]
pub struct DiskReserve {
    shared: Arc<DiskReserveState>,
}

/// Returns the free bytes of the disk that contains a directory, or `None` if the system does not report them.
type FreeSpaceProbe = dyn Fn(&Path) -> Option<u64> + Send + Sync;
/// Deletes dispensable files until its argument returns `true`, which means that enough space is free.
type SpaceReclaimer = dyn Fn(&dyn Fn() -> bool) + Send + Sync;

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

    /// Like [`DiskReserve::new`], for a disk whose free bytes are determined by `probe`.
    pub fn with_probe(
        directory: &Path,
        reserve_bytes: u64,
        probe: impl Fn(&Path) -> Option<u64> + Send + Sync + 'static,
    ) -> DiskReserve {
        let directory = directory.to_owned();
        let probe = Box::new(probe);
        let shared = DiskReserveState { directory, reserve_bytes, probe, reclaimers: Mutex::default() };
        DiskReserve { shared: Arc::new(shared) }
    }

    pub fn reserve_bytes(&self) -> u64 {
        self.shared.reserve_bytes
    }

    /// Adds a handler that frees space before the disk counts as full. Handlers run in the order in which they were
    /// added, in the thread of the writer; a handler must not wait for its caller.
    pub fn add_reclaimer(&self, reclaim: impl Fn(&dyn Fn() -> bool) + Send + Sync + 'static) {
        self.shared.reclaimers.lock().push(Arc::new(reclaim));
    }

    /// Returns whether the reserve is free, if necessary after the handlers have freed space.
    pub fn ensure_free(&self) -> bool {
        self.ensure_free_after_writing(0)
    }

    /// Like [`DiskReserve::ensure_free`], for the time after `bytes` more bytes have been written.
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

    /// Returns whether twice the reserve is free. Optional writes should stop if it is not. Deletes no files.
    pub fn has_ample_space(&self) -> bool {
        self.has_free_bytes(self.shared.reserve_bytes.saturating_mul(2))
    }

    fn has_free_bytes(&self, bytes: u64) -> bool {
        (self.shared.probe)(&self.shared.directory).is_none_or(|free| free >= bytes)
    }
}

/// Counts the bytes that are written between two checks of the free space. Many small files count as much as one large
/// file.
#[derive(Debug, Default)]
pub struct FreeSpaceCheckInterval {
    /// Bytes that may be written before the next check. The initial value 0 causes a check at the first write.
    bytes_until_check: u64,
}

impl FreeSpaceCheckInterval {
    /// Counts bytes that are about to be written. Returns whether the free space must be checked first.
    #[must_use]
    pub fn advance_and_check_due(&mut self, bytes: u64) -> bool {
        let is_due = bytes > 0 && bytes >= self.bytes_until_check;
        self.bytes_until_check = if is_due { CHECK_INTERVAL_BYTES } else { self.bytes_until_check - bytes };
        is_due
    }

    /// Makes the next write check the free space, for example because the last check failed.
    pub fn reset(&mut self) {
        self.bytes_until_check = 0;
    }
}

fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}
