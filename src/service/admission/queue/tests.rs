//! The queue beside a model of its rules.

use proptest::prelude::*;
use strata_types::ids::UserId;

use super::*;
use crate::rate_limit::Client;

fn user(number: u64) -> Holder {
    Holder::User(UserId::new(number))
}

fn anonymous(number: u8) -> Holder {
    Holder::Anonymous(Client::V4([192, 0, 2, number]))
}

/// Three users and five networks.
fn holder(number: u8) -> Holder {
    match number % 8 {
        number @ 0..3 => user(number.into()),
        number => anonymous(number),
    }
}

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
        Model { queue: FairQueue::new(shares), shares, waiting: vec![], held: vec![], granted: vec![], asked: vec![] }
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
    (1..20_u64, 1..=100_u64, 0..=100_u64, 0..12_usize).prop_map(|(units, share_percent, user_percent, queue)| Shares {
        units,
        share_percent,
        user_percent,
        queue,
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

    /// Whatever the others do: one that has nothing waits for a bounded number of grants.
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

/// How many units each holder gets, one after the other, by single ones as long as there are any.
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

/// A holder that needed more than anonymous ones had left delayed all others for as long as it sent new requests.
#[test]
fn one_that_leaves_at_the_reserve_has_had_its_turn() {
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
