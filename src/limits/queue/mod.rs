//! The bookkeeping of a [`FairLimit`](crate::FairLimit): how many units (permits or bytes) each principal (a user or a
//! client network) has, and the order of grants. Time, tasks, and locks are not part of it.
//!
//! 1. **Shares.** A principal with units gets more only within its share ([`FairShares`]). A principal without units
//!    can take any free units ([`BeyondShare::AnyFreeUnits`]), so that many principals can use the whole limit.
//! 2. **A reserve for users.** All anonymous principals together have at most the units that are not reserved for
//!    users.
//! 3. **Round robin.** Each principal has a queue. Users and anonymous principals alternate, and so do the principals
//!    within each class. The next principal that needs more units than are free blocks all others, so that small
//!    requests do not starve a large one. Only a principal that waits for its own units (1), or all anonymous
//!    principals when they wait for theirs (2), are skipped. If a waiter that blocks others cancels, its principal goes
//!    to the end.
//! 4. **Eviction from the longest queue.** If there are too many waiters, users and anonymous principals can each have
//!    half of them. Within its half, a new waiter replaces the last one of the principal with the most waiters, unless
//!    that is its own principal.
//!
//! A waiter whose principal has no units therefore gets its units after at most twice as many grants as there are
//! waiting principals of its class, regardless of other requests.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use crate::principal::{Principal, PrincipalClass};
use crate::shares::{BeyondShare, FairShares, UnitsOfOthers};

pub(crate) type WaiterTicket = u64;

struct QueuedWaiter<W> {
    ticket: WaiterTicket,
    units: u64,
    waker: W,
}

/// The permits or bytes of a user or a client network, and its waiting requests. Removed if it has neither.
struct PrincipalAccount<W> {
    held_units: u64,
    queue: VecDeque<QueuedWaiter<W>>,
}

impl<W> Default for PrincipalAccount<W> {
    fn default() -> PrincipalAccount<W> {
        PrincipalAccount { held_units: 0, queue: VecDeque::new() }
    }
}

pub(crate) struct FairQueue<W> {
    shares: FairShares,
    accounts: HashMap<Principal, PrincipalAccount<W>, foldhash::fast::RandomState>,
    /// Each array has an item for users and one for anonymous principals (client networks). `round_robin` contains the
    /// principals with waiting requests.
    held_units: [u64; 2],
    waiter_counts: [usize; 2],
    round_robin: [VecDeque<Principal>; 2],
    next_class: PrincipalClass,
    last_ticket: WaiterTicket,
}

pub(crate) struct UnitGrant<W> {
    pub(crate) principal: Principal,
    pub(crate) units: u64,
    pub(crate) waker: W,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitsDenied {
    pub reason: DenialReason,
    /// The number of units (permits or bytes) that the principal can currently have in total.
    pub max_units: u64,
    pub free_units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// The request exceeds [`FairShares::max_principal_units`].
    PrincipalMaximum,
    /// The principal would have more than its fair share of the units.
    ShareExceeded,
    ReservedForUsers,
    TooFewFreeUnits,
}

impl<W> FairQueue<W> {
    pub(crate) fn new(shares: FairShares) -> FairQueue<W> {
        FairQueue {
            shares,
            accounts: HashMap::default(),
            held_units: [0; 2],
            waiter_counts: [0; 2],
            round_robin: [VecDeque::new(), VecDeque::new()],
            next_class: PrincipalClass::User,
            last_ticket: 0,
        }
    }

    pub(crate) fn used_units(&self) -> u64 {
        self.held_units.iter().sum()
    }

    pub(crate) fn waiter_count(&self) -> usize {
        self.waiter_counts.iter().sum()
    }

    pub(crate) fn principal_count(&self) -> usize {
        self.accounts.len()
    }

    /// Takes units (permits or bytes) for a principal, unless a request waits or a rule of the limit forbids it.
    pub(crate) fn try_take_without_queue(&mut self, principal: Principal, units: u64) -> bool {
        self.waiter_count() == 0 && self.try_take(principal, units).is_ok()
    }

