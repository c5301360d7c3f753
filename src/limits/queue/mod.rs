//! The bookkeeping of a [`FairLimit`](crate::FairLimit): who has units, and who gets the next ones. It knows no time,
//! tasks or locks.
//!
//! 1. **Shares.** A principal that has units gets more only within its share ([`Shares`]). One that has none can take
//!    what is free ([`BeyondShare::First`]), so that many principals can use the whole limit.
//! 2. **A reserve for users.** All anonymous principals together have at most the units that users do not reserve.
//! 3. **Round robin.** Each principal has a queue. Users and anonymous principals alternate, and so do the principals
//!    within each class. The next principal that needs more units than are free blocks all others, so that small
//!    requests do not starve a large one. Only a principal that waits for its own units (1), or all anonymous
//!    principals when they wait for theirs (2), are skipped. If a waiter that blocks others cancels, its principal goes
//!    to the end.
//! 4. **A bounded queue that evicts from the longest.** If the queue is full, users and anonymous principals can have
//!    half of it each. Within its half, a new waiter replaces the last one of the principal with the most waiters,
//!    unless that is its own.
//!
//! So a waiter whose principal has nothing gets its units after at most twice as many grants as there are principals of
//! its class that wait, whatever the others request.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use crate::principal::{Principal, PrincipalClass};
use crate::shares::{BeyondShare, OtherUnits, Shares};

pub(crate) type Ticket = u64;

struct Waiter<W> {
    ticket: Ticket,
    units: u64,
    waker: W,
}

/// What a principal has and waits for. A principal without either has no account.
struct Account<W> {
    held: u64,
    queue: VecDeque<Waiter<W>>,
}

impl<W> Default for Account<W> {
    fn default() -> Account<W> {
        Account { held: 0, queue: VecDeque::new() }
    }
}

pub(crate) struct FairQueue<W> {
    shares: Shares,
    accounts: HashMap<Principal, Account<W>, foldhash::fast::RandomState>,
    /// Of each class: units held, waiters, and the principals with waiters in the order of their turns.
    held: [u64; 2],
    waiting: [usize; 2],
    turns: [VecDeque<Principal>; 2],
    next: PrincipalClass,
    tickets: Ticket,
}

pub(crate) struct Grant<W> {
    pub(crate) principal: Principal,
    pub(crate) units: u64,
    pub(crate) waker: W,
}

/// Why a principal cannot have more units now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    pub reason: Denial,
    /// What the principal can have in total at this time, within its share.
    pub max_units: u64,
    pub free_units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// More than one principal can ever have ([`Shares::principal_units`]).
    Principal,
    /// The principal has its share, or would exceed it.
    Share,
    /// The free units are reserved for users.
    Reserve,
    /// The principal is within its share, but too few units are free.
    Units,
}

impl<W> FairQueue<W> {
    pub(crate) fn new(shares: Shares) -> FairQueue<W> {
        FairQueue {
            shares,
            accounts: HashMap::default(),
            held: [0; 2],
            waiting: [0; 2],
            turns: [VecDeque::new(), VecDeque::new()],
            next: PrincipalClass::User,
            tickets: 0,
        }
    }

    pub(crate) fn used_units(&self) -> u64 {
        self.held.iter().sum()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().sum()
    }

    pub(crate) fn principals(&self) -> usize {
        self.accounts.len()
    }

    /// Takes units at once, unless that overtakes a waiter or breaks a rule.
    pub(crate) fn try_enter(&mut self, principal: Principal, units: u64) -> bool {
        self.waiting() == 0 && self.try_take(principal, units).is_ok()
    }

    /// Takes units if the rules allow it, regardless of waiters.
    pub(crate) fn try_take(&mut self, principal: Principal, units: u64) -> Result<(), Denied> {
        match self.denial(principal, units) {
            Some(denied) => Err(denied),
            None => {
                self.take(principal, units);
                Ok(())
            }
        }
    }

    /// Appends a waiter. Call [`FairQueue::grant`] until it returns `None`, then [`FairQueue::evict`].
    pub(crate) fn join(&mut self, principal: Principal, units: u64, waker: W) -> Ticket {
        self.tickets += 1;
        let account = self.accounts.entry(principal).or_default();
        account.queue.push_back(Waiter { ticket: self.tickets, units, waker });
        if account.queue.len() == 1 {
            self.turns[principal.class() as usize].push_back(principal);
        }
        self.waiting[principal.class() as usize] += 1;
        self.tickets
    }

    /// Joins the queue, and leaves it unless its turn is now. Returns the grants, perhaps its own among them.
    pub(crate) fn try_join(&mut self, principal: Principal, units: u64, waker: W) -> Vec<Grant<W>> {
        let ticket = self.join(principal, units, waker);
        let mut grants: Vec<Grant<W>> = self.grants().collect();
        let next = self.next;
        if self.cancel(principal, ticket).is_some() {
            // It did not wait, so it did not use its turn.
            self.next = next;
            grants.extend(self.grants());
        }
        grants
    }

    /// If too many wait, removes the newcomer or the waiter that it replaces.
    pub(crate) fn evict(&mut self, newcomer: Principal) -> Option<W> {
        if self.waiting() <= self.shares.queue {
            return None;
        }
        let class = newcomer.class();
        let within_its_half = self.waiting[class as usize] <= self.shares.queue / 2;
        let from = if within_its_half { class.other() } else { class };
        let length = |principal: &Principal| self.accounts.get(principal).map_or(0, |account| account.queue.len());
        let longest = self.turns[from as usize].iter().copied().max_by_key(length);
        let victim = match longest {
            Some(longest) if from != class || length(&longest) > length(&newcomer) => longest,
            _ => newcomer,
        };
        let last = self.accounts.get(&victim)?.queue.back()?.ticket;
        self.cancel(victim, last)
    }

