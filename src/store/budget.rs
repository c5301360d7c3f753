//! Disk that spools may take: bytes in all and for one user, and what is to stay free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::free_space::{DiskReserve, Looks};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpoolFull {
    #[error("one user's sources and request bodies need more disk space than sources.user_spool_bytes ({limit})")]
    User { limit: u64 },
    #[error("all users' sources and request bodies together have reached sources.spool_bytes ({limit})")]
    All { limit: u64 },
    /// One user spools as much as one may of what no other takes.
    #[error(
        "one user's sources and request bodies exceed the user's share of the disk space: fair.space_percent \
         ({percent}) of the part of sources.spool_bytes ({limit}) that other users are not using"
    )]
    Share { percent: u64, limit: u64 },
    #[error("free space on the disk of the data directory is below sources.disk_reserve_bytes ({reserve})")]
    Disk { reserve: u64 },
}

#[derive(Clone, Debug)]
pub struct SpoolLimits {
    pub bytes: u64,
    pub user_bytes: u64,
    /// What one user may have of the bytes that no other has, in percent; whoever has none gets what is free.
    pub share_percent: u64,
    pub disk: DiskReserve,
}

/// Counts the bytes of spools. Clones count together.
#[derive(Clone, Debug)]
pub struct SpoolBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: SpoolLimits,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: u64,
    /// Shared, for many small spools fill a disk, too.
    looks: Looks,
    /// Users without bytes are forgotten.
    users: HashMap<u64, u64>,
}

impl SpoolBudget {
    pub fn new(limits: SpoolLimits) -> SpoolBudget {
        SpoolBudget { shared: Arc::new(Shared { limits, used: Mutex::default() }) }
    }

    pub fn charge(&self, user: u64) -> SpoolCharge {
        SpoolAccount { budget: Some(self.clone()), user }.charge()
    }

    pub fn used_bytes(&self) -> u64 {
        self.shared.used().all
    }
}

impl Shared {
    fn used(&self) -> MutexGuard<'_, Used> {
        // Nothing panics between two changes that belong together.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
pub struct SpoolAccount {
    /// `None` counts nothing.
    budget: Option<SpoolBudget>,
    user: u64,
}

impl SpoolAccount {
    /// Nobody's, without a bound: for commands, whose disk is their operator's affair, and tests.
    pub fn unbounded() -> SpoolAccount {
        SpoolAccount { budget: None, user: 0 }
    }

    pub fn charge(&self) -> SpoolCharge {
        SpoolCharge { account: self.clone(), bytes: 0 }
    }
}

/// Bytes of one spool, given back when it is dropped.
#[derive(Debug)]
pub struct SpoolCharge {
    account: SpoolAccount,
    bytes: u64,
}

impl SpoolCharge {
    pub fn unbounded() -> SpoolCharge {
        SpoolAccount::unbounded().charge()
    }

    pub fn account(&self) -> SpoolAccount {
        self.account.clone()
    }

