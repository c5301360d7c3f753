//! Streams a body: encodes the units of a selection, in order, at the pace of the reader.
//!
//! - The first unit is small, so that the body begins early. While the reader waits for bytes, units grow, and more of
//!   them are encoded at the same time, as long as there is space for bytes ahead of readers ([`Admission::ahead`]).
//! - Without space, a unit is small, and is encoded only after the reader has taken the previous one.
//! - A unit is encoded on a thread of its own ([`Engine::spawn_apart`]), with a permit ([`Admission::unit`]). An entity
//!   is written as a whole, which can take long, and no other unit or page must wait for it.
//! - A unit ends early when its bytes fill its space. The rest becomes a unit again.
//! - If the reader did not take a complete unit for a while, units are small again.
//! - Later units of a body have a lower priority than the first units of others.
//!
//! Dropping the stream stops the work and releases everything.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, BoxStream, StreamExt};
use strata_query::QueryError;
use strata_query::fetch::documents::{UNIT_BYTES, Unit};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::{Priority, SHORT_BYTES};
use tokio_util::task::AbortOnDropHandle;

use crate::admission::capacity::Capacity;
use crate::admission::{Permit, StreamPermit};
use crate::lookup::error::ReadError;

/// Bytes of the documents in a unit that needs no space ahead of its reader.
const SMALL_BYTES: u64 = 64 << 10;

/// Estimated bytes of an encoded unit for each byte of its documents: pretty JSON has 1.4, XML more.
pub(crate) const EXPANSION: u64 = 2;

/// Maximum number of entities in a unit, regardless of their size.
const MAX_ENTITIES: u64 = 8_192;

/// A reader that takes a complete unit later than this is slow.
const SLOW_READER: Duration = Duration::from_secs(1);

pub(crate) struct Paced<F> {
    pub capacity: Capacity,
    /// The permit of the body, until it ends.
    pub place: StreamPermit,
    pub selected: u64,
    pub mean_bytes: u64,
    /// Encodes the entities of a unit until it ends, or they have at least the given number of bytes. Also returns the
    /// place after the last one. Called for all units in order, and again for the rest of a unit.
    pub encode: F,
}

struct Making {
    places: Range<u64>,
    room: Option<Permit>,
    task: AbortOnDropHandle<Result<Made, ReadError>>,
}

/// A unit that waits for its permit, or for the reader.
struct Made {
    encoded: Encoded,
    at: Instant,
    /// For an entity that is much larger than the space of the unit, and may wait for the reader for long.
    memory: Option<MemoryReservation>,
}

/// The bytes of the first entities of a unit, and the place after the last one.
pub(crate) type Encoded = (Vec<u8>, u64);

struct State<F> {
    paced: Paced<F>,
    next: u64,
    making: VecDeque<Making>,
    /// Bytes of the documents in the next unit.
    unit_bytes: u64,
    window: usize,
    /// Mean bytes of a document, or of an entity in the last unit if those are more.
    entity_bytes: u64,
}

impl<F, W> Paced<F>
where
    F: FnMut(Unit, u64) -> W + Send + 'static,
    W: Future<Output = Result<Encoded, ReadError>> + Send + 'static,
{
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Bytes, ReadError>> {
        let state = State {
            next: 0,
            making: VecDeque::new(),
            unit_bytes: SMALL_BYTES,
            window: 1,
            entity_bytes: self.mean_bytes.max(1),
            paced: self,
        };
        stream::try_unfold(state, async |mut state| Ok(state.step().await?.map(|bytes| (bytes, state)))).boxed()
    }
}

