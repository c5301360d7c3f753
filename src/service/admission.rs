//! Who may work when there is more to do than the machine can: heavy queries, streamed answers, and their memory.
//!
//! What costs processor time is held apart from what waits for clients, so that slow readers hold no turn:
//!
//! 1. **Settling.** A request whose work is above `query.heavy_bytes` ([`crate::query::cost`]) waits for one of
//!    `query.heavy_queries` turns and holds it until its selection is settled and, for a table, its columns are known.
//!    That ends by itself (`query.timeout_s`), however slow the client is. Light requests never wait. Comparing two
//!    versions takes such a turn, too, until it is known what differs (`query.diff_timeout_s`).
//! 2. **Streaming.** An answer of more than one unit is one of at most `query.streams`, until its body ends, which
//!    `server.write_stall_s` and `server.answer_timeout_s` bound. Its units are encoded in turns of their own
//!    ([`Admission::unit`]), a few for each thread, held while a unit is encoded and not while its reader takes it.
//! 3. **Bytes.** What is encoded ahead of readers, all together, is `query.stream_bytes`, taken by [`Admission::ahead`]
//!    and given back as the connection has sent it. It is only ever tried, never waited for: an answer that gets
//!    none goes on in small units, one at a time. So nothing can deadlock, and a thousand readers that have stopped hold
//!    a small unit each and the budget together.
//! 4. **Parquet.** A Parquet body holds a row group while it is made; its memory is accounted to the pool of queries, of
//!    which all Parquet bodies together take at most half. What is made waits for its reader on disk ([`super::parquet`]).
//!
//! The queues before 1, 2 and 4 hold `query.heavy_queue` requests each and let one wait for `query.heavy_wait_s`; past
//! either a request is refused, which is 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::read::ReadError;
use crate::config;
use crate::metrics::metrics;

/// Units that may be encoded at the same time, for each thread: so many that reading from a store far away does not
/// leave threads idle, and so few that other work is soon next.
const UNITS_PER_THREAD: usize = 4;

/// Documents of a whole body that needs no room, in bytes; and bytes of a whole body that holds none.
pub(super) const WHOLE_BYTES: u64 = 64 << 10;

/// The unit in which bytes are counted, so that any budget fits a semaphore.
const PERMIT_BYTES: u64 = 1 << 10;

/// What a request is told to wait before it asks again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The admission of one service. Clones share everything.
#[derive(Clone)]
pub(super) struct Admission {
    shared: Arc<Shared>,
}

struct Shared {
    heavy: Gate,
    streams: Gate,
    parquet: Gate,
    units: Places,
    ahead: Places,
    buffered_bytes: Arc<AtomicU64>,
}

/// How loaded a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Heavy queries that have a turn.
    pub heavy_running: usize,
    /// Heavy queries that wait for one.
    pub heavy_waiting: usize,
    /// Streamed bodies that have not ended.
    pub streams: usize,
    /// Units of streamed bodies that are being encoded.
    pub units: usize,
    /// Bytes of bodies that are encoded and not yet sent.
    pub buffered_bytes: u64,
    /// Bytes of `query.stream_bytes` that are taken.
    pub ahead_bytes: u64,
}

/// A turn, or a place. Dropping it gives it back.
pub(super) type Turn = OwnedSemaphorePermit;

impl Admission {
    /// The admission that a configuration asks for, with so many threads for queries.
    pub fn new(query: &config::Query, threads: usize) -> Admission {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let gate = |name, slots| Gate {
            name,
            places: Places::new(slots),
            waiting: AtomicUsize::new(0),
            queue: number(query.heavy_queue),
            wait: Duration::from_secs(query.heavy_wait_s),
        };
        let heavy = if query.heavy_queries == 0 { threads } else { number(query.heavy_queries) };
        let kibibytes = |bytes: u64| number(bytes / PERMIT_BYTES).min(u32::MAX as usize);
        let shared = Shared {
            heavy: gate("heavy", heavy.max(1)),
            streams: gate("stream", number(query.streams)),
            parquet: gate("parquet", kibibytes(query.memory_bytes / 2)),
            units: Places::new(threads.max(1) * UNITS_PER_THREAD),
            ahead: Places::new(kibibytes(query.stream_bytes)),
            buffered_bytes: Arc::default(),
        };
        Admission { shared: Arc::new(shared) }
    }

