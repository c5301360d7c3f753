//! The selected entities to the bytes of an answer.
//!
//! The selection is cut into units. Each is fetched, reshaped and encoded by itself on the engine's threads, a few at
//! once; their bytes are given in order. So memory is a few units, whatever the size of the answer, and a slow
//! reader stops the work. An answer of one unit is whole; others are streamed, at the pace of their readers
//! ([`super::stream`]) and admitted by [`super::admission`].
//!
//! A table needs its columns first: one pass over the same units finds them.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use super::App;
use super::admission::Turn;
use super::explain::Observer;
use super::read::{AnswerBody, ReadError};
use super::stream::Paced;
use crate::encode::{self, BatchBuilder, Columns, ColumnsBuilder, Encode, EncodeError, ParquetStream};
use crate::metrics::metrics;
use crate::model::request::ReadRequest;
use crate::query::documents::{self, SelectedDocuments, Unit};
use crate::query::reshape::{Reshape, ReshapeScratch};
use crate::query::selection::{Positions, Selection};
use crate::query::{Engine, QueryError};
use crate::storage::reader::VersionReader;

/// The body of an answer that holds the selected entities. The turn of a heavy query ends when its columns are known.
///
/// # Errors
/// [`ReadError::TooManyColumns`] for a table, and what reading the version fails with before the first byte.
pub(super) async fn body(
    app: &App,
    reader: VersionReader,
    selection: Selection,
    request: &ReadRequest,
    turn: Option<Turn>,
    mut observer: Option<&mut Observer>,
) -> Result<AnswerBody, ReadError> {
    let engine = app.engine();
    let documents = SelectedDocuments::of(engine, reader, selection);
    let documents = within_time(engine, async { Ok(documents.await?) }).await?;
    if let (Some(observer), Some(bytes)) = (&mut observer, documents.spilled_bytes()) {
        observer.ordered(bytes);
    }
    let source = Arc::new(Source { documents, reshape: Reshape::of(request) });
    let columns = if request.format.is_table() { table_columns(app, &source).await? } else { Arc::default() };
    if let (Some(observer), true) = (observer, request.format.is_table()) {
        observer.columns_found(columns.len());
    }
    // What is left waits for its reader, and must not keep other queries waiting.
    drop(turn);
    match encode::text_encoder(request, Some(columns.clone())) {
        Some(encoder) => text(app, source, encoder.into()).await,
        None => parquet(app, source, columns).await,
    }
}

/// The columns of a table, found within the time that settling a request may take.
async fn table_columns(app: &App, source: &Arc<Source>) -> Result<Arc<Columns>, ReadError> {
    let limit = usize::try_from(app.config().limits.columns).unwrap_or(usize::MAX);
    Ok(Arc::new(within_time(app.engine(), columns(app.engine(), source, limit)).await?))
}

/// The outcome of work that comes before the first byte.
async fn within_time<T>(engine: &Engine, work: impl Future<Output = Result<T, ReadError>>) -> Result<T, ReadError> {
    let limit = engine.timeout();
    let done = tokio::time::timeout(limit, work).await;
    done.map_err(|_| ReadError::Timeout { seconds: limit.as_secs() })?
}

/// Where an answer's entities come from.
struct Source {
    documents: SelectedDocuments,
    reshape: Reshape,
}

impl Source {
    /// Bytes of a document on average.
    fn mean_bytes(&self) -> u64 {
        let layout = self.documents.reader().layout();
        layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
    }

    /// Calls `each` with every entity of a unit, reshaped.
    async fn for_each(&self, unit: &Unit, mut each: impl FnMut(&[u8]) + Send) -> Result<(), ReadError> {
        let mut scratch = ReshapeScratch::default();
        let reshaped = |document: &[u8]| each(self.reshape.apply(document, &mut scratch));
        Ok(self.documents.for_each(unit, reshaped).await?)
    }

    /// As [`Source::for_each`], with a unit of all the version's entities.
    async fn for_each_of_all(&self, unit: &Unit, mut each: impl FnMut(&[u8]) + Send) -> Result<(), ReadError> {
        let reader = self.documents.reader();
        let all = Positions::Range(0..reader.entity_count());
        let mut scratch = ReshapeScratch::default();
        let reshaped = |document: &[u8]| each(self.reshape.apply(document, &mut scratch));
        Ok(documents::for_each(reader, &all, unit, reshaped).await?)
    }
}

/// Runs work for every unit on the engine's threads, a few at once, and gives what it gives in order.
fn in_order<T: Send + 'static, W: Future<Output = Result<T, ReadError>> + Send + 'static>(
    engine: &Engine,
    units: impl Iterator<Item = Unit> + Send + 'static,
    work: impl Fn(Unit) -> W + Send + 'static,
) -> BoxStream<'static, Result<T, ReadError>> {
    let engine = engine.clone();
    let threads = engine.threads();
    stream::iter(units)
        .map(move |unit| engine.spawn(work(unit)))
        .buffered(threads)
        .map(|done| done.map_err(|error| ReadError::from(QueryError::from(error))).and_then(|done| done))
        .boxed()
}