    /// Takes units (permits or bytes) if the rules of the limit allow it, even if other requests are waiting.
    pub(crate) fn try_take(&mut self, principal: Principal, units: u64) -> Result<(), UnitsDenied> {
        if let Some(denied) = self.check_denial(principal, units) {
            return Err(denied);
        }
        self.take_unchecked(principal, units);
        Ok(())
    }

    /// Appends a waiter. Call [`FairQueue::grant_next`] until it returns `None`, then [`FairQueue::evict`].
    pub(crate) fn enqueue(&mut self, principal: Principal, units: u64, waker: W) -> WaiterTicket {
        self.last_ticket += 1;
        let account = self.accounts.entry(principal).or_default();
        account.queue.push_back(QueuedWaiter { ticket: self.last_ticket, units, waker });
        if account.queue.len() == 1 {
            self.round_robin[principal.class() as usize].push_back(principal);
        }
        self.waiter_counts[principal.class() as usize] += 1;
        self.last_ticket
    }

    /// Appends a request for units, and removes it unless it is granted immediately. Returns all grants.
    pub(crate) fn try_enqueue(&mut self, principal: Principal, units: u64, waker: W) -> Vec<UnitGrant<W>> {
        let ticket = self.enqueue(principal, units, waker);
        let mut grants: Vec<UnitGrant<W>> = self.drain_grants().collect();
        let next = self.next_class;
        if self.cancel(principal, ticket).is_some() {
            // Users and networks take turns. A request that is removed without waiting does not use a turn.
            self.next_class = next;
            grants.extend(self.drain_grants());
        }
        grants
    }

    pub(crate) fn evict(&mut self, newcomer: Principal) -> Option<W> {
        if self.waiter_count() <= self.shares.max_waiters {
            return None;
        }
        let class = newcomer.class();
        let within_its_half = self.waiter_counts[class as usize] <= self.shares.max_waiters / 2;
        let from = if within_its_half { class.opposite() } else { class };
        let length = |principal: &Principal| self.accounts.get(principal).map_or(0, |account| account.queue.len());
        let longest = self.round_robin[from as usize].iter().copied().max_by_key(length);
        let victim = match longest {
            Some(longest) if from != class || length(&longest) > length(&newcomer) => longest,
            _ => newcomer,
        };
        let last = self.accounts.get(&victim)?.queue.back()?.ticket;
        self.cancel(victim, last)
    }

    /// Removes a waiting request. Requests that it has blocked can then be granted.
    pub(crate) fn cancel(&mut self, principal: Principal, ticket: WaiterTicket) -> Option<W> {
        let class = principal.class();
        let blocked_others = self.is_blocking(principal, ticket);
        let account = self.accounts.get_mut(&principal)?;
        let at = account.queue.iter().position(|waiter| waiter.ticket == ticket)?;
        let waiter = account.queue.remove(at)?;
        self.waiter_counts[class as usize] -= 1;
        let turns = &mut self.round_robin[class as usize];
        if account.queue.is_empty() {
            turns.retain(|other| *other != principal);
        } else if blocked_others && let Some(at) = turns.iter().position(|other| *other == principal) {
            turns.remove(at);
            turns.push_back(principal);
        }
        if blocked_others {
            // Users and networks take turns. A cancelled request that blocked others uses a turn nevertheless.
            self.next_class = class.opposite();
        }
        self.remove_if_idle(principal);
        Some(waiter.waker)
    }

    pub(crate) fn release(&mut self, principal: Principal, units: u64) {
        if let Some(account) = self.accounts.get_mut(&principal) {
            let units = units.min(account.held_units);
            account.held_units -= units;
            self.held_units[principal.class() as usize] -= units;
            self.remove_if_idle(principal);
        }
    }

    pub(crate) fn drain_grants(&mut self) -> impl Iterator<Item = UnitGrant<W>> {
        std::iter::from_fn(|| self.grant_next())
    }

