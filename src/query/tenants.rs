//! How principals share the memory and the disk of queries.
//!
//! The quotas apply before DataFusion's own limits, which are for all queries together: `TenantPool` wraps the memory
//! pool, and `TenantFiles` the disk manager. Both use a [`FairLimit`], so a principal can have a share of what the
//! others leave. If an operator exceeds its share of memory, it spills. If it cannot spill, or exceeds its share of the
//! disk, it fails.
//!
//! `query::sharing::memory_that_one_tenants_queries_hold_leaves_anothers` fails without it.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::common::resources_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::{SpillFile, SpillWriter, TaskContext, TempFileFactory};
use futures::Stream;
use strata_limits::{BeyondShare, Denied, FairLimit, Principal, Shares};
use strata_store::free_space::DiskReserve;
use strata_store::{durable, temporary};

/// The shares of one principal and of all anonymous ones, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantShares {
    /// The share of one principal in the units that no other principal uses.
    pub one_percent: u64,
    /// What all anonymous principals can have together.
    pub anonymous_percent: u64,
}

impl TenantShares {
    /// A quota for bytes. A principal can have `min_bytes` while no other one has any, even beyond its share.
    pub(super) fn quota(self, bytes: u64, min_bytes: u64) -> FairLimit {
        let shares = Shares::new(bytes, self.one_percent, 100 - self.anonymous_percent);
        FairLimit::quota(Shares { beyond_share: BeyondShare::Alone(min_bytes), ..shares })
    }
}

#[derive(Debug)]
pub(super) struct TenantPool {
    pub all: Arc<dyn MemoryPool>,
    pub quota: FairLimit,
    pub principal: Principal,
}

impl fmt::Display for TenantPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a share of {}", self.all)
    }
}

impl MemoryPool for TenantPool {
    fn name(&self) -> &str {
        self.all.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.all.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.all.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.all.grow(reservation, additional);
        self.quota.reserve(self.principal, additional as u64);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.all.shrink(reservation, shrink);
        self.quota.release(self.principal, shrink as u64);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.quota.try_reserve(self.principal, additional as u64).map_err(|Denied { max_units, .. }| {
            resources_datafusion_err!(
                "{} needs {additional} more bytes, but this client's queries can currently use only {max_units} bytes",
                reservation.consumer().name()
            )
        })?;
        self.all.try_grow(reservation, additional).inspect_err(|_| {
            self.quota.release(self.principal, additional as u64);
        })
    }

    fn reserved(&self) -> usize {
        self.all.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.all.memory_limit()
    }
}

/// The memory pool of all queries, as an extension of the session: for indexes that one query builds and all use.
pub(super) struct SharedMemory(pub Arc<dyn MemoryPool>);

impl SharedMemory {
    /// A reservation that uses no tenant's share.
    pub(super) fn register(context: &TaskContext, name: &'static str) -> MemoryReservation {
        let shared = context.session_config().get_extension::<SharedMemory>();
        let pool = shared.as_ref().map_or(context.memory_pool(), |shared| &shared.0);
        MemoryConsumer::new(name).register(pool)
    }
}

/// Parents of the engine's spill directory that are recreated with it: the directories of the process and of all
/// processes, but not the data directory.
const RECREATED_PARENTS: usize = 2;

pub(super) struct TenantFiles {
    pub all: Arc<DiskManager>,
    pub share: DiskShare,
}

/// The tenant cannot spill more. An I/O error carries it through writers.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this client's queries can currently spill only {max_bytes} bytes")]
pub(super) struct DiskShareUsed {
    max_bytes: u64,
}

impl DiskShareUsed {
    pub(super) fn from_io(error: &io::Error) -> Option<&DiskShareUsed> {
        error.get_ref()?.downcast_ref()
    }
}

#[derive(Clone)]
pub(super) struct DiskShare {
    pub quota: FairLimit,
    pub principal: Principal,
    /// The disk space that stays free.
    pub reserve: Option<DiskReserve>,
}

/// Bytes of a file between two checks of the free disk space. Many files grow at once.
const CHECK_BYTES: u64 = 1 << 20;

impl TempFileFactory for TenantFiles {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let file = match self.all.create_tmp_file(description) {
            // The directory has been removed. It is created again.
            Err(DataFusionError::IoError(error)) if error.kind() == io::ErrorKind::NotFound => {
                let again = |path: &PathBuf| durable::restore_directory(path, RECREATED_PARENTS);
                let restored = self.all.temp_dir_paths().iter().try_for_each(again);
                restored.map_err(DataFusionError::from).and_then(|()| self.all.create_tmp_file(description))
            }
            outcome => outcome,
        };
        let file = file.map_err(|error| match error {
            DataFusionError::IoError(error) => {
                let directory = self.all.temp_dir_paths().into_iter().next().unwrap_or_default();
                DataFusionError::IoError(temporary::refused(&directory, error))
            }
            other => other,
        })?;
        let used = UsedDisk { share: self.share.clone(), bytes: AtomicU64::new(0) };
        Ok(Arc::new(TenantFile { file, used: Arc::new(used) }))
    }
}

struct TenantFile {
    file: Arc<dyn SpillFile>,
    used: Arc<UsedDisk>,
}

/// The reserved bytes of a file, until the file and its writers are dropped.
struct UsedDisk {
    share: DiskShare,
    bytes: AtomicU64,
}

impl Drop for UsedDisk {
    fn drop(&mut self) {
        self.share.quota.release(self.share.principal, *self.bytes.get_mut());
    }
}

impl SpillFile for TenantFile {
    fn path(&self) -> Option<&Path> {
        self.file.path()
    }

    fn size(&self) -> Option<u64> {
        self.file.size()
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        self.file.read_stream()
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(TenantWriter { writer: self.file.open_writer()?, used: self.used.clone(), checked_bytes: 0 }))
    }
}

struct TenantWriter {
    writer: Box<dyn SpillWriter>,
    used: Arc<UsedDisk>,
    /// Bytes that were free at the last check and have not been written since.
    checked_bytes: u64,
}

impl TenantWriter {
    fn check_free_space(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= self.checked_bytes {
            return Ok(());
        }
        let ahead_bytes = bytes.max(CHECK_BYTES);
        if let Some(reserve) = &self.used.share.reserve
            && !reserve.keep_beside(ahead_bytes)
        {
            let reserved_bytes = reserve.bytes();
            let text = format!("free disk space would fall below sources.disk_reserve_bytes ({reserved_bytes})");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        self.checked_bytes = ahead_bytes;
        Ok(())
    }
}

impl Write for TenantWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        self.check_free_space(length)?;
        let DiskShare { quota, principal, .. } = &self.used.share;
        let refused = |denied: Denied| io::Error::other(DiskShareUsed { max_bytes: denied.max_units });
        quota.try_reserve(*principal, length).map_err(refused)?;
        let written = self.writer.write(bytes).inspect_err(|_| quota.release(*principal, length))?;
        quota.release(*principal, length - written as u64);
        self.used.bytes.fetch_add(written as u64, Ordering::Relaxed);
        self.checked_bytes -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl SpillWriter for TenantWriter {
    fn finish(&mut self) -> Result<()> {
        self.writer.finish()
    }
}
