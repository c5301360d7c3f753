//! Who is next at a gate: the bookkeeping of [`crate::admission::semaphore`], without time, tasks or locks.
//!
//! A gate has a number of units. Holders take some, wait for some, and give them back. The rules:
//!
//! 1. **A share of what the others leave.** A holder that has units gets more only while all of its units are at most
//!    `share_percent` of those that no other holder has. So a lone holder has that much of the gate and no more, each
//!    next one has the same share of the rest, and it takes many holders to fill a gate ("dynamic thresholds":
//!    Choudhury and Hahne, 1998). A holder that has none may take what is free.
//! 2. **A reserve for users.** All anonymous holders together have at most the units that are not kept for users.
//! 3. **Turns.** Those who wait stand in a queue for each holder. Users and anonymous holders take turns, and inside
//!    each of the two the holders do. Whoever is next and needs more than is free is waited for: nobody passes it, so
//!    that much is not starved by little. Only a holder that waits for its own units (1), or all anonymous ones that do
//!    (2), are passed. If one gives up while others wait for it, its holder goes to the end of the turns of its kind.
//! 4. **A bounded queue, from which the longest is cut.** When it is full, users and anonymous holders have half of it
//!    each for sure; inside a half, one that comes takes the place of the last one of the holder with most in the
//!    queue, unless that is its own.
//!
//! So one that waits and whose holder has nothing gets its units after at most twice as many grants as there are
//! holders of its kind that wait, whatever the others ask for.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use crate::admission::holder::{Holder, HolderKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Units, at least 1.
    pub units: u64,
    /// What one holder may have of the units that no other has, in percent, from 1 to 100.
    pub share_percent: u64,
    /// Units that anonymous holders never have, in percent of all and rounded up; they have one at least all the same.
    pub user_percent: u64,
    pub queue: usize,
}

impl Shares {
    pub(crate) fn anonymous_units(&self) -> u64 {
        let kept = percent(self.units, self.user_percent).div_ceil(100);
        self.units.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX)).max(1)
    }
}

/// Hundredths of the percentage, which fit in no `u64` where units are bytes.
fn percent(units: u64, percent: u64) -> u128 {
    u128::from(units) * u128::from(percent)
}

pub(crate) type Ticket = u64;

/// One that waits, and what tells it that it waits no longer.
struct Waiter<W> {
    ticket: Ticket,
    units: u64,
    tell: W,
}

/// What a holder has and waits for. There is none of a holder without either.
struct Account<W> {
    held: u64,
    queue: VecDeque<Waiter<W>>,
}

pub(crate) struct FairQueue<W> {
    shares: Shares,
    accounts: HashMap<Holder, Account<W>, foldhash::fast::RandomState>,
    /// Of each kind: units held, waiters, and the holders with waiters in the order of their turns.
    held: [u64; 2],
    waiting: [usize; 2],
    turns: [VecDeque<Holder>; 2],
    next: HolderKind,
    tickets: Ticket,
}

