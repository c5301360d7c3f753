//! Compares the queue with a model of its rules, and tests each rule with an example.

use proptest::prelude::*;
use strata_types::ids::UserId;

use super::*;
use crate::ClientNetwork;

fn user(number: u64) -> Principal {
    Principal::User(UserId::new(number))
}

fn anonymous(number: u8) -> Principal {
    Principal::Anonymous(ClientNetwork::V4([192, 0, 2, number]))
}

fn principal(number: u8) -> Principal {
    match number % 8 {
        number @ 0..3 => user(number.into()),
        number => anonymous(number),
    }
}

struct QueueModel {
    queue: FairQueue<u32>,
    shares: FairShares,
    waiting: Vec<(u32, Principal, u64, WaiterTicket)>,
    held: Vec<(Principal, u64)>,
    /// Names of the granted requests, in the order of the grants.
    granted: Vec<u32>,
    /// The principal of each request; the request named `n` is at index `n - 1`.
    requesters: Vec<Principal>,
}

impl QueueModel {
    fn new(shares: FairShares) -> QueueModel {
        let queue = FairQueue::new(shares);
        QueueModel { queue, shares, waiting: vec![], held: vec![], granted: vec![], requesters: vec![] }
    }

    fn request(&mut self, principal: Principal, units: u64) -> u32 {
        let units = units.max(1).min(self.shares.max_class_units(principal));
        self.requesters.push(principal);
        let name = self.requesters.len() as u32;
        if self.queue.try_take_without_queue(principal, units) {
            assert!(self.waiting.is_empty(), "a request overtook the waiters");
            self.held.push((principal, units));
            self.granted.push(name);
        } else {
            let ticket = self.queue.enqueue(principal, units, name);
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

    fn cancel(&mut self, at: usize) {
        if !self.waiting.is_empty() {
            let (name, principal, _, ticket) = self.waiting.remove(at % self.waiting.len());
            assert_eq!(self.queue.cancel(principal, ticket), Some(name));
            assert_eq!(self.queue.cancel(principal, ticket), None);
            self.grant();
            self.check();
        }
    }

    fn release(&mut self, at: usize) {
        if !self.held.is_empty() {
            let (principal, units) = self.held.remove(at % self.held.len());
            self.queue.release(principal, units);
            self.grant();
            self.check();
        }
    }

    fn grant(&mut self) {
        while let Some(UnitGrant { principal, units, waker }) = self.queue.grant_next() {
            let at = self.waiting.iter().position(|(name, ..)| *name == waker).expect("failed to find waiter");
            let (_, requester, requested, _) = self.waiting.remove(at);
            assert_eq!((requester, requested), (principal, units));
            assert!(!self.waiting.iter().any(|(name, other, ..)| *other == principal && *name < waker), "out of order");
            self.held.push((principal, units));
            self.granted.push(waker);
        }
    }

    fn held_units_where(&self, counts: impl Fn(Principal) -> bool) -> u64 {
        self.held.iter().filter(|(principal, _)| counts(*principal)).map(|(_, units)| units).sum()
    }

    /// Returns true if the principal's share and the reserve for users allow it more units, free or not.
    fn can_have(&self, principal: Principal, units: u64) -> bool {
        let own = self.held_units_where(|other| other == principal);
        let mut left = self.shares.total_units - self.held_units_where(|other| other != principal);
        if Principal::is_anonymous(principal) {
            let others = self.held_units_where(|other| Principal::is_anonymous(other) && other != principal);
            left = left.min(self.shares.max_anonymous_units() - others);
            if units > self.shares.max_anonymous_units() - others - own {
                return false;
            }
        }
        own == 0 || (own + units) * 100 <= left * self.shares.share_percent
    }

    fn check(&self) {
        let held = self.held_units_where(|_| true);
        assert!(held <= self.shares.total_units, "{held} units are held");
        assert!(self.held_units_where(Principal::is_anonymous) <= self.shares.max_anonymous_units());
        assert!(self.waiting.len() <= self.shares.max_waiters);
        assert_eq!((self.queue.used_units(), self.queue.waiter_count()), (held, self.waiting.len()));
        let waiting = self.waiting.iter().map(|waiter| waiter.1);
        let known: std::collections::HashSet<_> = self.held.iter().map(|held| held.0).chain(waiting).collect();
        assert_eq!(self.queue.principal_count(), known.len(), "idle principals are removed");

        // No wake-up is lost: each principal's first request is denied by a rule, or needs more units than are free.
        let free = self.shares.total_units - held;
        let first_waiters = || {
            self.waiting.iter().filter(|(name, principal, ..)| {
                !self.waiting.iter().any(|(other, same, ..)| same == principal && other < name)
            })
        };
        let allowed = first_waiters().filter(|(_, principal, units, _)| self.can_have(*principal, *units));
        let fits = allowed.clone().any(|(_, _, units, _)| *units <= free);
        let reserved = first_waiters().any(|(_, principal, units, _)| {
            let remaining = self.shares.max_anonymous_units() - self.held_units_where(Principal::is_anonymous);
            Principal::is_anonymous(*principal) && *units > remaining
        });
        let is_blocked_by_size = allowed.clone().any(|(_, _, units, _)| *units > free);
        let is_blocked =
            is_blocked_by_size || (reserved && allowed.clone().all(|waiter| Principal::is_anonymous(waiter.1)));
        assert!(!fits || is_blocked, "units are free, but a waiter does not get them");
    }
}

#[derive(Clone, Copy, Debug)]
enum QueueEvent {
    Request(u8, u64),
    Cancel(usize),
    Release(usize),
}

fn event_strategy(max_units: u64) -> impl Strategy<Value = Vec<QueueEvent>> {
    let event = prop_oneof![
        3 => (0..8_u8, 1..=max_units).prop_map(|(principal, units)| QueueEvent::Request(principal, units)),
        1 => (0..100_usize).prop_map(QueueEvent::Cancel),
        2 => (0..100_usize).prop_map(QueueEvent::Release),
    ];
    proptest::collection::vec(event, 0..120)
}

fn shares_strategy() -> impl Strategy<Value = FairShares> {
    (1..20_u64, 1..=100_u64, 0..=100_u64, 0..12_usize).prop_map(|(units, share_percent, user_percent, queue)| {
        FairShares { max_waiters: queue, ..FairShares::new(units, share_percent, user_percent) }
    })
}

fn apply_event(model: &mut QueueModel, event: QueueEvent) {
    match event {
        QueueEvent::Request(number, units) => {
            model.request(principal(number), units);
        }
        QueueEvent::Cancel(at) => model.cancel(at),
        QueueEvent::Release(at) => model.release(at),
    }
}

proptest! {
    /// After every event, checks the limits, the counts, and the order, and that no waiting request could be granted.
    #[test]
    fn limit_holds_and_no_wake_up_is_lost(shares in shares_strategy(), events in event_strategy(25)) {
        let mut model = QueueModel::new(shares);
        for event in events {
            apply_event(&mut model, event);
        }
        // After all units are released, no request is waiting.
        while !model.held.is_empty() {
            model.release(0);
        }
        prop_assert!(model.waiting.is_empty());
        prop_assert_eq!(model.queue.used_units(), 0);
    }

    /// A principal without units waits for a bounded number of grants, regardless of other requests.
    #[test]
    fn no_principal_starves(shares in shares_strategy(), before in event_strategy(25), after in event_strategy(25), honest in 0..2_u8, units in 1..25_u64) {
        let mut model = QueueModel::new(FairShares { max_waiters: usize::MAX, ..shares });
        for event in before {
            apply_event(&mut model, event);
        }
        let honest = if honest == 0 { user(100) } else { anonymous(100) };
        let is_anonymous = Principal::is_anonymous(honest);
        let mut ahead: Vec<Principal> = model.waiting.iter().map(|waiter| waiter.1).collect();
        ahead.retain(|other| Principal::is_anonymous(*other) == is_anonymous);
        ahead.sort_by_key(|other| format!("{other:?}"));
        ahead.dedup();
        let name = model.request(honest, units);
        let requested_at = model.granted.iter().position(|granted| *granted == name).unwrap_or(model.granted.len());

        for event in after {
            // The request under test is never cancelled, but others are.
            match event {
                QueueEvent::Cancel(at) if model.waiting.get(at % model.waiting.len().max(1)).is_some_and(|waiter| waiter.0 == name) => {}
                event => apply_event(&mut model, event),
            }
        }
        while !model.held.is_empty() && !model.granted.contains(&name) {
            model.release(0);
        }
        let granted_at = model.granted.iter().position(|granted| *granted == name).expect("failed to grant request");
        let earlier = &model.granted[requested_at.min(granted_at)..granted_at];
        let is_same_class = |name: &&u32| Principal::is_anonymous(model.requesters[**name as usize - 1]) == is_anonymous;
        let same_class_grants = earlier.iter().filter(is_same_class).count();
        prop_assert!(same_class_grants <= ahead.len(), "{same_class_grants} grants of its class came first, and {} waited", ahead.len());
        if !is_anonymous {
            prop_assert!(earlier.len() <= 2 * ahead.len() + 1, "{} grants came first, and {} principals waited", earlier.len(), ahead.len());
        }
    }
}

fn shares_with_queue(units: u64, queue: usize) -> FairShares {
    FairShares { max_waiters: queue, ..FairShares::new(units, 50, 25) }
}

/// Returns the number of units that each principal can take, one unit at a time, in order.
fn take_units(units: u64, principals: &[Principal]) -> Vec<u64> {
    let mut queue = FairQueue::<()>::new(shares_with_queue(units, 0));
    let take = |principal: &Principal| (0..).take_while(|_| queue.try_take_without_queue(*principal, 1)).count() as u64;
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
        assert!(units == 1 || taken[200] >= 1, "{units}: the user gets a unit");
    }
    assert_eq!(take_units(8, &networks[..5]), [3, 1, 1, 1, 0]);
}

#[test]
fn waiters_are_served_round_robin() {
    let mut model = QueueModel::new(FairShares { share_percent: 100, user_percent: 0, ..shares_with_queue(1, 1_000) });
    model.request(user(9), 1);
    let hostile: Vec<u32> = (0..100).map(|_| model.request(anonymous(1), 1)).collect();
    let others = [anonymous(2), anonymous(3), user(1)].map(|other| model.request(other, 1));
    for _ in 0..6 {
        model.release(0);
    }
    assert_eq!(model.granted[1..], [others[2], hostile[0], others[0], others[1], hostile[1], hostile[2]][..]);
}

#[test]
fn cancelled_blocker_loses_its_turn() {
    let mut model = QueueModel::new(FairShares { share_percent: 100, user_percent: 0, ..shares_with_queue(10, 1_000) });
    model.request(user(1), 9);
    // User 2 is next, and each of its two requests needs more units than are free.
    model.request(user(2), 10);
    let small = model.request(anonymous(1), 1);
    let patient = model.request(user(3), 1);
    model.request(user(2), 10);
    assert!(!model.granted.contains(&small) && !model.granted.contains(&patient));
    model.cancel(0);
    assert!(model.granted.contains(&small), "the turn passes to the other class");
    model.release(1);
    assert!(model.granted.contains(&patient), "other users have their turns before the next request of user 2");
}

/// Regression: a principal that requested more than the reserve leaves delayed all others.
#[test]
fn cancelled_blocker_at_reserve_loses_its_turn() {
    let mut model =
        QueueModel::new(FairShares { share_percent: 100, user_percent: 50, ..shares_with_queue(10, 1_000) });
    model.request(anonymous(1), 3);
    model.request(anonymous(2), 5);
    let small = model.request(anonymous(3), 1);
    model.request(anonymous(2), 5);
    assert!(!model.granted.contains(&small));
    model.cancel(0);
    assert!(model.granted.contains(&small), "the turn passes to the next principal");
}

#[test]
fn small_request_does_not_overtake_large_one() {
    let mut model = QueueModel::new(FairShares { share_percent: 100, ..shares_with_queue(10, 1_000) });
    let small: Vec<u32> = (0..10).map(|number| model.request(user(number), 1)).collect();
    let large = model.request(user(100), 8);
    let late = model.request(user(101), 1);
    assert_eq!(model.granted, small);
    for _ in 0..8 {
        assert!(!model.granted.contains(&large) && !model.granted.contains(&late));
        model.release(0);
    }
    assert!(model.granted.contains(&large) && !model.granted.contains(&late));
    model.release(0);
    assert!(model.granted.contains(&late));
}

#[test]
fn full_queue_evicts_from_longest() {
    let mut model = QueueModel::new(shares_with_queue(1, 8));
    model.request(user(9), 1);
    let hostile: Vec<u32> = (0..20).map(|_| model.request(anonymous(1), 1)).collect();
    let waiting = |model: &QueueModel| model.waiting.iter().map(|waiter| waiter.0).collect::<Vec<_>>();
    assert_eq!(waiting(&model), hostile[..8], "a single principal can use the whole queue");
    let other = model.request(anonymous(2), 1);
    assert_eq!(waiting(&model), [&hostile[..7], &[other]].concat());
    // Users are entitled to half of the queue, so their requests evict requests of anonymous principals.
    let users: Vec<u32> = (0..4).map(|number| model.request(user(number), 1)).collect();
    assert_eq!(waiting(&model), [&hostile[..3], &[other], &users].concat());
    // The half of the queue for users is full, so further users are refused.
    model.request(user(5), 1);
    assert_eq!(waiting(&model), [&hostile[..3], &[other], &users].concat());
    // After two more networks, each network has one waiting request, so a further network evicts none of them.
    model.request(anonymous(3), 1);
    model.request(anonymous(4), 1);
    model.request(anonymous(5), 1);
    let networks: Vec<Principal> =
        model.waiting.iter().map(|waiter| waiter.1).filter(|other| Principal::is_anonymous(*other)).collect();
    assert_eq!(networks, [anonymous(1), anonymous(2), anonymous(3), anonymous(4)]);
}

#[test]
fn units_near_u64_max_do_not_overflow() {
    let mut queue = FairQueue::<()>::new(shares_with_queue(u64::MAX, 0));
    assert_eq!(queue.shares.max_class_units(user(1)), u64::MAX);
    assert!(queue.try_take_without_queue(user(1), u64::MAX / 2 - 1));
    assert!(!queue.try_take_without_queue(user(1), u64::MAX / 2));
    assert!(queue.try_take_without_queue(anonymous(1), u64::MAX / 4));
    queue.release(user(1), u64::MAX / 2 - 1);
    assert_eq!(queue.used_units(), u64::MAX / 4);
}
