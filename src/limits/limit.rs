//! Units in a fair queue ([`crate::queue`]), with time, tasks and metrics.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::metrics::{Counter, Histogram};
use strata_runtime::metrics::metrics;
use tokio::sync::oneshot;

use crate::principal::Principal;
use crate::queue::{Denied, FairQueue, Grant, Ticket};
use crate::shares::{OtherUnits, Shares};

/// A limit that principals share fairly. Clones share it.
///
/// A limit with a name has a queue and metrics: `strata_gate_total` counts how requests end, and
/// `strata_gate_wait_seconds` how long they wait. A quota ([`FairLimit::quota`]) has neither.
#[derive(Clone)]
pub struct FairLimit {
    shared: Arc<Shared>,
}

struct Shared {
    name: LimitName,
    metrics: Option<LimitMetrics>,
    shares: Shares,
    max_wait: Duration,
    queue: Mutex<FairQueue<Waker>>,
}

/// Sends a waiter its permit. A waiter whose waker is dropped was evicted.
type Waker = oneshot::Sender<Permit>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitName {
    /// The label `gate` of its metrics.
    pub name: &'static str,
    /// The requests that it limits, in the plural. For example: `heavy queries`.
    pub what: &'static str,
}

const QUOTA: LimitName = LimitName { name: "quota", what: "reservations" };

/// After which an evicted waiter that cannot be refused joins the queue again.
const RETRY_DELAY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many concurrent {}", limit.what)]
pub struct Overloaded {
    pub limit: LimitName,
    /// How long the request waited. `None` if it was refused because too many others wait.
    pub waited: Option<Duration>,
}

impl Overloaded {
    pub const RETRY_AFTER_S: u64 = 5;

    /// Whether a request that has shared the execution of another one since then, and was refused with it, should be
    /// executed under its own principal: not if it has already waited at more than one limit.
    pub fn is_worth_retrying(&self, since: Instant) -> bool {
        since.elapsed() <= self.waited.unwrap_or_default() + Duration::from_secs(1)
    }
}

/// Units of a principal, until dropped.
#[must_use = "dropping it releases the units"]
pub struct Permit {
    shared: Arc<Shared>,
    principal: Principal,
    units: u64,
}

impl FairLimit {
    /// A limit with a queue, in which a request waits for up to `max_wait`. Metrics identify limits by their names, so
    /// a process should have only one limit of a name.
    pub fn new(name: LimitName, shares: Shares, max_wait: Duration) -> FairLimit {
        FairLimit::build(name, Some(LimitMetrics::new(name.name)), shares, max_wait)
    }

    /// A limit without a queue and metrics, for [`FairLimit::try_reserve`].
    pub fn quota(shares: Shares) -> FairLimit {
        FairLimit::build(QUOTA, None, shares, Duration::ZERO)
    }

    fn build(name: LimitName, metrics: Option<LimitMetrics>, shares: Shares, max_wait: Duration) -> FairLimit {
        let queue = Mutex::new(FairQueue::new(shares));
        FairLimit { shared: Arc::new(Shared { name, metrics, shares, max_wait, queue }) }
    }

    /// Waits for units. If they are more than the principal can ever have, the permit has as many as it can. Cancel
    /// safe.
    pub async fn acquire(&self, principal: Principal, units: u64) -> Result<Permit, Overloaded> {
        let mut request = MeasuredRequest::start(&self.shared);
        let permit = match self.try_enter(principal, units) {
            Some(permit) => Ok(permit),
            None => Box::pin(self.wait(principal, units, Some(self.shared.max_wait))).await,
        };
        request.outcome = match &permit {
            Ok(_) => Outcome::Entered,
            Err(Overloaded { waited: None, .. }) => Outcome::Full,
            Err(Overloaded { waited: Some(_), .. }) => Outcome::Late,
        };
        permit
    }

    /// Like [`FairLimit::acquire`], but waits as long as it takes: for a response that has begun.
    pub async fn acquire_unbounded(&self, principal: Principal, units: u64) -> Permit {
        let mut request = MeasuredRequest::start(&self.shared);
        let permit = loop {
            let entered = match self.try_enter(principal, units) {
                Some(permit) => Some(permit),
                // A waiter stays in the queue, so that later ones do not overtake it.
                None => Box::pin(self.wait(principal, units, None)).await.ok(),
            };
            match entered {
                Some(permit) => break permit,
                None => tokio::time::sleep(RETRY_DELAY).await,
            }
        };
        request.outcome = Outcome::Entered;
        permit
    }

