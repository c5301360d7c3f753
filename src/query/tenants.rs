//! Shares of the memory and of the disk of queries: those who ask leave room for each other.
//!
//! What one [`Tenant`] holds is at most a share of what the others leave, and what all anonymous ones hold together
//! leaves room for users. A share is checked when something is taken; nothing is taken away. Sorts and dedups that have
//! their share of memory spill; what cannot, and whoever has its share of the disk, is refused as when there is none
//! left.
//!
//! Both stand before DataFusion's own bounds, which hold for all together: `TenantPool` before the memory pool,
//! `TenantFiles` before the disk manager.
//!
//! `resilience::fair::memory_that_one_tenants_queries_hold_leaves_anothers` fails without it.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use datafusion::common::resources_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::{SpillFile, SpillWriter, TaskContext, TempFileFactory};
use futures::Stream;
use strata_store::free_space::DiskReserve;
use strata_store::{durable, temporary};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenant {
    pub key: u64,
    /// Whether it is nobody known.
    pub anonymous: bool,
}

/// What tenants leave each other, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantShares {
    /// What one may have of what all others leave.
    pub one_percent: u64,
    /// What all anonymous ones may have together.
    pub anonymous_percent: u64,
}

#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// What one may have who is alone, whatever its share.
    min: u64,
    shares: TenantShares,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    anonymous: u64,
    by_tenant: HashMap<Tenant, u64, foldhash::fast::RandomState>,
}