    /// Removes a waiter that still waits. Grants can follow.
    pub(crate) fn cancel(&mut self, principal: Principal, ticket: Ticket) -> Option<W> {
        let class = principal.class();
        let blocked_others = self.blocks_others(principal, ticket);
        let account = self.accounts.get_mut(&principal)?;
        let at = account.queue.iter().position(|waiter| waiter.ticket == ticket)?;
        let waiter = account.queue.remove(at)?;
        self.waiting[class as usize] -= 1;
        let turns = &mut self.turns[class as usize];
        if account.queue.is_empty() {
            turns.retain(|other| *other != principal);
        } else if blocked_others && let Some(at) = turns.iter().position(|other| *other == principal) {
            turns.remove(at);
            turns.push_back(principal);
        }
        if blocked_others {
            // It had its turn, although it did not wait until enough units were free.
            self.next = class.other();
        }
        self.forget_if_idle(principal);
        Some(waiter.waker)
    }

    /// Takes units back. Grants can follow.
    pub(crate) fn release(&mut self, principal: Principal, units: u64) {
        if let Some(account) = self.accounts.get_mut(&principal) {
            let units = units.min(account.held);
            account.held -= units;
            self.held[principal.class() as usize] -= units;
            self.forget_if_idle(principal);
        }
    }

    pub(crate) fn grants(&mut self) -> impl Iterator<Item = Grant<W>> {
        std::iter::from_fn(|| self.grant())
    }

    /// Gives the next waiter its units.
    pub(crate) fn grant(&mut self) -> Option<Grant<W>> {
        let principal = self.next_in_line()?;
        let class = principal.class();
        let account = self.accounts.get_mut(&principal)?;
        let Waiter { units, waker, .. } = account.queue.pop_front()?;
        self.waiting[class as usize] -= 1;
        self.turns[class as usize].retain(|other| *other != principal);
        if !account.queue.is_empty() {
            self.turns[class as usize].push_back(principal);
        }
        self.take(principal, units);
        self.forget_if_idle(principal);
        self.next = class.other();
        Some(Grant { principal, units, waker })
    }

    /// `None` if all principals that wait have reached their shares, or the next one needs more units than are free.
    fn next_in_line(&self) -> Option<Principal> {
        for class in [self.next, self.next.other()] {
            for principal in &self.turns[class as usize] {
                match self.denial_of_first(*principal)?.1 {
                    None => return Some(*principal),
                    Some(Denial::Principal | Denial::Share) => {}
                    Some(Denial::Reserve) => break,
                    Some(Denial::Units) => return None,
                }
            }
        }
        None
    }

    /// Whether the waiter is the next one of its class and needs more units than are free.
    fn blocks_others(&self, principal: Principal, ticket: Ticket) -> bool {
        let turns = self.turns[principal.class() as usize].iter();
        let mut first = turns.filter_map(|principal| self.denial_of_first(*principal));
        let next = first.find(|(_, denial)| !matches!(denial, Some(Denial::Principal | Denial::Share)));
        next.is_some_and(|(next, denial)| next == ticket && denial.is_some())
    }

    /// The ticket of the principal's first waiter, and why it cannot have its units.
    fn denial_of_first(&self, principal: Principal) -> Option<(Ticket, Option<Denial>)> {
        let waiter = self.accounts.get(&principal)?.queue.front()?;
        Some((waiter.ticket, self.denial(principal, waiter.units).map(|denied| denied.reason)))
    }

    /// Takes units regardless of the rules.
    pub(crate) fn take(&mut self, principal: Principal, units: u64) {
        if units > 0 {
            self.accounts.entry(principal).or_default().held += units;
            self.held[principal.class() as usize] += units;
        }
    }

    fn denial(&self, principal: Principal, units: u64) -> Option<Denied> {
        let own = self.accounts.get(&principal).map_or(0, |account| account.held);
        let held = self.used_units();
        let anonymous_held = self.held[PrincipalClass::Anonymous as usize];
        let own_anonymous = if principal.is_anonymous() { own } else { 0 };
        let others = OtherUnits { all: held - own, anonymous: anonymous_held - own_anonymous };
        let max_units = self.shares.max_units(principal, others);
        let wanted = own.saturating_add(units);
        let takes_free = own == 0 && self.shares.beyond_share == BeyondShare::First;
        let reason = if wanted > self.shares.principal_units {
            Denial::Principal
        } else if wanted <= max_units {
            return None;
        } else if !takes_free {
            Denial::Share
        } else if principal.is_anonymous() && anonymous_held.saturating_add(units) > self.shares.anonymous_units() {
            Denial::Reserve
        } else if held.saturating_add(units) > self.shares.units {
            Denial::Units
        } else {
            return None;
        };
        Some(Denied { reason, max_units, free_units: self.shares.units.saturating_sub(held) })
    }

    fn forget_if_idle(&mut self, principal: Principal) {
        if self.accounts.get(&principal).is_some_and(|account| account.held == 0 && account.queue.is_empty()) {
            self.accounts.remove(&principal);
        }
    }
}