    /// Takes all of the units if they are available at once. Metrics do not count it.
    pub fn try_acquire(&self, principal: Principal, units: u64) -> Result<Permit, Overloaded> {
        let mut queue = self.shared.queue();
        if queue.try_enter(principal, units) {
            return Ok(self.permit(principal, units));
        }
        let refused = self.shared.overloaded(None);
        if queue.waiting() == 0 {
            return Err(refused);
        }
        let (waker, mut granted) = oneshot::channel();
        let grants = queue.try_join(principal, units, waker);
        drop(queue);
        self.shared.wake(grants);
        granted.try_recv().map_err(|_| refused)
    }

    /// Takes units of a quota until [`FairLimit::release`].
    pub fn try_reserve(&self, principal: Principal, units: u64) -> Result<(), Denied> {
        self.shared.queue().try_take(principal, units)
    }

    /// Like [`FairLimit::try_reserve`], even if it exceeds the quota.
    pub fn reserve(&self, principal: Principal, units: u64) {
        self.shared.queue().take(principal, units);
    }

    /// Releases reserved units, at most those that the principal has.
    pub fn release(&self, principal: Principal, units: u64) {
        let mut queue = self.shared.queue();
        queue.release(principal, units);
        self.shared.grant_all(queue, None);
    }

    pub fn used_units(&self) -> u64 {
        self.shared.queue().used_units()
    }

    pub fn waiting(&self) -> usize {
        self.shared.queue().waiting()
    }

    /// The number of principals that have units or wait.
    pub fn principals(&self) -> usize {
        self.shared.queue().principals()
    }

    pub fn max_wait(&self) -> Duration {
        self.shared.max_wait
    }

    /// What the principal can have while no other one has any.
    pub fn max_units(&self, principal: Principal) -> u64 {
        self.shared.shares.max_units(principal, OtherUnits::default())
    }

    /// The units, or as many as a permit of the principal can have.
    pub fn clamp(&self, principal: Principal, units: u64) -> u64 {
        units.min(self.shared.shares.class_units(principal))
    }

    pub fn update_metrics(&self) {
        let metrics = metrics();
        let label = || [self.shared.name.name.into()];
        let queue = self.shared.queue();
        metrics.gate_units.of(label()).set(self.shared.shares.units as f64);
        metrics.gate_held.of(label()).set(queue.used_units() as f64);
        metrics.gate_waiting.of(label()).set(queue.waiting() as f64);
    }

    fn permit(&self, principal: Principal, units: u64) -> Permit {
        Permit { shared: self.shared.clone(), principal, units }
    }

    fn try_enter(&self, principal: Principal, units: u64) -> Option<Permit> {
        let units = self.clamp(principal, units);
        let entered = self.shared.queue().try_enter(principal, units);
        entered.then(|| self.permit(principal, units))
    }

    async fn wait(&self, principal: Principal, units: u64, limit: Option<Duration>) -> Result<Permit, Overloaded> {
        let shared = &self.shared;
        let units = self.clamp(principal, units);
        let (waker, granted) = oneshot::channel();
        let ticket = {
            let mut queue = shared.queue();
            let ticket = queue.join(principal, units, waker);
            shared.grant_all(queue, Some(principal));
            ticket
        };
        let mut waiting = Waiting { shared, principal, ticket, granted };
        let granted = match limit {
            None => Ok((&mut waiting.granted).await),
            Some(limit) => tokio::time::timeout(limit, &mut waiting.granted).await,
        };
        match granted {
            Ok(granted) => granted.map_err(|_| shared.overloaded(None)),
            Err(_) => Err(shared.overloaded(limit)),
        }
    }
}

impl fmt::Debug for FairLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FairLimit").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, FairQueue<Waker>> {
        // Nothing panics between two changes that belong together.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overloaded(&self, waited: Option<Duration>) -> Overloaded {
        Overloaded { limit: self.name, waited }
    }

    /// Grants units after a change, and wakes who gets them once the lock is released.
    fn grant_all(self: &Arc<Self>, mut queue: MutexGuard<'_, FairQueue<Waker>>, newcomer: Option<Principal>) {
        let mut grants: Vec<Grant<Waker>> = queue.grants().collect();
        let evicted = newcomer.and_then(|newcomer| queue.evict(newcomer));
        if evicted.is_some() {
            // It can have blocked others.
            grants.extend(queue.grants());
        }
        drop(queue);
        self.wake(grants);
    }

    fn wake(self: &Arc<Self>, grants: Vec<Grant<Waker>>) {
        for Grant { principal, units, waker } in grants {
            // If the waiter was cancelled a moment ago, dropping the permit releases its units.
            let _ = waker.send(Permit { shared: self.clone(), principal, units });
        }
    }
}

