//! A streamed body: the units of a selection, encoded in order at the pace of their reader.
//!
//! - The first unit is small, so that a body begins early. While the reader waits for bytes, units grow and more of them
//!   are encoded at once, as far as there is room for bytes ahead of readers ([`Admission::ahead`]).
//! - Without room a unit is small, and made only when the one before is taken.
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
    /// Encodes a unit. Called for all of them in order.
    pub encode: F,
}

/// A unit in the making.
struct Making {
    rows: u64,
    room: Option<Turn>,
    task: AbortOnDropHandle<Result<(Vec<u8>, Instant), ReadError>>,
}

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
    F: FnMut(Unit) -> W + Send + 'static,
    W: Future<Output = Result<Vec<u8>, ReadError>> + Send + 'static,
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
    F: FnMut(Unit) -> W + Send + 'static,
    W: Future<Output = Result<Vec<u8>, ReadError>> + Send + 'static,
{
    /// The next unit, which is counted as held until it is sent.
    async fn step(&mut self) -> Result<Option<Bytes>, ReadError> {
        self.begin();
        let Some(Making { rows, room, task }) = self.making.pop_front() else { return Ok(None) };
        let ready = task.is_finished();
        let (bytes, made) = task.await.map_err(QueryError::from)??;
        if !ready {
            self.grow();
        } else if made.elapsed() > LEFT_LYING {
            (self.unit_bytes, self.window) = (SMALL_BYTES, 1);
        }
        self.entity_bytes = self.paced.mean_bytes.max(bytes.len() as u64 / rows.max(1)).max(1);
        metrics().sent_rows.increment(rows);
        Ok(Some(self.paced.admission.held(bytes, room)))
    }

    /// Begins as many units as may be made now.
    fn begin(&mut self) {
        while self.making.len() < self.window && self.next < self.paced.selected {
            let mut places = self.places(self.unit_bytes);
            let room = self.paced.admission.ahead((places.end - places.start) * self.entity_bytes * EXPANSION);
            if room.is_none() {
                if !self.making.is_empty() {
                    return;
                }
                places = self.places(SMALL_BYTES);
            }
            self.next = places.end;
            let rows = places.end - places.start;
            let (work, admission) = ((self.paced.encode)(Unit { places }), self.paced.admission.clone());
            let task = self.paced.engine.spawn(async move {
                let _turn = admission.unit().await;
                Ok((work.await?, Instant::now()))
            });
            self.making.push_back(Making { rows, room, task });
        }
    }

    /// The next entities that are about so many bytes; at least one.
    fn places(&self, size_bytes: u64) -> Range<u64> {
        let entities = (size_bytes / self.entity_bytes).clamp(1, MOST_ENTITIES);
        self.next..self.paced.selected.min(self.next + entities)
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
