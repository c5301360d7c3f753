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
