//! The shares of principals in the export cache.
//!
//! - Files that are being written or read cannot be evicted. A principal can use its share ([`FairShares`], with
//!   `fair.space_percent` and `fair.user_percent`) of the bytes for such files.
//! - Idle files use the free bytes. A new file evicts idle files of the principal with the most bytes, if that
//!   principal has more bytes than the new file's principal would have. Anonymous principals cannot evict files from
//!   the part for users.

use std::collections::HashMap;

use strata_config as config;
use strata_limits::{FairShares, UnitsOfOthers};

use crate::Principal;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportSpace {
    pub bytes: u64,
    pub files: u64,
}

pub(crate) struct ExportQuota {
    shares: FairShares,
    max_files: u64,
    total_used: ExportSpace,
    by_principal: HashMap<Principal, ExportSpace>,
}

impl ExportQuota {
    pub(crate) fn new(bytes: u64, files: usize, fair: &config::FairShareConfig) -> ExportQuota {
        let shares = FairShares::new(bytes, fair.space_percent, fair.user_percent);
        ExportQuota {
            shares,
            max_files: files as u64,
            total_used: ExportSpace::default(),
            by_principal: HashMap::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.total_used.bytes
    }

    pub(crate) fn max_bytes(&self, principal: Principal) -> u64 {
        self.shares.principal_share(principal, UnitsOfOthers::default())
    }

    pub(crate) fn bytes_by_principal(&self) -> impl Iterator<Item = (Principal, u64)> {
        self.by_principal.iter().map(|(principal, used)| (*principal, used.bytes))
    }

    /// Returns whether a principal can reserve space. `in_use` returns the bytes of each principal that cannot be
    /// evicted, and is called only if the result depends on them.
    pub(crate) fn can_reserve(
        &self,
        principal: Principal,
        wanted: ExportSpace,
        in_use: impl FnOnce() -> HashMap<Principal, u64>,
    ) -> bool {
        let all = ExportSpace {
            bytes: self.total_used.bytes.saturating_add(wanted.bytes),
            files: self.total_used.files + wanted.files,
        };
        let capacity_bytes = self.shares.total_units;
        if all.bytes > capacity_bytes || all.files > self.max_files || capacity_bytes == 0 {
            return false;
        }
        let is_within_share =
            |own: u64, others| own.saturating_add(wanted.bytes) <= self.shares.principal_share(principal, others);
        let own = self.by_principal.get(&principal).map_or(0, |used| used.bytes);
        let others = self.total_used.bytes - own;
        // A quick check: the principal is within its share even if no file of other principals can be evicted.
        if wanted.bytes == 0 || is_within_share(own, UnitsOfOthers { total_units: others, anonymous_units: others }) {
            return true;
        }
        let mut in_use = in_use();
        let own = in_use.remove(&principal).unwrap_or_default();
        let anonymous = in_use.iter().filter(|(other, _)| other.is_anonymous()).map(|(_, bytes)| bytes).sum();
        is_within_share(own, UnitsOfOthers { total_units: in_use.values().sum(), anonymous_units: anonymous })
    }

    pub(crate) fn reserve(&mut self, principal: Principal, wanted: ExportSpace) {
        let own = self.by_principal.entry(principal).or_default();
        for used in [own, &mut self.total_used] {
            used.bytes += wanted.bytes;
            used.files += wanted.files;
        }
    }

    pub(crate) fn release(&mut self, principal: Principal, released: ExportSpace) {
        if let Some(own) = self.by_principal.get_mut(&principal) {
            own.bytes -= released.bytes;
            own.files -= released.files;
            self.total_used.bytes -= released.bytes;
            self.total_used.files -= released.files;
            if *own == ExportSpace::default() {
                self.by_principal.remove(&principal);
            }
        }
    }

    pub(crate) fn eviction_weight(&self, principal: Principal, wanted: ExportSpace) -> u64 {
        let used = self.by_principal.get(&principal).copied().unwrap_or_default();
        if wanted.files > 0 { used.files } else { used.bytes }
    }

    /// Returns whether an idle file of the principal `from` can be evicted for a file of the principal `requester`.
    pub(crate) fn can_evict_from(&self, requester: Principal, wanted: ExportSpace, from: Principal) -> bool {
        if requester == from {
            return true;
        }
        let anonymous = self.by_principal.iter().filter(|(principal, _)| principal.is_anonymous());
        let anonymous: u64 = anonymous.map(|(_, used)| used.bytes).sum();
        let max_anonymous = self.shares.max_anonymous_units();
        match (requester.is_anonymous(), from.is_anonymous()) {
            (false, true) if anonymous > max_anonymous => return true,
            (true, false) if anonymous.saturating_add(wanted.bytes) > max_anonymous => return false,
            _ => {}
        }
        let own = self.eviction_weight(requester, wanted) + if wanted.files > 0 { wanted.files } else { wanted.bytes };
        self.eviction_weight(from, wanted) > own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientNetwork;
    use strata_types::ids::UserId;

    const FAIR: config::FairShareConfig =
        config::FairShareConfig { share_percent: 50, user_percent: 25, space_percent: 75 };

    fn user(number: u64) -> Principal {
        Principal::User(UserId::new(number))
    }

    fn anonymous(number: u8) -> Principal {
        Principal::Anonymous(ClientNetwork::V4([192, 0, 2, number]))
    }

    fn space_of_bytes(bytes: u64) -> ExportSpace {
        ExportSpace { bytes, files: 0 }
    }

    fn try_reserve(
        quota: &mut ExportQuota,
        principal: Principal,
        wanted: ExportSpace,
        in_use: &HashMap<Principal, u64>,
    ) -> bool {
        let can_reserve = quota.can_reserve(principal, wanted, || in_use.clone());
        if can_reserve {
            quota.reserve(principal, wanted);
        }
        can_reserve
    }

    #[test]
    fn used_bytes_leave_space_for_others() {
        let mut quota = ExportQuota::new(1_000, 10, &FAIR);
        let mut used: HashMap<Principal, u64> = HashMap::new();
        let mut reserve_all = |quota: &mut ExportQuota, principal: Principal| {
            while try_reserve(quota, principal, space_of_bytes(1), &used) {
                *used.entry(principal).or_default() += 1;
            }
            used[&principal]
        };
        // Each anonymous principal gets three quarters of the rest of the anonymous part, which is 750 bytes.
        assert_eq!(reserve_all(&mut quota, anonymous(1)), 562);
        assert_eq!(reserve_all(&mut quota, anonymous(2)), 141);
        assert_eq!(reserve_all(&mut quota, user(1)), 222);
        assert_eq!((quota.max_bytes(user(1)), quota.max_bytes(anonymous(1))), (750, 562));
    }

    #[test]
    fn idle_files_yield_to_principal_with_less() {
        let mut quota = ExportQuota::new(1_000, 10, &FAIR);
        let idle = HashMap::new();
        for _ in 0..10 {
            assert!(try_reserve(&mut quota, anonymous(1), ExportSpace { bytes: 100, files: 1 }, &idle));
        }
        assert!(!try_reserve(&mut quota, anonymous(2), space_of_bytes(100), &idle));
        for requester in [anonymous(1), anonymous(2), user(1)] {
            assert!(quota.can_evict_from(requester, space_of_bytes(100), anonymous(1)), "{requester:?}");
        }
        quota.release(anonymous(1), ExportSpace { bytes: 200, files: 2 });
        assert!(try_reserve(&mut quota, user(1), ExportSpace { bytes: 200, files: 1 }, &idle));
        // Anonymous principals cannot evict files of users, and only principals with more bytes are evicted.
        assert!(!quota.can_evict_from(anonymous(1), space_of_bytes(1), user(1)));
        assert!(!quota.can_evict_from(anonymous(2), space_of_bytes(1), user(1)));
        assert!(quota.can_evict_from(user(2), space_of_bytes(1), user(1)));
        assert!(!quota.can_evict_from(user(2), space_of_bytes(200), user(1)));
        assert!(quota.can_evict_from(user(2), ExportSpace { bytes: 0, files: 1 }, anonymous(1)));
        assert!(!quota.can_evict_from(user(2), ExportSpace { bytes: 0, files: 1 }, user(1)));
    }

    #[test]
    fn quota_of_zero_stores_nothing() {
        let mut quota = ExportQuota::new(0, 10, &FAIR);
        assert!(!try_reserve(&mut quota, user(1), ExportSpace { bytes: 0, files: 1 }, &HashMap::new()));
    }
}