impl Budget {
    pub(super) fn new(limit: u64, min: u64, shares: TenantShares) -> Budget {
        Budget { limit, min, shares, taken: Mutex::default() }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics between two changes that belong together.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes if the tenant may have them.
    ///
    /// # Errors
    /// What it may have in all, as things are.
    fn take(&self, tenant: Tenant, bytes: u64) -> std::result::Result<(), u64> {
        let mut taken = self.taken();
        let own = taken.by_tenant.get(&tenant).copied().unwrap_or_default();
        let others = taken.all - own;
        let mut left = self.limit.saturating_sub(others);
        if tenant.anonymous {
            let all = percent(self.limit, self.shares.anonymous_percent);
            left = left.min(all.saturating_sub(taken.anonymous - own));
        }
        let mut most = percent(left, self.shares.one_percent);
        if others == 0 {
            most = most.max(self.min.min(self.limit));
        }
        if own.saturating_add(bytes) > most {
            return Err(most);
        }
        taken.add(tenant, bytes);
        Ok(())
    }

    pub(super) fn all(&self) -> u64 {
        self.taken().all
    }

    pub(super) fn most(&self, tenant: Tenant) -> u64 {
        let of_anonymous = percent(self.limit, self.shares.anonymous_percent);
        let left = if tenant.anonymous { of_anonymous } else { self.limit };
        percent(left, self.shares.one_percent).max(self.min.min(self.limit))
    }

    fn give_back(&self, tenant: Tenant, bytes: u64) {
        let mut taken = self.taken();
        if let Some(own) = taken.by_tenant.get_mut(&tenant) {
            let bytes = bytes.min(*own);
            *own -= bytes;
            if *own == 0 {
                taken.by_tenant.remove(&tenant);
            }
            taken.all -= bytes;
            if tenant.anonymous {
                taken.anonymous -= bytes;
            }
        }
    }
}

impl Taken {
    fn add(&mut self, tenant: Tenant, bytes: u64) {
        if bytes > 0 {
            *self.by_tenant.entry(tenant).or_default() += bytes;
            self.all += bytes;
            if tenant.anonymous {
                self.anonymous += bytes;
            }
        }
    }
}

fn percent(bytes: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

#[derive(Debug)]
pub(super) struct TenantPool {
    pub all: Arc<dyn MemoryPool>,
    pub budget: Arc<Budget>,
    pub tenant: Tenant,
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
        self.budget.taken().add(self.tenant, additional as u64);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.all.shrink(reservation, shrink);
        self.budget.give_back(self.tenant, shrink as u64);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.budget.take(self.tenant, additional as u64).map_err(|most| {
            resources_datafusion_err!(
                "{} needs {additional} more bytes, but this client's queries can currently use only {most} bytes",
                reservation.consumer().name()
            )
        })?;
        self.all.try_grow(reservation, additional).inspect_err(|_| {
            self.budget.give_back(self.tenant, additional as u64);
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
#[error("this client's queries can currently spill only {most_bytes} bytes")]
pub(super) struct DiskShareUsed {
    most_bytes: u64,
}

impl DiskShareUsed {
    pub(super) fn of(error: &io::Error) -> Option<&DiskShareUsed> {
        error.get_ref()?.downcast_ref()
    }
}

#[derive(Clone)]
pub(super) struct DiskShare {
    pub budget: Arc<Budget>,
    pub tenant: Tenant,
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
        self.share.budget.give_back(self.share.tenant, *self.bytes.get_mut());
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
        let DiskShare { budget, tenant, .. } = &self.used.share;
        let refused = |most_bytes| io::Error::other(DiskShareUsed { most_bytes });
        budget.take(*tenant, length).map_err(refused)?;
        let written = self.writer.write(bytes).inspect_err(|_| budget.give_back(*tenant, length))?;
        budget.give_back(*tenant, length - written as u64);
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
    use proptest::prelude::*;

    use super::*;
    use strata_store::shortage::Shortage;

    const SHARES: TenantShares = TenantShares { one_percent: 50, anonymous_percent: 75 };

    fn tenant(key: u64, anonymous: bool) -> Tenant {
        Tenant { key, anonymous }
    }

    fn disk_manager(directory: &Path) -> Arc<DiskManager> {
        let mode = DiskManagerMode::Directories(vec![directory.to_owned()]);
        Arc::new(DiskManagerBuilder::default().with_mode(mode).build().expect("a disk manager"))
    }

    #[test]
    fn each_has_a_share_of_what_the_others_leave_and_users_have_some_for_sure() {
        let budget = Budget::new(1_000, 0, SHARES);
        let [one, other, user] = [tenant(1, true), tenant(2, true), tenant(3, false)];
        assert_eq!(budget.take(one, 376), Err(375));
        assert_eq!(budget.take(one, 375), Ok(()));
        assert_eq!(budget.take(one, 1), Err(375));
        assert_eq!(budget.take(other, 188), Err(187));
        assert_eq!(budget.take(other, 187), Ok(()));
        assert_eq!(budget.take(user, 220), Err(219));
        assert_eq!(budget.take(user, 219), Ok(()));
        budget.give_back(one, 375);
        assert_eq!(budget.take(user, 188), Err(406));
        assert_eq!(budget.take(user, 187), Ok(()));
        for (tenant, bytes) in [(other, 187), (user, 406)] {
            budget.give_back(tenant, bytes);
        }
        assert!(budget.taken().by_tenant.is_empty() && budget.taken().all == 0 && budget.taken().anonymous == 0);
    }

    #[test]
    fn of_little_one_who_is_alone_may_have_what_a_query_needs() {
        let budget = Budget::new(100, 90, SHARES);
        let [one, other] = [tenant(1, true), tenant(2, true)];
        assert_eq!(budget.take(one, 91), Err(90));
        assert_eq!(budget.take(one, 60), Ok(()));
        assert_eq!(budget.take(other, 8), Err(7));
        assert_eq!(budget.take(other, 7), Ok(()));
        assert_eq!(budget.take(one, 1), Err(34));
    }

    proptest! {
        #[test]
        fn the_books_are_right(events in proptest::collection::vec((0..6_u64, 0..400_u64, 0..3_u8), 0..200)) {
            let budget = Budget::new(1_000, 0, SHARES);
            let mut own = [0_u64; 6];
            for (key, bytes, event) in events {
                let tenant = tenant(key, key >= 2);
                let place = &mut own[key as usize];
                match event {
                    0 => {
                        let given = bytes.min(*place);
                        budget.give_back(tenant, given);
                        *place -= given;
                    }
                    _ if budget.take(tenant, bytes).is_ok() => *place += bytes,
                    _ => {}
                }
                prop_assert!(own.iter().sum::<u64>() <= 1_000);
                prop_assert!(own[2..].iter().sum::<u64>() <= 750);
                prop_assert!(own.iter().all(|one| *one <= 500));
                prop_assert_eq!(budget.taken().all, own.iter().sum::<u64>());
                prop_assert_eq!(budget.taken().by_tenant.len(), own.iter().filter(|one| **one > 0).count());
            }
        }
    }

    #[test]
    fn one_tenants_memory_leaves_anothers() {
        let (all, budget) = (Arc::new(GreedyMemoryPool::new(1_000)), Arc::new(Budget::new(1_000, 0, SHARES)));
        let pool = |key| -> Arc<dyn MemoryPool> {
            Arc::new(TenantPool { all: all.clone(), budget: budget.clone(), tenant: tenant(key, false) })
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
        assert!(budget.taken().by_tenant.is_empty());
    }

    #[test]
    fn one_tenants_files_leave_room_for_anothers_and_give_it_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let all = disk_manager(directory.path());
        let budget = Arc::new(Budget::new(1_000, 0, SHARES));
        let files = |key| {
            let share = DiskShare { budget: budget.clone(), tenant: tenant(key, false), reserve: None };
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
        assert!(budget.taken().by_tenant.is_empty());
    }

    #[test]
    fn files_leave_the_reserve_of_the_disk_free() {
        const RESERVE_BYTES: u64 = 100;
        let directory = tempfile::tempdir().expect("a directory");
        let all = disk_manager(directory.path());
        let free = Arc::new(AtomicU64::new(u64::MAX));
        let told = free.clone();
        let reserve = DiskReserve::looking(directory.path(), RESERVE_BYTES, move |_| Some(told.load(Ordering::SeqCst)));
        let share = DiskShare {
            budget: Arc::new(Budget::new(1 << 30, 0, SHARES)),
            tenant: tenant(1, true),
            reserve: Some(reserve),
        };
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
