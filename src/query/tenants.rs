//! How principals share the memory and the disk of queries.
//!
//! The quotas apply before DataFusion's own limits, which are for all queries together: `TenantPool` wraps the memory
//! pool, and `TenantFiles` the disk manager. Both use a [`FairLimit`], so a principal can have a share of what the
//! others leave. An operator that has its share of memory spills. What cannot spill, or has its share of the disk,
//! fails as if nothing were left.
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
    /// What one can have of what all others leave.
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

/// The memory pool of all, as an extension of the session: for what a query begins and all gain by.
pub(super) struct SharedMemory(pub Arc<dyn MemoryPool>);

impl SharedMemory {
    /// A reservation that takes no tenant's share.
    pub(super) fn of(context: &TaskContext, name: &'static str) -> MemoryReservation {
        let shared = context.session_config().get_extension::<SharedMemory>();
        let pool = shared.as_ref().map_or(context.memory_pool(), |shared| &shared.0);
        MemoryConsumer::new(name).register(pool)
    }
}

/// Directories above the engine's own that are made again with it: those of the process, and of all processes. The data
/// directory is none of them.
const ABOVE: usize = 2;

pub(super) struct TenantFiles {
    pub all: Arc<DiskManager>,
    pub share: DiskShare,
}

/// That a tenant may spill no more. It comes as an I/O error, as writers have no others.
#[derive(Debug, thiserror::Error)]
#[error("this client's queries can currently spill only {max_bytes} bytes")]
pub(super) struct DiskShareUsed {
    max_bytes: u64,
}

impl DiskShareUsed {
    pub(super) fn of(error: &io::Error) -> Option<&DiskShareUsed> {
        error.get_ref()?.downcast_ref()
    }
}

#[derive(Clone)]
pub(super) struct DiskShare {
    pub quota: FairLimit,
    pub principal: Principal,
    /// What stays free of the disk, whoever fills it.
    pub reserve: Option<DiskReserve>,
}

/// Bytes of a file that are written between two looks at the disk, after one at its first byte. Many files grow at
/// once.
const LOOK_BYTES: u64 = 1 << 20;

impl TenantFiles {
    /// A file of the engine's, in a directory that is made again when somebody has removed it.
    fn file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        match self.all.create_tmp_file(description) {
            Err(DataFusionError::IoError(error)) if error.kind() == io::ErrorKind::NotFound => {
                let again = |path: &PathBuf| durable::restore_directory(path, ABOVE);
                self.all.temp_dir_paths().iter().try_for_each(again)?;
                self.all.create_tmp_file(description)
            }
            outcome => outcome,
        }
    }
}

impl TempFileFactory for TenantFiles {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let file = self.file(description).map_err(|error| match error {
            DataFusionError::IoError(error) => {
                let directory = self.all.temp_dir_paths().into_iter().next().unwrap_or_default();
                DataFusionError::IoError(temporary::refused(&directory, error))
            }
            other => other,
        })?;
        let used = Used { share: self.share.clone(), bytes: AtomicU64::new(0) };
        Ok(Arc::new(TenantFile { file, used: Arc::new(used) }))
    }
}

/// A temporary file, whose bytes are given back when it and its writers are gone.
struct TenantFile {
    file: Arc<dyn SpillFile>,
    used: Arc<Used>,
}

struct Used {
    share: DiskShare,
    bytes: AtomicU64,
}

impl Drop for Used {
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
        Ok(Box::new(TenantWriter { writer: self.file.open_writer()?, used: self.used.clone(), seen_bytes: 0 }))
    }
}

struct TenantWriter {
    writer: Box<dyn SpillWriter>,
    used: Arc<Used>,
    /// Bytes that the disk had room for at the last look, less those written since.
    seen_bytes: u64,
}

impl TenantWriter {
    /// Looks at the disk before bytes are written, if it is time.
    fn look(&mut self, bytes: u64) -> io::Result<()> {
        if bytes <= self.seen_bytes {
            return Ok(());
        }
        let ahead_bytes = bytes.max(LOOK_BYTES);
        if let Some(reserve) = &self.used.share.reserve
            && !reserve.keep_beside(ahead_bytes)
        {
            let reserved_bytes = reserve.bytes();
            let text = format!("free disk space would fall below sources.disk_reserve_bytes ({reserved_bytes})");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        self.seen_bytes = ahead_bytes;
        Ok(())
    }
}

impl Write for TenantWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        self.look(length)?;
        let DiskShare { quota, principal, .. } = &self.used.share;
        let refused = |denied: Denied| io::Error::other(DiskShareUsed { max_bytes: denied.max_units });
        quota.try_reserve(*principal, length).map_err(refused)?;
        let written = self.writer.write(bytes).inspect_err(|_| quota.release(*principal, length))?;
        quota.release(*principal, length - written as u64);
        self.used.bytes.fetch_add(written as u64, Ordering::Relaxed);
        self.seen_bytes -= written as u64;
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

#[cfg(test)]
mod tests {
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use strata_limits::HashedPrincipal;

    use super::*;
    use strata_store::shortage::Shortage;

    const SHARES: TenantShares = TenantShares { one_percent: 50, anonymous_percent: 75 };

