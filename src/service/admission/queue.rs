//! Who is next at a gate: the bookkeeping of [`crate::service::admission::semaphore`], without time, tasks or locks.
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
//!    (2), are passed.
//! 4. **A bounded queue, from which the longest is cut.** When it is full, users and anonymous holders have half of it
//!    each for sure; inside a half, one that comes takes the place of the last one of the holder with most in the
//!    queue, unless that is its own.
//!
//! So one that waits and whose holder has nothing gets its units after at most twice as many grants as there are
//! holders of its kind that wait, whatever the others ask for.

use std::collections::{HashMap, VecDeque};

use crate::model::ids::UserId;
use crate::service::rate_limit::Client;

/// For whom units are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A user: by a session or a token, by the private key of one of the user's datasets, or by what runs for one.
    User(UserId),
    /// Who uses the command line, as one more user.
    Operator,
    /// All clients of a network: an IPv4 address or an IPv6 network of 64 bits.
    Anonymous(Client),
}

/// The two kinds of holders that take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HolderKind {
    User,
    Anonymous,
}

impl HolderKind {
    fn other(self) -> HolderKind {
        match self {
            HolderKind::User => HolderKind::Anonymous,
            HolderKind::Anonymous => HolderKind::User,
        }
    }
}

impl Holder {
    /// It as a word, for other servers of the service.
    pub(in crate::service) fn name(self) -> String {
        match self {
            Holder::User(user) => format!("user:{}", user.get()),
            Holder::Operator => "operator".to_owned(),
            Holder::Anonymous(Client::V4(address)) => format!("v4:{}", hex::encode(address)),
            Holder::Anonymous(Client::V6(network)) => format!("v6:{}", hex::encode(network)),
            Holder::Anonymous(Client::Unspecified) => "unspecified".to_owned(),
            Holder::Anonymous(Client::Account(account)) => format!("account:{account}"),
        }
    }

    /// The holder of a name; `None` if it is nobody's.
    pub fn of_name(name: &str) -> Option<Holder> {
        let bytes = |text: &str| hex::decode(text).ok();
        Some(match name.split_once(':') {
            None if name == "operator" => Holder::Operator,
            None if name == "unspecified" => Holder::Anonymous(Client::Unspecified),
            Some(("user", id)) => Holder::User(UserId::new(id.parse().ok()?)),
            Some(("v4", address)) => Holder::Anonymous(Client::V4(bytes(address)?.try_into().ok()?)),
            Some(("v6", network)) => Holder::Anonymous(Client::V6(bytes(network)?.try_into().ok()?)),
            Some(("account", account)) => Holder::Anonymous(Client::Account(account.parse().ok()?)),
            _ => return None,
        })
    }

    /// Whether it is nobody known.
    pub(in crate::service) fn is_anonymous(self) -> bool {
        self.kind() == HolderKind::Anonymous
    }

    fn kind(self) -> HolderKind {
        match self {
            Holder::User(_) | Holder::Operator => HolderKind::User,
            Holder::Anonymous(_) => HolderKind::Anonymous,
        }
    }
}

/// What bounds a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::service) struct Shares {
    /// Units, at least 1.
    pub units: u64,
    /// What one holder may have of the units that no other has, in percent, from 1 to 100.
    pub share_percent: u64,
    /// Units that anonymous holders never have, in percent of all and rounded up; they have one at least all the same.
    pub user_percent: u64,
    /// Waiters, all together.
    pub queue: usize,
}

impl Shares {
    /// Units that all anonymous holders may have together.
    pub(in crate::service) fn anonymous_units(&self) -> u64 {
        let kept = percent(self.units, self.user_percent).div_ceil(100);
        self.units.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX)).max(1)
    }
}

/// Hundredths of the percentage, which fit in no `u64` where units are bytes.
fn percent(units: u64, percent: u64) -> u128 {
    u128::from(units) * u128::from(percent)
}

/// Names one that waits.
pub(in crate::service) type Ticket = u64;

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

