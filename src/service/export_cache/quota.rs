//! The shares of principals in the export cache.
//!
//! - Files that are being written or read cannot be evicted. A principal can have its share ([`Shares`], with
//!   `fair.space_percent` and `fair.user_percent`) of the bytes for such files.
//! - Other files use what is free. A file that needs their bytes evicts files of the principal with the most bytes, if
//!   that has more than its own principal would have. Anonymous principals cannot evict files from the part for users.

use std::collections::HashMap;

use strata_config as config;
use strata_limits::{OtherUnits, Shares};

use crate::Principal;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub bytes: u64,
    pub files: u64,
}

pub(crate) struct ExportQuota {
    /// Of the bytes.
    shares: Shares,
    files: u64,
    all: Space,
    by_principal: HashMap<Principal, Space>,
}

impl ExportQuota {
    pub(crate) fn new(bytes: u64, files: usize, fair: &config::Fair) -> ExportQuota {
        let shares = Shares::new(bytes, fair.space_percent, fair.user_percent);
        ExportQuota { shares, files: files as u64, all: Space::default(), by_principal: HashMap::new() }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.all.bytes
    }

    /// Bytes that a principal can have while nobody else has any.
    pub(crate) fn max_bytes(&self, principal: Principal) -> u64 {
        self.shares.share(principal, OtherUnits::default())
    }

    pub(crate) fn bytes_by_principal(&self) -> impl Iterator<Item = (Principal, u64)> {
        self.by_principal.iter().map(|(principal, space)| (*principal, space.bytes))
    }

    /// Whether there is quota that the principal may take; `in_use` tells what of each principal cannot be taken away.
    pub(crate) fn can_reserve(
        &self,
        principal: Principal,
        wanted: Space,
        in_use: impl FnOnce() -> HashMap<Principal, u64>,
    ) -> bool {
        let all = Space { bytes: self.all.bytes.saturating_add(wanted.bytes), files: self.all.files + wanted.files };
        let capacity_bytes = self.shares.units;
        if all.bytes > capacity_bytes || all.files > self.files || capacity_bytes == 0 {
            return false;
        }
        let is_within_share =
            |own: u64, others| own.saturating_add(wanted.bytes) <= self.shares.share(principal, others);
        let own = self.by_principal.get(&principal).map_or(0, |space| space.bytes);
        let others = self.all.bytes - own;
        // Within it even if others use everything that they have, and are of the same class.
        if wanted.bytes == 0 || is_within_share(own, OtherUnits { all: others, anonymous: others }) {
            return true;
        }
        let mut in_use = in_use();
        let own = in_use.remove(&principal).unwrap_or_default();
        let anonymous = in_use.iter().filter(|(other, _)| other.is_anonymous()).map(|(_, bytes)| bytes).sum();
        is_within_share(own, OtherUnits { all: in_use.values().sum(), anonymous })
    }

    pub(crate) fn reserve(&mut self, principal: Principal, wanted: Space) {
        let own = self.by_principal.entry(principal).or_default();
        for space in [own, &mut self.all] {
            space.bytes += wanted.bytes;
            space.files += wanted.files;
        }
    }

    pub(crate) fn release(&mut self, principal: Principal, space: Space) {
        if let Some(own) = self.by_principal.get_mut(&principal) {
            own.bytes -= space.bytes;
            own.files -= space.files;
            self.all.bytes -= space.bytes;
            self.all.files -= space.files;
            if *own == Space::default() {
                self.by_principal.remove(&principal);
            }
        }
    }

    pub(crate) fn weight(&self, principal: Principal, wanted: Space) -> u64 {
        let space = self.by_principal.get(&principal).copied().unwrap_or_default();
        if wanted.files > 0 { space.files } else { space.bytes }
    }

    /// Whether files that nobody uses may be dropped for another one.
    pub(crate) fn may_take_from(&self, asker: Principal, wanted: Space, from: Principal) -> bool {
        if asker == from {
            return true;
        }
        let anonymous =
            |(principal, space): (&Principal, &Space)| if principal.is_anonymous() { space.bytes } else { 0 };
        let anonymous: u64 = self.by_principal.iter().map(anonymous).sum();
        let most_anonymous = self.shares.anonymous_units();
        match (asker.is_anonymous(), from.is_anonymous()) {
            (false, true) if anonymous > most_anonymous => return true,
            (true, false) if anonymous.saturating_add(wanted.bytes) > most_anonymous => return false,
            _ => {}
        }
        let own = self.weight(asker, wanted) + if wanted.files > 0 { wanted.files } else { wanted.bytes };
        self.weight(from, wanted) > own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use strata_types::ids::UserId;

    const FAIR: config::Fair = config::Fair { share_percent: 50, user_percent: 25, space_percent: 75 };

    fn user(number: u64) -> Principal {
        Principal::User(UserId::new(number))
    }

    fn anonymous(number: u8) -> Principal {
        Principal::Anonymous(Client::V4([192, 0, 2, number]))
    }

    fn bytes(bytes: u64) -> Space {
        Space { bytes, files: 0 }
    }

    fn took(quota: &mut ExportQuota, principal: Principal, wanted: Space, in_use: &HashMap<Principal, u64>) -> bool {
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
        let mut most = |quota: &mut ExportQuota, principal: Principal| {
            while took(quota, principal, bytes(1), &used) {
                *used.entry(principal).or_default() += 1;
            }
            used[&principal]
        };
        // Three quarters of three quarters, three quarters of what that leaves, and so on.
        assert_eq!(most(&mut quota, anonymous(1)), 562);
        assert_eq!(most(&mut quota, anonymous(2)), 141);
        assert_eq!(most(&mut quota, user(1)), 222);
        assert_eq!((quota.max_bytes(user(1)), quota.max_bytes(anonymous(1))), (750, 562));
    }

    #[test]
    fn unused_bytes_go_to_principal_with_less() {
        let mut quota = ExportQuota::new(1_000, 10, &FAIR);
        let idle = HashMap::new();
        for _ in 0..10 {
            assert!(took(&mut quota, anonymous(1), Space { bytes: 100, files: 1 }, &idle));
        }
        assert!(!took(&mut quota, anonymous(2), bytes(100), &idle));
        for asker in [anonymous(1), anonymous(2), user(1)] {
            assert!(quota.may_take_from(asker, bytes(100), anonymous(1)), "{asker:?}");
        }
        quota.release(anonymous(1), Space { bytes: 200, files: 2 });
        assert!(took(&mut quota, user(1), Space { bytes: 200, files: 1 }, &idle));
        // Users keep what is theirs, and who has less keeps it against who has more.
        assert!(!quota.may_take_from(anonymous(1), bytes(1), user(1)));
        assert!(!quota.may_take_from(anonymous(2), bytes(1), user(1)));
        assert!(quota.may_take_from(user(2), bytes(1), user(1)));
        assert!(!quota.may_take_from(user(2), bytes(200), user(1)));
        // Files are counted as bytes are.
        assert!(quota.may_take_from(user(2), Space { bytes: 0, files: 1 }, anonymous(1)));
        assert!(!quota.may_take_from(user(2), Space { bytes: 0, files: 1 }, user(1)));
    }

    #[test]
    fn quota_of_zero_stores_nothing() {
        let mut quota = ExportQuota::new(0, 10, &FAIR);
        assert!(!took(&mut quota, user(1), Space { bytes: 0, files: 1 }, &HashMap::new()));
    }
}
