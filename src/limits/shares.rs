//! How many units one principal can have: the only place with that formula.
//!
//! A principal can have `share_percent` of the units that no other principal uses. So a single principal has that much
//! of the limit, the next one has the same share of the rest, and it takes many principals to use up the limit
//! ("dynamic thresholds": Choudhury and Hahne, 1998). For example, with 8 units and 50 %, principals that each take all
//! they can get 4, 2 and 1 units.

use crate::principal::Principal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub units: u64,
    /// From 1 to 100.
    pub share_percent: u64,
    /// Percentage of all units, rounded up, that anonymous principals leave to users. They can have at least one unit.
    pub user_percent: u64,
    /// Maximum for one principal, regardless of what the other principals use.
    pub principal_units: u64,
    pub beyond_share: BeyondShare,
    /// Requests that can wait.
    pub queue: usize,
}

/// Units that a principal can have beyond its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondShare {
    /// A principal that has no units can take any units that are free and not reserved for users.
    First,
    /// A principal can have this many units, and no more than the limit, while no other principal has any.
    Alone(u64),
}

/// Units in use by all principals but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherUnits {
    pub all: u64,
    pub anonymous: u64,
}

impl Shares {
    /// Shares without a limit for one principal and without a queue. A new principal can take what is free.
    pub fn new(units: u64, share_percent: u64, user_percent: u64) -> Shares {
        let beyond_share = BeyondShare::First;
        Shares { units, share_percent, user_percent, principal_units: u64::MAX, beyond_share, queue: 0 }
    }

    /// What all principals like this one, users or anonymous ones, can have together.
    pub fn class_units(&self, principal: Principal) -> u64 {
        if principal.is_anonymous() { self.anonymous_units() } else { self.units }
    }

    pub fn anonymous_units(&self) -> u64 {
        let reserved = hundredths(self.units, self.user_percent).div_ceil(100);
        self.units.saturating_sub(to_units(reserved)).max(1).min(self.units)
    }

    /// What the principal can have while other principals have `others`.
    pub fn share(&self, principal: Principal, others: OtherUnits) -> u64 {
        let mut left = self.units.saturating_sub(others.all);
        if principal.is_anonymous() {
            left = left.min(self.anonymous_units().saturating_sub(others.anonymous));
        }
        to_units(hundredths(left, self.share_percent) / 100)
    }

    /// What the principal can have in total, beyond its share if it is alone.
    pub(crate) fn max_units(&self, principal: Principal, others: OtherUnits) -> u64 {
        let share = self.share(principal, others);
        match self.beyond_share {
            BeyondShare::Alone(units) if others.all == 0 => share.max(units.min(self.units)),
            BeyondShare::First | BeyondShare::Alone(_) => share,
        }
    }
}

/// In 128 bits, because units can be bytes.
fn hundredths(units: u64, percent: u64) -> u128 {
    u128::from(units) * u128::from(percent)
}

fn to_units(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}
