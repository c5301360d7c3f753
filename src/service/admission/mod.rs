//! Limits for requests: how many queries and streamed responses run at the same time, and how much memory they use.
//!
//! Problem: one client that sends heavy queries, or reads responses slowly, must not use up what others need. Every
//! limit here is a [`FairLimit`], which users and client networks share (`fair.share_percent`, `fair.user_percent`).
//! Work that needs the processor and work that waits for a client have separate limits, so that slow readers hold
//! nothing that others need:
//!
//! 1. **Queries.** A query holds a permit until it has selected entities and, for a table, knows the columns. That ends
//!    at the latest after `query.timeout_s`, however slow the client is. The estimated work ([`strata_query::cost`])
//!    decides which permit: above `query.heavy_bytes` one of `query.heavy_queries`, above `query.medium_bytes` one of
//!    `query.medium_queries`, otherwise one of `query.light_queries`. There are few medium permits, because two dozen
//!    queries of a few milliseconds each would delay a page by a tenth of a second. A diff holds one of `query.diffs`
//!    until all changes are known (`query.diff_timeout_s`).
//! 2. **Streams.** A response of more than one unit is one of at most `query.streams` until its body ends, which
//!    `server.write_stall_s` and `server.answer_timeout_s` limit. Each unit is encoded with a permit
//!    ([`Admission::unit`]) that is released before the reader gets the unit. So are large whole bodies. Encoding runs
//!    on a thread of its own ([`Engine::spawn_apart`]), because one large entity can take long. One network never has
//!    all permits and so never all threads.
//! 3. **Bytes.** Bytes that are encoded ahead of their readers are limited in total by `query.stream_bytes`
//!    ([`Admission::ahead`]), until the connection has sent them. Nothing waits for that limit: a response that gets no
//!    bytes continues in small units, one at a time. So there is no deadlock, and a thousand stalled readers hold a
//!    small unit each and the limit in total. Units that became larger than estimated, and whole bodies that get no
//!    bytes, are charged to the memory of queries. Large responses that are built as a whole ([`large_responses`]) and
//!    large entities in streams have limits of the same size, which they wait for before the response begins.
//! 4. **Parquet.** A Parquet body holds a row group while it encodes it. All Parquet bodies use at most half of the
//!    memory of queries. Encoded bytes wait for their reader on disk ([`crate::read::parquet`]).
//!
//! `query.heavy_queue` requests can wait for each of heavy queries, diffs, streams and Parquet, and `query.light_queue`
//! for each of medium and light queries. A request that waits for more than `query.heavy_wait_s`, or for which the
//! queue has no space, gets a 503 response. That includes a request that gets no unit in time to begin its body. A body
//! that has begun is never refused.
//!
//! `resilience::fair` and `resilience::large_responses` fail without these limits.
//!
//! [`Engine::spawn_apart`]: strata_query::Engine::spawn_apart

pub(crate) mod bodies;
pub(crate) mod capacity;
pub(crate) mod catalog;
pub(crate) mod large_responses;
pub(crate) mod principal_hasher;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use serde::Serialize;
use utoipa::ToSchema;

use strata_config as config;
pub(crate) use strata_limits::Permit;
use strata_limits::{FairLimit, LimitName, Shares};
use strata_runtime::priority::Priority;

use crate::{Overloaded, Principal};

/// Units that can be encoded at the same time, for each query thread: enough to keep the processors busy while some
/// wait for a distant store, and few enough that their threads are cheap.
const UNITS_PER_THREAD: u64 = 4;

/// Light queries for each thread: enough that queries rarely wait, and few enough that a client that sends thousands of
/// requests at once waits behind all others.
const LIGHT_PER_THREAD: u64 = 32;

/// Medium queries for each thread: enough that the share of a single network keeps all threads busy, and few enough
/// that the next network gets a third of them at once.
const MEDIUM_PER_THREAD: u64 = 3;
const MIN_MEDIUM: u64 = 6;

/// So that users and several networks can run one each.
const MIN_HEAVY: u64 = 4;

/// A unit that exceeds its estimate by this much is charged for the rest.
const LARGE_BYTES: u64 = 1 << 20;

/// Neither documents nor bodies of up to this size are charged.
pub(crate) const WHOLE_BYTES: u64 = 64 << 10;

/// The limits of a service, for one principal. Clones share the limits.
#[derive(Clone)]
pub(crate) struct Admission {
    shared: Arc<Shared>,
    pub(crate) principal: Principal,
}

struct Shared {
    light: FairLimit,
    medium: FairLimit,
    heavy: FairLimit,
    diffs: FairLimit,
    streams: FairLimit,
    parquet: FairLimit,
    units: FairLimit,
    long_units: FairLimit,
    ahead: FairLimit,
    large: FairLimit,
    large_units: FairLimit,
    buffered_bytes: Arc<AtomicU64>,
    parquet_waiting: Arc<AtomicUsize>,
}