/// The columns of a table: those of the selected entities, or, where none is selected, of all.
async fn columns(engine: &Engine, source: &Arc<Source>, limit: usize) -> Result<Columns, ReadError> {
    let all = source.documents.is_empty();
    let reader = source.documents.reader();
    let units = documents::units(reader, if all { reader.entity_count() } else { source.documents.len() });
    let source = source.clone();
    let mut parts = in_order(engine, units, move |unit| {
        let source = source.clone();
        async move {
            let mut found = ColumnsBuilder::new(limit);
            let mut result = Ok(());
            let add = |entity: &[u8]| {
                if result.is_ok() {
                    result = found.add(entity);
                }
            };
            match all {
                true => source.for_each_of_all(&unit, add).await?,
                false => source.for_each(&unit, add).await?,
            }
            result?;
            Ok(found)
        }
    });
    let mut all = ColumnsBuilder::new(limit);
    while let Some(part) = parts.try_next().await? {
        all.merge(part)?;
    }
    Ok(all.finish())
}

/// An answer in a text format.
async fn text(app: &App, source: Arc<Source>, encoder: Arc<dyn Encode>) -> Result<AnswerBody, ReadError> {
    let (engine, admission) = (app.engine(), app.admission());
    let mut units = source.documents.units();
    let first = units.next();
    if let (None, Some(room)) = (units.next(), admission.whole(source.mean_bytes() * source.documents.len())) {
        metrics().sent_rows.increment(source.documents.len());
        let work = async move {
            let mut body = Vec::new();
            let empty = first.is_none();
            encoder.begin(empty, &mut body);
            if let Some(unit) = first {
                encode(&source, &*encoder, &unit, &mut body).await?;
            }
            encoder.end(empty, &mut body);
            Ok::<_, ReadError>(body)
        };
        let body = engine.spawn(work).await.map_err(QueryError::from)??;
        return Ok(AnswerBody::Whole(admission.whole_body(body, room)));
    }
    let mut end = Vec::new();
    encoder.end(false, &mut end);
    let place = admission.stream().await?;
    let (selected, mean_bytes) = (source.documents.len(), source.mean_bytes());
    let encode = move |unit: Unit| {
        let (source, encoder) = (source.clone(), encoder.clone());
        async move {
            let mut bytes = Vec::new();
            // With the first entities, so that a version that cannot be read at all is still an error.
            if unit.places.start == 0 {
                encoder.begin(false, &mut bytes);
            }
            encode(&source, &*encoder, &unit, &mut bytes).await?;
            Ok(bytes)
        }
    };
    let (engine, admission) = (engine.clone(), admission.clone());
    let parts = Paced { engine, admission, place, selected, mean_bytes, encode }.into_stream();
    let end = stream::iter((!end.is_empty()).then(|| Ok(Bytes::from(end))));
    Ok(AnswerBody::Stream(parts.chain(end).boxed()))
}

async fn encode(source: &Source, encoder: &dyn Encode, unit: &Unit, out: &mut Vec<u8>) -> Result<(), ReadError> {
    let mut first = unit.places.start == 0;
    let each = |entity: &[u8]| {
        encoder.entity(entity, first, out);
        first = false;
    };
    source.for_each(unit, each).await
}

/// Chunks of a Parquet body that may wait for the reader.
const PARQUET_CHUNKS: usize = 2;

/// What a Parquet body takes from the memory of queries: a row group in the making and the chunks that wait, and for each
/// column what its writer holds.
const PARQUET_BYTES: usize = 48 << 20;
const PARQUET_COLUMN_BYTES: usize = 20 << 10;

/// An answer in Parquet: batches are built several at once, and written by one task in order.
async fn parquet(app: &App, source: Arc<Source>, columns: Arc<Columns>) -> Result<AnswerBody, ReadError> {
    let engine = app.engine();
    let size_bytes = PARQUET_BYTES + columns.len() * PARQUET_COLUMN_BYTES;
    let turns = (app.admission().stream().await?, app.admission().parquet(size_bytes as u64).await?);
    let held = (turns, engine.reserve("parquet body", size_bytes)?);
    let failed = |error: EncodeError| ReadError::Unreadable(Arc::new(error));
    let mut writer = ParquetStream::try_new(&columns).map_err(failed)?;
    let units = source.documents.units();
    let mut batches = in_order(engine, units, move |unit| {
        let (source, columns) = (source.clone(), columns.clone());
        async move {
            let mut batch = BatchBuilder::new(columns);
            source.for_each(&unit, |entity| batch.push(entity)).await?;
            batch.finish().map_err(failed)
        }
    });
    let body = sent_by_task(engine, PARQUET_CHUNKS, async move |chunks| {
        while let Some(batch) = batches.try_next().await? {
            metrics().sent_rows.increment(batch.num_rows() as u64);
            let bytes = writer.write(&batch).map_err(failed)?;
            // The reader is gone: so is the reason to write.
            if !bytes.is_empty() && chunks.send(bytes).await.is_err() {
                return Ok(());
            }
        }
        let bytes = writer.finish().map_err(failed)?;
        // As above.
        let _ = chunks.send(bytes).await;
        Ok(())
    });
    // Its turns and its memory are held until nothing waits for the reader any more.
    let body = body.inspect(move |_| {
        let _ = &held;
    });
    Ok(AnswerBody::Stream(body.boxed()))
}

/// What a task on the engine's threads sends, no further ahead of the reader than `room` chunks, then its error if it fails
/// or panics. The task lives no longer than the stream.
pub(super) fn sent_by_task<W: Future<Output = Result<(), ReadError>> + Send + 'static>(
    engine: &Engine,
    room: usize,
    work: impl FnOnce(mpsc::Sender<Bytes>) -> W,
) -> BoxStream<'static, Result<Bytes, ReadError>> {
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