    /// A turn to settle a heavy query.
    ///
    /// # Errors
    /// [`ReadError::Busy`], at once or after waiting.
    pub async fn heavy(&self) -> Result<Turn, ReadError> {
        self.shared.heavy.enter(1).await
    }

    /// A place among the streamed bodies.
    ///
    /// # Errors
    /// As [`Admission::heavy`].
    pub async fn stream(&self) -> Result<Turn, ReadError> {
        self.shared.streams.enter(1).await
    }

    /// A share of the memory of Parquet bodies; all of it when more is asked for.
    ///
    /// # Errors
    /// As [`Admission::heavy`].
    pub async fn parquet(&self, size_bytes: u64) -> Result<Turn, ReadError> {
        let gate = &self.shared.parquet;
        let permits =
            usize::try_from(size_bytes.div_ceil(PERMIT_BYTES)).unwrap_or(usize::MAX).min(gate.places.capacity);
        gate.enter(u32::try_from(permits).unwrap_or(u32::MAX)).await
    }

    /// As [`Admission::parquet`], for a body that has begun: it waits as long as it takes, which is not for readers, but for
    /// the row groups that others make.
    pub async fn parquet_again(&self, size_bytes: u64) -> Option<Turn> {
        let places = &self.shared.parquet.places;
        let permits = usize::try_from(size_bytes.div_ceil(PERMIT_BYTES)).unwrap_or(usize::MAX).min(places.capacity);
        // Never closed; without a turn the work would go on all the same.
        places.semaphore.clone().acquire_many_owned(u32::try_from(permits).unwrap_or(u32::MAX)).await.ok()
    }

    /// A turn to encode a unit of a streamed body. Waits for other units, which need nobody to go on.
    pub async fn unit(&self) -> Option<Turn> {
        // Never closed; without a turn the work would go on all the same.
        self.shared.units.semaphore.clone().acquire_owned().await.ok()
    }

    /// Room for bytes ahead of their reader, if there is any.
    pub fn ahead(&self, size_bytes: u64) -> Option<Turn> {
        let permits = u32::try_from(size_bytes.div_ceil(PERMIT_BYTES)).ok()?;
        self.shared.ahead.semaphore.clone().try_acquire_many_owned(permits).ok()
    }

    /// Room for a whole body of documents of so many bytes: none is needed when they are few. The outer `None` says that
    /// there is none, and that the body should be streamed instead.
    pub fn whole(&self, size_bytes: u64) -> Option<Option<Turn>> {
        if size_bytes <= WHOLE_BYTES { Some(None) } else { self.ahead(size_bytes).map(Some) }
    }

    /// A whole body, which keeps its room only if it is not small: small ones are shared and kept.
    pub fn whole_body(&self, bytes: Vec<u8>, room: Option<Turn>) -> Bytes {
        if bytes.len() as u64 <= WHOLE_BYTES || room.is_none() { bytes.into() } else { self.held(bytes, room, None) }
    }

    /// The bytes as a part of a body: they count as buffered, and keep `room` and `memory`, until the connection has let
    /// go of them. Whoever keeps them for longer than the answer lasts should copy them.
    pub fn held(&self, bytes: Vec<u8>, room: Option<Turn>, memory: Option<MemoryReservation>) -> Bytes {
        let total = self.shared.buffered_bytes.clone();
        total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Held { bytes, total, _room: room, _memory: memory })
    }

    /// How loaded the service is. The parts are read one after the other.
    pub fn load(&self) -> Load {
        let shared = &self.shared;
        Load {
            heavy_running: shared.heavy.places.taken(),
            heavy_waiting: shared.heavy.waiting.load(Ordering::Relaxed),
            streams: shared.streams.places.taken(),
            units: shared.units.taken(),
            buffered_bytes: shared.buffered_bytes.load(Ordering::Relaxed),
            ahead_bytes: shared.ahead.taken() as u64 * PERMIT_BYTES,
        }
    }
}

