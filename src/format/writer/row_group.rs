//! Encodes documents as row groups.

use std::sync::mpsc::{Receiver, SyncSender};

use arrow::array::{Array, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use strata_store::{Result, StorageError};

use super::EncodeInput;
use super::buffer_pool::BufferPool;
use super::options::{DOCUMENT_PAGE_TARGET_BYTES, ROW_GROUP_TARGET_BYTES};
use crate::keywords::indexer::RowGroupText;
use crate::shredder::EntityShredder;
use crate::spool::SpoolReader;

const MAX_BATCH_ROWS: usize = 2_048;

pub(crate) fn is_full_row_group(rows: usize, bytes: usize, max_rows: usize) -> bool {
    rows >= max_rows || bytes >= ROW_GROUP_TARGET_BYTES
}

pub(super) fn read_row_group(
    lines: &mut SpoolReader,
    rows: usize,
    buffers: &BufferPool,
) -> Result<Option<StringArray>> {
    let mut text = buffers.take();
    text.reserve(ROW_GROUP_TARGET_BYTES + (ROW_GROUP_TARGET_BYTES >> 4));
    let mut offsets = vec![0];
    while !is_full_row_group(offsets.len() - 1, text.len(), rows) {
        if lines.read_document_into(&mut text)?.is_none() {
            break;
        }
        let end = i32::try_from(text.len()).map_err(|_| arrow::error::ArrowError::OffsetOverflowError(text.len()))?;
        offsets.push(end);
    }
    if offsets.len() == 1 {
        return Ok(None);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Some(StringArray::try_new(offsets, Buffer::from_vec(text), None)?))
}

pub(super) struct EncodedRowGroup {
    pub(super) rows: usize,
    pub(super) columns: Vec<ArrowColumnChunk>,
    pub(super) full_text: Option<RowGroupText>,
}

pub(super) fn run_encode_worker(
    input: EncodeInput<'_>,
    write_queue: &Receiver<StringArray>,
    to_file: &SyncSender<Result<EncodedRowGroup>>,
) {
    let EncodeInput { layout, fields, factory, buffers } = input;
    let mut shredder = EntityShredder::new(layout, fields);
    for (number, documents) in write_queue.iter().enumerate() {
        let row_group = encode_row_group(&mut shredder, factory, number, &documents, buffers);
        buffers.recycle(documents);
        if to_file.send(row_group).is_err() {
            return;
        }
    }
}

pub(super) fn encode_row_group(
    shredder: &mut EntityShredder,
    factory: &ArrowRowGroupWriterFactory,
    number: usize,
    documents: &StringArray,
    buffers: &BufferPool,
) -> Result<EncodedRowGroup> {
    let mut writers = factory.create_column_writers(number)?;
    let mut start = 0;
    while start < documents.len() {
        let length = next_batch_rows(documents, start);
        let batch = shredder.shred(&documents.slice(start, length))?;
        let mut columns = writers.iter_mut();
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            for shredded in compute_leaves(field, array)? {
                columns.next().ok_or(StorageError::WorkerStopped)?.write(&shredded)?;
            }
        }
        start += length;
    }
    let columns = writers.into_iter().map(|writer| writer.close()).collect::<Result<_, _>>()?;
    Ok(EncodedRowGroup { rows: documents.len(), columns, full_text: shredder.take_full_text(buffers.take())? })
}

/// Returns the number of rows in the next batch. The Parquet page writer checks sizes only between batches, so batches
/// must be small for document pages to end in time.
fn next_batch_rows(documents: &StringArray, start: usize) -> usize {
    let offsets = documents.value_offsets();
    let limit = offsets[start] as usize + 4 * DOCUMENT_PAGE_TARGET_BYTES;
    let rows = offsets[start + 1..].partition_point(|end| (*end as usize) < limit) + 1;
    rows.min(MAX_BATCH_ROWS).min(documents.len() - start)
}
