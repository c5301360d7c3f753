//! Compares the queue with a model of its rules.

use proptest::prelude::*;
use strata_types::ids::UserId;

use super::*;
use crate::Client;

fn user(number: u64) -> Principal {
    Principal::User(UserId::new(number))
}

fn anonymous(number: u8) -> Principal {
    Principal::Anonymous(Client::V4([192, 0, 2, number]))
}

/// Three users and five networks.
fn principal(number: u8) -> Principal {
    match number % 8 {
        number @ 0..3 => user(number.into()),
        number => anonymous(number),
    }
}

struct Model {
    queue: FairQueue<u32>,
    shares: Shares,
    waiting: Vec<(u32, Principal, u64, Ticket)>,
    held: Vec<(Principal, u64)>,
    /// Those that were granted something, in order.
    granted: Vec<u32>,
    /// Who asked, by name less 1.
    asked: Vec<Principal>,
}

impl Model {
    fn new(shares: Shares) -> Model {
        Model { queue: FairQueue::new(shares), shares, waiting: vec![], held: vec![], granted: vec![], asked: vec![] }
    }

    fn asks(&mut self, principal: Principal, units: u64) -> u32 {
        let units = units.max(1).min(self.shares.class_units(principal));
        self.asked.push(principal);
        let name = self.asked.len() as u32;
        if self.queue.try_enter(principal, units) {
            assert!(self.waiting.is_empty(), "it passed others");
            self.held.push((principal, units));
            self.granted.push(name);
        } else {
            let ticket = self.queue.join(principal, units, name);
            self.waiting.push((name, principal, units, ticket));
            self.grant();
            if let Some(evicted) = self.queue.evict(principal) {
                self.waiting.retain(|(name, ..)| *name != evicted);
                self.grant();
            }
        }
        self.check();
        name
    }

    fn leaves(&mut self, at: usize) {
        if !self.waiting.is_empty() {
            let (name, principal, _, ticket) = self.waiting.remove(at % self.waiting.len());
            assert_eq!(self.queue.cancel(principal, ticket), Some(name));
            assert_eq!(self.queue.cancel(principal, ticket), None);
            self.grant();
            self.check();
        }
    }

    fn gives_back(&mut self, at: usize) {
        if !self.held.is_empty() {
            let (principal, units) = self.held.remove(at % self.held.len());
            self.queue.release(principal, units);
            self.grant();
            self.check();
        }
    }

    fn grant(&mut self) {
        while let Some(Grant { principal, units, waker }) = self.queue.grant() {
            let at = self.waiting.iter().position(|(name, ..)| *name == waker).expect("it waited");
            let (_, asked, wanted, _) = self.waiting.remove(at);
            assert_eq!((asked, wanted), (principal, units));
            assert!(!self.waiting.iter().any(|(name, other, ..)| *other == principal && *name < waker), "out of order");
            self.held.push((principal, units));
            self.granted.push(waker);
        }
    }

    fn held_by(&self, counts: impl Fn(Principal) -> bool) -> u64 {
        self.held.iter().filter(|(principal, _)| counts(*principal)).map(|(_, units)| units).sum()
    }

    /// Whether the share and the reserve allow the principal to have more units, free or not.
    fn may_have(&self, principal: Principal, units: u64) -> bool {
        let own = self.held_by(|other| other == principal);
        let mut left = self.shares.units - self.held_by(|other| other != principal);
        if Principal::is_anonymous(principal) {
            let others = self.held_by(|other| Principal::is_anonymous(other) && other != principal);
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
        assert!(self.held_by(Principal::is_anonymous) <= self.shares.anonymous_units());
        assert!(self.waiting.len() <= self.shares.queue);
        assert_eq!((self.queue.used_units(), self.queue.waiting()), (held, self.waiting.len()));
        let waiting = self.waiting.iter().map(|waiter| waiter.1);
        let known: std::collections::HashSet<_> = self.held.iter().map(|held| held.0).chain(waiting).collect();
        assert_eq!(self.queue.principals(), known.len(), "idle principals are forgotten");

        // No wake-up is lost: who is first in its queue is held back by a rule, or somebody waits for more than is
        // free.
        let free = self.shares.units - held;
        let heads = || {
            self.waiting.iter().filter(|(name, principal, ..)| {
                !self.waiting.iter().any(|(other, same, ..)| same == principal && other < name)
            })
        };
        let allowed = heads().filter(|(_, principal, units, _)| self.may_have(*principal, *units));
        let fits = allowed.clone().any(|(_, _, units, _)| *units <= free);
        let reserved = heads().any(|(_, principal, units, _)| {
            let most = self.shares.anonymous_units() - self.held_by(Principal::is_anonymous);
            Principal::is_anonymous(*principal) && *units > most
        });
        let too_much = allowed.clone().any(|(_, _, units, _)| *units > free);
        let passed_by_none = too_much || (reserved && allowed.clone().all(|waiter| Principal::is_anonymous(waiter.1)));
        assert!(!fits || passed_by_none, "units are free, and somebody waits for them");
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Asks(u8, u64),
    Leaves(usize),
    GivesBack(usize),
}

fn events(most_units: u64) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..8_u8, 1..=most_units).prop_map(|(principal, units)| Event::Asks(principal, units)),
        1 => (0..100_usize).prop_map(Event::Leaves),
        2 => (0..100_usize).prop_map(Event::GivesBack),
    ];
    proptest::collection::vec(event, 0..120)
}

