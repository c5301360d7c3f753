//! Who may work when there is more to do than the machine can: queries, streamed answers, and their memory.
//!
//! Every gate is a [`FairSemaphore`]: users and networks of clients share it, take permits, and leave each other room
//! (`fair.share_percent`, `fair.user_percent`). What costs processor time is held apart from what waits for clients, so
//! that slow readers hold nothing that others need:
//!
//! 1. **Selecting.** A request whose work is above `query.heavy_bytes` ([`strata_query::cost`]) holds one of
//!    `query.heavy_queries` permits until its selection is known and, for a table, its columns are known. That ends
//!    by itself (`query.timeout_s`), however slow the client is. One whose work is above `query.medium_bytes` holds one
//!    of `query.medium_queries` meanwhile, which are few, too: two dozen of a few milliseconds each would keep a page
//!    waiting for a tenth of a second. Any other holds one of `query.light_queries`, of which there are many. Comparing
//!    two versions holds one of `query.diffs`, until it is known what differs (`query.diff_timeout_s`).
//! 2. **Streaming.** An answer of more than one unit is one of at most `query.streams`, until its body ends, which
//!    `server.write_stall_s` and `server.answer_timeout_s` bound. Its units are encoded with permits of their own
//!    ([`Admission::unit`]), a few for each thread, held while a unit is encoded and not while its reader takes it. So
//!    are whole bodies that are not small. Each runs on a thread of its own ([`Engine::spawn_apart`]), since one entity
//!    may keep it for long: one network, which never has all permits, never has all threads, and pages, which need no
//!    permit, wait for none.
//! 3. **Bytes.** What is encoded ahead of readers, all together, is `query.stream_bytes`, taken by [`Admission::ahead`]
//!    and given back as the connection has sent it. It is only ever tried, never waited for: an answer that gets
//!    none goes on in small units, one at a time. So nothing can deadlock, and a thousand readers that have stopped
//!    hold a small unit each and the budget together. What became larger than was foreseen, and whole bodies that find
//!    no room there, are accounted to the memory of queries.
//!    Large responses that are built as a whole have a second limit of the same size ([`large_responses`]), and what
//!    units of large entities have beyond a small unit a third. Both are waited for before the response begins.
//! 4. **Parquet.** A Parquet body holds a row group while it is made; its memory is accounted to the pool of queries,
//!    of which all Parquet bodies together take at most half. What is made waits for its reader on disk
//!    ([`crate::read::parquet`]).
//!
//! The queues before heavy queries, diffs, streams and Parquet hold `query.heavy_queue` requests each, those before
//! medium and light queries `query.light_queue`; one waits for `query.heavy_wait_s`. Past either a request is refused,
//! which is 503. So is one whose body cannot be begun for so long because it gets no unit. A body that has begun is not
//! refused any more.
//!
//! `resilience::fair` and `resilience::large_responses` fail without these limits.
//!
//! [`Engine::spawn_apart`]: strata_query::Engine::spawn_apart

pub(crate) mod bodies;
pub(crate) mod capacity;
pub(crate) mod catalog;
pub(crate) mod holder;
pub(crate) mod large_responses;
pub(crate) mod queue;
pub(crate) mod semaphore;
pub(crate) mod tenants;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use serde::Serialize;
use utoipa::ToSchema;

pub(crate) use self::semaphore::Permit;
use strata_config as config;
use strata_runtime::priority::Priority;

use crate::admission::holder::Holder;
use crate::admission::semaphore::{Bounds, FairSemaphore, Gate, Refused};

/// Units that may be encoded at the same time, for each thread of queries: so many that reading from a store far away
/// does not leave processors idle, and so few that they are no burden as threads.
const UNITS_PER_THREAD: u64 = 4;

/// Light queries for each thread: so many that hardly anything ever waits, and so few that whoever sends thousands of
/// requests at once waits behind everybody else.
const LIGHT_PER_THREAD: u64 = 32;

/// Medium queries for each thread, and at least: so many that one network keeps all threads at work when it is alone,
/// and so few that the next one gets a third of them at once.
const MEDIUM_PER_THREAD: u64 = 3;
const LEAST_MEDIUM: u64 = 6;