    /// Charges more bytes, before they are written.
    ///
    /// # Errors
    /// [`SpoolFull`]; nothing is charged then.
    pub fn add(&mut self, bytes: u64) -> Result<(), SpoolFull> {
        let Some(budget) = &self.account.budget else { return Ok(()) };
        let limits = &budget.shared.limits;
        if !budget.shared.used().take(self.account.user, bytes, limits)? {
            self.bytes += bytes;
            return Ok(());
        }
        if !limits.disk.keep() {
            let mut used = budget.shared.used();
            used.give_back(self.account.user, bytes);
            // The next caller looks again.
            used.looks.again();
            return Err(SpoolFull::Disk { reserve: limits.disk.bytes() });
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for SpoolCharge {
    fn drop(&mut self) {
        if let Some(budget) = &self.account.budget {
            budget.shared.used().give_back(self.account.user, self.bytes);
        }
    }
}

impl Used {
    /// Charges bytes. Whether it is time for a look at the disk.
    fn take(&mut self, user: u64, bytes: u64, limits: &SpoolLimits) -> Result<bool, SpoolFull> {
        let before = self.users.get(&user).copied().unwrap_or(0);
        let own = before.saturating_add(bytes);
        let all = self.all.saturating_add(bytes);
        if own > limits.user_bytes {
            return Err(SpoolFull::User { limit: limits.user_bytes });
        }
        let left = limits.bytes.saturating_sub(self.all - before);
        let share = u128::from(left) * u128::from(limits.share_percent) / 100;
        if all > limits.bytes {
            return Err(SpoolFull::All { limit: limits.bytes });
        }
        if before > 0 && u128::from(own) > share {
            return Err(SpoolFull::Share { percent: limits.share_percent, limit: limits.bytes });
        }
        self.all = all;
        if own > 0 {
            self.users.insert(user, own);
        }
        Ok(self.looks.is_due(bytes))
    }

    fn give_back(&mut self, user: u64, bytes: u64) {
        self.all = self.all.saturating_sub(bytes);
        if let Some(own) = self.users.get_mut(&user) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                self.users.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::free_space::LOOK_BYTES;

    fn limits(bytes: u64, user_bytes: u64, reserve_bytes: u64) -> SpoolLimits {
        let disk = DiskReserve::new(&std::env::temp_dir(), reserve_bytes);
        SpoolLimits { bytes, user_bytes, share_percent: 75, disk }
    }

    #[test]
    fn charges_are_bounded_for_one_user_and_in_all_and_given_back() {
        let budget = SpoolBudget::new(limits(100, 60, 0));
        let mut first = budget.charge(1);
        first.add(60).expect("room");
        assert_eq!(first.add(1), Err(SpoolFull::User { limit: 60 }));
        let mut other = budget.charge(1);
        assert_eq!(other.add(1), Err(SpoolFull::User { limit: 60 }));
        let mut second = budget.charge(2);
        second.add(40).expect("room");
        assert_eq!(second.add(1), Err(SpoolFull::All { limit: 100 }));
        assert_eq!(budget.used_bytes(), 100);
        drop(first);
        second.add(20).expect("room");
        drop((second, other));
        assert_eq!(budget.used_bytes(), 0);
        assert!(budget.shared.used().users.is_empty());
    }

    #[test]
    fn users_with_as_much_as_one_may_have_leave_room_for_others() {
        let budget = SpoolBudget::new(limits(400, 100, 0));
        let most = |user| {
            let mut charge = budget.charge(user);
            while charge.add(1).is_ok() {}
            charge
        };
        // Four of them would fill it.
        let charges: Vec<SpoolCharge> = (1..=6).map(most).collect();
        let bytes: Vec<u64> = charges.iter().map(|charge| charge.bytes).collect();
        assert_eq!(bytes, [100, 100, 100, 75, 18, 5]);
        let mut last = budget.charge(7);
        assert_eq!(last.add(1), Ok(()));
    }

    #[test]
    fn a_disk_that_is_nearly_full_takes_no_more_not_even_little() {
        let budget = SpoolBudget::new(limits(u64::MAX, u64::MAX, u64::MAX));
        let full = Err(SpoolFull::Disk { reserve: u64::MAX });
        let mut charge = budget.charge(1);
        assert_eq!((charge.add(1), charge.add(LOOK_BYTES)), (full, full));
        assert_eq!((charge.bytes, budget.used_bytes()), (0, 0));
        assert!(budget.shared.used().users.is_empty());
    }

    #[test]
    fn whoever_can_give_room_back_is_asked_before_a_spool_is_refused() {
        let free = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (told, given) = (free.clone(), free.clone());
        let load = move |_: &std::path::Path| Some(told.load(std::sync::atomic::Ordering::SeqCst));
        let disk = DiskReserve::looking(&std::env::temp_dir(), 10, load);
        let budget = SpoolBudget::new(SpoolLimits { disk: disk.clone(), ..limits(100, 100, 0) });
        let mut charge = budget.charge(1);
        assert_eq!(charge.add(1), Err(SpoolFull::Disk { reserve: 10 }));
        disk.on_shortage(move |_| given.store(10, std::sync::atomic::Ordering::SeqCst));
        assert_eq!((charge.add(1), charge.bytes), (Ok(()), 1));
    }
}