/// A Parquet body that has begun and waits for memory, until this is dropped.
pub(crate) struct WaitsForMemory(Arc<AtomicUsize>);

impl Drop for WaitsForMemory {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn gates(&self) -> [&FairLimit; 11] {
        let Shared {
            light, medium, heavy, diffs, streams, parquet, units, long_units, ahead, large, large_units, ..
        } = self;
        [light, medium, heavy, diffs, streams, parquet, units, long_units, ahead, large, large_units]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub heavy_running: usize,
    pub heavy_waiting: usize,
    pub medium_running: usize,
    /// Other queries that select, and tables whose columns are looked for.
    pub light_running: usize,
    pub diffs_running: usize,
    pub streams: usize,
    pub units: usize,
    /// Bytes of bodies that are encoded and not yet sent.
    pub buffered_bytes: u64,
    /// Bytes of `query.stream_bytes` that are taken.
    pub ahead_bytes: u64,
}

/// The class of a query, based on its estimated work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// The work is at most `query.medium_bytes`. For example, a page without a filter is light.
    Light,
    /// The work exceeds `query.medium_bytes`.
    Medium,
    /// The work exceeds `query.heavy_bytes`.
    Heavy,
}

impl Weight {
    pub(crate) fn priority(self) -> Priority {
        match self {
            Weight::Light => Priority::Short,
            Weight::Medium => Priority::Medium,
            Weight::Heavy => Priority::Heavy,
        }
    }

    pub fn of(work_bytes: u64, query: &config::Query) -> Weight {
        match work_bytes {
            heavy if heavy > query.heavy_bytes => Weight::Heavy,
            medium if medium > query.medium_bytes => Weight::Medium,
            _ => Weight::Light,
        }
    }
}

/// A limit of at least one unit, which principals share as configured. `queue` is how many of them can wait in total.
pub(crate) fn fair_limit(name: LimitName, units: u64, fair: &config::Fair, queue: u64, wait_s: u64) -> FairLimit {
    let queue = usize::try_from(queue).unwrap_or(usize::MAX);
    let shares = Shares { queue, ..Shares::new(units.max(1), fair.share_percent, fair.user_percent) };
    FairLimit::new(name, shares, Duration::from_secs(wait_s))
}

impl Admission {
    /// The configured limits, for the operator. Their defaults depend on the number of query threads.
    pub(crate) fn new(query: &config::Query, fair: &config::Fair, threads: usize, memory_bytes: u64) -> Admission {
        let threads = threads.max(1) as u64;
        let or = |configured: u64, default: u64| if configured == 0 { default } else { configured };
        let heavy = or(query.heavy_queries, threads.max(MIN_HEAVY));
        let gate = |name, what, units, queue, wait_s| fair_limit(LimitName { name, what }, units, fair, queue, wait_s);
        let bounded = |name, what, units| gate(name, what, units, query.heavy_queue, query.heavy_wait_s);
        let units = |name| {
            // The queue has no limit: who waits has a permit for a query or a stream.
            gate(name, "response chunks", threads * UNITS_PER_THREAD, u64::MAX, query.heavy_wait_s)
        };
        let bytes = |name, what| gate(name, what, query.stream_bytes, query.light_queue, query.heavy_wait_s);
        let light = or(query.light_queries, threads * LIGHT_PER_THREAD);
        let medium = or(query.medium_queries, (threads * MEDIUM_PER_THREAD).max(MIN_MEDIUM));
        let shared = Shared {
            light: gate("light", "queries", light, query.light_queue, query.heavy_wait_s),
            medium: gate("medium", "medium queries", medium, query.light_queue, query.heavy_wait_s),
            heavy: bounded("heavy", "heavy queries", heavy),
            diffs: bounded("diff", "diffs", or(query.diffs, heavy.div_ceil(2))),
            streams: bounded("stream", "streamed responses", query.streams),
            parquet: bounded("parquet", "Parquet exports", memory_bytes / 2),
            units: units("unit"),
            long_units: units("long_unit"),
            ahead: gate("ahead", "buffered responses", query.stream_bytes, 0, 0),
            large: bytes("response", "large responses"),
            large_units: bytes("stream_unit", "streamed large entities"),
            buffered_bytes: Arc::default(),
            parquet_waiting: Arc::default(),
        };
        Admission { shared: Arc::new(shared), principal: Principal::Operator }
    }

    pub(crate) fn of(&self, principal: Principal) -> Admission {
        Admission { shared: self.shared.clone(), principal }
    }

    pub(crate) async fn query(&self, weight: Weight) -> Result<Permit, Overloaded> {
        self.gate(weight).acquire(self.principal, 1).await
    }

