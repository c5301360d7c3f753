//! The entities of an answer, fetched and reshaped unit by unit; and the tasks that work on them.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use futures::stream::{self, BoxStream, StreamExt};
use strata_json::Columns;
use strata_query::fetch::documents::{self, AtHand, Held, SelectedDocuments, Unit};
use strata_query::fetch::reshape::{Reshape, ReshapeScratch};
use strata_query::fetch::selection::Positions;
use strata_query::{Engine, QueryError};
use tokio::sync::mpsc;

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

/// Runs work for every unit on the engine's threads, as many at once, and gives what it gives in order. Work that says
/// that it ended before its unit, by the place where it did, is run again for the rest of it, before what comes after.
pub(crate) fn in_order<T: Send + 'static, W: Future<Output = Result<(T, u64), ReadError>> + Send + 'static>(
    engine: &Engine,
    units: impl Iterator<Item = Unit> + Send + 'static,
    work: impl Fn(Unit) -> W + Send + 'static,
) -> BoxStream<'static, Result<T, ReadError>> {
    let (threads, engine) = (engine.threads(), engine.clone());
    let begin = move |unit: Unit| (unit.places.end, engine.spawn(work(unit)));
    let state = (units, VecDeque::with_capacity(threads), begin);
    let given = stream::try_unfold(state, move |(mut units, mut working, begin)| async move {
        while working.len() < threads
            && let Some(unit) = units.next()
        {
            working.push_back(begin(unit));
        }
        let Some((end, task)) = working.pop_front() else { return Ok::<_, ReadError>(None) };
        let (given, next) = task.await.map_err(QueryError::from)??;
        if next < end {
            working.push_front(begin(Unit { places: next..end }));
        }
        Ok(Some((given, (units, working, begin))))
    });
    given.boxed()
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