    pub(crate) fn grant_next(&mut self) -> Option<UnitGrant<W>> {
        let principal = self.next_principal()?;
        let class = principal.class();
        let account = self.accounts.get_mut(&principal)?;
        let QueuedWaiter { units, waker, .. } = account.queue.pop_front()?;
        self.waiter_counts[class as usize] -= 1;
        self.round_robin[class as usize].retain(|other| *other != principal);
        if !account.queue.is_empty() {
            self.round_robin[class as usize].push_back(principal);
        }
        self.take_unchecked(principal, units);
        self.remove_if_idle(principal);
        self.next_class = class.opposite();
        Some(UnitGrant { principal, units, waker })
    }

    fn next_principal(&self) -> Option<Principal> {
        for class in [self.next_class, self.next_class.opposite()] {
            for principal in &self.round_robin[class as usize] {
                match self.first_waiter_denial(*principal)?.1 {
                    None => return Some(*principal),
                    Some(DenialReason::PrincipalMaximum | DenialReason::ShareExceeded) => {}
                    Some(DenialReason::ReservedForUsers) => break,
                    Some(DenialReason::TooFewFreeUnits) => return None,
                }
            }
        }
        None
    }

    /// Returns true if the waiter is the next one of its class and cannot be granted, so that it blocks others.
    fn is_blocking(&self, principal: Principal, ticket: WaiterTicket) -> bool {
        let turns = self.round_robin[principal.class() as usize].iter();
        let mut first = turns.filter_map(|principal| self.first_waiter_denial(*principal));
        let next = first
            .find(|(_, denial)| !matches!(denial, Some(DenialReason::PrincipalMaximum | DenialReason::ShareExceeded)));
        next.is_some_and(|(next, denial)| next == ticket && denial.is_some())
    }

    /// Returns the ticket of the principal's first waiter, and the reason why it cannot be granted.
    fn first_waiter_denial(&self, principal: Principal) -> Option<(WaiterTicket, Option<DenialReason>)> {
        let waiter = self.accounts.get(&principal)?.queue.front()?;
        Some((waiter.ticket, self.check_denial(principal, waiter.units).map(|denied| denied.reason)))
    }

    pub(crate) fn take_unchecked(&mut self, principal: Principal, units: u64) {
        if units > 0 {
            self.accounts.entry(principal).or_default().held_units += units;
            self.held_units[principal.class() as usize] += units;
        }
    }

    fn check_denial(&self, principal: Principal, units: u64) -> Option<UnitsDenied> {
        let own = self.accounts.get(&principal).map_or(0, |account| account.held_units);
        let held = self.used_units();
        let anonymous_held = self.held_units[PrincipalClass::Anonymous as usize];
        let own_anonymous = if principal.is_anonymous() { own } else { 0 };
        let others = UnitsOfOthers { total_units: held - own, anonymous_units: anonymous_held - own_anonymous };
        let max_units = self.shares.max_units(principal, others);
        let wanted = own.saturating_add(units);
        let takes_free = own == 0 && self.shares.beyond_share == BeyondShare::AnyFreeUnits;
        let reason = if wanted > self.shares.max_principal_units {
            DenialReason::PrincipalMaximum
        } else if wanted <= max_units {
            return None;
        } else if !takes_free {
            DenialReason::ShareExceeded
        } else if principal.is_anonymous() && anonymous_held.saturating_add(units) > self.shares.max_anonymous_units() {
            DenialReason::ReservedForUsers
        } else if held.saturating_add(units) > self.shares.total_units {
            DenialReason::TooFewFreeUnits
        } else {
            return None;
        };
        Some(UnitsDenied { reason, max_units, free_units: self.shares.total_units.saturating_sub(held) })
    }

    fn remove_if_idle(&mut self, principal: Principal) {
        if self.accounts.get(&principal).is_some_and(|account| account.held_units == 0 && account.queue.is_empty()) {
            self.accounts.remove(&principal);
        }
    }
}
