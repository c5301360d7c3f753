//! The selected entities to the bytes of an answer.
//!
//! The selection is cut into units. Each is fetched, reshaped and encoded by itself on the engine's threads, a few at
//! once; their bytes are given in order. So memory is a few units, whatever the size of the answer, and a slow
//! reader stops the work. An answer of one unit is whole; others are streamed, at the pace of their readers
//! ([`crate::read::stream`]) and admitted by [`crate::admission`].
//!
//! A table needs its columns first. The file tells those of all entities. Of others, one pass over the same units finds
//! them. Typed columns need their types, too ([`crate::read::column_types`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, StreamExt, TryStreamExt};
use strata_config as config;
use strata_encode::{self as encode, Encode, EntityBound};
use strata_format::reader::VersionReader;
use strata_json::{Columns, ColumnsBuilder, TooManyColumns};
use strata_query::fetch::documents::{self, AtHand, Held, SelectedDocuments, Unit};
use strata_query::fetch::reshape::Reshape;
use strata_query::fetch::selection::Selection;
use strata_query::{Engine, QueryError};
use strata_runtime::metrics::metrics;
use strata_types::request::{Format, ReadRequest};

use crate::admission::capacity::Capacity;
use crate::admission::{Permit, WHOLE_BYTES, Weight};
use crate::export_cache::Taker;
use crate::lookup::error::ReadError;
use crate::read::AnswerBody;
use crate::read::column_types::column_types;
use crate::read::observer::Observer;
use crate::read::parquet;
use crate::read::source::{Source, in_order};
use crate::read::stream::{EXPANSION, Paced};

pub(crate) struct BodyMaker<'a> {
    pub capacity: &'a Capacity,
    /// The query's engine, for what comes before the first byte.
    pub engine: &'a Engine,
    pub limits: &'a config::Limits,
}

impl BodyMaker<'_> {
    /// The body of an answer that holds the selected entities. Returns the permit of the query when the columns are
    /// known if it is heavy, otherwise when the body is complete or before it waits for a place among streams.
    pub(crate) async fn body(
        &self,
        reader: VersionReader,
        selection: Selection,
        request: &ReadRequest,
        (permit, weight, taker): (Permit, Weight, Taker),
        mut observer: Option<&mut Observer>,
    ) -> Result<AnswerBody, ReadError> {
        let BodyMaker { capacity, engine, limits } = self;
        let documents = SelectedDocuments::of(engine, reader, selection);
        let documents = within_time(engine, async { Ok(documents.await?) }).await?;
        if let (Some(observer), Some(bytes)) = (&mut observer, documents.spilled_bytes()) {
            observer.ordered(bytes);
        }
        let source = Arc::new(Source { documents, reshape: Reshape::of(request) });
        let is_table = request.format.is_table();
        let columns = if is_table { Box::pin(self.table_columns(&source)).await? } else { Arc::default() };
        let types = match request.typed && request.format == Format::Parquet {
            true => Some(Box::pin(within_time(engine, column_types(engine, &source, &columns))).await?),
            false => None,
        };
        if let (Some(observer), true) = (observer, is_table) {
            observer.columns_found(columns.len());
        }
        let permit = if weight == Weight::Heavy { None } else { Some(permit) };
        let names = names_memory(engine, &columns)?;
        let bound = EntityBound::new(limits.encoded_entity_bytes);
        match encode::text_encoder(request, Some(columns.clone()), bound) {
            Some(encoder) => {
                let indented = encode::indents_documents(request) && source.reshape.is_identity();
                text(capacity, source, (encoder.into(), indented), names, permit).await
            }
            None => {
                drop(permit);
                // The schema of thousands of columns takes milliseconds.
                let capacity = (*capacity).clone();
                let body = async move { parquet::body(&capacity, source, (columns, types), taker).await };
                engine.spawn(body).await.map_err(QueryError::from)?
            }
        }
    }

    async fn table_columns(&self, source: &Arc<Source>) -> Result<Arc<Columns>, ReadError> {
        let limit = usize::try_from(self.limits.columns).unwrap_or(usize::MAX);
        let found = async {
            match source.known_columns().await {
                Some(columns) if columns.len() > limit => Err(TooManyColumns { limit }.into()),
                Some(columns) => Ok(columns),
                None => columns(self.engine, source, limit).await,
            }
        };
        Ok(Arc::new(within_time(self.engine, found).await?))
    }
}

/// Memory for the names of a table's columns, which a streamed body keeps until it ends; none where they are few.
fn names_memory(engine: &Engine, columns: &Columns) -> Result<Option<MemoryReservation>, ReadError> {
    let size_bytes = columns.name_bytes() + columns.len() * size_of::<String>();
    let are_few = size_bytes as u64 <= WHOLE_BYTES;
    Ok(if are_few { None } else { Some(engine.reserve("column names", size_bytes)?) })
}

/// The outcome of `work` within the time that a query may take.
pub(crate) async fn within_time<T>(
    engine: &Engine,
    work: impl Future<Output = Result<T, ReadError>>,
) -> Result<T, ReadError> {
    let limit = engine.timeout();
    let done = tokio::time::timeout(limit, work).await;
    done.map_err(|_| ReadError::Timeout { seconds: limit.as_secs() })?
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
                result = found.add(entity);
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let next = match all {
                true => source.for_each_of_all(&unit, add).await?,
                false => source.for_each(&unit, add).await?,
            };
            result?;
            Ok((found, next))
        }
    });
    let mut all = ColumnsBuilder::new(limit);
    while let Some(part) = parts.try_next().await? {
        all.merge(part)?;
    }
    Ok(all.finish())
}