fn shares() -> impl Strategy<Value = Shares> {
    (1..20_u64, 1..=100_u64, 0..=100_u64, 0..12_usize).prop_map(|(units, share_percent, user_percent, queue)| Shares {
        queue,
        ..Shares::new(units, share_percent, user_percent)
    })
}

fn happen(model: &mut Model, event: Event) {
    match event {
        Event::Asks(number, units) => {
            model.asks(principal(number), units);
        }
        Event::Leaves(at) => model.leaves(at),
        Event::GivesBack(at) => model.gives_back(at),
    }
}

proptest! {
    /// Checked after every event: bounds, books, order, and that nobody waits for what could be had.
    #[test]
    fn limit_holds_and_no_wake_up_is_lost(shares in shares(), events in events(25)) {
        let mut model = Model::new(shares);
        for event in events {
            happen(&mut model, event);
        }
        // All go in the end, and nothing is left.
        while !model.held.is_empty() {
            model.gives_back(0);
        }
        prop_assert!(model.waiting.is_empty());
        prop_assert_eq!(model.queue.used_units(), 0);
    }

    /// Whatever the others do: one that has nothing waits for a bounded number of grants.
    #[test]
    fn no_principal_starves(shares in shares(), before in events(25), after in events(25), honest in 0..2_u8, units in 1..25_u64) {
        let mut model = Model::new(Shares { queue: usize::MAX, ..shares });
        for event in before {
            happen(&mut model, event);
        }
        let honest = if honest == 0 { user(100) } else { anonymous(100) };
        let kind = Principal::is_anonymous(honest);
        let mut ahead: Vec<Principal> = model.waiting.iter().map(|waiter| waiter.1).collect();
        ahead.retain(|other| Principal::is_anonymous(*other) == kind);
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
        let own = |name: &&u32| Principal::is_anonymous(model.asked[**name as usize - 1]) == kind;
        let own_kind = earlier.iter().filter(own).count();
        prop_assert!(own_kind <= ahead.len(), "{own_kind} of its kind were first, and {} waited", ahead.len());
        if !kind {
            prop_assert!(earlier.len() <= 2 * ahead.len() + 1, "{} were first, and {} waited", earlier.len(), ahead.len());
        }
    }
}

fn shares_of(units: u64, queue: usize) -> Shares {
    Shares { queue, ..Shares::new(units, 50, 25) }
}

/// How many units each principal gets, one after the other, by single ones as long as there are any.
fn take_units(units: u64, principals: &[Principal]) -> Vec<u64> {
    let mut queue = FairQueue::<()>::new(shares_of(units, 0));
    let take = |principal: &Principal| (0..).take_while(|_| queue.try_enter(*principal, 1)).count() as u64;
    principals.iter().map(take).collect()
}

#[test]
fn principals_have_half_of_rest_and_at_least_one() {
    let users: Vec<Principal> = (0..5).map(user).collect();
    assert_eq!(take_units(8, &users), [4, 2, 1, 1, 0]);
    assert_eq!(take_units(4, &users), [2, 1, 1, 0, 0]);
    assert_eq!(take_units(2, &users), [1, 1, 0, 0, 0]);
    assert_eq!(take_units(1, &users), [1, 0, 0, 0, 0]);
}

#[test]
fn anonymous_principals_leave_quarter_to_users() {
    let networks: Vec<Principal> = (0..200).map(anonymous).collect();
    for (units, taken_by_networks) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (100, 75)] {
        let taken = take_units(units, &[&networks[..], &[user(1)]].concat());
        assert_eq!(taken[..200].iter().sum::<u64>(), taken_by_networks, "{units}");
        assert!(units == 1 || taken[200] >= 1, "{units}: the user has some");
    }
    assert_eq!(take_units(8, &networks[..5]), [3, 1, 1, 1, 0]);
}

#[test]
fn waiters_are_served_round_robin() {
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
fn cancelled_blocker_loses_its_turn() {
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

/// A principal that needed more than anonymous ones had left delayed all others for as long as it sent new requests.
#[test]
fn cancelled_blocker_at_reserve_loses_its_turn() {
    let mut model = Model::new(Shares { share_percent: 100, user_percent: 50, ..shares_of(10, 1_000) });
    model.asks(anonymous(1), 3);
    model.asks(anonymous(2), 5);
    let small = model.asks(anonymous(3), 1);
    model.asks(anonymous(2), 5);
    assert!(!model.granted.contains(&small));
    model.leaves(0);
    assert!(model.granted.contains(&small), "the turn of those behind it has come");
}

#[test]
fn small_request_does_not_overtake_large_one() {
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
fn full_queue_evicts_from_longest() {
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
    let networks: Vec<Principal> =
        model.waiting.iter().map(|waiter| waiter.1).filter(|one| Principal::is_anonymous(*one)).collect();
    assert_eq!(networks, [anonymous(1), anonymous(2), anonymous(3), anonymous(4)]);
}

#[test]
fn units_near_u64_max_do_not_overflow() {
    let mut queue = FairQueue::<()>::new(shares_of(u64::MAX, 0));
    assert_eq!(queue.shares.class_units(user(1)), u64::MAX);
    assert!(queue.try_enter(user(1), u64::MAX / 2 - 1));
    assert!(!queue.try_enter(user(1), u64::MAX / 2));
    assert!(queue.try_enter(anonymous(1), u64::MAX / 4));
    queue.release(user(1), u64::MAX / 2 - 1);
    assert_eq!(queue.used_units(), u64::MAX / 4);
}