/// The state of a gate.
pub(in crate::service) struct FairQueue<W> {
    shares: Shares,
    accounts: HashMap<Holder, Account<W>, foldhash::fast::RandomState>,
    /// Of each kind: units held, waiters, and the holders with waiters in the order of their turns.
    held: [u64; 2],
    waiting: [usize; 2],
    turns: [VecDeque<Holder>; 2],
    next: HolderKind,
    tickets: Ticket,
}

/// A waiter that has its units now.
pub(in crate::service) struct Grant<W> {
    pub holder: Holder,
    pub units: u64,
    pub tell: W,
}

/// Whose turn it is at a gate.
enum NextInLine {
    /// Its units are free; its place among the turns of its kind.
    Granted(Holder, usize),
    /// It waits until more of them are.
    Waits(Holder, Ticket),
}

/// What stands against a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// The holder's own share.
    Share,
    /// What is kept for users.
    Reserve,
    /// Units that are not free.
    Units,
}

impl<W> FairQueue<W> {
    pub(in crate::service) fn new(shares: Shares) -> FairQueue<W> {
        FairQueue {
            shares: Shares { units: shares.units.max(1), ..shares },
            accounts: HashMap::default(),
            held: [0; 2],
            waiting: [0; 2],
            turns: [VecDeque::new(), VecDeque::new()],
            next: HolderKind::User,
            tickets: 0,
        }
    }

    /// Units that are held.
    pub(in crate::service) fn held(&self) -> u64 {
        self.held.iter().sum()
    }

    /// Those who wait.
    pub(in crate::service) fn waiting(&self) -> usize {
        self.waiting.iter().sum()
    }

    /// As many of these units as the holder can ever have: more would be waited for in vain.
    pub(in crate::service) fn at_most(&self, holder: Holder, units: u64) -> u64 {
        match holder.kind() {
            HolderKind::User => units.min(self.shares.units),
            HolderKind::Anonymous => units.min(self.shares.anonymous_units()),
        }
    }

    /// Takes units at once. Whether that passes nobody and keeps to the rules.
    pub(in crate::service) fn try_enter(&mut self, holder: Holder, units: u64) -> bool {
        let free = self.waiting() == 0 && self.obstacle(holder, units).is_none();
        if free {
            self.take(holder, units);
        }
        free
    }

