//! [`FairLimit`]: the fair queue ([`crate::queue`]) with timeouts, tasks, and metrics.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::metrics::{Counter, Histogram};
use parking_lot::{Mutex, MutexGuard};
use strata_runtime::metrics::metrics;
use tokio::sync::oneshot;

use crate::principal::Principal;
use crate::queue::{FairQueue, UnitGrant, UnitsDenied, WaiterTicket};
use crate::shares::{FairShares, UnitsOfOthers};

/// A limit that principals share fairly. Clones share it.
///
/// A limit with a name has a queue and metrics: `strata_gate_total` counts the outcomes of requests, and
/// `strata_gate_wait_seconds` measures their waiting times. A quota ([`FairLimit::new_quota`]) has neither.
#[derive(Clone)]
pub struct FairLimit {
    shared: Arc<FairLimitState>,
}

struct FairLimitState {
    name: LimitName,
    metrics: Option<LimitMetrics>,
    shares: FairShares,
    max_wait: Duration,
    queue: Mutex<FairQueue<PermitSender>>,
}

/// Sends a waiting request its permit. Dropping the sender evicts the request from the queue.
type PermitSender = oneshot::Sender<Permit>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitName {
    pub name: &'static str,
    /// The limited requests in the plural, for messages. For example: `heavy queries`.
    pub requests: &'static str,
}

const QUOTA_NAME: LimitName = LimitName { name: "quota", requests: "reservations" };

/// Delay after which an evicted request joins the queue again if it cannot be refused: its response has begun.
const REQUEUE_DELAY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many concurrent {}", limit.requests)]
pub struct Overloaded {
    pub limit: LimitName,
    /// Time in the queue; `None` if the queue was full.
    pub waited: Option<Duration>,
}

impl Overloaded {
    pub const RETRY_AFTER_S: u64 = 5;

    /// Returns true if a request that shared the refusal of an identical one (single flight) should retry on its own.
    pub fn is_worth_retrying(&self, since: Instant) -> bool {
        since.elapsed() <= self.waited.unwrap_or_default() + Duration::from_secs(1)
    }
}

#[must_use = "dropping it releases the units"]
pub struct Permit {
    shared: Arc<FairLimitState>,
    principal: Principal,
    units: u64,
}

impl FairLimit {
    /// Creates a limit with a queue. Metrics identify limits by name, so a name should be unique within a process.
    pub fn new(name: LimitName, shares: FairShares, max_wait: Duration) -> FairLimit {
        FairLimit::build(name, Some(LimitMetrics::new(name.name)), shares, max_wait)
    }

    /// Creates a limit without a queue and metrics, for [`FairLimit::try_reserve`].
    pub fn new_quota(shares: FairShares) -> FairLimit {
        FairLimit::build(QUOTA_NAME, None, shares, Duration::ZERO)
    }

    fn build(name: LimitName, metrics: Option<LimitMetrics>, shares: FairShares, max_wait: Duration) -> FairLimit {
        let queue = Mutex::new(FairQueue::new(shares));
        FairLimit { shared: Arc::new(FairLimitState { name, metrics, shares, max_wait, queue }) }
    }

    /// Waits for units (permits or bytes). If the principal can never have as many, the permit has fewer. Cancel safe.
    pub async fn acquire(&self, principal: Principal, units: u64) -> Result<Permit, Overloaded> {
        let mut request = AcquireMeasurement::start(&self.shared);
        let permit = match self.try_acquire_clamped(principal, units) {
            Some(permit) => Ok(permit),
            None => Box::pin(self.wait_for_permit(principal, units, Some(self.shared.max_wait))).await,
        };
        request.outcome = match &permit {
            Ok(_) => AcquireOutcome::Granted,
            Err(Overloaded { waited: None, .. }) => AcquireOutcome::QueueFull,
            Err(Overloaded { waited: Some(_), .. }) => AcquireOutcome::TimedOut,
        };
        permit
    }