pub(crate) struct Grant<W> {
    pub holder: Holder,
    pub units: u64,
    pub tell: W,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    Share,
    Reserve,
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
            next: HolderKind::User,
            tickets: 0,
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.iter().sum()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().sum()
    }

    /// As many of these units as the holder can ever have: more would be waited for in vain.
    pub(crate) fn at_most(&self, holder: Holder, units: u64) -> u64 {
        match holder.kind() {
            HolderKind::User => units.min(self.shares.units),
            HolderKind::Anonymous => units.min(self.shares.anonymous_units()),
        }
    }

    /// Takes units at once. Whether that passes nobody and keeps to the rules.
    pub(crate) fn try_enter(&mut self, holder: Holder, units: u64) -> bool {
        let free = self.waiting() == 0 && self.obstacle(holder, units).is_none();
        if free {
            self.take(holder, units);
        }
        free
    }

    /// Puts one in the queue. [`FairQueue::grant`] is to be called until it gives nothing, then [`FairQueue::cut`].
    pub(crate) fn join(&mut self, holder: Holder, units: u64, tell: W) -> Ticket {
        self.tickets += 1;
        let waiter = Waiter { ticket: self.tickets, units, tell };
        let account = self.accounts.entry(holder).or_insert_with(|| Account { held: 0, queue: VecDeque::new() });
        account.queue.push_back(waiter);
        if account.queue.len() == 1 {
            self.turns[holder.kind() as usize].push_back(holder);
        }
        self.waiting[holder.kind() as usize] += 1;
        self.tickets
    }

    /// Joins the queue, and leaves it unless its turn is now. Returns the grants, perhaps its own among them.
    pub(crate) fn try_join(&mut self, holder: Holder, units: u64, tell: W) -> Vec<Grant<W>> {
        let ticket = self.join(holder, units, tell);
        let mut grants: Vec<Grant<W>> = std::iter::from_fn(|| self.grant()).collect();
        let next = self.next;
        if self.leave(holder, ticket).is_some() {
            // It has not waited, so it has had no turn.
            self.next = next;
            grants.extend(std::iter::from_fn(|| self.grant()));
        }
        grants
    }

    /// Takes one out that has just come, or the one whose place it takes, if too many wait.
    pub(crate) fn cut(&mut self, newcomer: Holder) -> Option<W> {
        if self.waiting() <= self.shares.queue {
            return None;
        }
        let kind = newcomer.kind();
        let within_its_half = self.waiting[kind as usize] <= self.shares.queue / 2;
        let from = if within_its_half { kind.other() } else { kind };
        let length = |holder: &Holder| self.accounts.get(holder).map_or(0, |account| account.queue.len());
        let longest = self.turns[from as usize].iter().copied().max_by_key(length);
        let victim = match longest {
            Some(longest) if from != kind || length(&longest) > length(&newcomer) => longest,
            _ => newcomer,
        };
        let last = self.accounts.get(&victim)?.queue.back()?.ticket;
        self.leave(victim, last)
    }

    /// Takes one out of the queue, if it still is in there. Grants may follow.
    pub(crate) fn leave(&mut self, holder: Holder, ticket: Ticket) -> Option<W> {
        let was_waited_for = self.is_waited_for(holder, ticket);
        let account = self.accounts.get_mut(&holder)?;
        let at = account.queue.iter().position(|waiter| waiter.ticket == ticket)?;
        let waiter = account.queue.remove(at)?;
        self.waiting[holder.kind() as usize] -= 1;
        if account.queue.is_empty() {
            self.turns[holder.kind() as usize].retain(|other| *other != holder);
        } else if was_waited_for && let Some(at) = self.turn_of(holder) {
            self.turns[holder.kind() as usize].remove(at);
            self.turns[holder.kind() as usize].push_back(holder);
        }
        if was_waited_for {
            // It had its turn, though it did not last until the units were there.
            self.next = holder.kind().other();
        }
        self.forget_if_idle(holder);
        Some(waiter.tell)
    }

    /// Takes units back. Grants may follow.
    pub(crate) fn give_back(&mut self, holder: Holder, units: u64) {
        if let Some(account) = self.accounts.get_mut(&holder) {
            account.held -= units;
            self.held[holder.kind() as usize] -= units;
            self.forget_if_idle(holder);
        }
    }

    /// The next one that waits no longer, because it has its units.
    pub(crate) fn grant(&mut self) -> Option<Grant<W>> {
        let (holder, at) = self.next_in_line()?;
        self.grant_to(holder, at)
    }

    /// Whose turn it is, and its place among the turns of its kind; `None` if all that wait have reached their
    /// shares, or wait for one that needs more than is free.
    fn next_in_line(&self) -> Option<(Holder, usize)> {
        for kind in [self.next, self.next.other()] {
            for (at, holder) in self.turns[kind as usize].iter().enumerate() {
                let waiter = self.accounts.get(holder)?.queue.front()?;
                match self.obstacle(*holder, waiter.units) {
                    None => return Some((*holder, at)),
                    Some(Obstacle::Share) => {}
                    Some(Obstacle::Reserve) => break,
                    Some(Obstacle::Units) => return None,
                }
            }
        }
        None
    }

    /// Whether others of its kind wait for this one: it is next among them, and needs more than is free.
    fn is_waited_for(&self, holder: Holder, ticket: Ticket) -> bool {
        let heads = self.turns[holder.kind() as usize].iter().filter_map(|holder| {
            let waiter = self.accounts.get(holder)?.queue.front()?;
            Some((waiter.ticket, self.obstacle(*holder, waiter.units)))
        });
        let next = heads.into_iter().find(|(_, obstacle)| *obstacle != Some(Obstacle::Share));
        next.is_some_and(|(next, obstacle)| next == ticket && obstacle.is_some())
    }

    fn turn_of(&self, holder: Holder) -> Option<usize> {
        self.turns[holder.kind() as usize].iter().position(|other| *other == holder)
    }

    fn grant_to(&mut self, holder: Holder, at: usize) -> Option<Grant<W>> {
        let kind = holder.kind();
        let account = self.accounts.get_mut(&holder)?;
        let Waiter { units, tell, .. } = account.queue.pop_front()?;
        self.waiting[kind as usize] -= 1;
        self.turns[kind as usize].remove(at);
        if !account.queue.is_empty() {
            self.turns[kind as usize].push_back(holder);
        }
        self.take(holder, units);
        self.next = kind.other();
        Some(Grant { holder, units, tell })
    }

    fn take(&mut self, holder: Holder, units: u64) {
        let account = self.accounts.entry(holder).or_insert_with(|| Account { held: 0, queue: VecDeque::new() });
        account.held += units;
        self.held[holder.kind() as usize] += units;
    }

    /// What keeps the holder from having so many units more now.
    fn obstacle(&self, holder: Holder, units: u64) -> Option<Obstacle> {
        let own = self.accounts.get(&holder).map_or(0, |account| account.held);
        let anonymous = holder.kind() == HolderKind::Anonymous;
        let (anonymous_held, anonymous_units) =
            (self.held[HolderKind::Anonymous as usize], self.shares.anonymous_units());
        let mut left = self.shares.units - (self.held() - own);
        if anonymous {
            left = left.min(anonymous_units - (anonymous_held - own));
        }
        if own > 0 && (u128::from(own) + u128::from(units)) * 100 > percent(left, self.shares.share_percent) {
            return Some(Obstacle::Share);
        }
        if anonymous && anonymous_held.saturating_add(units) > anonymous_units {
            return Some(Obstacle::Reserve);
        }
        (self.held().saturating_add(units) > self.shares.units).then_some(Obstacle::Units)
    }

    fn forget_if_idle(&mut self, holder: Holder) {
        if self.accounts.get(&holder).is_some_and(|account| account.held == 0 && account.queue.is_empty()) {
            self.accounts.remove(&holder);
        }
    }
}