/// At least this many heavy queries at a time by default, so that users and several networks have one each.
const LEAST_HEAVY: u64 = 4;

/// Bytes of a part beyond what there was room for that are worth accounting.
const LARGE_BYTES: u64 = 1 << 20;

/// Documents of a whole body that needs no room, in bytes; and bytes of a whole body that holds none.
pub(crate) const WHOLE_BYTES: u64 = 64 << 10;

/// The admission of one service, for one who asks. Clones share everything.
#[derive(Clone)]
pub(crate) struct Admission {
    shared: Arc<Shared>,
    pub(crate) holder: Holder,
}

struct Shared {
    light: FairSemaphore,
    medium: FairSemaphore,
    heavy: FairSemaphore,
    diffs: FairSemaphore,
    streams: FairSemaphore,
    parquet: FairSemaphore,
    units: FairSemaphore,
    long_units: FairSemaphore,
    ahead: FairSemaphore,
    large: FairSemaphore,
    large_units: FairSemaphore,
    buffered_bytes: Arc<AtomicU64>,
    parquet_waiting: Arc<AtomicUsize>,
}

/// A Parquet body that has begun and waits for memory, until dropped.
pub(crate) struct WaitsForMemory(Arc<AtomicUsize>);

impl Drop for WaitsForMemory {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn gates(&self) -> [&FairSemaphore; 11] {
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

impl Admission {
    /// The admission that a configuration asks for, with so many threads for queries, for what the operator does.
    pub(crate) fn new(query: &config::Query, fair: &config::Fair, threads: usize, memory_bytes: u64) -> Admission {
        let threads = threads.max(1) as u64;
        let or = |configured: u64, default: u64| if configured == 0 { default } else { configured };
        let heavy = or(query.heavy_queries, threads.max(LEAST_HEAVY));
        let gate = |name, what, units, queue, wait_s| {
            FairSemaphore::new(Gate { name, what }, Bounds::new(units, fair, queue, wait_s))
        };
        let bounded = |name, what, units| gate(name, what, units, query.heavy_queue, query.heavy_wait_s);
        let units = |name| {
            // Whoever waits has a permit of its query, or a place among the streams: they are bounded already.
            gate(name, "response chunks", threads * UNITS_PER_THREAD, u64::MAX, query.heavy_wait_s)
        };
        let bytes = |name, what| gate(name, what, query.stream_bytes, query.light_queue, query.heavy_wait_s);
        let light = or(query.light_queries, threads * LIGHT_PER_THREAD);
        let medium = or(query.medium_queries, (threads * MEDIUM_PER_THREAD).max(LEAST_MEDIUM));
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
        Admission { shared: Arc::new(shared), holder: Holder::Operator }
    }

    pub(crate) fn of(&self, holder: Holder) -> Admission {
        Admission { shared: self.shared.clone(), holder }
    }

    pub(crate) async fn query(&self, weight: Weight) -> Result<Permit, Refused> {
        self.gate(weight).acquire(self.holder, 1).await
    }

    /// As [`Admission::query`], at once or not at all.
    pub(crate) fn try_query(&self, weight: Weight) -> Option<Permit> {
        self.gate(weight).try_acquire(self.holder, 1)
    }

    fn gate(&self, weight: Weight) -> &FairSemaphore {
        match weight {
            Weight::Light => &self.shared.light,
            Weight::Medium => &self.shared.medium,
            Weight::Heavy => &self.shared.heavy,
        }
    }

    pub(crate) async fn diff(&self) -> Result<Permit, Refused> {
        self.shared.diffs.acquire(self.holder, 1).await
    }

    pub(crate) async fn stream(&self) -> Result<Permit, Refused> {
        self.shared.streams.acquire(self.holder, 1).await
    }

    /// As [`Admission::stream`], for a body whose units are about this large. What a unit has beyond [`WHOLE_BYTES`] is
    /// charged for as long as the body is sent, to a limit of its own: a large response that is being built may read a
    /// stream. An entity that is larger than was foreseen is charged to the memory of queries when it is encoded
    /// ([`Capacity::beyond`](capacity::Capacity::beyond)).
    pub(crate) async fn stream_of_units(&self, unit_bytes: u64) -> Result<StreamPermit, Refused> {
        let unit = match unit_bytes.saturating_sub(WHOLE_BYTES) {
            0 => None,
            size_bytes => Some(self.shared.large_units.acquire(self.holder, size_bytes).await?),
        };
        Ok(StreamPermit { _place: self.stream().await?, unit })
    }

