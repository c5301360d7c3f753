//! A semaphore whose units are shared fairly between those who ask: users, and networks of anonymous clients.
//!
//! [`crate::admission::queue`] has the rules: a bounded share for each holder, a reserve for users, turns, a
//! bounded queue. This module adds time and tasks:
//!
//! - [`FairSemaphore::acquire`] waits at most so long; then, or when too many wait, it is [`Refused`].
//! - Dropping the future takes the waiter out of the queue, and gives back what it was granted a moment ago.
//! - Every outcome is counted as `strata_gate_total`, and every wait in `strata_gate_wait_seconds`.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ::metrics::{Counter, Histogram};
use strata_config as config;
use strata_runtime::metrics::metrics;
use tokio::sync::oneshot;

use crate::admission::holder::Holder;
use crate::admission::queue::{FairQueue, Grant, Shares, Ticket};
use crate::locked;

#[derive(Clone)]
pub(crate) struct FairSemaphore {
    shared: Arc<Shared>,
}

struct Shared {
    gate: Gate,
    metrics: GateMetrics,
    units: u64,
    wait: Duration,
    queue: Mutex<FairQueue<Tell>>,
}

/// Tells a waiter that it has its units; dropped, that it has not.
type Tell = oneshot::Sender<Permit>;

/// What a semaphore stands before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name, as the label `gate` of metrics has it.
    pub name: &'static str,
    /// What there are too many of, in the plural: `heavy queries`.
    pub what: &'static str,
}

/// Before one that cannot be refused tries again.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    shares: Shares,
    wait: Duration,
}

impl Bounds {
    /// As the configuration shares, for so many units, 1 at least, and so many who may wait, all together.
    pub(crate) fn new(units: u64, fair: &config::Fair, queue: u64, wait_s: u64) -> Bounds {
        let config::Fair { share_percent, user_percent, .. } = *fair;
        let queue = usize::try_from(queue).unwrap_or(usize::MAX);
        let shares = Shares { units: units.max(1), share_percent, user_percent, queue };
        Bounds { shares, wait: Duration::from_secs(wait_s) }
    }

