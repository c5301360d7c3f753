//! Disk space that spools can use: in total, for each user, and the reserve that must stay free.
//!
//! Problem: sources, request bodies, and their decoded entities are stored in temporary files (spools) whose sizes are
//! not known in advance. A user with many large sources must not fill the disk of all users. Therefore, a spool
//! reserves bytes in the [`SpoolQuota`] before it writes them, and releases them when it is dropped.

use std::sync::Arc;

use parking_lot::Mutex;
use strata_limits::{DenialReason, FairLimit, FairShares, Principal, UnitsDenied};
use strata_types::ids::UserId;

use crate::free_space::{DiskReserve, FreeSpaceCheckInterval};

/// The limit that a reservation would exceed, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpoolQuotaExceeded {
    #[error("one user's sources and request bodies need more disk space than sources.user_spool_bytes ({limit})")]
    User { limit: u64 },
    #[error("all users' sources and request bodies together have reached sources.spool_bytes ({limit})")]
    Total { limit: u64 },
    /// The user exceeds its share of the spool space that other users are not using.
    #[error(
        "one user's sources and request bodies exceed the user's share of the disk space: fair.space_percent \
         ({percent}) of the part of sources.spool_bytes ({limit}) that other users are not using"
    )]
    Share { percent: u64, limit: u64 },
    #[error("free space on the disk of the data directory is below sources.disk_reserve_bytes ({reserve})")]
    DiskReserve { reserve: u64 },
}

#[derive(Clone, Debug)]
pub struct SpoolLimits {
    /// Limit for all spools in total (`sources.spool_bytes`).
    pub total_bytes: u64,
    /// Limit for the spools of one user (`sources.user_spool_bytes`).
    pub user_bytes: u64,
    /// Percentage that a user with spools can have of the bytes that other users are not using (`fair.space_percent`).
    pub share_percent: u64,
    pub disk_reserve: DiskReserve,
}

/// The bytes that all spools of the process use. Clones share them.
#[derive(Clone, Debug)]
pub struct SpoolQuota {
    limits: SpoolLimits,
    units: FairLimit,
    /// Interval of free space checks, shared by all spools, because many small spools can fill a disk, too.
    check_interval: Arc<Mutex<FreeSpaceCheckInterval>>,
}

impl SpoolQuota {
    pub fn new(limits: SpoolLimits) -> SpoolQuota {
        let shares = FairShares::new(limits.total_bytes, limits.share_percent, 0);
        let units = FairLimit::new_quota(FairShares { max_principal_units: limits.user_bytes, ..shares });
        SpoolQuota { limits, units, check_interval: Arc::default() }
    }

    /// Returns a reservation of 0 bytes.
    pub fn reservation_for_user(&self, user: UserId) -> SpoolReservation {
        let account = SpoolAccount { quota: self.clone(), principal: Principal::User(user) };
        PrincipalSpoolQuota { account: Some(account) }.new_reservation()
    }

    pub fn used_bytes(&self) -> u64 {
        self.units.used_units()
    }

    fn try_reserve(&self, principal: Principal, bytes: u64) -> Result<(), SpoolQuotaExceeded> {
        let SpoolLimits { total_bytes: limit, user_bytes, share_percent: percent, ref disk_reserve } = self.limits;
        self.units.try_reserve(principal, bytes).map_err(|UnitsDenied { reason, free_units, .. }| match reason {
            DenialReason::PrincipalMaximum => SpoolQuotaExceeded::User { limit: user_bytes },
            DenialReason::ShareExceeded if bytes <= free_units => SpoolQuotaExceeded::Share { percent, limit },
            _ => SpoolQuotaExceeded::Total { limit },
        })?;
        let is_check_due = self.check_interval.lock().advance_and_check_due(bytes);
        if is_check_due && !disk_reserve.ensure_free() {
            self.units.release(principal, bytes);
            self.check_interval.lock().reset();
            return Err(SpoolQuotaExceeded::DiskReserve { reserve: disk_reserve.reserve_bytes() });
        }
        Ok(())
    }
}

/// The spool quota, and the principal that further spools are charged to.
#[derive(Clone, Debug)]
pub struct PrincipalSpoolQuota {
    /// `None` if spools are not counted.
    account: Option<SpoolAccount>,
}

#[derive(Clone, Debug)]
struct SpoolAccount {
    quota: SpoolQuota,
    principal: Principal,
}

impl PrincipalSpoolQuota {
    pub fn unbounded() -> PrincipalSpoolQuota {
        PrincipalSpoolQuota { account: None }
    }

    /// Returns a reservation of 0 bytes.
    pub fn new_reservation(&self) -> SpoolReservation {
        SpoolReservation { quota: self.clone(), bytes: 0 }
    }
}

/// Bytes that one spool has reserved. Dropping the reservation releases them.
#[derive(Debug)]
pub struct SpoolReservation {
    quota: PrincipalSpoolQuota,
    bytes: u64,
}

impl SpoolReservation {
    pub fn unbounded() -> SpoolReservation {
        PrincipalSpoolQuota::unbounded().new_reservation()
    }

    /// Returns the quota for further spools of the same principal.
    pub fn quota(&self) -> PrincipalSpoolQuota {
        self.quota.clone()
    }

    /// Reserves more bytes, before they are written. After an error, the reservation is unchanged.
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), SpoolQuotaExceeded> {
        if let Some(account) = &self.quota.account {
            account.quota.try_reserve(account.principal, bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Drop for SpoolReservation {
    fn drop(&mut self) {
        if let Some(SpoolAccount { quota, principal }) = &self.quota.account {
            quota.units.release(*principal, self.bytes);
        }
    }
}