    /// Bytes of large responses; as many as the holder may have when more are requested.
    pub(crate) async fn large(&self, size_bytes: u64) -> Result<Permit, Refused> {
        self.shared.large.acquire(self.holder, size_bytes).await
    }

    /// As [`Admission::large`], at once or not at all.
    pub(crate) fn try_large(&self, size_bytes: u64) -> Result<Permit, Refused> {
        self.shared.large.acquire_now(self.holder, size_bytes)
    }

    /// A share of the memory of Parquet bodies; as much as the holder may have when more is asked for.
    pub(crate) async fn parquet(&self, size_bytes: u64) -> Result<Permit, Refused> {
        self.shared.parquet.acquire(self.holder, size_bytes).await
    }

    /// Says that a body that has begun waits for memory: none should begin before it goes on.
    pub(crate) fn waits_for_memory(&self) -> WaitsForMemory {
        let waiting = self.shared.parquet_waiting.clone();
        waiting.fetch_add(1, Ordering::Relaxed);
        WaitsForMemory(waiting)
    }

    pub(crate) fn is_memory_waited_for(&self) -> bool {
        self.shared.parquet_waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn parquet_wait(&self) -> Duration {
        self.shared.parquet.longest_wait()
    }

    /// As [`Admission::parquet`], for a body that has begun: waits as long as it takes, for row groups of others.
    pub(crate) async fn parquet_again(&self, size_bytes: u64) -> Permit {
        self.shared.parquet.acquire_patiently(self.holder, size_bytes).await
    }

    /// As [`Admission::parquet_again`], at once or not at all.
    pub(crate) fn try_parquet(&self, size_bytes: u64) -> Option<Permit> {
        self.shared.parquet.try_acquire(self.holder, size_bytes)
    }

    /// A permit to encode the first unit of a streamed body, or a large whole one, on a thread of its own.
    pub(crate) async fn unit(&self) -> Result<Permit, Refused> {
        self.shared.units.acquire(self.holder, 1).await
    }

    /// As [`Admission::unit`], for a body that has begun, which is not cut for a wait: `server.answer_timeout_s` bounds
    /// it. Units of `long` streams, whose threads give way, have permits of their own: others would wait for them.
    pub(crate) async fn unit_again(&self, long: bool) -> Permit {
        let units = if long { &self.shared.long_units } else { &self.shared.units };
        units.acquire_patiently(self.holder, 1).await
    }

    pub(crate) fn ahead(&self, size_bytes: u64) -> Option<Permit> {
        // As much as is asked for, or nothing.
        self.shared.ahead.try_acquire(self.holder, size_bytes)
    }

    /// Whether others wait for what the making of an export takes.
    pub(crate) fn is_contended(&self) -> bool {
        let shared = &self.shared;
        let gates = [&shared.light, &shared.medium, &shared.heavy, &shared.streams, &shared.parquet];
        gates.into_iter().any(|gate| gate.waiting() > 0)
    }

    /// Room for a whole body; `Some(None)` if few bytes need none, `None` if there is none and it should be streamed.
    pub(crate) fn whole(&self, size_bytes: u64) -> Option<Option<Permit>> {
        if size_bytes <= WHOLE_BYTES { Some(None) } else { self.ahead(size_bytes).map(Some) }
    }

    /// The bytes as a part of a body: they count as buffered, and keep `room` and `memory`, until the connection has
    /// let go of them. Whoever keeps them for longer than the answer lasts should copy them.
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
        let held = |gate: &FairSemaphore| usize::try_from(gate.held()).unwrap_or(usize::MAX);
        Load {
            heavy_running: held(&shared.heavy),
            heavy_waiting: shared.heavy.waiting(),
            medium_running: held(&shared.medium),
            light_running: held(&shared.light),
            diffs_running: held(&shared.diffs),
            streams: held(&shared.streams),
            units: held(&shared.units) + held(&shared.long_units),
            buffered_bytes: shared.buffered_bytes.load(Ordering::Relaxed),
            ahead_bytes: shared.ahead.held(),
        }
    }

