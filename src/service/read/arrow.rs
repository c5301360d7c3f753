//! Builds Arrow IPC streams (`/files/…/{version}.arrow`).
//!
//! A stream consists of record batches with a fixed number of rows, so that its bytes do not depend on the pace of the
//! reader or on the number of threads. The batches are encoded like the chunks of a text, with the same memory limits
//! ([`crate::read::body_stream`]): to that module, each batch is one entity.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::{self, StreamExt};
use strata_encode::{ArrowStreamEncoder, ColumnType};
use strata_json::TableColumnNames;
use strata_query::fetch::selected_documents::SelectionChunk;
use strata_runtime::metrics::metrics;

use crate::admission::resource_context::ResourceContext;
use crate::lookup::error::ReadError;
use crate::read::ResponseBody;
use crate::read::body_stream::{BackpressuredEncoder, ENCODED_BYTES_PER_BYTE};
use crate::read::entity_source::EntitySource;

/// Approximate size of a record batch.
const BATCH_BYTES: u64 = 256 << 10;
const MAX_BATCH_ROWS: u64 = 8_192;

/// Approximate bytes of a cell without a value: an offset and a part of the validity bitmap.
const NULL_CELL_BYTES: u64 = 5;

struct ArrowBody {
    source: Arc<EntitySource>,
    encoder: ArrowStreamEncoder,
    rows_per_batch: u64,
    _column_names: Option<MemoryReservation>,
}

pub(crate) async fn build_arrow(
    resources: &ResourceContext,
    source: Arc<EntitySource>,
    columns: Arc<TableColumnNames>,
    types: Arc<[ColumnType]>,
    column_names: Option<MemoryReservation>,
) -> Result<ResponseBody, ReadError> {
    let row_bytes = source.mean_document_bytes().max(columns.len() as u64 * NULL_CELL_BYTES).max(1);
    let rows_per_batch = (BATCH_BYTES / row_bytes).clamp(1, MAX_BATCH_ROWS);
    let batch_bytes = row_bytes.saturating_mul(rows_per_batch);
    let encoder = ArrowStreamEncoder::new(columns, types);
    let batch_count = source.documents.len().div_ceil(rows_per_batch);
    let mut end = Vec::new();
    if batch_count == 0 {
        encoder.write_schema(&mut end).map_err(ReadError::unreadable)?;
    }
    encoder.write_end(&mut end).map_err(ReadError::unreadable)?;
    let body = Arc::new(ArrowBody { source, encoder, rows_per_batch, _column_names: column_names });
    let chunk_bytes = batch_bytes.saturating_mul(ENCODED_BYTES_PER_BYTE);
    let stream_permit = resources.admission.acquire_stream_for_chunks(chunk_bytes).await?;
    let encode = move |chunk: SelectionChunk, max_bytes: u64| {
        let body = body.clone();
        async move {
            let mut bytes = Vec::new();
            // The schema is sent with the first batch, so that an unreadable version still returns an error.
            if chunk.ordinals.start == 0 {
                body.encoder.write_schema(&mut bytes).map_err(ReadError::unreadable)?;
            }
            let mut next = chunk.ordinals.start;
            while next < chunk.ordinals.end && (next == chunk.ordinals.start || (bytes.len() as u64) < max_bytes) {
                body.write_batch(next, &mut bytes).await?;
                next += 1;
            }
            Ok((bytes, next))
        }
    };
    let encoder = BackpressuredEncoder {
        capacity: resources.clone(),
        stream_permit,
        entity_count: batch_count,
        mean_document_bytes: batch_bytes,
        encode,
    };
    Ok(ResponseBody::Stream(encoder.into_stream().chain(stream::iter([Ok(Bytes::from(end))])).boxed()))
}

impl ArrowBody {
    async fn write_batch(&self, number: u64, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let start = number * self.rows_per_batch;
        let rows = start..self.source.documents.len().min(start + self.rows_per_batch);
        let mut batch = self.encoder.new_batch();
        let push = |entity: &[u8]| {
            batch.add_entity(entity);
            ControlFlow::Continue(())
        };
        self.source.for_each_selected_entity(&SelectionChunk { ordinals: rows }, push).await?;
        let batch = batch.finish();
        // The stream counts each batch as one row.
        metrics().sent_rows.increment((batch.rows as u64).saturating_sub(1));
        self.encoder.write_batch(&batch, out).map_err(ReadError::unreadable)
    }
}