    fn principal(key: u64, anonymous: bool) -> Principal {
        Principal::Hashed(HashedPrincipal { key, anonymous })
    }

    fn disk_manager(directory: &Path) -> Arc<DiskManager> {
        let mode = DiskManagerMode::Directories(vec![directory.to_owned()]);
        Arc::new(DiskManagerBuilder::default().with_mode(mode).build().expect("a disk manager"))
    }

    #[test]
    fn memory_of_one_tenant_leaves_room_for_others() {
        let all = Arc::new(GreedyMemoryPool::new(1_000));
        let quota = SHARES.quota(1_000, 0);
        let pool = |key| -> Arc<dyn MemoryPool> {
            Arc::new(TenantPool { all: all.clone(), quota: quota.clone(), principal: principal(key, false) })
        };
        let (hostile, honest) = (pool(1), pool(2));
        let first = MemoryConsumer::new("first").register(&hostile);
        let second = MemoryConsumer::new("second").register(&hostile);
        first.try_grow(400).expect("within the share");
        let refused = second.try_grow(101).expect_err("beyond it").strip_backtrace();
        assert!(refused.contains("second needs 101 more bytes") && refused.contains("use only 500 bytes"), "{refused}");
        second.try_grow(100).expect("all of it");
        let other = MemoryConsumer::new("other").register(&honest);
        other.try_grow(250).expect("half of what is left");
        assert_eq!((hostile.reserved(), all.reserved()), (750, 750));
        drop((first, second, other));
        assert_eq!(all.reserved(), 0);
        assert_eq!(quota.principals(), 0);
    }

    #[test]
    fn files_of_one_tenant_leave_room_for_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let all = disk_manager(directory.path());
        let quota = SHARES.quota(1_000, 0);
        let files = |key| {
            let share = DiskShare { quota: quota.clone(), principal: principal(key, false), reserve: None };
            TenantFiles { all: all.clone(), share }
        };
        let (hostile, honest) = (files(1), files(2));
        let file = hostile.create_temp_file("spilled").expect("a file");
        let mut writer = file.open_writer().expect("a writer");
        writer.write_all(&[7; 500]).expect("within the share");
        let refused = writer.write_all(&[7; 1]).expect_err("beyond it").to_string();
        assert!(refused.contains("spill only 500 bytes"), "{refused}");
        let other = honest.create_temp_file("spilled").expect("a file");
        other.open_writer().expect("a writer").write_all(&[7; 250]).expect("half of what is left");
        assert_eq!((file.size(), other.size(), all.used_disk_space()), (Some(500), Some(250), 750));
        writer.finish().expect("finished");
        drop((file, other, writer));
        // Somebody removes the directory below; the next file makes it anew.
        for path in all.temp_dir_paths() {
            std::fs::remove_dir_all(path).expect("removed");
        }
        drop(honest.create_temp_file("spilled").expect("a file, all the same"));
        for path in all.temp_dir_paths() {
            std::fs::remove_dir_all(&path).expect("removed");
            std::fs::write(&path, "no directory").expect("written");
            let refused = honest.create_temp_file("spilled").err().expect("no file").to_string();
            assert!(refused.contains("the directory for temporary files"), "{refused}");
            std::fs::remove_file(&path).expect("removed");
        }
        drop(honest.create_temp_file("spilled").expect("a file again"));
        assert_eq!(all.used_disk_space(), 0);
        assert_eq!(quota.principals(), 0);
    }

    #[test]
    fn files_leave_disk_reserve_free() {
        const RESERVE_BYTES: u64 = 100;
        let directory = tempfile::tempdir().expect("a directory");
        let all = disk_manager(directory.path());
        let free = Arc::new(AtomicU64::new(u64::MAX));
        let told = free.clone();
        let reserve = DiskReserve::looking(directory.path(), RESERVE_BYTES, move |_| Some(told.load(Ordering::SeqCst)));
        let share =
            DiskShare { quota: SHARES.quota(1 << 30, 0), principal: principal(1, true), reserve: Some(reserve) };
        let files = TenantFiles { all: all.clone(), share };
        let file = files.create_temp_file("spilled").expect("a file");
        let mut writer = file.open_writer().expect("a writer");
        writer.write_all(&[7; 3]).expect("room");
        free.store(RESERVE_BYTES + LOOK_BYTES - 1, Ordering::SeqCst);
        // What the last look saw room for.
        let rest = vec![7; LOOK_BYTES as usize - 3];
        writer.write_all(&rest).expect("room");
        let refused = writer.write_all(&[7; 1]).expect_err("no room");
        assert!(refused.to_string().contains("sources.disk_reserve_bytes (100)"), "{refused}");
        assert_eq!(Shortage::of(&refused), Some(Shortage::DiskFull));
        let other = files.create_temp_file("spilled").expect("a file");
        assert!(other.open_writer().expect("a writer").write_all(&[7; 1]).is_err());
        free.store(RESERVE_BYTES + LOOK_BYTES, Ordering::SeqCst);
        writer.write_all(&[7; 1]).expect("room again");
        assert_eq!(all.used_disk_space(), LOOK_BYTES + 1);
    }
}
