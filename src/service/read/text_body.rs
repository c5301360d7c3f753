//! Writes the selected entities in a text format, and finds the columns of a table.
//!
//! The selection is divided into chunks of about 1 MiB of documents. Several chunks are fetched, projected and encoded
//! concurrently on the engine's threads, and sent in order. So a response needs memory for a few chunks, regardless of
//! its size, and a slow reader stops the work. For example, 100 entities of 2 kB are one chunk, whose body is built as
//! a whole ([`TextBody::try_encode_whole`]); 10,000 of them are 20 chunks, which are streamed at the pace of the reader
//! ([`TextBody::encode_stream`], [`crate::read::body_stream`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, StreamExt};
use strata_config as config;
use strata_encode::{self as encode, ListContents, ListElement, TextEncoder};
use strata_format::document_page::DocumentForm;
use strata_json::{TableColumnNames, TableColumnNamesBuilder, TooManyColumnsError};
use strata_query::fetch::selected_documents::{self, DocumentRef, ResidentDocuments, SelectionChunk};
use strata_query::{QueryEngine, QueryError};
use strata_runtime::metrics::metrics;

use crate::admission::MAX_UNCHARGED_BYTES;
use crate::admission::resource_context::ResourceContext;
use crate::lookup::error::{ReadError, Result};
use crate::read::ResponseBody;
use crate::read::body_stream::{BackpressuredEncoder, ENCODED_BYTES_PER_BYTE};
use crate::read::entity_source::{EntitySource, OrderedChunkTasks};

/// Returns the columns of a table: from the profile if the response has all entities, else from the selected entities.
pub(crate) async fn find_table_columns(
    engine: &QueryEngine,
    source: &Arc<EntitySource>,
    limits: &config::RequestLimitsConfig,
) -> Result<TableColumnNames> {
    let limit = usize::try_from(limits.columns).unwrap_or(usize::MAX);
    let columns = async {
        match source.columns_from_profile().await {
            Some(columns) if columns.len() > limit => Err(TooManyColumnsError { limit }.into()),
            Some(columns) => Ok(columns),
            None => collect_columns(engine, source, limit).await,
        }
    };
    with_query_timeout(engine, columns).await
}

pub(crate) fn reserve_column_names(
    engine: &QueryEngine,
    columns: &TableColumnNames,
) -> Result<Option<MemoryReservation>> {
    let size_bytes = columns.name_bytes() + columns.len() * size_of::<String>();
    let is_small = size_bytes as u64 <= MAX_UNCHARGED_BYTES;
    Ok(if is_small { None } else { Some(engine.try_reserve("column names", size_bytes)?) })
}

pub(crate) async fn with_query_timeout<T>(engine: &QueryEngine, work: impl Future<Output = Result<T>>) -> Result<T> {
    let limit = engine.timeout();
    let result = tokio::time::timeout(limit, work).await;
    result.map_err(|_| ReadError::Timeout { seconds: limit.as_secs() })?
}