impl<F, W> State<F>
where
    F: FnMut(Unit, u64) -> W + Send + 'static,
    W: Future<Output = Result<Encoded, ReadError>> + Send + 'static,
{
    /// The next unit, which is charged until it is sent.
    async fn step(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.begin();
        let Some(Making { places, room, task }) = self.making.pop_front() else { return Ok(None) };
        let ready = task.is_finished();
        let Made { encoded: (bytes, next), at, memory } = task.await.map_err(QueryError::from)??;
        let rows = next - places.start;
        if next < places.end {
            // Its entities are larger than the mean. The rest comes before the units that are encoded already.
            self.make(next..places.end, true);
        } else if !ready {
            self.grow();
        } else if at.elapsed() > SLOW_READER {
            self.unit_bytes = SMALL_BYTES;
            self.window = 1;
        }
        self.entity_bytes = self.paced.mean_bytes.max(bytes.len() as u64 / rows.max(1)).max(1);
        metrics().sent_rows.increment(rows);
        Ok(Some(self.paced.capacity.admission.held(bytes, room, memory)))
    }

    fn begin(&mut self) {
        while self.making.len() < self.window && self.next < self.paced.selected {
            let all = self.next..self.paced.selected;
            match self.make(all, false) {
                Some(end) => self.next = end,
                None => return,
            }
        }
    }

    /// Starts the first unit of these places, or one unit of all of them if they come `first`. Returns the place after
    /// it; `None` if there is no space, and another unit is being encoded.
    fn make(&mut self, places: Range<u64>, first: bool) -> Option<u64> {
        let end = |size_bytes| if first { places.end } else { self.end(&places, size_bytes) };
        let bytes = |end: u64| (end - places.start).saturating_mul(self.entity_bytes * EXPANSION);
        let mut until = end(self.unit_bytes);
        let mut most_bytes = bytes(until).clamp(SMALL_BYTES, UNIT_BYTES * EXPANSION);
        let room = self.paced.capacity.admission.ahead(most_bytes);
        if room.is_none() {
            if !self.making.is_empty() && !first {
                return None;
            }
            until = end(SMALL_BYTES);
            most_bytes = SMALL_BYTES * EXPANSION;
        }
        let unit = Unit { places: places.start..until };
        // Before the first byte, the response can still be an error.
        let is_first = places.start == 0;
        let work = (self.paced.encode)(unit.clone(), most_bytes);
        let sent_bytes = places.start.saturating_mul(self.entity_bytes);
        let capacity = &self.paced.capacity;
        let long = sent_bytes > SHORT_BYTES;
        let capacity = if long { capacity.at(Priority::Long) } else { capacity.clone() };
        // The permit of the body covers one unit.
        let of_place = if self.making.is_empty() { self.paced.place.unit_bytes() } else { 0 };
        let charged_bytes = most_bytes.max(of_place);
        let task = capacity.engine.clone().spawn(async move {
            let permit = match is_first {
                true => capacity.admission.unit().await?,
                false => capacity.admission.unit_again(long).await,
            };
            // Abandoned work holds its permit until it has stopped.
            let work = async move {
                let _permit = permit;
                work.await
            };
            let mut encoded = capacity.engine.spawn_apart(work).await??;
            // The buffer grew by doubling, but only the bytes are charged until the reader takes them.
            if encoded.0.capacity() - encoded.0.len() > encoded.0.len() / 8 {
                encoded.0.shrink_to_fit();
            }
            let memory = capacity.beyond((encoded.0.len() as u64).saturating_sub(charged_bytes))?;
            Ok(Made { encoded, at: Instant::now(), memory })
        });
        let making = Making { places: unit.places, room, task };
        if first {
            self.making.push_front(making)
        } else {
            self.making.push_back(making)
        }
        Some(until)
    }

    /// The place after the first entities that have about `size_bytes`; at least one.
    fn end(&self, places: &Range<u64>, size_bytes: u64) -> u64 {
        let entities = (size_bytes / self.entity_bytes).clamp(1, MAX_ENTITIES);
        places.end.min(places.start + entities)
    }

    /// The reader waits: first units become larger, then more of them run, up to one more than there are threads.
    fn grow(&mut self) {
        if self.unit_bytes < UNIT_BYTES {
            self.unit_bytes *= 2;
        } else {
            self.window = (self.window + 1).min(self.paced.capacity.engine.threads() + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;
    use crate::admission::Admission;
    use crate::admission::capacity::test_engine;
    use crate::admission::principal_hasher::PrincipalHasher;
    use crate::{Client, Principal};
    use strata_config as config;
    use strata_query::Engine;

    fn engine() -> (Engine, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        (test_engine(2, 64 << 20, Some(directory.path().to_owned())), directory)
    }

    async fn wait_while(holds: impl Fn() -> bool) {
        while holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Something that one waits for on a thread, without giving it back.
    #[derive(Default)]
    struct Latch {
        is_open: Mutex<bool>,
        opened: Condvar,
        waiting: AtomicUsize,
    }

    impl Latch {
        fn wait(&self) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let is_open = self.is_open.lock().expect("no panic");
            drop(self.opened.wait_while(is_open, |is_open| !*is_open));
        }

        fn open(&self) {
            *self.is_open.lock().expect("no panic") = true;
            self.opened.notify_all();
        }
    }

    /// Units of one network that took minutes each occupied all threads of queries: those of others, and pages, waited.
    #[tokio::test]
    async fn long_units_of_one_network_delay_no_others() {
        const HANG: Duration = Duration::from_secs(60);
        let (engine, _directory) = engine();
        let everybody = Admission::new(&config::Query::default(), &config::Fair::default(), 2, 1 << 30);
        let network = |number| everybody.of(Principal::Anonymous(Client::V4([192, 0, 2, number])));
        let latch = Arc::new(Latch::default());
        let body = async |admission: Admission, latch: Option<Arc<Latch>>| {
            let place = admission.stream_of_units(0).await.expect("a place");
            let encode = move |unit: Unit, _: u64| {
                let latch = latch.clone();
                async move {
                    latch.inspect(|latch| latch.wait());
                    let entities = unit.places.end - unit.places.start;
                    Ok((vec![b'x'; entities as usize], unit.places.end))
                }
            };
            let capacity = Capacity::new(engine.clone(), admission, PrincipalHasher::new(None));
            Paced { capacity, place, selected: 1_000, mean_bytes: 64 << 10, encode }.into_stream()
        };
        let mut hostile = Vec::new();
        for _ in 0..12 {
            let mut parts = body(network(1), Some(latch.clone())).await;
            hostile.push(tokio::spawn(async move { parts.next().await.is_some_and(|part| part.is_ok()) }));
        }
        let honest = async {
            // The network's share, more than there are threads of queries. Each has a thread.
            wait_while(|| latch.waiting.load(Ordering::SeqCst) < 3).await;
            let page = engine.spawn(async { "a page" }).await.expect("no panic");
            let mut parts = body(network(2), None).await;
            let mut entities = 0;
            while let Some(part) = parts.next().await {
                entities += part.expect("a part").len();
            }
            (page, entities, everybody.load().units)
        };
        let outcome = tokio::time::timeout(HANG, honest).await;
        let have_begun = latch.waiting.load(Ordering::SeqCst);
        latch.open();
        assert_eq!(outcome.expect("neither waits for the long units"), ("a page", 1_000, 3));
        assert_eq!(have_begun, 3);
        for task in hostile {
            assert!(task.await.expect("no panic"));
        }
    }

    /// A client that left could begin any number of units: each gave its permit back before it had stopped.
    #[tokio::test]
    async fn abandoned_unit_keeps_permit_until_it_stops() {
        let (engine, _directory) = engine();
        let admission = Admission::new(&config::Query::default(), &config::Fair::default(), 2, 1 << 30);
        let place = admission.stream_of_units(0).await.expect("a place");
        let latch = Arc::new(Latch::default());
        let waits = latch.clone();
        let encode = move |unit: Unit, _: u64| {
            let waits = waits.clone();
            async move {
                waits.wait();
                Ok((vec![b'x'], unit.places.end))
            }
        };
        let capacity = Capacity::new(engine, admission.clone(), PrincipalHasher::new(None));
        let paced = Paced { capacity, place, selected: 10, mean_bytes: 64 << 10, encode };
        let mut parts = paced.into_stream();
        let reading = tokio::spawn(async move { parts.next().await.is_some() });
        wait_while(|| latch.waiting.load(Ordering::SeqCst) == 0).await;
        reading.abort();
        assert!(reading.await.is_err());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(admission.load().units, 1);
        latch.open();
        wait_while(|| admission.load().units > 0).await;
    }

    #[tokio::test]
    async fn units_for_slow_reader_are_charged() {
        const LARGE_BYTES: usize = 6 << 20;
        let (engine, _directory) = engine();
        let admission = Admission::new(&config::Query::default(), &config::Fair::default(), 2, 1 << 30);
        let place = admission.stream_of_units(0).await.expect("a place");
        let large = Arc::new(AtomicBool::new(false));
        let becomes_large = large.clone();
        let encode = move |unit: Unit, _: u64| {
            let large = large.clone();
            async move {
                // The reader waits for it, so that more units are made at once.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let bytes = if large.load(Ordering::SeqCst) { LARGE_BYTES } else { 1 };
                Ok((vec![b'x'; bytes], unit.places.end))
            }
        };
        let capacity = Capacity::new(engine.clone(), admission, PrincipalHasher::new(None));
        let paced = Paced { capacity, place, selected: 1_000_000, mean_bytes: 1 << 10, encode };
        let mut parts = paced.into_stream();
        for _ in 0..10 {
            parts.next().await.expect("a part").expect("a part");
        }
        becomes_large.store(true, Ordering::SeqCst);
        let first = parts.next().await.expect("a part").expect("a part");
        let second = parts.next().await.expect("a part").expect("a part");
        let held = [&first, &second].map(Bytes::len);
        assert!(held.contains(&LARGE_BYTES), "{held:?}");
        drop((first, second));
        // Nobody asks for the next one, which lies ready.
        wait_while(|| engine.memory_bytes() < LARGE_BYTES / 4).await;
        drop(parts);
        wait_while(|| engine.memory_bytes() > 0).await;
    }
}