    /// Like [`Admission::query`], but never waits.
    pub(crate) fn try_query(&self, weight: Weight) -> Option<Permit> {
        self.gate(weight).try_acquire(self.principal, 1).ok()
    }

    fn gate(&self, weight: Weight) -> &FairLimit {
        match weight {
            Weight::Light => &self.shared.light,
            Weight::Medium => &self.shared.medium,
            Weight::Heavy => &self.shared.heavy,
        }
    }

    pub(crate) async fn diff(&self) -> Result<Permit, Overloaded> {
        self.shared.diffs.acquire(self.principal, 1).await
    }

    pub(crate) async fn stream(&self) -> Result<Permit, Overloaded> {
        self.shared.streams.acquire(self.principal, 1).await
    }

    /// Like [`Admission::stream`], for a body whose units are about this large. The bytes of a unit beyond
    /// [`WHOLE_BYTES`] are charged until the body ends. Their limit is not that of large responses, because a large
    /// response can read a stream while it is built. An entity that is larger than estimated is charged to the memory
    /// of queries when it is encoded ([`Capacity::beyond`](capacity::Capacity::beyond)).
    pub(crate) async fn stream_of_units(&self, unit_bytes: u64) -> Result<StreamPermit, Overloaded> {
        let unit = match unit_bytes.saturating_sub(WHOLE_BYTES) {
            0 => None,
            size_bytes => Some(self.shared.large_units.acquire(self.principal, size_bytes).await?),
        };
        Ok(StreamPermit { _place: self.stream().await?, unit })
    }

    /// Bytes of a large response, or as many as the principal can have.
    pub(crate) async fn large(&self, size_bytes: u64) -> Result<Permit, Overloaded> {
        self.shared.large.acquire(self.principal, size_bytes).await
    }

    /// Like [`Admission::large`], but never waits.
    pub(crate) fn try_large(&self, size_bytes: u64) -> Result<Permit, Overloaded> {
        let large = &self.shared.large;
        large.try_acquire(self.principal, large.clamp(self.principal, size_bytes))
    }

    /// Memory for a Parquet body, or as much as the principal can have.
    pub(crate) async fn parquet(&self, size_bytes: u64) -> Result<Permit, Overloaded> {
        self.shared.parquet.acquire(self.principal, size_bytes).await
    }

    /// Reports that a body that has begun waits for memory, so that no other body begins before it continues.
    pub(crate) fn waits_for_memory(&self) -> WaitsForMemory {
        let waiting = self.shared.parquet_waiting.clone();
        waiting.fetch_add(1, Ordering::Relaxed);
        WaitsForMemory(waiting)
    }