async fn collect_columns(engine: &QueryEngine, source: &Arc<EntitySource>, limit: usize) -> Result<TableColumnNames> {
    let all = source.documents.is_empty();
    let reader = source.documents.reader();
    let chunks =
        selected_documents::selection_chunks(reader, if all { reader.entity_count() } else { source.documents.len() });
    let source = source.clone();
    let mut parts = OrderedChunkTasks::new(engine, chunks, move |chunk| {
        let source = source.clone();
        async move {
            let mut columns = TableColumnNamesBuilder::new(limit);
            let mut result = Ok(());
            let add = |entity: &[u8]| {
                result = columns.add_entity(entity);
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let next = match all {
                true => source.for_each_entity_in_version(&chunk, add).await?,
                false => source.for_each_selected_entity(&chunk, add).await?,
            };
            result?;
            Ok((columns, next))
        }
    });
    let mut columns = TableColumnNamesBuilder::new(limit);
    while let Some(part) = parts.next_result(|running, _| running < engine.threads()).await? {
        columns.merge(part)?;
    }
    Ok(columns.finish())
}

/// A page of cached documents below this size is encoded at once, because switching threads takes longer.
const MAX_RESIDENT_BYTES: u64 = 256 << 10;

/// Limit of bodies that are encoded whole. A body with an entity that would begin after this many bytes is streamed.
pub(crate) const MAX_WHOLE_BODY_BYTES: usize = 4 << 20;

pub(crate) struct TextBody {
    pub source: Arc<EntitySource>,
    pub encoder: Box<dyn TextEncoder>,
    /// Whether documents can be copied to the body in indented form, if the cache contains this form.
    pub document_form: DocumentForm,
    pub _column_names: Option<MemoryReservation>,
}

impl TextBody {
    /// Encodes the body as a whole; `None` if it must be streamed, because it is large or its bytes cannot be reserved.
    pub(crate) async fn try_encode_whole(self: Arc<Self>, resources: &ResourceContext) -> Result<Option<ResponseBody>> {
        let selected = self.source.documents.len();
        let document_bytes = self.source.estimated_document_bytes();
        let mut chunks = self.source.documents.chunks();
        let chunk = chunks.next();
        let (None, Some(permit)) = (chunks.next(), resources.admission.try_acquire_whole_body(document_bytes)) else {
            return Ok(None);
        };
        let resident = match document_bytes <= MAX_RESIDENT_BYTES {
            true => self.source.documents.try_resident(2 * MAX_RESIDENT_BYTES as usize, self.document_form).await,
            false => None,
        };
        let is_resident = resident.is_some();
        let work = async move {
            // The capacity prevents copies while the body grows: indented JSON is about 1.5 times as long as documents.
            let mut body = Vec::with_capacity(if is_resident { document_bytes as usize * 3 / 2 } else { 0 });
            let contents = ListContents::from_entity_count(selected);
            self.encoder.write_header(contents, &mut body);
            let max_bytes = MAX_WHOLE_BODY_BYTES.saturating_sub(body.len());
            if let Some(chunk) = chunk
                && (max_bytes == 0
                    || self.write_entities(&chunk, resident.as_ref(), max_bytes, &mut body).await? < chunk.ordinals.end)
            {
                return Ok(None);
            }
            self.encoder.write_footer(contents, &mut body);
            Ok::<_, ReadError>(Some(body))
        };
        let body = match is_resident {
            true => work.await?,
            // Reading documents that are not cached has a timeout, because a store might not respond.
            false => {
                let encoded = async { spawn_encoding(resources, document_bytes, Box::pin(work)).await? };
                Box::pin(with_query_timeout(&resources.engine, encoded)).await?
            }
        };
        let Some(body) = body else { return Ok(None) };
        metrics().sent_rows.increment(selected);
        Ok(Some(ResponseBody::Whole(resources.charge_whole_body(body, permit)?)))
    }

    pub(crate) async fn encode_stream(self: Arc<Self>, resources: &ResourceContext) -> Result<ResponseBody> {
        let mut footer = Vec::new();
        self.encoder.write_footer(ListContents::NonEmpty, &mut footer);
        let entity_count = self.source.documents.len();
        let mean_document_bytes = self.source.mean_document_bytes();
        let chunk_bytes = mean_document_bytes.saturating_mul(ENCODED_BYTES_PER_BYTE);
        let stream_permit = resources.admission.acquire_stream_for_chunks(chunk_bytes).await?;
        let encode = move |chunk: SelectionChunk, max_bytes: u64| {
            let text = self.clone();
            async move {
                // The capacity is the estimated size and some more, because growing would copy the bytes.
                let document_bytes = max_bytes / ENCODED_BYTES_PER_BYTE;
                let mut bytes =
                    Vec::with_capacity(usize::try_from(document_bytes + document_bytes / 16).unwrap_or_default());
                // The header is sent with the first entities, so that an unreadable version still returns an error.
                if chunk.ordinals.start == 0 {
                    text.encoder.write_header(ListContents::NonEmpty, &mut bytes);
                }
                let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                let next = text.write_entities(&chunk, None, max_bytes, &mut bytes).await?;
                Ok((bytes, next))
            }
        };
        let capacity = resources.clone();
        let encoder = BackpressuredEncoder { capacity, stream_permit, entity_count, mean_document_bytes, encode };
        let footer = stream::iter((!footer.is_empty()).then(|| Ok(Bytes::from(footer))));
        Ok(ResponseBody::Stream(encoder.into_stream().chain(footer).boxed()))
    }

    /// Appends encoded entities until `max_bytes`. Returns the ordinal after the last entity. `resident` is in memory.
    async fn write_entities(
        &self,
        chunk: &SelectionChunk,
        resident: Option<&ResidentDocuments>,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let start = out.len();
        let mut element = ListElement::from_ordinal(chunk.ordinals.start);
        let mut result = Ok(());
        let mut write = |document: DocumentRef<'_>| {
            match document {
                DocumentRef::Stored(entity) => result = self.encoder.write_entity(entity, element, out),
                DocumentRef::Indented(text) => encode::write_indented_entity(text, element, out),
            }
            element = ListElement::Later;
            let continues = result.is_ok() && out.len() - start < max_bytes;
            if continues { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let next = match resident {
            Some(documents) => self.source.for_each_resident_document(documents, write),
            None => self.source.for_each_selected_entity(chunk, |entity| write(DocumentRef::Stored(entity))).await?,
        };
        result?;
        Ok(next)
    }
}

/// Encodes or compresses `size_bytes` bytes: a few on the query threads, more with a permit on a dedicated thread, so
/// that other work does not wait. Fails with [`ReadError::Busy`] if no permit is available in time.
pub(crate) async fn spawn_encoding<T: Send + 'static>(
    resources: &ResourceContext,
    size_bytes: u64,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    if size_bytes <= MAX_UNCHARGED_BYTES {
        return Ok(resources.engine.spawn(work).await.map_err(QueryError::from)?);
    }
    let permit = resources.admission.acquire_encode().await?;
    let work = async move {
        let _permit = permit;
        work.await
    };
    Ok(resources.engine.spawn_dedicated(work).await?)
}