/// Bytes of a body until they are sent.
struct Held {
    bytes: Vec<u8>,
    total: Arc<AtomicU64>,
    _room: Option<Turn>,
    _memory: Option<MemoryReservation>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

/// A number of places.
struct Places {
    semaphore: Arc<Semaphore>,
    capacity: usize,
}

impl Places {
    fn new(capacity: usize) -> Places {
        Places { semaphore: Arc::new(Semaphore::new(capacity)), capacity }
    }

    fn taken(&self) -> usize {
        self.capacity.saturating_sub(self.semaphore.available_permits())
    }
}

/// Places, and a bounded queue before them.
struct Gate {
    name: &'static str,
    places: Places,
    waiting: AtomicUsize,
    queue: usize,
    wait: Duration,
}

impl Gate {
    async fn enter(&self, number: u32) -> Result<Turn, ReadError> {
        let (outcome, entered) = self.try_enter(number).await;
        metrics().gates.of([self.name.into(), outcome.into()]).increment(1);
        entered.ok_or(ReadError::Busy { retry_after_s: RETRY_AFTER.as_secs() })
    }

    async fn try_enter(&self, number: u32) -> (&'static str, Option<Turn>) {
        if let Ok(turn) = self.places.semaphore.clone().try_acquire_many_owned(number) {
            return ("entered", Some(turn));
        }
        let Some(_waiting) = self.queue_up() else { return ("full", None) };
        match tokio::time::timeout(self.wait, self.places.semaphore.clone().acquire_many_owned(number)).await {
            Ok(Ok(turn)) => ("entered", Some(turn)),
            // The second: never closed.
            Err(_) | Ok(Err(_)) => ("late", None),
        }
    }

    fn queue_up(&self) -> Option<Waiting<'_>> {
        let join = |waiting: usize| (waiting < self.queue).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, join).ok()?;
        Some(Waiting(&self.waiting))
    }
}

/// One that waits, until dropped: a caller that leaves waits no longer.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(change: impl FnOnce(&mut config::Query)) -> Admission {
        let mut query = config::Config::default().query;
        change(&mut query);
        Admission::new(&query, 2)
    }

    #[tokio::test]
    async fn a_turn_is_waited_for_and_past_the_queue_refused() {
        let admission = admission(|query| {
            query.heavy_queries = 1;
            query.heavy_queue = 1;
        });
        let turn = admission.heavy().await.expect("the first");
        let waits = tokio::spawn({
            let admission = admission.clone();
            async move { admission.heavy().await.is_ok() }
        });
        while admission.load().heavy_waiting == 0 {
            tokio::task::yield_now().await;
        }
        assert!(matches!(admission.heavy().await, Err(ReadError::Busy { retry_after_s: 5 })), "the queue is full");
        drop(turn);
        assert!(waits.await.expect("no panic"), "the one that waited has its turn");
        assert_eq!(admission.load(), Load::default());
    }

    #[tokio::test]
    async fn one_that_waits_too_long_is_refused() {
        let admission = admission(|query| {
            query.heavy_queries = 1;
            query.heavy_queue = 1;
            query.heavy_wait_s = 0;
        });
        let _turn = admission.heavy().await.expect("a turn");
        assert!(matches!(admission.heavy().await, Err(ReadError::Busy { .. })));
        assert_eq!(admission.load(), Load { heavy_running: 1, ..Load::default() });
    }

    #[tokio::test]
    async fn one_that_leaves_the_queue_makes_room_in_it() {
        let admission = admission(|query| {
            query.heavy_queries = 1;
            query.heavy_queue = 1;
        });
        let _turn = admission.heavy().await.expect("the first");
        let waits = tokio::spawn({
            let admission = admission.clone();
            async move { admission.heavy().await.is_ok() }
        });
        while admission.load().heavy_waiting == 0 {
            tokio::task::yield_now().await;
        }
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
        let admission = admission(|query| {
            query.memory_bytes = 16 << 20;
            query.heavy_queue = 0;
        });
        let all = admission.parquet(1 << 40).await.expect("all");
        assert!(admission.parquet(1).await.is_err());
        drop(all);
        assert!(admission.parquet(1).await.is_ok());
    }
}