    /// Puts one in the queue. [`FairQueue::grant`] is to be called until it gives nothing, then [`FairQueue::cut`].
    pub(in crate::service) fn join(&mut self, holder: Holder, units: u64, tell: W) -> Ticket {
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

    /// Puts one in the queue that does not wait, and takes it out again if its turn is not now. Those that wait no
    /// longer, perhaps itself among them.
    pub(in crate::service) fn try_join(&mut self, holder: Holder, units: u64, tell: W) -> Vec<Grant<W>> {
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
    pub(in crate::service) fn cut(&mut self, newcomer: Holder) -> Option<W> {
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
    pub(in crate::service) fn leave(&mut self, holder: Holder, ticket: Ticket) -> Option<W> {
        let was_waited_for = self.waited_for() == Some((holder, ticket));
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
    pub(in crate::service) fn give_back(&mut self, holder: Holder, units: u64) {
        if let Some(account) = self.accounts.get_mut(&holder) {
            account.held -= units;
            self.held[holder.kind() as usize] -= units;
            self.forget_if_idle(holder);
        }
    }

    /// The next one that waits no longer, because it has its units.
    pub(in crate::service) fn grant(&mut self) -> Option<Grant<W>> {
        match self.next_in_line()? {
            NextInLine::Granted(holder, at) => self.grant_to(holder, at),
            NextInLine::Waits(..) => None,
        }
    }

    /// The one that all others wait for, because it is next and needs more than is free.
    fn waited_for(&self) -> Option<(Holder, Ticket)> {
        match self.next_in_line()? {
            NextInLine::Granted(..) => None,
            NextInLine::Waits(holder, ticket) => Some((holder, ticket)),
        }
    }

    /// Whose turn it is; `None` where all that wait are kept by their shares.
    fn next_in_line(&self) -> Option<NextInLine> {
        for kind in [self.next, self.next.other()] {
            for (at, holder) in self.turns[kind as usize].iter().enumerate() {
                let waiter = self.accounts.get(holder)?.queue.front()?;
                match self.obstacle(*holder, waiter.units) {
                    None => return Some(NextInLine::Granted(*holder, at)),
                    Some(Obstacle::Share) => {}
                    Some(Obstacle::Reserve) => break,
                    Some(Obstacle::Units) => return Some(NextInLine::Waits(*holder, waiter.ticket)),
                }
            }
        }
        None
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(number: u64) -> Holder {
        Holder::User(UserId::new(number))
    }

    fn anonymous(number: u8) -> Holder {
        Holder::Anonymous(Client::V4([192, 0, 2, number]))
    }

    #[test]
    fn a_holder_has_a_name_of_its_own() {
        let clients = [Client::V6([1, 2, 3, 4, 5, 6, 7, 255]), Client::Unspecified, Client::Account(u64::MAX)];
        let anonymous = clients.map(Holder::Anonymous).into_iter().chain([anonymous(7)]);
        for holder in anonymous.chain([user(7), Holder::Operator]) {
            let name = holder.name();
            assert!(!name.contains(' '), "{name}");
            assert_eq!(Holder::of_name(&name), Some(holder), "{name}");
        }
        for wrong in ["", "user", "user:", "user:x", "user:-1", "v4:00", "v4:zz", "v6:", "operator:1", "admin"] {
            assert_eq!(Holder::of_name(wrong), None, "{wrong}");
        }
    }

    /// Three users and five networks.
    fn holder(number: u8) -> Holder {
        match number % 8 {
            number @ 0..3 => user(number.into()),
            number => anonymous(number),
        }
    }

    /// A queue, and what should be in it.
    struct Model {
        queue: FairQueue<u32>,
        shares: Shares,
        waiting: Vec<(u32, Holder, u64, Ticket)>,
        held: Vec<(Holder, u64)>,
        /// Those that were granted something, in order.
        granted: Vec<u32>,
        /// Who asked, by name less 1.
        asked: Vec<Holder>,
    }

    impl Model {
        fn new(shares: Shares) -> Model {
            Model {
                queue: FairQueue::new(shares),
                shares,
                waiting: vec![],
                held: vec![],
                granted: vec![],
                asked: vec![],
            }
        }

        fn asks(&mut self, holder: Holder, units: u64) -> u32 {
            let units = self.queue.at_most(holder, units.max(1));
            self.asked.push(holder);
            let name = self.asked.len() as u32;
            if self.queue.try_enter(holder, units) {
                assert!(self.waiting.is_empty(), "it passed others");
                self.held.push((holder, units));
                self.granted.push(name);
            } else {
                let ticket = self.queue.join(holder, units, name);
                self.waiting.push((name, holder, units, ticket));
                self.grant();
                if let Some(cut) = self.queue.cut(holder) {
                    self.waiting.retain(|(name, ..)| *name != cut);
                    self.grant();
                }
            }
            self.check();
            name
        }

        fn leaves(&mut self, at: usize) {
            if !self.waiting.is_empty() {
                let (name, holder, _, ticket) = self.waiting.remove(at % self.waiting.len());
                assert_eq!(self.queue.leave(holder, ticket), Some(name));
                assert_eq!(self.queue.leave(holder, ticket), None);
                self.grant();
                self.check();
            }
        }

        fn gives_back(&mut self, at: usize) {
            if !self.held.is_empty() {
                let (holder, units) = self.held.remove(at % self.held.len());
                self.queue.give_back(holder, units);
                self.grant();
                self.check();
            }
        }

        fn grant(&mut self) {
            while let Some(Grant { holder, units, tell }) = self.queue.grant() {
                let at = self.waiting.iter().position(|(name, ..)| *name == tell).expect("it waited");
                let (_, asked, wanted, _) = self.waiting.remove(at);
                assert_eq!((asked, wanted), (holder, units));
                assert!(!self.waiting.iter().any(|(name, other, ..)| *other == holder && *name < tell), "out of order");
                self.held.push((holder, units));
                self.granted.push(tell);
            }
        }

        fn held_by(&self, counts: impl Fn(Holder) -> bool) -> u64 {
            self.held.iter().filter(|(holder, _)| counts(*holder)).map(|(_, units)| units).sum()
        }

        fn is_anonymous(holder: Holder) -> bool {
            matches!(holder, Holder::Anonymous(_))
        }

        /// Whether the rules of shares and of the reserve let the holder have so many units more, free or not.
        fn may_have(&self, holder: Holder, units: u64) -> bool {
            let own = self.held_by(|other| other == holder);
            let mut left = self.shares.units - self.held_by(|other| other != holder);
            if Model::is_anonymous(holder) {
                let others = self.held_by(|other| Model::is_anonymous(other) && other != holder);
                left = left.min(self.shares.anonymous_units() - others);
                if units > self.shares.anonymous_units() - others - own {
                    return false;
                }
            }
            own == 0 || (own + units) * 100 <= left * self.shares.share_percent
        }

        fn check(&self) {
            let held = self.held_by(|_| true);
            assert!(held <= self.shares.units, "{held} units are held");
            assert!(self.held_by(Model::is_anonymous) <= self.shares.anonymous_units());
            assert!(self.waiting.len() <= self.shares.queue);
            assert_eq!((self.queue.held(), self.queue.waiting()), (held, self.waiting.len()));
            let known: std::collections::HashSet<Holder> =
                self.held.iter().map(|(holder, _)| *holder).chain(self.waiting.iter().map(|waiter| waiter.1)).collect();
            assert_eq!(self.queue.accounts.len(), known.len(), "nothing is left of who has gone");

            // No wake-up is lost: who is first in its queue is held back by a rule, or somebody waits for more than is
            // free.
            let free = self.shares.units - held;
            let heads = || {
                self.waiting.iter().filter(|(name, holder, ..)| {
                    !self.waiting.iter().any(|(other, same, ..)| same == holder && other < name)
                })
            };
            let allowed = heads().filter(|(_, holder, units, _)| self.may_have(*holder, *units));
            let fits = allowed.clone().any(|(_, _, units, _)| *units <= free);
            let reserved = heads().any(|(_, holder, units, _)| {
                let most = self.shares.anonymous_units() - self.held_by(Model::is_anonymous);
                Model::is_anonymous(*holder) && *units > most
            });
            let too_much = allowed.clone().any(|(_, _, units, _)| *units > free);
            let passed_by_none = too_much || (reserved && allowed.clone().all(|waiter| Model::is_anonymous(waiter.1)));
            assert!(!fits || passed_by_none, "units are free, and somebody waits for them");
        }
    }

    /// What happens at a gate.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Asks(u8, u64),
        Leaves(usize),
        GivesBack(usize),
    }

    fn events(most_units: u64) -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            3 => (0..8_u8, 1..=most_units).prop_map(|(holder, units)| Event::Asks(holder, units)),
            1 => (0..100_usize).prop_map(Event::Leaves),
            2 => (0..100_usize).prop_map(Event::GivesBack),
        ];
        proptest::collection::vec(event, 0..120)
    }

    fn shares() -> impl Strategy<Value = Shares> {
        (1..20_u64, 1..=100_u64, 0..=100_u64, 0..12_usize).prop_map(|(units, share_percent, user_percent, queue)| {
            Shares { units, share_percent, user_percent, queue }
        })
    }

    fn happen(model: &mut Model, event: Event) {
        match event {
            Event::Asks(number, units) => {
                model.asks(holder(number), units);
            }
            Event::Leaves(at) => model.leaves(at),
            Event::GivesBack(at) => model.gives_back(at),
        }
    }

    proptest! {
        /// Checked after every event: bounds, books, order, and that nobody waits for what could be had.
        #[test]
        fn units_are_never_too_many_and_no_wake_up_is_lost(shares in shares(), events in events(25)) {
            let mut model = Model::new(shares);
            for event in events {
                happen(&mut model, event);
            }
            // All go in the end, and nothing is left.
            while !model.held.is_empty() {
                model.gives_back(0);
            }
            prop_assert!(model.waiting.is_empty());
            prop_assert_eq!(model.queue.held(), 0);
        }

        /// However the others behave, and however much they ask for: one that has nothing waits for a bounded number of
        /// grants.
        #[test]
        fn nobody_starves(shares in shares(), before in events(25), after in events(25), honest in 0..2_u8, units in 1..25_u64) {
            let mut model = Model::new(Shares { queue: usize::MAX, ..shares });
            for event in before {
                happen(&mut model, event);
            }
            let honest = if honest == 0 { user(100) } else { anonymous(100) };
            let kind = Model::is_anonymous(honest);
            let mut ahead: Vec<Holder> = model.waiting.iter().map(|waiter| waiter.1).collect();
            ahead.retain(|other| Model::is_anonymous(*other) == kind);
            ahead.sort_by_key(|other| format!("{other:?}"));
            ahead.dedup();
            let name = model.asks(honest, units);
            let asked_at = model.granted.iter().position(|granted| *granted == name).unwrap_or(model.granted.len());

            for event in after {
                // The honest one stays, whoever else leaves.
                match event {
                    Event::Leaves(at) if model.waiting.get(at % model.waiting.len().max(1)).is_some_and(|one| one.0 == name) => {}
                    event => happen(&mut model, event),
                }
            }
            while !model.held.is_empty() && !model.granted.contains(&name) {
                model.gives_back(0);
            }
            let granted_at = model.granted.iter().position(|granted| *granted == name).expect("it has its units");
            let earlier = &model.granted[asked_at.min(granted_at)..granted_at];
            let own = |name: &&u32| Model::is_anonymous(model.asked[**name as usize - 1]) == kind;
            let own_kind = earlier.iter().filter(own).count();
            prop_assert!(own_kind <= ahead.len(), "{own_kind} of its kind were first, and {} waited", ahead.len());
            if !kind {
                prop_assert!(earlier.len() <= 2 * ahead.len() + 1, "{} were first, and {} waited", earlier.len(), ahead.len());
            }
        }
    }

    fn shares_of(units: u64, queue: usize) -> Shares {
        Shares { units, share_percent: 50, user_percent: 25, queue }
    }

    /// How many units each of these holders has when all ask for as many single ones as they can get, one after the
    /// other.
    fn taken(units: u64, holders: &[Holder]) -> Vec<u64> {
        let mut queue = FairQueue::<()>::new(shares_of(units, 0));
        let take = |holder: &Holder| (0..).take_while(|_| queue.try_enter(*holder, 1)).count() as u64;
        holders.iter().map(take).collect()
    }

    #[test]
    fn each_has_half_of_what_the_others_leave_and_one_at_least() {
        let users: Vec<Holder> = (0..5).map(user).collect();
        assert_eq!(taken(8, &users), [4, 2, 1, 1, 0]);
        assert_eq!(taken(4, &users), [2, 1, 1, 0, 0]);
        assert_eq!(taken(2, &users), [1, 1, 0, 0, 0]);
        assert_eq!(taken(1, &users), [1, 0, 0, 0, 0]);
    }

    #[test]
    fn anonymous_holders_leave_a_quarter_to_users() {
        let networks: Vec<Holder> = (0..200).map(anonymous).collect();
        for (units, taken_by_networks) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (100, 75)] {
            let taken = taken(units, &[&networks[..], &[user(1)]].concat());
            assert_eq!(taken[..200].iter().sum::<u64>(), taken_by_networks, "{units}");
            assert!(units == 1 || taken[200] >= 1, "{units}: the user has some");
        }
        assert_eq!(taken(8, &networks[..5]), [3, 1, 1, 1, 0]);
    }

    #[test]
    fn those_who_wait_take_turns_whatever_each_asks_for() {
        let mut model = Model::new(Shares { share_percent: 100, user_percent: 0, ..shares_of(1, 1_000) });
        model.asks(user(9), 1);
        let hostile: Vec<u32> = (0..100).map(|_| model.asks(anonymous(1), 1)).collect();
        let others = [anonymous(2), anonymous(3), user(1)].map(|other| model.asks(other, 1));
        for _ in 0..6 {
            model.gives_back(0);
        }
        assert_eq!(model.granted[1..], [others[2], hostile[0], others[0], others[1], hostile[1], hostile[2]][..]);
    }

    #[test]
    fn one_that_leaves_while_all_wait_for_it_has_had_its_turn() {
        let mut model = Model::new(Shares { share_percent: 100, user_percent: 0, ..shares_of(10, 1_000) });
        model.asks(user(1), 9);
        // It is next and needs more than is free, again and again.
        model.asks(user(2), 10);
        let small = model.asks(anonymous(1), 1);
        let patient = model.asks(user(3), 1);
        model.asks(user(2), 10);
        assert!(!model.granted.contains(&small) && !model.granted.contains(&patient));
        model.leaves(0);
        assert!(model.granted.contains(&small), "its turn is over, and that of the other kind has come");
        model.gives_back(1);
        assert!(model.granted.contains(&patient), "and that of other users before it has one again");
    }

    #[test]
    fn what_needs_much_is_not_passed_by_what_needs_little() {
        let mut model = Model::new(Shares { share_percent: 100, ..shares_of(10, 1_000) });
        let small: Vec<u32> = (0..10).map(|number| model.asks(user(number), 1)).collect();
        let large = model.asks(user(100), 8);
        let late = model.asks(user(101), 1);
        assert_eq!(model.granted, small);
        for _ in 0..8 {
            assert!(!model.granted.contains(&large) && !model.granted.contains(&late));
            model.gives_back(0);
        }
        assert!(model.granted.contains(&large) && !model.granted.contains(&late));
        model.gives_back(0);
        assert!(model.granted.contains(&late));
    }

    #[test]
    fn who_comes_to_a_full_queue_takes_the_last_place_of_who_has_most() {
        let mut model = Model::new(shares_of(1, 8));
        model.asks(user(9), 1);
        let hostile: Vec<u32> = (0..20).map(|_| model.asks(anonymous(1), 1)).collect();
        let waiting = |model: &Model| model.waiting.iter().map(|waiter| waiter.0).collect::<Vec<_>>();
        assert_eq!(waiting(&model), hostile[..8], "alone it has the whole queue, and no more");
        let other = model.asks(anonymous(2), 1);
        assert_eq!(waiting(&model), [&hostile[..7], &[other]].concat());
        // Users have half of it for sure.
        let users: Vec<u32> = (0..4).map(|number| model.asks(user(number), 1)).collect();
        assert_eq!(waiting(&model), [&hostile[..3], &[other], &users].concat());
        // Then they are as many as they may be.
        model.asks(user(5), 1);
        assert_eq!(waiting(&model), [&hostile[..3], &[other], &users].concat());
        // One place each: nobody is worth less than who comes.
        model.asks(anonymous(3), 1);
        model.asks(anonymous(4), 1);
        model.asks(anonymous(5), 1);
        let networks: Vec<Holder> =
            model.waiting.iter().map(|waiter| waiter.1).filter(|one| Model::is_anonymous(*one)).collect();
        assert_eq!(networks, [anonymous(1), anonymous(2), anonymous(3), anonymous(4)]);
    }

    #[test]
    fn bytes_are_counted_without_overflow() {
        let mut queue = FairQueue::<()>::new(shares_of(u64::MAX, 0));
        assert_eq!(queue.at_most(user(1), u64::MAX), u64::MAX);
        assert!(queue.try_enter(user(1), u64::MAX / 2 - 1));
        assert!(!queue.try_enter(user(1), u64::MAX / 2));
        assert!(queue.try_enter(anonymous(1), u64::MAX / 4));
        queue.give_back(user(1), u64::MAX / 2 - 1);
        assert_eq!(queue.held(), u64::MAX / 4);
    }
}