    pub(crate) fn update_metrics(&self) {
        self.shared.gates().into_iter().for_each(FairSemaphore::update_metrics);
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

/// The bytes, whose last piece keeps the account or the permits.
pub(crate) fn accounted<T: Send + 'static>(bytes: Bytes, account: T) -> Bytes {
    Bytes::from_owner(Held { bytes, _account: account })
}

struct Held<T> {
    bytes: Bytes,
    _account: T,
}

impl<T> AsRef<[u8]> for Held<T> {
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

    /// A task that waits for a permit, and then tells whether it has one.
    async fn waits_for_heavy(admission: &Admission) -> tokio::task::JoinHandle<bool> {
        let own = admission.clone();
        let waits = tokio::spawn(async move { own.query(Weight::Heavy).await.is_ok() });
        while admission.load().heavy_waiting == 0 {
            tokio::task::yield_now().await;
        }
        waits
    }

    fn one_heavy(heavy_wait_s: u64) -> Admission {
        admission(|query| (query.heavy_queries, query.heavy_queue, query.heavy_wait_s) = (1, 1, heavy_wait_s))
    }

    #[tokio::test]
    async fn a_turn_is_waited_for_and_past_the_queue_refused() {
        let admission = one_heavy(60);
        let permit = admission.query(Weight::Heavy).await.expect("the first");
        let waits = waits_for_heavy(&admission).await;
        assert!(matches!(admission.query(Weight::Heavy).await, Err(Refused { .. })), "the queue is full");
        drop(permit);
        assert!(waits.await.expect("no panic"), "the one that waited has its permit");
        assert_eq!(admission.load(), Load::default());
    }

    #[tokio::test]
    async fn one_that_waits_too_long_is_refused() {
        let admission = one_heavy(0);
        let _permit = admission.query(Weight::Heavy).await.expect("a permit");
        assert!(matches!(admission.query(Weight::Heavy).await, Err(Refused { .. })));
        assert_eq!(admission.load(), Load { heavy_running: 1, ..Load::default() });
    }

    /// The wait for a unit had no end. An answer that had not begun hung as long as its client waited.
    #[tokio::test]
    async fn what_has_not_begun_waits_for_a_unit_as_long_as_for_others() {
        let admission = admission(|query| query.heavy_wait_s = 0);
        let mut held = Vec::new();
        while let Ok(permit) = admission.unit().await {
            held.push(permit);
        }
        let late = admission.unit().await.err().expect("all are taken");
        assert_eq!((late.gate.name, late.waited), ("unit", Some(std::time::Duration::ZERO)));
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

    #[tokio::test]
    async fn one_that_leaves_the_queue_makes_room_in_it() {
        let admission = one_heavy(60);
        let _permit = admission.query(Weight::Heavy).await.expect("the first");
        let waits = waits_for_heavy(&admission).await;
        waits.abort();
        assert!(waits.await.is_err());
        assert_eq!(admission.load().heavy_waiting, 0);
    }

    #[test]
    fn bytes_keep_their_room_until_the_last_piece_is_gone() {
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

    #[tokio::test]
    async fn more_memory_than_there_is_takes_all_of_it() {
        let query = config::Query { heavy_queue: 0, ..config::Query::default() };
        let admission = Admission::new(&query, &config::Fair::default(), 2, 16 << 20);
        let all = admission.parquet(1 << 40).await.expect("all");
        assert!(admission.parquet(1).await.is_err());
        drop(all);
        assert!(admission.parquet(1).await.is_ok());
    }

    /// A hint is not worth waiting for.
    #[tokio::test]
    async fn a_permit_can_be_had_at_once_or_not_at_all() {
        let admission = admission(|query| query.light_queries = 1);
        let held = admission.query(Weight::Light).await.expect("the only one");
        assert!(admission.try_query(Weight::Light).is_none());
        assert!(admission.try_query(Weight::Medium).is_some());
        drop(held);
        assert!(admission.try_query(Weight::Light).is_some());
    }
}