    /// Like [`FairLimit::acquire`], but without a timeout, for responses that have begun.
    pub async fn acquire_without_timeout(&self, principal: Principal, units: u64) -> Permit {
        let mut request = AcquireMeasurement::start(&self.shared);
        let permit = loop {
            if let Some(permit) = self.try_acquire_clamped(principal, units) {
                break permit;
            }
            // Without a timeout, the request stays in the queue, so that later ones do not overtake it.
            match Box::pin(self.wait_for_permit(principal, units, None)).await {
                Ok(permit) => break permit,
                Err(_) => tokio::time::sleep(REQUEUE_DELAY).await,
            }
        };
        request.outcome = AcquireOutcome::Granted;
        permit
    }

    /// Acquires units if all of them are available immediately. Does not change metrics.
    pub fn try_acquire(&self, principal: Principal, units: u64) -> Result<Permit, Overloaded> {
        let mut queue = self.shared.lock_queue();
        if queue.try_take_without_queue(principal, units) {
            return Ok(self.new_permit(principal, units));
        }
        let refused = self.shared.overloaded_error(None);
        if queue.waiter_count() == 0 {
            return Err(refused);
        }
        let (waker, mut granted) = oneshot::channel();
        let grants = queue.try_enqueue(principal, units, waker);
        drop(queue);
        self.shared.send_permits(grants);
        granted.try_recv().map_err(|_| refused)
    }

    pub fn try_reserve(&self, principal: Principal, units: u64) -> Result<(), UnitsDenied> {
        self.shared.lock_queue().try_take(principal, units)
    }

    /// Like [`FairLimit::try_reserve`], but takes the units even if they exceed the quota.
    pub fn reserve(&self, principal: Principal, units: u64) {
        self.shared.lock_queue().take_unchecked(principal, units);
    }

    pub fn release(&self, principal: Principal, units: u64) {
        let mut queue = self.shared.lock_queue();
        queue.release(principal, units);
        self.shared.grant_units(queue, None);
    }

    pub fn used_units(&self) -> u64 {
        self.shared.lock_queue().used_units()
    }

    pub fn waiter_count(&self) -> usize {
        self.shared.lock_queue().waiter_count()
    }

    pub fn principal_count(&self) -> usize {
        self.shared.lock_queue().principal_count()
    }

    pub fn max_wait(&self) -> Duration {
        self.shared.max_wait
    }

    /// Returns how many units the principal can have while no other principal has any.
    pub fn max_sole_units(&self, principal: Principal) -> u64 {
        self.shared.shares.max_units(principal, UnitsOfOthers::default())
    }

    pub fn clamp_to_class_max(&self, principal: Principal, units: u64) -> u64 {
        units.min(self.shared.shares.max_class_units(principal))
    }

    pub fn update_metrics(&self) {
        let metrics = metrics();
        let label = || [self.shared.name.name.into()];
        let queue = self.shared.lock_queue();
        metrics.limit_units.with_label_values(label()).set(self.shared.shares.total_units as f64);
        metrics.limit_used_units.with_label_values(label()).set(queue.used_units() as f64);
        metrics.limit_waiting_requests.with_label_values(label()).set(queue.waiter_count() as f64);
    }

    fn new_permit(&self, principal: Principal, units: u64) -> Permit {
        Permit { shared: self.shared.clone(), principal, units }
    }

    fn try_acquire_clamped(&self, principal: Principal, units: u64) -> Option<Permit> {
        let units = self.clamp_to_class_max(principal, units);
        let entered = self.shared.lock_queue().try_take_without_queue(principal, units);
        entered.then(|| self.new_permit(principal, units))
    }

    async fn wait_for_permit(
        &self,
        principal: Principal,
        units: u64,
        limit: Option<Duration>,
    ) -> Result<Permit, Overloaded> {
        let shared = &self.shared;
        let units = self.clamp_to_class_max(principal, units);
        let (waker, granted) = oneshot::channel();
        let ticket = {
            let mut queue = shared.lock_queue();
            let ticket = queue.enqueue(principal, units, waker);
            shared.grant_units(queue, Some(principal));
            ticket
        };
        let mut waiting = PermitWaiter { shared, principal, ticket, granted };
        let granted = match limit {
            None => Ok((&mut waiting.granted).await),
            Some(limit) => tokio::time::timeout(limit, &mut waiting.granted).await,
        };
        match granted {
            Ok(granted) => granted.map_err(|_| shared.overloaded_error(None)),
            Err(_) => Err(shared.overloaded_error(limit)),
        }
    }
}

