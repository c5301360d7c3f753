//! Limits the share of each principal in the memory and the spill space of queries.
//!
//! The quotas apply before DataFusion's own limits, which are for all queries together: `PrincipalMemoryPool` wraps the
//! memory pool, and `PrincipalTempFiles` wraps the disk manager. Both use a [`FairLimit`], so a principal can have a
//! share of the units that the others leave. An operator that exceeds its share of memory spills. If it cannot spill,
//! or exceeds its share of the disk, it fails.

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
use strata_limits::{BeyondShare, FairLimit, FairShares, Principal, UnitsDenied};
use strata_store::free_space::DiskReserve;
use strata_store::{fsync, temp_file};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrincipalShares {
    /// The share of one principal: a percentage of the memory or spill space that no other principal uses.
    pub principal_percent: u64,
    /// The part of the whole that all anonymous clients together can use, in percent.
    pub anonymous_percent: u64,
}

impl PrincipalShares {
    /// Creates a quota of `bytes` for all principals. A principal that is the only user of the quota can have
    /// `min_bytes`, even beyond its share.
    pub(super) fn to_quota(self, bytes: u64, min_bytes: u64) -> FairLimit {
        let shares = FairShares::new(bytes, self.principal_percent, 100 - self.anonymous_percent);
        FairLimit::new_quota(FairShares { beyond_share: BeyondShare::SolePrincipal(min_bytes), ..shares })
    }
}

#[derive(Debug)]
pub(super) struct PrincipalMemoryPool {
    pub inner: Arc<dyn MemoryPool>,
    pub quota: FairLimit,
    pub principal: Principal,
}

impl fmt::Display for PrincipalMemoryPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a share of {}", self.inner)
    }
}

impl MemoryPool for PrincipalMemoryPool {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
        self.quota.reserve(self.principal, additional as u64);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
        self.quota.release(self.principal, shrink as u64);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.quota.try_reserve(self.principal, additional as u64).map_err(|UnitsDenied { max_units, .. }| {
            resources_datafusion_err!(
                "{} needs {additional} more bytes, but this client's queries can currently use only {max_units} bytes",
                reservation.consumer().name()
            )
        })?;
        self.inner.try_grow(reservation, additional).inspect_err(|_| {
            self.quota.release(self.principal, additional as u64);
        })
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.inner.memory_limit()
    }
}

/// The engine's memory pool, without charges to a principal, for indexes that one query builds and all queries use.
/// Operators find it as an extension of the DataFusion session.
pub(super) struct UnchargedMemory(pub Arc<dyn MemoryPool>);

impl UnchargedMemory {
    pub(super) fn reserve_uncharged(context: &TaskContext, name: &'static str) -> MemoryReservation {
        let uncharged = context.session_config().get_extension::<UnchargedMemory>();
        let pool = uncharged.as_ref().map_or(context.memory_pool(), |uncharged| &uncharged.0);
        MemoryConsumer::new(name).register(pool)
    }
}

/// The number of parent directories that are recreated with a removed spill directory: one of the process and one of
/// all processes, but not the data directory.
const MAX_RECREATED_PARENTS: usize = 2;

pub(super) struct PrincipalTempFiles {
    pub inner: Arc<DiskManager>,
    pub spill_quota: SpillQuota,
}

/// The error of a write that exceeds the principal's spill quota. Writers pass it on inside an I/O error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("this client's queries can currently spill only {max_bytes} bytes")]
pub(super) struct SpillQuotaExceededError {
    max_bytes: u64,
}

impl SpillQuotaExceededError {
    pub(super) fn from_io(error: &io::Error) -> Option<&SpillQuotaExceededError> {
        error.get_ref()?.downcast_ref()
    }
}

#[derive(Clone)]
pub(super) struct SpillQuota {
    pub quota: FairLimit,
    pub principal: Principal,
    pub reserve: Option<DiskReserve>,
}

/// Bytes that a spill file grows between two checks of free disk space; few, because many files grow at the same time.
const FREE_SPACE_CHECK_BYTES: u64 = 1 << 20;

impl TempFileFactory for PrincipalTempFiles {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let file = match self.inner.create_tmp_file(description) {
            Err(DataFusionError::IoError(error)) if error.kind() == io::ErrorKind::NotFound => {
                let recreate = |path: &PathBuf| fsync::recreate_dir(path, MAX_RECREATED_PARENTS);
                let restored = self.inner.temp_dir_paths().iter().try_for_each(recreate);
                restored.map_err(DataFusionError::from).and_then(|()| self.inner.create_tmp_file(description))
            }
            outcome => outcome,
        };
        let file = file.map_err(|error| match error {
            DataFusionError::IoError(error) => {
                let directory = self.inner.temp_dir_paths().into_iter().next().unwrap_or_default();
                DataFusionError::IoError(temp_file::temp_dir_error(&directory, error))
            }
            other => other,
        })?;
        let reservation = SpillReservation { spill_quota: self.spill_quota.clone(), bytes: AtomicU64::new(0) };
        Ok(Arc::new(PrincipalSpillFile { file, reservation: Arc::new(reservation) }))
    }
}

struct PrincipalSpillFile {
    file: Arc<dyn SpillFile>,
    reservation: Arc<SpillReservation>,
}

/// The reserved bytes of a spill file. Released when the file and its writers are dropped.
struct SpillReservation {
    spill_quota: SpillQuota,
    bytes: AtomicU64,
}

impl Drop for SpillReservation {
    fn drop(&mut self) {
        self.spill_quota.quota.release(self.spill_quota.principal, *self.bytes.get_mut());
    }
}

impl SpillFile for PrincipalSpillFile {
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
        let writer = self.file.open_writer()?;
        let reservation = self.reservation.clone();
        Ok(Box::new(PrincipalSpillWriter { writer, reservation, checked_free_bytes: 0 }))
    }
}

struct PrincipalSpillWriter {
    writer: Box<dyn SpillWriter>,
    reservation: Arc<SpillReservation>,
    /// The bytes that the last check found to be free, minus the bytes that have been written since.
    checked_free_bytes: u64,
}

impl PrincipalSpillWriter {
    fn check_free_space(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= self.checked_free_bytes {
            return Ok(());
        }
        let reserved_ahead_bytes = bytes.max(FREE_SPACE_CHECK_BYTES);
        if let Some(reserve) = &self.reservation.spill_quota.reserve
            && !reserve.ensure_free_after_writing(reserved_ahead_bytes)
        {
            let reserved_bytes = reserve.reserve_bytes();
            let text = format!("free disk space would fall below sources.disk_reserve_bytes ({reserved_bytes})");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        self.checked_free_bytes = reserved_ahead_bytes;
        Ok(())
    }
}

impl Write for PrincipalSpillWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        self.check_free_space(length)?;
        let SpillQuota { quota, principal, .. } = &self.reservation.spill_quota;
        let refused = |denied: UnitsDenied| io::Error::other(SpillQuotaExceededError { max_bytes: denied.max_units });
        quota.try_reserve(*principal, length).map_err(refused)?;
        let written = self.writer.write(bytes).inspect_err(|_| quota.release(*principal, length))?;
        quota.release(*principal, length - written as u64);
        self.reservation.bytes.fetch_add(written as u64, Ordering::Relaxed);
        self.checked_free_bytes -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl SpillWriter for PrincipalSpillWriter {
    fn finish(&mut self) -> Result<()> {
        self.writer.finish()
    }
}