/// Bytes of documents in the cache that are encoded at once, where the request is. Handing such a page to the threads
/// of queries and back takes longer than encoding it.
const AT_HAND_BYTES: u64 = 256 << 10;

/// Bytes of a body that is whole, besides its last entity: several times those of the unit that it is made of.
pub(crate) const WHOLE_BODY_BYTES: usize = 4 << 20;

/// An answer in a text format. Documents in memory may be indented already, if that is all that it does to them.
async fn text(
    capacity: &Capacity,
    source: Arc<Source>,
    (encoder, indented): (Arc<dyn Encode>, bool),
    names: Option<MemoryReservation>,
    permit: Option<Permit>,
) -> Result<AnswerBody, ReadError> {
    let admission = &capacity.admission;
    let (selected, mean_bytes, document_bytes) = (source.documents.len(), source.mean_bytes(), source.document_bytes());
    let mut units = source.documents.units();
    let first = units.next();
    if let (None, Some(room)) = (units.next(), admission.whole(document_bytes)) {
        let at_hand = match document_bytes <= AT_HAND_BYTES {
            true => source.documents.at_hand(2 * AT_HAND_BYTES as usize, indented).await,
            false => None,
        };
        let (is_at_hand, source, encoder) = (at_hand.is_some(), source.clone(), encoder.clone());
        let work = async move {
            // Indented JSON is about half as long again. Growing would copy what is written.
            let mut body = Vec::with_capacity(if is_at_hand { document_bytes as usize * 3 / 2 } else { 0 });
            let empty = first.is_none();
            encoder.begin(empty, &mut body);
            let most = WHOLE_BODY_BYTES.saturating_sub(body.len());
            if let Some(unit) = first
                && (most == 0
                    || encode(&source, &*encoder, (&unit, at_hand.as_ref()), most, &mut body).await? < unit.places.end)
            {
                return Ok(None);
            }
            encoder.end(empty, &mut body);
            Ok::<_, ReadError>(Some(body))
        };
        let body = match is_at_hand {
            true => work.await?,
            // A store may never answer.
            false => {
                let encoded = async { encoded(capacity, document_bytes, Box::pin(work)).await? };
                Box::pin(within_time(&capacity.engine, encoded)).await?
            }
        };
        // Where a few documents became much more, they are streamed after all.
        if let Some(body) = body {
            metrics().sent_rows.increment(selected);
            return Ok(AnswerBody::Whole(capacity.whole_body(body, room)?));
        }
    }
    let mut end = Vec::new();
    encoder.end(false, &mut end);
    // Slow readers decide how long it waits for a place.
    drop(permit);
    let place = admission.stream_of_units(mean_bytes.saturating_mul(EXPANSION)).await?;
    let names = names.map(Arc::new);
    let encode = move |unit: Unit, most_bytes: u64| {
        let _names = &names;
        let (source, encoder) = (source.clone(), encoder.clone());
        async move {
            // As many as are foreseen, and some more. Growing would copy them.
            let foreseen = most_bytes / EXPANSION;
            let mut bytes = Vec::with_capacity(usize::try_from(foreseen + foreseen / 16).unwrap_or_default());
            // With the first entities, so that a version that cannot be read at all is still an error.
            if unit.places.start == 0 {
                encoder.begin(false, &mut bytes);
            }
            let most = usize::try_from(most_bytes).unwrap_or(usize::MAX);
            let next = encode(&source, &*encoder, (&unit, None), most, &mut bytes).await?;
            Ok((bytes, next))
        }
    };
    let capacity = capacity.clone();
    let parts = Paced { capacity, place, selected, mean_bytes, encode }.into_stream();
    let end = stream::iter((!end.is_empty()).then(|| Ok(Bytes::from(end))));
    Ok(AnswerBody::Stream(parts.chain(end).boxed()))
}

/// What encoding or compressing so many bytes at once gives: by the threads of queries while they are few, so that
/// pages wait for nothing, else as a unit of a streamed body, which others do not wait for.
/// [`ReadError::Busy`] if there is no unit for too long.
pub(crate) async fn encoded<T: Send + 'static>(
    capacity: &Capacity,
    size_bytes: u64,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ReadError> {
    if size_bytes <= WHOLE_BYTES {
        return Ok(capacity.engine.spawn(work).await.map_err(QueryError::from)?);
    }
    let permit = capacity.admission.unit().await?;
    let work = async move {
        let _permit = permit;
        work.await
    };
    Ok(capacity.engine.spawn_apart(work).await?)
}

/// Appends the entities of a unit until they are all, or more than so many bytes. Returns the place after the last one.
/// They may be at hand.
async fn encode(
    source: &Source,
    encoder: &dyn Encode,
    (unit, at_hand): (&Unit, Option<&AtHand>),
    most_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<u64, ReadError> {
    let (start, mut first) = (out.len(), unit.places.start == 0);
    let mut result = Ok(());
    let mut each = |held: Held<'_>| {
        match held {
            Held::Stored(entity) => result = encoder.entity(entity, first, out),
            Held::Indented(text) => encode::indented_entity(text, first, out),
        }
        first = false;
        let goes_on = result.is_ok() && out.len() - start < most_bytes;
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let next = match at_hand {
        Some(documents) => source.for_each_at_hand(documents, each),
        None => source.for_each(unit, |entity| each(Held::Stored(entity))).await?,
    };
    result?;
    Ok(next)
}