impl fmt::Debug for FairLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FairLimit").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl FairLimitState {
    fn lock_queue(&self) -> MutexGuard<'_, FairQueue<PermitSender>> {
        // The queue is consistent even if a thread panicked, because no panic is possible between two related changes.
        self.queue.lock()
    }

    fn overloaded_error(&self, waited: Option<Duration>) -> Overloaded {
        Overloaded { limit: self.name, waited }
    }

    /// Grants units to waiting requests after a change of the queue. Wakes their tasks after the lock is released.
    fn grant_units(self: &Arc<Self>, mut queue: MutexGuard<'_, FairQueue<PermitSender>>, newcomer: Option<Principal>) {
        let mut grants: Vec<UnitGrant<PermitSender>> = queue.drain_grants().collect();
        let evicted = newcomer.and_then(|newcomer| queue.evict(newcomer));
        if evicted.is_some() {
            // The evicted request may have blocked other ones, which can now get their units.
            grants.extend(queue.drain_grants());
        }
        drop(queue);
        self.send_permits(grants);
    }

    fn send_permits(self: &Arc<Self>, grants: Vec<UnitGrant<PermitSender>>) {
        for UnitGrant { principal, units, waker } in grants {
            // If the request was cancelled a moment ago, the send fails, and dropping the permit releases its units.
            let _ = waker.send(Permit { shared: self.clone(), principal, units });
        }
    }
}

impl Permit {
    pub fn units(&self) -> u64 {
        self.units
    }

    pub fn shrink_to(&mut self, units: u64) {
        let surplus = self.units.saturating_sub(units);
        if surplus > 0 {
            self.units -= surplus;
            let mut queue = self.shared.lock_queue();
            queue.release(self.principal, surplus);
            self.shared.grant_units(queue, None);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

struct PermitWaiter<'a> {
    shared: &'a Arc<FairLimitState>,
    principal: Principal,
    ticket: WaiterTicket,
    granted: oneshot::Receiver<Permit>,
}

impl Drop for PermitWaiter<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock_queue();
        if queue.cancel(self.principal, self.ticket).is_some() {
            self.shared.grant_units(queue, None);
        }
        // If a permit was granted concurrently, dropping the field `granted` releases its units.
    }
}

#[derive(Clone, Copy)]
enum AcquireOutcome {
    Granted,
    QueueFull,
    TimedOut,
    Cancelled,
}

impl AcquireOutcome {
    const LABELS: [&'static str; 4] = ["entered", "full", "late", "left"];
}

struct LimitMetrics {
    outcome_counters: [Counter; 4],
    wait_seconds: Histogram,
}

impl LimitMetrics {
    fn new(name: &'static str) -> LimitMetrics {
        let outcome_counters = AcquireOutcome::LABELS
            .map(|outcome: &'static str| metrics().limit_outcomes.with_label_values([name.into(), outcome.into()]));
        LimitMetrics { outcome_counters, wait_seconds: metrics().limit_wait_seconds.with_label_values([name.into()]) }
    }
}

/// Records the outcome and the waiting time of a request in the metrics of its limit when dropped.
struct AcquireMeasurement<'a> {
    metrics: Option<&'a LimitMetrics>,
    outcome: AcquireOutcome,
    started_at: Instant,
}

impl AcquireMeasurement<'_> {
    fn start(shared: &FairLimitState) -> AcquireMeasurement<'_> {
        let metrics = shared.metrics.as_ref();
        AcquireMeasurement { metrics, outcome: AcquireOutcome::Cancelled, started_at: Instant::now() }
    }
}

impl Drop for AcquireMeasurement<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics {
            metrics.outcome_counters[self.outcome as usize].increment(1);
            metrics.wait_seconds.record(self.started_at.elapsed());
        }
    }
}
