//! Disk space that spools can use: in total, for each user, and the reserve that must stay free.

use parking_lot::Mutex;

use std::sync::Arc;

use strata_limits::{DenialReason, FairLimit, FairShares, Principal, UnitsDenied};
use strata_types::ids::UserId;

use crate::free_space::{DiskReserve, FreeSpaceCheckInterval};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpoolQuotaExceeded {
    #[error("one user's sources and request bodies need more disk space than sources.user_spool_bytes ({limit})")]
    User { limit: u64 },
    #[error("all users' sources and request bodies together have reached sources.spool_bytes ({limit})")]
    Total { limit: u64 },
    /// The user exceeds its share of the bytes that other users are not using.
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
    pub total_bytes: u64,
    pub user_bytes: u64,
    /// Percentage that a user with spools can have of the bytes that other users are not using.
    pub share_percent: u64,
    pub disk_reserve: DiskReserve,
}

#[derive(Clone, Debug)]
pub struct SpoolQuota {
    limits: SpoolLimits,
    quota: FairLimit,
    /// Interval over all spools, because many small spools can fill a disk, too.
    check_interval: Arc<Mutex<FreeSpaceCheckInterval>>,
}

impl SpoolQuota {
    pub fn new(limits: SpoolLimits) -> SpoolQuota {
        let shares = FairShares::new(limits.total_bytes, limits.share_percent, 0);
        let quota = FairLimit::new_quota(FairShares { max_principal_units: limits.user_bytes, ..shares });
        SpoolQuota { limits, quota, check_interval: Arc::default() }
    }

    pub fn reservation_for_user(&self, user: u64) -> SpoolReservation {
        PrincipalSpoolQuota(Some((self.clone(), Principal::User(UserId::new(user))))).new_reservation()
    }

    pub fn used_bytes(&self) -> u64 {
        self.quota.used_units()
    }

    fn try_reserve(&self, principal: Principal, bytes: u64) -> Result<(), SpoolQuotaExceeded> {
        let SpoolLimits { total_bytes: limit, user_bytes, share_percent: percent, ref disk_reserve } = self.limits;
        self.quota.try_reserve(principal, bytes).map_err(|UnitsDenied { reason, free_units, .. }| match reason {
            DenialReason::PrincipalMaximum => SpoolQuotaExceeded::User { limit: user_bytes },
            DenialReason::ShareExceeded if bytes <= free_units => SpoolQuotaExceeded::Share { percent, limit },
            DenialReason::ShareExceeded | DenialReason::ReservedForUsers | DenialReason::TooFewFreeUnits => {
                SpoolQuotaExceeded::Total { limit }
            }
        })?;
        let is_check_due = self.check_interval.lock().is_due(bytes);
        if is_check_due && !disk_reserve.ensure_free() {
            self.quota.release(principal, bytes);
            self.check_interval.lock().reset();
            return Err(SpoolQuotaExceeded::DiskReserve { reserve: disk_reserve.reserve_bytes() });
        }
        Ok(())
    }
}

/// Quota and the principal that spools are charged to. With `None`, spools are not counted.
#[derive(Clone, Debug)]
pub struct PrincipalSpoolQuota(Option<(SpoolQuota, Principal)>);

impl PrincipalSpoolQuota {
    pub fn unbounded() -> PrincipalSpoolQuota {
        PrincipalSpoolQuota(None)
    }

    pub fn new_reservation(&self) -> SpoolReservation {
        SpoolReservation { quota: self.clone(), bytes: 0 }
    }
}

#[derive(Debug)]
pub struct SpoolReservation {
    quota: PrincipalSpoolQuota,
    bytes: u64,
}

impl SpoolReservation {
    pub fn unbounded() -> SpoolReservation {
        PrincipalSpoolQuota::unbounded().new_reservation()
    }

    pub fn quota(&self) -> PrincipalSpoolQuota {
        self.quota.clone()
    }

    /// Reserves more bytes, before they are written. After an error, nothing is reserved.
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), SpoolQuotaExceeded> {
        if let Some((spool_quota, principal)) = &self.quota.0 {
            spool_quota.try_reserve(*principal, bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }
}

impl Drop for SpoolReservation {
    fn drop(&mut self) {
        if let Some((spool_quota, principal)) = &self.quota.0 {
            spool_quota.quota.release(*principal, self.bytes);
        }
    }
}
