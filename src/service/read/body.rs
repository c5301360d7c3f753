//! Writes the selected entities in a text format, and finds the columns of a table.
//!
//! The selection is cut into units of about 1 MiB of documents. Each unit is fetched, projected and encoded separately,
//! several at once on the engine's threads, and the units are sent in order. A response therefore needs memory for a
//! few units, whatever its size, and a slow reader stops the work. For example, 100 entities of 2 kB are one unit, so
//! that their body is complete ([`TextBody::whole`]); 10,000 of them are 20 units, which are streamed at the pace of
//! the reader ([`TextBody::stream`], [`crate::read::stream`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, StreamExt};
use strata_config as config;
use strata_encode::{self as encode, Encode};
use strata_json::{Columns, ColumnsBuilder, TooManyColumns};
use strata_query::fetch::documents::{self, AtHand, Held, Unit};
use strata_query::{Engine, QueryError};
use strata_runtime::metrics::metrics;

use crate::admission::WHOLE_BYTES;
use crate::admission::capacity::Capacity;
use crate::lookup::error::ReadError;
use crate::read::AnswerBody;
use crate::read::source::{OrderedUnits, Source};
use crate::read::stream::{EXPANSION, Paced};

/// The columns of a table: those that the file lists if the response contains all entities, otherwise those of the
/// selected entities.
///
/// # Errors
/// [`ReadError::TooManyColumns`] and [`ReadError::Timeout`].
pub(crate) async fn table_columns(
    engine: &Engine,
    source: &Arc<Source>,
    limits: &config::Limits,
) -> Result<Columns, ReadError> {
    let limit = usize::try_from(limits.columns).unwrap_or(usize::MAX);
    let found = async {
        match source.known_columns().await {
            Some(columns) if columns.len() > limit => Err(TooManyColumns { limit }.into()),
            Some(columns) => Ok(columns),
            None => columns(engine, source, limit).await,
        }
    };
    within_time(engine, found).await
}

/// Reserves memory for the names of a table's columns, which a streamed body keeps until it ends; none for a few names.
pub(crate) fn reserve_names(engine: &Engine, columns: &Columns) -> Result<Option<MemoryReservation>, ReadError> {
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
    let mut parts = OrderedUnits::new(engine, units, move |unit| {
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
    while let Some(part) = parts.next(|running, _| running < engine.threads()).await? {
        all.merge(part)?;
    }
    Ok(all.finish())
}

/// Bytes of documents in the cache that are encoded at once, where the request is. Handing such a page to the threads
/// of queries and back takes longer than encoding it.
const RESIDENT_BYTES: u64 = 256 << 10;

/// Bytes of a body that is whole, besides its last entity: several times those of the unit that it is made of.
pub(crate) const WHOLE_BODY_BYTES: usize = 4 << 20;

/// The entities of a response in a text format.
pub(crate) struct TextBody {
    pub source: Arc<Source>,
    pub encoder: Box<dyn Encode>,
    /// Whether an entity in memory that is indented already needs nothing else.
    pub indented: bool,
    /// Until the body ends.
    pub _column_names: Option<MemoryReservation>,
}

impl TextBody {
    /// A complete body; `None` if it has more than one unit, or a few documents became much larger than they are.
    pub(crate) async fn whole(self: Arc<Self>, capacity: &Capacity) -> Result<Option<AnswerBody>, ReadError> {
        let selected = self.source.documents.len();
        let document_bytes = self.source.document_bytes();
        let mut units = self.source.documents.units();
        let unit = units.next();
        let (None, Some(room)) = (units.next(), capacity.admission.whole(document_bytes)) else { return Ok(None) };
        let resident = match document_bytes <= RESIDENT_BYTES {
            true => self.source.documents.at_hand(2 * RESIDENT_BYTES as usize, self.indented).await,
            false => None,
        };
        let is_resident = resident.is_some();
        let work = async move {
            // Indented JSON is about half as long again. Growing would copy what is written.
            let mut body = Vec::with_capacity(if is_resident { document_bytes as usize * 3 / 2 } else { 0 });
            let empty = unit.is_none();
            self.encoder.begin(empty, &mut body);
            let most = WHOLE_BODY_BYTES.saturating_sub(body.len());
            if let Some(unit) = unit
                && (most == 0 || self.write_unit(&unit, resident.as_ref(), most, &mut body).await? < unit.places.end)
            {
                return Ok(None);
            }
            self.encoder.end(empty, &mut body);
            Ok::<_, ReadError>(Some(body))
        };
        let body = match is_resident {
            true => work.await?,
            // A store may never answer.
            false => {
                let encoded = async { encoded(capacity, document_bytes, Box::pin(work)).await? };
                Box::pin(within_time(&capacity.engine, encoded)).await?
            }
        };
        let Some(body) = body else { return Ok(None) };
        metrics().sent_rows.increment(selected);
        Ok(Some(AnswerBody::Whole(capacity.whole_body(body, room)?)))
    }

    /// A streamed body of any size.
    pub(crate) async fn stream(self: Arc<Self>, capacity: &Capacity) -> Result<AnswerBody, ReadError> {
        let mut end = Vec::new();
        self.encoder.end(false, &mut end);
        let selected = self.source.documents.len();
        let mean_bytes = self.source.mean_bytes();
        let place = capacity.admission.stream_of_units(mean_bytes.saturating_mul(EXPANSION)).await?;
        let encode = move |unit: Unit, most_bytes: u64| {
            let text = self.clone();
            async move {
                // As many as are foreseen, and some more. Growing would copy them.
                let foreseen = most_bytes / EXPANSION;
                let mut bytes = Vec::with_capacity(usize::try_from(foreseen + foreseen / 16).unwrap_or_default());
                // With the first entities, so that a version that cannot be read at all is still an error.
                if unit.places.start == 0 {
                    text.encoder.begin(false, &mut bytes);
                }
                let most = usize::try_from(most_bytes).unwrap_or(usize::MAX);
                let next = text.write_unit(&unit, None, most, &mut bytes).await?;
                Ok((bytes, next))
            }
        };
        let capacity = capacity.clone();
        let parts = Paced { capacity, place, selected, mean_bytes, encode }.into_stream();
        let end = stream::iter((!end.is_empty()).then(|| Ok(Bytes::from(end))));
        Ok(AnswerBody::Stream(parts.chain(end).boxed()))
    }

    /// Appends the entities of a unit until they are all, or have more than `most_bytes`. Returns the place after the
    /// last one. `resident` are the documents of all selected entities if they are in memory.
    async fn write_unit(
        &self,
        unit: &Unit,
        resident: Option<&AtHand>,
        most_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, ReadError> {
        let start = out.len();
        let mut first = unit.places.start == 0;
        let mut result = Ok(());
        let mut each = |held: Held<'_>| {
            match held {
                Held::Stored(entity) => result = self.encoder.entity(entity, first, out),
                Held::Indented(text) => encode::indented_entity(text, first, out),
            }
            first = false;
            let goes_on = result.is_ok() && out.len() - start < most_bytes;
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let next = match resident {
            Some(documents) => self.source.for_each_at_hand(documents, each),
            None => self.source.for_each(unit, |entity| each(Held::Stored(entity))).await?,
        };
        result?;
        Ok(next)
    }
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
