//! Disk that spools may take: bytes in all and for one user, and what is to stay free.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many bytes are charged between two looks at how much of the disk is free.
const LOOK_BYTES: u64 = 16 << 20;

/// There is no room for what was to be spooled. The texts name the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpoolFull {
    /// One user spools as much as one may.
    #[error("what is received and decoded for one user takes more than sources.user_spool_bytes ({limit}) of disk")]
    User {
        /// The bound.
        limit: u64,
    },
    /// All users together do.
    #[error("what is received and decoded for all users takes sources.spool_bytes ({limit}) of disk at the moment")]
    All {
        /// The bound.
        limit: u64,
    },
    /// The disk has little room left.
    #[error("the disk of the data directory has less than sources.disk_reserve_bytes ({reserve}) left")]
    Disk {
        /// What is to stay free.
        reserve: u64,
    },
}

/// The bounds.
#[derive(Clone, Debug)]
pub struct SpoolLimits {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of one user.
    pub user_bytes: u64,
    /// Bytes of the disk that stay free.
    pub reserve_bytes: u64,
    /// A directory on that disk.
    pub directory: PathBuf,
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
    /// Users without bytes are forgotten.
    users: HashMap<u64, u64>,
}

impl SpoolBudget {
    /// Nothing is spooled yet.
    pub fn new(limits: SpoolLimits) -> SpoolBudget {
        SpoolBudget { shared: Arc::new(Shared { limits, used: Mutex::default() }) }
    }

    /// A charge of nothing to a user, to be added to.
    pub fn charge(&self, user: u64) -> SpoolCharge {
        SpoolCharge { budget: Some(self.clone()), user, bytes: 0, look_at: LOOK_BYTES }
    }

    /// Bytes that are spooled, all together.
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

/// Bytes of one spool, given back when it is dropped.
#[derive(Debug)]
pub struct SpoolCharge {
    /// `None` counts nothing.
    budget: Option<SpoolBudget>,
    user: u64,
    bytes: u64,
    look_at: u64,
}

impl SpoolCharge {
    /// A charge that is nobody's and has no bound: for commands, whose disk is their operator's affair, and tests.
    pub fn unbounded() -> SpoolCharge {
        SpoolCharge { budget: None, user: 0, bytes: 0, look_at: 0 }
    }

    /// Charges more bytes, before they are written.
    ///
    /// # Errors
    /// [`SpoolFull`]; nothing is charged then.
    pub fn add(&mut self, bytes: u64) -> Result<(), SpoolFull> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let limits = &budget.shared.limits;
        let bytes_after = self.bytes.saturating_add(bytes);
        let looks = bytes_after >= self.look_at;
        if looks && free_bytes(&limits.directory).is_some_and(|free| free < limits.reserve_bytes) {
            return Err(SpoolFull::Disk { reserve: limits.reserve_bytes });
        }
        {
            let mut used = budget.shared.used();
            let own = used.users.get(&self.user).copied().unwrap_or(0).saturating_add(bytes);
            let all = used.all.saturating_add(bytes);
            if own > limits.user_bytes {
                return Err(SpoolFull::User { limit: limits.user_bytes });
            }
            if all > limits.bytes {
                return Err(SpoolFull::All { limit: limits.bytes });
            }
            used.all = all;
            used.users.insert(self.user, own);
            self.bytes = bytes_after;
        }
        if looks {
            self.look_at = self.bytes.saturating_add(LOOK_BYTES);
        }
        Ok(())
    }
}

impl Drop for SpoolCharge {
    fn drop(&mut self) {
        let Some(budget) = &self.budget else { return };
        let mut used = budget.shared.used();
        used.all = used.all.saturating_sub(self.bytes);
        if let Some(own) = used.users.get_mut(&self.user) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                used.users.remove(&self.user);
            }
        }
    }
}

/// Bytes of a directory's disk that are free; `None` where the system does not tell.
fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(reserve_bytes: u64) -> SpoolBudget {
        let directory = std::env::temp_dir();
        SpoolBudget::new(SpoolLimits { bytes: 100, user_bytes: 60, reserve_bytes, directory })
    }

    #[test]
    fn charges_are_bounded_for_one_user_and_in_all_and_given_back() {
        let budget = budget(0);
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
    fn a_disk_that_is_nearly_full_takes_no_more() {
        let directory = std::env::temp_dir();
        let limits = SpoolLimits { bytes: u64::MAX, user_bytes: u64::MAX, reserve_bytes: u64::MAX, directory };
        let budget = SpoolBudget::new(limits);
        let mut charge = budget.charge(1);
        charge.add(1).expect("too little to look");
        for _ in 0..2 {
            assert_eq!(charge.add(LOOK_BYTES), Err(SpoolFull::Disk { reserve: u64::MAX }));
            assert_eq!(budget.used_bytes(), 1, "what is refused is not charged");
        }
    }
}