    /// The same with nothing kept for users.
    pub(crate) fn unreserved(mut self) -> Bounds {
        self.shares.user_percent = 0;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many concurrent {}", gate.what)]
pub struct Refused {
    pub gate: Gate,
    /// How long it was waited for; `None` when too many waited already.
    pub waited: Option<Duration>,
}

impl Refused {
    /// Seconds after which it is worth another try.
    pub const RETRY_AFTER_S: u64 = 5;

    /// Whether one who was refused with another's request should ask itself: not after a wait at more than one gate.
    pub(crate) fn is_anothers(&self, since: Instant) -> bool {
        since.elapsed() <= self.waited.unwrap_or_default() + Duration::from_secs(1)
    }
}

/// Units that are held until this is dropped.
#[must_use = "dropping it gives the units back"]
pub(crate) struct Permit {
    shared: Arc<Shared>,
    holder: Holder,
    units: u64,
}

impl FairSemaphore {
    /// At most one for each gate of a process, since metrics tell gates by their names.
    pub(crate) fn new(gate: Gate, Bounds { shares, wait }: Bounds) -> FairSemaphore {
        let (metrics, queue) = (GateMetrics::of(gate.name), Mutex::new(FairQueue::new(shares)));
        FairSemaphore { shared: Arc::new(Shared { gate, metrics, units: shares.units, wait, queue }) }
    }

    /// Waits for so many units: for as many as the holder can ever have, when that is less. Cancel safe.
    pub(crate) async fn acquire(&self, holder: Holder, units: u64) -> Result<Permit, Refused> {
        let mut measured = Measured::start(&self.shared);
        let entered = match self.try_enter(holder, units) {
            Some(permit) => Ok(permit),
            None => Box::pin(self.wait(holder, units, Some(self.shared.wait))).await,
        };
        measured.outcome = match &entered {
            Ok(_) => Outcome::Entered,
            Err(Refused { waited: None, .. }) => Outcome::Full,
            Err(Refused { waited: Some(_), .. }) => Outcome::Late,
        };
        entered
    }

    /// As [`FairSemaphore::acquire`], for what has begun and cannot be refused any more: waits for as long as it takes.
    pub(crate) async fn acquire_patiently(&self, holder: Holder, units: u64) -> Permit {
        let mut measured = Measured::start(&self.shared);
        let permit = loop {
            let entered = match self.try_enter(holder, units) {
                Some(permit) => Ok(permit),
                // Once in the queue it stays there: whoever came later is not served first.
                None => Box::pin(self.wait(holder, units, None)).await,
            };
            match entered {
                Ok(permit) => break permit,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        measured.outcome = Outcome::Entered;
        permit
    }

    /// Takes all of so many units if they can be had at once. Not counted in metrics: nobody is refused.
    pub(crate) fn try_acquire(&self, holder: Holder, units: u64) -> Option<Permit> {
        let mut queue = locked(&self.shared.queue);
        if queue.try_enter(holder, units) {
            return Some(Permit { shared: self.shared.clone(), holder, units });
        }
        if queue.waiting() == 0 {
            return None;
        }
        let (tell, mut told) = oneshot::channel();
        let grants = queue.try_join(holder, units, tell);
        drop(queue);
        self.shared.tell(grants);
        told.try_recv().ok()
    }

    /// As [`FairSemaphore::acquire`], at once or not at all. Not counted in metrics either.
    pub(crate) fn acquire_now(&self, holder: Holder, units: u64) -> Result<Permit, Refused> {
        let units = locked(&self.shared.queue).at_most(holder, units);
        self.try_acquire(holder, units).ok_or(Refused { gate: self.shared.gate, waited: None })
    }

    pub(crate) fn held(&self) -> u64 {
        locked(&self.shared.queue).held()
    }

    pub(crate) fn longest_wait(&self) -> Duration {
        self.shared.wait
    }

    pub(crate) fn waiting(&self) -> usize {
        locked(&self.shared.queue).waiting()
    }

    pub(crate) fn update_metrics(&self) {
        let (metrics, name) = (metrics(), self.shared.gate.name);
        let (held, waiting) = {
            let queue = locked(&self.shared.queue);
            (queue.held(), queue.waiting())
        };
        metrics.gate_units.of([name.into()]).set(self.shared.units as f64);
        metrics.gate_held.of([name.into()]).set(held as f64);
        metrics.gate_waiting.of([name.into()]).set(waiting as f64);
    }

    fn try_enter(&self, holder: Holder, units: u64) -> Option<Permit> {
        let mut queue = locked(&self.shared.queue);
        let units = queue.at_most(holder, units);
        let entered = queue.try_enter(holder, units);
        drop(queue);
        entered.then(|| Permit { shared: self.shared.clone(), holder, units })
    }

    async fn wait(&self, holder: Holder, units: u64, limit: Option<Duration>) -> Result<Permit, Refused> {
        let shared = &self.shared;
        let (tell, told) = oneshot::channel();
        let ticket = {
            let mut queue = locked(&shared.queue);
            let units = queue.at_most(holder, units);
            let ticket = queue.join(holder, units, tell);
            shared.grant_all(queue, Some(holder));
            ticket
        };
        let mut waiting = Waiting { shared, holder, ticket, told };
        let refused = |waited| Refused { gate: shared.gate, waited };
        let told = match limit {
            None => Ok((&mut waiting.told).await),
            Some(limit) => tokio::time::timeout(limit, &mut waiting.told).await,
        };
        match told {
            Ok(told) => told.map_err(|_| refused(None)),
            Err(_) => Err(refused(limit)),
        }
    }
}

impl Shared {
    /// Gives units to all who may have them after a change, and tells them, once the lock is gone.
    fn grant_all(self: &Arc<Self>, mut queue: MutexGuard<'_, FairQueue<Tell>>, newcomer: Option<Holder>) {
        let mut grants: Vec<Grant<Tell>> = std::iter::from_fn(|| queue.grant()).collect();
        let cut = newcomer.and_then(|newcomer| queue.cut(newcomer));
        if cut.is_some() {
            // It may have been in the way of others.
            grants.extend(std::iter::from_fn(|| queue.grant()));
        }
        drop(queue);
        self.tell(grants);
    }

    fn tell(self: &Arc<Self>, grants: Vec<Grant<Tell>>) {
        for Grant { holder, units, tell } in grants {
            // One that has left a moment ago gives them back by that.
            let _ = tell.send(Permit { shared: self.clone(), holder, units });
        }
    }
}

impl Permit {
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    pub(crate) fn shrink(&mut self, units: u64) {
        let surplus = self.units.saturating_sub(units);
        if surplus > 0 {
            self.units -= surplus;
            let mut queue = locked(&self.shared.queue);
            queue.give_back(self.holder, surplus);
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
    holder: Holder,
    ticket: Ticket,
    told: oneshot::Receiver<Permit>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = locked(&self.shared.queue);
        if queue.leave(self.holder, self.ticket).is_some() {
            self.shared.grant_all(queue, None);
        }
        // A permit that came meanwhile is in `told`, and goes with it.
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

struct GateMetrics {
    outcomes: [Counter; 4],
    wait_seconds: Histogram,
}

impl GateMetrics {
    fn of(name: &'static str) -> GateMetrics {
        let outcomes = Outcome::ALL.map(|outcome: &'static str| metrics().gates.of([name.into(), outcome.into()]));
        GateMetrics { outcomes, wait_seconds: metrics().gate_wait_seconds.of([name.into()]) }
    }
}

/// Counts what became of one that asked; who leaves while it waits has `left`.
struct Measured<'a> {
    metrics: &'a GateMetrics,
    outcome: Outcome,
    began: Instant,
}

impl Measured<'_> {
    fn start(shared: &Shared) -> Measured<'_> {
        Measured { metrics: &shared.metrics, outcome: Outcome::Left, began: Instant::now() }
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.metrics.outcomes[self.outcome as usize].increment(1);
        self.metrics.wait_seconds.record(self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::{FutureExt, poll};

    use super::*;
    use crate::rate_limit::Client;
    use strata_types::ids::UserId;

    const GATE: Gate = Gate { name: "test", what: "tests" };

    fn semaphore(units: u64, queue: usize, wait: Duration) -> FairSemaphore {
        let shares = Shares { units, share_percent: 50, user_percent: 25, queue };
        FairSemaphore::new(GATE, Bounds { shares, wait })
    }

    fn user(number: u64) -> Holder {
        Holder::User(UserId::new(number))
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    /// One that asks, and has to wait.
    fn waits(
        semaphore: &FairSemaphore,
        holder: Holder,
        units: u64,
    ) -> Pin<Box<impl Future<Output = Result<Permit, Refused>>>> {
        let mut waits = Box::pin(semaphore.acquire(holder, units));
        assert!((&mut waits).now_or_never().is_none());
        waits
    }

    #[tokio::test]
    async fn a_permit_is_waited_for_and_goes_to_the_next() {
        let semaphore = semaphore(2, 10, HOUR);
        let first = semaphore.acquire(user(1), 1).await.expect("a unit");
        let second = semaphore.acquire(user(2), 1).await.expect("a unit");
        let mut again = waits(&semaphore, user(1), 1);
        let third = waits(&semaphore, user(3), 1);
        assert_eq!((semaphore.held(), semaphore.waiting()), (2, 2));
        drop(second);
        // Another one's, since the first has its share.
        assert!(poll!(&mut again).is_pending());
        let third = third.await.expect("a unit");
        drop((first, third));
        drop(again.await.expect("a unit"));
        assert_eq!((semaphore.held(), semaphore.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn too_many_are_refused_at_once_and_too_slow_ones_later() {
        let semaphore = semaphore(1, 1, Duration::ZERO);
        let held = semaphore.acquire(user(1), 1).await.expect("a unit");
        let late = semaphore.acquire(user(2), 1).await.err();
        assert_eq!(late, Some(Refused { gate: GATE, waited: Some(Duration::ZERO) }));
        assert_eq!((semaphore.held(), semaphore.waiting()), (1, 0));

        let patient = self::semaphore(1, 1, HOUR);
        let also = patient.acquire(user(1), 1).await.expect("a unit");
        let waits = waits(&patient, user(2), 1);
        let full = patient.acquire(user(2), 1).await.err();
        assert_eq!(full, Some(Refused { gate: GATE, waited: None }));
        drop((held, also));
        assert!(waits.await.is_ok());
    }

    #[tokio::test]
    async fn one_whose_place_is_taken_is_told_at_once() {
        let semaphore = semaphore(1, 2, HOUR);
        let held = semaphore.acquire(user(1), 1).await.expect("a unit");
        let mut hostile: Vec<_> = (0..2).map(|_| waits(&semaphore, user(2), 1)).collect();
        let other = waits(&semaphore, Holder::Anonymous(Client::V4([192, 0, 2, 1])), 1);
        let cut = hostile.pop().expect("the second").await.err();
        assert_eq!(cut, Some(Refused { gate: GATE, waited: None }));
        drop((held, hostile));
        assert!(other.await.is_ok());
    }

    #[tokio::test]
    async fn one_that_leaves_gives_its_place_and_its_units_back() {
        let semaphore = semaphore(1, 10, HOUR);
        let held = semaphore.acquire(user(1), 1).await.expect("a unit");
        let [leaving, granted, stays] = [2, 3, 4].map(|number| waits(&semaphore, user(number), 1));
        drop(leaving);
        assert_eq!(semaphore.waiting(), 2);
        drop(held);
        // It has been given its unit, and leaves before it looks.
        assert_eq!((semaphore.held(), semaphore.waiting()), (1, 1));
        drop(granted);
        assert!(stays.await.is_ok());
        assert_eq!((semaphore.held(), semaphore.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn one_that_waits_for_its_own_share_stops_nobody_that_only_tries() {
        let semaphore = semaphore(4, 10, HOUR);
        let held = [semaphore.acquire(user(1), 1).await, semaphore.acquire(user(1), 1).await];
        let own = waits(&semaphore, user(1), 1);
        let tried = semaphore.try_acquire(user(2), 1);
        assert!(tried.is_some(), "two are free, and the first has its share");
        // It keeps to its own share, and leaves no trace.
        assert!(semaphore.try_acquire(user(1), 1).is_none() && semaphore.try_acquire(user(2), 1).is_none());
        assert_eq!((semaphore.held(), semaphore.waiting()), (3, 1));
        // One that is waited for is not passed.
        let large = waits(&semaphore, user(3), 4);
        assert!(semaphore.try_acquire(user(4), 1).is_none());
        drop((held, tried));
        assert!(own.await.is_ok() && large.await.is_ok());
    }

    #[tokio::test]
    async fn one_that_cannot_be_refused_keeps_its_place() {
        let semaphore = semaphore(1, 10, Duration::from_millis(100));
        let held = semaphore.acquire(user(1), 1).await;
        let patient = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire_patiently(user(2), 1).await }
        });
        tokio::time::sleep(Duration::from_millis(150)).await;
        // Those of the same user come later. This one cannot be refused either, however slow the machine is.
        let mut later = Box::pin(semaphore.acquire_patiently(user(2), 1));
        assert!(poll!(&mut later).is_pending());
        drop(held);
        let first = patient.await.expect("no panic");
        assert!(poll!(&mut later).is_pending(), "it has passed the one that was first");
        drop(first);
        drop(later.await);
    }

    #[tokio::test]
    async fn more_than_there_is_takes_all_and_can_be_given_back_in_parts() {
        let semaphore = semaphore(100, 10, HOUR);
        let mut all = semaphore.acquire(user(1), 1_000).await.expect("all");
        assert_eq!((all.units(), semaphore.held()), (100, 100));
        let mut next = waits(&semaphore, user(2), 10);
        all.shrink(91);
        assert!(poll!(&mut next).is_pending());
        all.shrink(90);
        drop(next.await.expect("ten"));
        assert!(semaphore.try_acquire(user(3), 11).is_none());
        assert!(semaphore.try_acquire(user(3), 10).is_some());
        drop(all);
        assert_eq!(semaphore.held(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn under_load_there_are_never_too_many_and_all_have_their_turn() {
        const UNITS: u64 = 7;
        let semaphore = semaphore(UNITS, 10_000, HOUR);
        let at_once = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..400_u64)
            .map(|number| {
                let (semaphore, at_once) = (semaphore.clone(), at_once.clone());
                tokio::spawn(async move {
                    let holder = match number % 9 {
                        number @ 0..4 => user(number),
                        number => Holder::Anonymous(Client::V4([192, 0, 2, number as u8])),
                    };
                    let units = number % 5 + 1;
                    for round in 0..20_u64 {
                        if (number + round) % 3 == 0 {
                            // Leaves at some moment, perhaps as it is given its units.
                            let mut leaving = Box::pin(semaphore.acquire(holder, units));
                            let _ = poll!(&mut leaving);
                            tokio::task::yield_now().await;
                            continue;
                        }
                        let permit = semaphore.acquire(holder, units).await.expect("its turn");
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
        assert_eq!((semaphore.held(), semaphore.waiting()), (0, 0));
    }
}
