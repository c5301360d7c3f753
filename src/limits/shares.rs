//! Shares: the maximum number of units (permits or bytes) that one principal (a user or a network) can have.
//!
//! A principal can have `share_percent` of the units that no other principal uses, so that it takes many principals to
//! use up a limit ("dynamic thresholds": Choudhury and Hahne, 1998). For example, with 8 units and 50 %, principals
//! that each take all they can get 4, 2, and 1 units.

use crate::principal::Principal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShares {
    pub total_units: u64,
    /// The share of one user or network, from 1 to 100: a percentage of the units that no other one uses.
    pub share_percent: u64,
    /// Percentage of all units, rounded up, that only users can have. Anonymous clients can always have one unit.
    pub user_percent: u64,
    pub max_principal_units: u64,
    pub beyond_share: BeyondShare,
    pub max_waiters: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondShare {
    /// A user without permits can take any free ones, beyond its share; a network only those not reserved for users.
    AnyFreeUnits,
    /// While no other principal has units, a principal can have this many, even if its share is smaller.
    SolePrincipal(u64),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitsOfOthers {
    pub total_units: u64,
    pub anonymous_units: u64,
}

impl FairShares {
    /// Creates shares without a fixed maximum per principal. No requests can wait for units.
    pub fn new(total_units: u64, share_percent: u64, user_percent: u64) -> FairShares {
        let max_principal_units = u64::MAX;
        let beyond_share = BeyondShare::AnyFreeUnits;
        FairShares { total_units, share_percent, user_percent, max_principal_units, beyond_share, max_waiters: 0 }
    }

    /// Returns the maximum units of all users together, or of all anonymous clients together.
    pub fn max_class_units(&self, principal: Principal) -> u64 {
        if principal.is_anonymous() { self.max_anonymous_units() } else { self.total_units }
    }

    pub fn max_anonymous_units(&self) -> u64 {
        let reserved = widening_multiply(self.total_units, self.user_percent).div_ceil(100);
        self.total_units.saturating_sub(saturate_units(reserved)).max(1).min(self.total_units)
    }

    pub fn principal_share(&self, principal: Principal, others: UnitsOfOthers) -> u64 {
        let mut left = self.total_units.saturating_sub(others.total_units);
        if principal.is_anonymous() {
            left = left.min(self.max_anonymous_units().saturating_sub(others.anonymous_units));
        }
        saturate_units(widening_multiply(left, self.share_percent) / 100)
    }

    /// Returns the maximum units of the principal in total, which exceeds its share if no other principal has units.
    pub(crate) fn max_units(&self, principal: Principal, others: UnitsOfOthers) -> u64 {
        let share = self.principal_share(principal, others);
        match self.beyond_share {
            BeyondShare::SolePrincipal(units) if others.total_units == 0 => share.max(units.min(self.total_units)),
            BeyondShare::AnyFreeUnits | BeyondShare::SolePrincipal(_) => share,
        }
    }
}

/// Multiplies in 128 bits, because a number of bytes times a percentage can exceed 64 bits.
fn widening_multiply(units: u64, percent: u64) -> u128 {
    u128::from(units) * u128::from(percent)
}

fn saturate_units(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}