impl Permit {
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Releases all but this many units.
    pub fn shrink(&mut self, units: u64) {
        let surplus = self.units.saturating_sub(units);
        if surplus > 0 {
            self.units -= surplus;
            let mut queue = self.shared.queue();
            queue.release(self.principal, surplus);
            self.shared.grant_all(queue, None);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    principal: Principal,
    ticket: Ticket,
    granted: oneshot::Receiver<Permit>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        if queue.cancel(self.principal, self.ticket).is_some() {
            self.shared.grant_all(queue, None);
        }
        // A permit that was granted in the meantime is in `granted`, and is dropped with it.
    }
}

#[derive(Clone, Copy)]
enum Outcome {
    Entered,
    Full,
    Late,
    Left,
}

impl Outcome {
    const ALL: [&'static str; 4] = ["entered", "full", "late", "left"];
}

struct LimitMetrics {
    outcomes: [Counter; 4],
    wait_seconds: Histogram,
}

impl LimitMetrics {
    fn new(name: &'static str) -> LimitMetrics {
        let outcomes = Outcome::ALL.map(|outcome: &'static str| metrics().gates.of([name.into(), outcome.into()]));
        LimitMetrics { outcomes, wait_seconds: metrics().gate_wait_seconds.of([name.into()]) }
    }
}

/// Counts the outcome of a request when it ends. A request that is dropped while it waits has left.
struct MeasuredRequest<'a> {
    metrics: Option<&'a LimitMetrics>,
    outcome: Outcome,
    began: Instant,
}

impl MeasuredRequest<'_> {
    fn start(shared: &Shared) -> MeasuredRequest<'_> {
        MeasuredRequest { metrics: shared.metrics.as_ref(), outcome: Outcome::Left, began: Instant::now() }
    }
}

