//! A streamed body: the units of a selection, encoded in order at the pace of their reader.
//!
//! - The first unit is small, so that a body begins early. While the reader waits for bytes, units grow and more of them
//!   are encoded at once, as far as there is room for bytes ahead of readers ([`Admission::ahead`]).
//! - Without room a unit is small, and made only when the one before is taken.
//! - A unit ends early when its bytes are as many as it has room for; what is left of it is a unit again.
//! - A reader that left a unit lying for a while starts anew.
//!
//! Dropping the stream stops the work and gives everything back.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio_util::task::AbortOnDropHandle;

use super::admission::{Admission, Turn};
use super::read::ReadError;
use crate::metrics::metrics;
use crate::query::documents::{UNIT_BYTES, Unit};
use crate::query::{Engine, QueryError};

/// Documents of a unit that needs no room, in bytes.
const SMALL_BYTES: u64 = 64 << 10;

/// Bytes of an encoded unit for each byte of its documents, as far as they are foreseen: pretty JSON has 1.4, XML more.
const EXPANSION: u64 = 2;

/// Bytes of a part beyond what there was room for that are worth accounting.
const LARGE_BYTES: usize = 1 << 20;

/// Most entities of a unit, however small.
const MOST_ENTITIES: u64 = 8_192;

/// A unit that lay for longer was made for a slow reader.
const LEFT_LYING: Duration = Duration::from_secs(1);

/// What a streamed body is made of.
pub(super) struct Paced<F> {
    /// Where units are encoded.
    pub engine: Engine,
    /// Who may encode when.
    pub admission: Admission,
    /// The body's place among all.
    #[expect(dead_code, reason = "held until the body ends")]
    pub place: Turn,
    /// Entities of the body.
    pub selected: u64,
    /// Bytes of a document on average.
    pub mean_bytes: u64,
    /// Encodes the first entities of a unit, until they have at least so many bytes or are all; gives the place after the
    /// last one, too. Called for all units in order, and again for what is left of one.
    pub encode: F,
}

/// A unit in the making.
struct Making {
    places: Range<u64>,
    /// Bytes at which it ends.
    most_bytes: u64,
    room: Option<Turn>,
    task: AbortOnDropHandle<Result<(Encoded, Instant), ReadError>>,
}

/// The bytes of the first entities of a unit, and the place after the last one.
pub(super) type Encoded = (Vec<u8>, u64);

struct State<F> {
    paced: Paced<F>,
    next: u64,
    making: VecDeque<Making>,
    /// Bytes of documents that the next unit should have.
    unit_bytes: u64,
    /// Units to be made at once.
    window: usize,
    /// Bytes for each entity: of its document, or of what the last unit became if that was more.
    entity_bytes: u64,
}

impl<F, W> Paced<F>
where
    F: FnMut(Unit, u64) -> W + Send + 'static,
    W: Future<Output = Result<Encoded, ReadError>> + Send + 'static,
{
    /// The body's parts, in order, up to its first error.
    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes, ReadError>> {
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
    /// The next unit, which is counted as held until it is sent.
    async fn step(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.begin();
        let Some(Making { places, most_bytes, room, task }) = self.making.pop_front() else { return Ok(None) };
        let ready = task.is_finished();
        let ((bytes, next), made) = task.await.map_err(QueryError::from)??;
        let rows = next - places.start;
        if next < places.end {
            // Its entities are larger than the mean, or have grown: the rest comes before what is made meanwhile.
            self.make(next..places.end, true);
        } else if !ready {
            self.grow();
        } else if made.elapsed() > LEFT_LYING {
            (self.unit_bytes, self.window) = (SMALL_BYTES, 1);
        }
        self.entity_bytes = self.paced.mean_bytes.max(bytes.len() as u64 / rows.max(1)).max(1);
        metrics().sent_rows.increment(rows);
        // One entity may be much larger than what there was room for. It may wait long for its reader, with many others.
        let beyond = (bytes.len() as u64).saturating_sub(most_bytes);
        let memory = match usize::try_from(beyond) {
            Ok(beyond) if beyond > LARGE_BYTES => Some(self.paced.engine.reserve("part of an answer", beyond)?),
            _ => None,
        };
        Ok(Some(self.paced.admission.held(bytes, room, memory)))
    }

    /// Begins as many units as may be made now.
    fn begin(&mut self) {
        while self.making.len() < self.window && self.next < self.paced.selected {
            let all = self.next..self.paced.selected;
            match self.make(all, false) {
                Some(end) => self.next = end,
                None => return,
            }
        }
    }

    /// Begins the first unit of these places; of some that come `first`, all of them, in a unit of its own. Returns the
    /// place after it; `None` when there is no room and something is being made already.
    fn make(&mut self, places: Range<u64>, first: bool) -> Option<u64> {
        let end = |size_bytes| if first { places.end } else { self.end(&places, size_bytes) };
        let bytes = |end: u64| (end - places.start).saturating_mul(self.entity_bytes * EXPANSION);
        let mut until = end(self.unit_bytes);
        let mut most_bytes = bytes(until).clamp(SMALL_BYTES, UNIT_BYTES * EXPANSION);
        let room = self.paced.admission.ahead(most_bytes);
        if room.is_none() {
            if !self.making.is_empty() && !first {
                return None;
            }
            until = end(SMALL_BYTES);
            most_bytes = SMALL_BYTES * EXPANSION;
        }
        let unit = Unit { places: places.start..until };
        let (work, admission) = ((self.paced.encode)(unit.clone(), most_bytes), self.paced.admission.clone());
        let task = self.paced.engine.spawn(async move {
            let _turn = admission.unit().await;
            Ok((work.await?, Instant::now()))
        });
        let making = Making { places: unit.places, most_bytes, room, task };
        if first {
            self.making.push_front(making)
        } else {
            self.making.push_back(making)
        }
        Some(until)
    }

    /// The place after the first entities that are about so many bytes; at least one.
    fn end(&self, places: &Range<u64>, size_bytes: u64) -> u64 {
        let entities = (size_bytes / self.entity_bytes).clamp(1, MOST_ENTITIES);
        places.end.min(places.start + entities)
    }

    /// The reader waits: larger units, then more at once.
    fn grow(&mut self) {
        if self.unit_bytes < UNIT_BYTES {
            self.unit_bytes *= 2;
        } else {
            self.window = (self.window + 1).min(self.paced.engine.threads().max(1));
        }
    }
}
