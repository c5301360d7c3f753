//! The entities of an answer, fetched and reshaped unit by unit; and the tasks that work on them.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use futures::stream::{self, BoxStream, StreamExt};
use strata_json::Columns;
use strata_query::fetch::documents::{self, AtHand, Held, SelectedDocuments, Unit};
use strata_query::fetch::reshape::{Reshape, ReshapeScratch};
use strata_query::fetch::selection::Positions;
use strata_query::{Engine, QueryError};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::lookup::error::ReadError;

pub(crate) struct Source {
    pub documents: SelectedDocuments,
    pub reshape: Reshape,
}

impl Source {
    pub(crate) fn mean_bytes(&self) -> u64 {
        let layout = self.documents.reader().layout();
        layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
    }

    pub(crate) fn document_bytes(&self) -> u64 {
        self.mean_bytes().saturating_mul(self.documents.len())
    }

    pub(crate) async fn known_columns(&self) -> Option<Columns> {
        if !self.documents.is_empty() && !self.documents.are_all() {
            return None;
        }
        // A profile that cannot be read has been reported. The documents tell, too.
        let paths = self.documents.reader().paths().await.ok()?;
        self.reshape.columns_left(paths.columns()?)
    }

    /// Calls `each` with the entities of a unit, reshaped, until it breaks. Returns the place after the last one.
    pub(crate) async fn for_each(
        &self,
        unit: &Unit,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, ReadError> {
        let mut scratch = ReshapeScratch::default();
        let reshaped = |document: &[u8]| each(self.reshape.apply(document, &mut scratch));
        Ok(self.documents.for_each(unit, reshaped).await?)
    }

    /// As [`Source::for_each`], with all entities, whose documents are in memory. Those that come indented stay as they
    /// are: they are wanted so only where nothing is reshaped.
    pub(crate) fn for_each_at_hand(
        &self,
        documents: &AtHand,
        mut each: impl FnMut(Held<'_>) -> ControlFlow<()>,
    ) -> u64 {
        let mut scratch = ReshapeScratch::default();
        documents.for_each(|held| match held {
            Held::Stored(document) => each(Held::Stored(self.reshape.apply(document, &mut scratch))),
            Held::Indented(_) => each(held),
        })
    }

    /// As [`Source::for_each`], with a unit of all the version's entities.
    pub(crate) async fn for_each_of_all(
        &self,
        unit: &Unit,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()> + Send,
    ) -> Result<u64, ReadError> {
        let reader = self.documents.reader();
        let all = Positions::Range(0..reader.entity_count());
        let mut scratch = ReshapeScratch::default();
        let reshaped = |document: &[u8]| each(self.reshape.apply(document, &mut scratch));
        Ok(documents::for_each(reader, &all, unit, reshaped).await?)
    }
}

/// Work for units, by tasks on the engine's threads. The results come in the order of the units.
///
/// Work can end before its unit does, and returns the place where it ended. The rest is then a unit again, before the
/// units that follow.
pub(crate) struct OrderedUnits<U, F, T> {
    engine: Engine,
    units: U,
    work: F,
    running: VecDeque<UnitTask<T>>,
}

struct UnitTask<T> {
    places: Range<u64>,
    task: AbortOnDropHandle<Result<(T, u64), ReadError>>,
}

impl<U, F, W, T> OrderedUnits<U, F, T>
where
    U: Iterator<Item = Unit>,
    F: FnMut(Unit) -> W,
    W: Future<Output = Result<(T, u64), ReadError>> + Send + 'static,
    T: Send + 'static,
{
    pub(crate) fn new(engine: &Engine, units: U, work: F) -> Self {
        OrderedUnits { engine: engine.clone(), units, work, running: VecDeque::new() }
    }

    /// The result of the next unit; `None` at the end. Starts tasks as long as `may_start` permits it, which gets the
    /// number of tasks that run and the number of their entities.
    pub(crate) async fn next(&mut self, may_start: impl Fn(usize, u64) -> bool) -> Result<Option<T>, ReadError> {
        let entities = |running: &VecDeque<UnitTask<T>>| -> u64 {
            running.iter().map(|task| task.places.end - task.places.start).sum()
        };
        while may_start(self.running.len(), entities(&self.running))
            && let Some(unit) = self.units.next()
        {
            let task = self.start(unit);
            self.running.push_back(task);
        }
        let Some(UnitTask { places, task }) = self.running.pop_front() else { return Ok(None) };
        let (result, next) = task.await.map_err(QueryError::from)??;
        if next < places.end {
            let rest = self.start(Unit { places: next..places.end });
            self.running.push_front(rest);
        }
        Ok(Some(result))
    }

    fn start(&mut self, unit: Unit) -> UnitTask<T> {
        let places = unit.places.clone();
        UnitTask { places, task: self.engine.spawn((self.work)(unit)) }
    }
}

/// What a task on the engine's threads sends, no further ahead of the reader than `room` chunks, then its error if it
/// fails or panics. The task lives no longer than the stream.
pub(crate) fn sent_by_task<T: Send + 'static, W: Future<Output = Result<(), ReadError>> + Send + 'static>(
    engine: &Engine,
    room: usize,
    work: impl FnOnce(mpsc::Sender<T>) -> W,
) -> BoxStream<'static, Result<T, ReadError>> {
    let (chunks, received) = mpsc::channel(room);
    let working = engine.spawn(work(chunks));
    let body = stream::unfold((received, Some(working)), |(mut received, working)| async move {
        if let Some(chunk) = received.recv().await {
            return Some((Ok(chunk), (received, working)));
        }
        // Without the error, a body whose task failed would look whole.
        match working?.await.map_err(|error| ReadError::from(QueryError::from(error))) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some((Err(error), (received, None))),
        }
    });
    body.boxed()
}