impl Drop for MeasuredRequest<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics {
            metrics.outcomes[self.outcome as usize].increment(1);
            metrics.wait_seconds.record(self.began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::{FutureExt, poll};
    use proptest::prelude::*;

    use super::*;
    use crate::{BeyondShare, Client, HashedPrincipal};
    use strata_types::ids::UserId;

    const NAME: LimitName = LimitName { name: "test", what: "tests" };

    fn fair_limit(units: u64, queue: usize, max_wait: Duration) -> FairLimit {
        FairLimit::new(NAME, Shares { queue, ..Shares::new(units, 50, 25) }, max_wait)
    }

    fn user(number: u64) -> Principal {
        Principal::User(UserId::new(number))
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A request that has to wait.
    fn waits(
        limit: &FairLimit,
        principal: Principal,
        units: u64,
    ) -> Pin<Box<impl Future<Output = Result<Permit, Overloaded>>>> {
        let mut waits = Box::pin(limit.acquire(principal, units));
        assert!((&mut waits).now_or_never().is_none());
        waits
    }

    #[tokio::test]
    async fn released_permit_goes_to_next_in_line() {
        let limit = fair_limit(2, 10, HOUR);
        let first = limit.acquire(user(1), 1).await.expect("a unit");
        let second = limit.acquire(user(2), 1).await.expect("a unit");
        let mut again = waits(&limit, user(1), 1);
        let third = waits(&limit, user(3), 1);
        assert_eq!((limit.used_units(), limit.waiting()), (2, 2));
        drop(second);
        // Another principal gets it, because the first one has its share.
        assert!(poll!(&mut again).is_pending());
        let third = third.await.expect("a unit");
        drop((first, third));
        drop(again.await.expect("a unit"));
        assert_eq!((limit.used_units(), limit.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn full_queue_refuses_at_once_and_late_ones_later() {
        let limit = fair_limit(1, 1, Duration::ZERO);
        let held = limit.acquire(user(1), 1).await.expect("a unit");
        let late = limit.acquire(user(2), 1).await.err();
        assert_eq!(late, Some(Overloaded { limit: NAME, waited: Some(Duration::ZERO) }));
        assert_eq!((limit.used_units(), limit.waiting()), (1, 0));

        let patient = fair_limit(1, 1, HOUR);
        let also = patient.acquire(user(1), 1).await.expect("a unit");
        let waits = waits(&patient, user(2), 1);
        let full = patient.acquire(user(2), 1).await.err();
        assert_eq!(full, Some(Overloaded { limit: NAME, waited: None }));
        drop((held, also));
        assert!(waits.await.is_ok());
    }

    #[tokio::test]
    async fn evicted_waiter_is_refused_at_once() {
        let limit = fair_limit(1, 2, HOUR);
        let held = limit.acquire(user(1), 1).await.expect("a unit");
        let mut hostile: Vec<_> = (0..2).map(|_| waits(&limit, user(2), 1)).collect();
        let other = waits(&limit, Principal::Anonymous(Client::V4([192, 0, 2, 1])), 1);
        let evicted = hostile.pop().expect("the second").await.err();
        assert_eq!(evicted, Some(Overloaded { limit: NAME, waited: None }));
        drop((held, hostile));
        assert!(other.await.is_ok());
    }

    #[tokio::test]
    async fn dropped_waiter_releases_its_units() {
        let limit = fair_limit(1, 10, HOUR);
        let held = limit.acquire(user(1), 1).await.expect("a unit");
        let [leaving, granted, stays] = [2, 3, 4].map(|number| waits(&limit, user(number), 1));
        drop(leaving);
        assert_eq!(limit.waiting(), 2);
        drop(held);
        // `granted` got its unit, and is dropped before it is polled.
        assert_eq!((limit.used_units(), limit.waiting()), (1, 1));
        drop(granted);
        assert!(stays.await.is_ok());
        assert_eq!((limit.used_units(), limit.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn waiter_at_its_share_does_not_block_try_acquire() {
        let limit = fair_limit(4, 10, HOUR);
        let held = [limit.acquire(user(1), 1).await, limit.acquire(user(1), 1).await];
        let own = waits(&limit, user(1), 1);
        let tried = limit.try_acquire(user(2), 1);
        assert!(tried.is_ok(), "two are free, and the first has its share");
        // Both have their shares, and neither leaves a waiter behind.
        assert!(limit.try_acquire(user(1), 1).is_err() && limit.try_acquire(user(2), 1).is_err());
        assert_eq!((limit.used_units(), limit.waiting()), (3, 1));
        // A waiter that blocks others is not overtaken.
        let large = waits(&limit, user(3), 4);
        assert!(limit.try_acquire(user(4), 1).is_err());
        drop((held, tried));
        assert!(own.await.is_ok() && large.await.is_ok());
    }

    #[tokio::test]
    async fn unbounded_waiter_keeps_its_place() {
        let limit = fair_limit(1, 10, Duration::from_millis(100));
        let held = limit.acquire(user(1), 1).await;
        let patient = tokio::spawn({
            let limit = limit.clone();
            async move { limit.acquire_unbounded(user(2), 1).await }
        });
        tokio::time::sleep(Duration::from_millis(150)).await;
        // A later request of the same user. It cannot be refused either, however slow the machine is.
        let mut later = Box::pin(limit.acquire_unbounded(user(2), 1));
        assert!(poll!(&mut later).is_pending());
        drop(held);
        let first = patient.await.expect("no panic");
        assert!(poll!(&mut later).is_pending(), "it has overtaken the first one");
        drop(first);
        drop(later.await);
    }

    #[tokio::test]
    async fn oversized_permit_takes_all_and_can_shrink() {
        let limit = fair_limit(100, 10, HOUR);
        let mut all = limit.acquire(user(1), 1_000).await.expect("all");
        assert_eq!((all.units(), limit.used_units()), (100, 100));
        let mut next = waits(&limit, user(2), 10);
        all.shrink(91);
        assert!(poll!(&mut next).is_pending());
        all.shrink(90);
        drop(next.await.expect("ten"));
        assert!(limit.try_acquire(user(3), 11).is_err());
        assert!(limit.try_acquire(user(3), 10).is_ok());
        drop(all);
        assert_eq!(limit.used_units(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn limit_holds_and_all_are_served_under_load() {
        const UNITS: u64 = 7;
        let limit = fair_limit(UNITS, 10_000, HOUR);
        let at_once = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..400_u64)
            .map(|number| {
                let limit = limit.clone();
                let at_once = at_once.clone();
                tokio::spawn(async move {
                    let principal = match number % 9 {
                        number @ 0..4 => user(number),
                        number => Principal::Anonymous(Client::V4([192, 0, 2, number as u8])),
                    };
                    let units = number % 5 + 1;
                    for round in 0..20_u64 {
                        if (number + round) % 3 == 0 {
                            // Is dropped at some time, perhaps when it is granted its units.
                            let mut leaving = Box::pin(limit.acquire(principal, units));
                            let _ = poll!(&mut leaving);
                            tokio::task::yield_now().await;
                            continue;
                        }
                        let permit = limit.acquire(principal, units).await.expect("its turn");
                        let now = at_once.fetch_add(permit.units(), Ordering::SeqCst) + permit.units();
                        assert!(now <= UNITS, "{now} at once");
                        tokio::task::yield_now().await;
                        at_once.fetch_sub(permit.units(), Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let all = futures::future::join_all(tasks);
        let all = tokio::time::timeout(Duration::from_secs(300), all).await.expect("a wake-up was lost");
        assert!(all.into_iter().all(|task| task.is_ok()));
        assert_eq!((limit.used_units(), limit.waiting()), (0, 0));
    }

    /// A quota that anonymous principals have three quarters of, and one principal a half of the rest.
    fn quota(units: u64, alone: u64) -> FairLimit {
        FairLimit::quota(Shares { beyond_share: BeyondShare::Alone(alone), ..Shares::new(units, 50, 25) })
    }

    fn hashed(key: u64, anonymous: bool) -> Principal {
        Principal::Hashed(HashedPrincipal { key, anonymous })
    }

    /// What the principal can have in total, if that is less than what it requests.
    fn max_units(quota: &FairLimit, principal: Principal, units: u64) -> Result<(), u64> {
        quota.try_reserve(principal, units).map_err(|denied| denied.max_units)
    }

    #[test]
    fn quota_leaves_shares_and_reserve_for_users() {
        let quota = quota(1_000, 0);
        let [one, other, user] = [hashed(1, true), hashed(2, true), hashed(3, false)];
        let reserve = |principal, units| max_units(&quota, principal, units);
        assert_eq!(reserve(one, 376), Err(375));
        assert_eq!(reserve(one, 375), Ok(()));
        assert_eq!(reserve(one, 1), Err(375));
        assert_eq!(reserve(other, 188), Err(187));
        assert_eq!(reserve(other, 187), Ok(()));
        assert_eq!(reserve(user, 220), Err(219));
        assert_eq!(reserve(user, 219), Ok(()));
        quota.release(one, 375);
        assert_eq!(reserve(user, 188), Err(406));
        assert_eq!(reserve(user, 187), Ok(()));
        for (principal, units) in [(other, 187), (user, 406)] {
            quota.release(principal, units);
        }
        assert_eq!(quota.principals(), 0);
        assert_eq!(quota.used_units(), 0);
        assert_eq!(reserve(one, 375), Ok(()), "nothing is left of the others");
    }

    #[test]
    fn lone_principal_can_exceed_its_share() {
        let quota = quota(100, 90);
        let [one, other] = [hashed(1, true), hashed(2, true)];
        assert_eq!(quota.max_units(one), 90);
        assert_eq!(max_units(&quota, one, 91), Err(90));
        assert_eq!(max_units(&quota, one, 60), Ok(()));
        assert_eq!(max_units(&quota, other, 8), Err(7));
        assert_eq!(max_units(&quota, other, 7), Ok(()));
        assert_eq!(max_units(&quota, one, 1), Err(34));
    }

    #[test]
    fn reserve_exceeds_quota() {
        let quota = quota(100, 0);
        quota.reserve(hashed(1, false), 150);
        assert_eq!(quota.used_units(), 150);
        assert_eq!(max_units(&quota, hashed(2, false), 1), Err(0));
        quota.release(hashed(1, false), 150);
        assert_eq!(max_units(&quota, hashed(2, false), 50), Ok(()));
    }

    proptest! {
        #[test]
        fn quota_holds_and_counts(events in proptest::collection::vec((0..6_u64, 0..400_u64, 0..3_u8), 0..200)) {
            let quota = quota(1_000, 0);
            let mut own = [0_u64; 6];
            for (key, units, event) in events {
                let principal = hashed(key, key >= 2);
                let held = &mut own[key as usize];
                match event {
                    0 => {
                        let released = units.min(*held);
                        quota.release(principal, released);
                        *held -= released;
                    }
                    _ if quota.try_reserve(principal, units).is_ok() => *held += units,
                    _ => {}
                }
                prop_assert!(own.iter().sum::<u64>() <= 1_000);
                prop_assert!(own[2..].iter().sum::<u64>() <= 750);
                prop_assert!(own.iter().all(|one| *one <= 500));
                prop_assert_eq!(quota.used_units(), own.iter().sum::<u64>());
                prop_assert_eq!(quota.principals(), own.iter().filter(|one| **one > 0).count());
            }
        }
    }
}