    pub(crate) fn is_memory_waited_for(&self) -> bool {
        self.shared.parquet_waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn parquet_wait(&self) -> Duration {
        self.shared.parquet.max_wait()
    }

    /// Like [`Admission::parquet`], for a body that has begun: waits for the row groups of others as long as it takes.
    pub(crate) async fn parquet_again(&self, size_bytes: u64) -> Permit {
        self.shared.parquet.acquire_unbounded(self.principal, size_bytes).await
    }

    /// Like [`Admission::parquet_again`], but never waits.
    pub(crate) fn try_parquet(&self, size_bytes: u64) -> Option<Permit> {
        self.shared.parquet.try_acquire(self.principal, size_bytes).ok()
    }

    /// A permit to encode the first unit of a streamed body, or a large whole one, on a thread of its own.
    pub(crate) async fn unit(&self) -> Result<Permit, Overloaded> {
        self.shared.units.acquire(self.principal, 1).await
    }

    /// Like [`Admission::unit`], for a body that has begun: only `server.answer_timeout_s` limits the wait. `long`
    /// streams, whose threads have the lowest priority, have permits of their own, so that others do not wait for them.
    pub(crate) async fn unit_again(&self, long: bool) -> Permit {
        let units = if long { &self.shared.long_units } else { &self.shared.units };
        units.acquire_unbounded(self.principal, 1).await
    }

    /// Bytes for a part that is encoded ahead of its reader: all of them or none.
    pub(crate) fn ahead(&self, size_bytes: u64) -> Option<Permit> {
        self.shared.ahead.try_acquire(self.principal, size_bytes).ok()
    }

    /// Whether requests wait for what the creation of an export uses.
    pub(crate) fn is_contended(&self) -> bool {
        let shared = &self.shared;
        let gates = [&shared.light, &shared.medium, &shared.heavy, &shared.streams, &shared.parquet];
        gates.into_iter().any(|gate| gate.waiting() > 0)
    }

    /// Bytes for a whole body: `Some(None)` if it is too small to be charged, `None` if it should be streamed instead.
    pub(crate) fn whole(&self, size_bytes: u64) -> Option<Option<Permit>> {
        if size_bytes <= WHOLE_BYTES { Some(None) } else { self.ahead(size_bytes).map(Some) }
    }

    /// The bytes as a part of a body. They count as buffered, and hold `room` and `memory`, until the connection has
    /// sent them. Copy them to keep them for longer.
    pub(crate) fn held(
        &self,
        bytes: impl Into<Bytes>,
        room: Option<Permit>,
        memory: Option<MemoryReservation>,
    ) -> Bytes {
        let bytes = bytes.into();
        let account = self.account_of(bytes.len() as u64, room, memory);
        accounted(bytes, account)
    }

    fn account_of(&self, size_bytes: u64, room: Option<Permit>, memory: Option<MemoryReservation>) -> Account {
        let total = self.shared.buffered_bytes.clone();
        total.fetch_add(size_bytes, Ordering::Relaxed);
        Account { size_bytes, total, _room: room, _memory: memory }
    }

    pub(crate) fn load(&self) -> Load {
        let shared = &self.shared;
        let held = |gate: &FairLimit| usize::try_from(gate.used_units()).unwrap_or(usize::MAX);
        Load {
            heavy_running: held(&shared.heavy),
            heavy_waiting: shared.heavy.waiting(),
            medium_running: held(&shared.medium),
            light_running: held(&shared.light),
            diffs_running: held(&shared.diffs),
            streams: held(&shared.streams),
            units: held(&shared.units) + held(&shared.long_units),
            buffered_bytes: shared.buffered_bytes.load(Ordering::Relaxed),
            ahead_bytes: shared.ahead.used_units(),
        }
    }

    pub(crate) fn update_metrics(&self) {
        self.shared.gates().into_iter().for_each(FairLimit::update_metrics);
    }
}

pub(crate) struct StreamPermit {
    _place: Permit,
    unit: Option<Permit>,
}

impl StreamPermit {
    pub(crate) fn unit_bytes(&self) -> u64 {
        self.unit.as_ref().map_or(0, Permit::units)
    }
}

pub(crate) struct Account {
    size_bytes: u64,
    total: Arc<AtomicU64>,
    _room: Option<Permit>,
    _memory: Option<MemoryReservation>,
}

impl Drop for Account {
    fn drop(&mut self) {
        self.total.fetch_sub(self.size_bytes, Ordering::Relaxed);
    }
}

/// The bytes. Their last slice holds the account or the permits.
pub(crate) fn accounted<T: Send + 'static>(bytes: Bytes, account: T) -> Bytes {
    Bytes::from_owner(ChargedBytes { bytes, _account: account })
}

struct ChargedBytes<T> {
    bytes: Bytes,
    _account: T,
}

impl<T> AsRef<[u8]> for ChargedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(change: impl FnOnce(&mut config::Query)) -> Admission {
        let mut query = config::Config::default().query;
        change(&mut query);
        Admission::new(&query, &config::Fair::default(), 2, 1 << 30)
    }

    /// The wait for a unit had no end. An answer that had not begun hung as long as its client waited.
    #[tokio::test]
    async fn wait_for_first_unit_is_limited() {
        let admission = admission(|query| query.heavy_wait_s = 0);
        let mut held = Vec::new();
        while let Ok(permit) = admission.unit().await {
            held.push(permit);
        }
        let late = admission.unit().await.err().expect("all are taken");
        assert_eq!((late.limit.name, late.waited), ("unit", Some(std::time::Duration::ZERO)));
        // One that has begun goes on.
        let goes_on = tokio::spawn({
            let admission = admission.clone();
            async move { drop(admission.unit_again(false).await) }
        });
        while admission.shared.units.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        drop(held);
        goes_on.await.expect("it has its unit");
        assert!(admission.unit().await.is_ok());
    }

    #[test]
    fn bytes_are_charged_until_last_slice_is_dropped() {
        let admission = admission(|query| query.stream_bytes = 1 << 20);
        let room = admission.ahead(1 << 20).expect("all of it");
        assert!(admission.ahead(1).is_none());
        let mut bytes = admission.held(vec![7; 1_000], Some(room), None);
        let first = bytes.split_to(10);
        drop(bytes);
        assert_eq!((admission.load().buffered_bytes, admission.load().ahead_bytes), (1_000, 1 << 20));
        drop(first);
        assert_eq!(admission.load(), Load::default());
        assert!(admission.ahead(1).is_some());
    }

    /// A hint is not worth waiting for.
    #[tokio::test]
    async fn try_query_never_waits() {
        let admission = admission(|query| query.light_queries = 1);
        let held = admission.query(Weight::Light).await.expect("the only one");
        assert!(admission.try_query(Weight::Light).is_none());
        assert!(admission.try_query(Weight::Medium).is_some());
        drop(held);
        assert!(admission.try_query(Weight::Light).is_some());
    }
}
