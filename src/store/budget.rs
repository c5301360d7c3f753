//! Disk space that spools can use: in total, for one user, and what stays free.

use std::sync::{Arc, Mutex, PoisonError};

use strata_limits::{Denial, Denied, FairLimit, Principal, Shares};
use strata_types::ids::UserId;

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
    /// What one user can have of the bytes that no other user has. A user who has none can take what is free.
    pub share_percent: u64,
    pub disk: DiskReserve,
}

/// Counts the bytes of spools. Clones count together.
#[derive(Clone, Debug)]
pub struct SpoolBudget {
    limits: SpoolLimits,
    quota: FairLimit,
    /// Of all spools, because many small ones fill a disk, too.
    looks: Arc<Mutex<Looks>>,
}

impl SpoolBudget {
    pub fn new(limits: SpoolLimits) -> SpoolBudget {
        let shares = Shares::new(limits.bytes, limits.share_percent, 0);
        let quota = FairLimit::quota(Shares { principal_units: limits.user_bytes, ..shares });
        SpoolBudget { limits, quota, looks: Arc::default() }
    }

    pub fn charge(&self, user: u64) -> SpoolCharge {
        SpoolAccount(Some((self.clone(), Principal::User(UserId::new(user))))).charge()
    }

    pub fn used_bytes(&self) -> u64 {
        self.quota.used_units()
    }

    fn reserve(&self, principal: Principal, bytes: u64) -> Result<(), SpoolFull> {
        let SpoolLimits { bytes: limit, user_bytes, share_percent: percent, ref disk } = self.limits;
        self.quota.try_reserve(principal, bytes).map_err(|Denied { reason, free_units, .. }| match reason {
            Denial::Principal => SpoolFull::User { limit: user_bytes },
            Denial::Share if bytes <= free_units => SpoolFull::Share { percent, limit },
            Denial::Share | Denial::Reserve | Denial::Units => SpoolFull::All { limit },
        })?;
        let is_look_due = self.looks.lock().unwrap_or_else(PoisonError::into_inner).is_due(bytes);
        if is_look_due && !disk.keep() {
            self.quota.release(principal, bytes);
            // The next caller looks again.
            self.looks.lock().unwrap_or_else(PoisonError::into_inner).again();
            return Err(SpoolFull::Disk { reserve: disk.bytes() });
        }
        Ok(())
    }
}

/// Who spools are charged to. `None` is not counted.
#[derive(Clone, Debug)]
pub struct SpoolAccount(Option<(SpoolBudget, Principal)>);

impl SpoolAccount {
    /// An account without a limit, for tests and for commands, whose disk is the operator's.
    pub fn unbounded() -> SpoolAccount {
        SpoolAccount(None)
    }

    pub fn charge(&self) -> SpoolCharge {
        SpoolCharge { account: self.clone(), bytes: 0 }
    }
}

/// Bytes of one spool, released when it is dropped.
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
        if let Some((budget, principal)) = &self.account.0 {
            budget.reserve(*principal, bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Drop for SpoolCharge {
    fn drop(&mut self) {
        if let Some((budget, principal)) = &self.account.0 {
            budget.quota.release(*principal, self.bytes);
        }
    }
}
