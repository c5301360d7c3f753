//! Documents to encoded row groups.

use std::sync::mpsc::{Receiver, SyncSender};

use arrow::array::{Array, AsArray, BinaryArray, BinaryBuilder, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use strata_store::{Result, StorageError};

use super::options::{DOCUMENT_PAGE_BYTES, ROW_GROUP_BYTES};
use crate::layout::{Layout, SEARCH_COLUMN};
use crate::shapes::builder::ShapeLimits;
use crate::shred::Shredder;
use crate::spool::Lines;

const BATCH_ROWS: usize = 2_048;

#[derive(Clone, Copy)]
pub(super) struct Collects {
    pub(super) texts: bool,
    pub(super) shapes: Option<ShapeLimits>,
}

/// Whether a row group of so many entities, and bytes of them, takes no more.
pub(crate) fn is_full_row_group(rows: usize, bytes: usize, most_rows: usize) -> bool {
    rows >= most_rows || bytes >= ROW_GROUP_BYTES
}

pub(super) fn next_row_group(lines: &mut Lines, rows: usize) -> Result<Option<StringArray>> {
    let mut text = Vec::with_capacity(ROW_GROUP_BYTES + (ROW_GROUP_BYTES >> 4));
    let mut offsets = vec![0];
    while !is_full_row_group(offsets.len() - 1, text.len(), rows) {
        if lines.next_into(&mut text)?.is_none() {
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

pub(super) struct RowGroup {
    pub(super) rows: usize,
    pub(super) columns: Vec<ArrowColumnChunk>,
    pub(super) texts: Option<BinaryArray>,
    pub(super) shapes: Option<Vec<u8>>,
}

/// A worker: row groups of documents in, encoded row groups out, until either side is gone.
pub(super) fn encode_row_groups(
    layout: &Layout,
    factory: &ArrowRowGroupWriterFactory,
    jobs: &Receiver<StringArray>,
    to_file: &SyncSender<Result<RowGroup>>,
    collects: Collects,
) {
    let mut shredder = Shredder::new(layout, collects.shapes);
    for (number, documents) in jobs.iter().enumerate() {
        let row_group = encode_row_group(&mut shredder, factory, number, &documents, collects.texts);
        if to_file.send(row_group).is_err() {
            return;
        }
    }
}

pub(super) fn encode_row_group(
    shredder: &mut Shredder,
    factory: &ArrowRowGroupWriterFactory,
    number: usize,
    documents: &StringArray,
    indexes: bool,
) -> Result<RowGroup> {
    let offsets = documents.value_offsets();
    // The texts of a document take little more than it at most, and mostly less.
    let text_bytes = offsets.last().zip(offsets.first()).map_or(0, |(end, start)| (end - start) as usize);
    let mut texts = indexes.then(|| BinaryBuilder::with_capacity(documents.len(), text_bytes));
    let mut writers = factory.create_column_writers(number)?;
    let mut start = 0;
    while start < documents.len() {
        let length = batch_rows(documents, start);
        let batch = shredder.shred(&documents.slice(start, length))?;
        let mut columns = writers.iter_mut();
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            for shredded in compute_leaves(field, array)? {
                columns.next().ok_or(StorageError::Worker)?.write(&shredded)?;
            }
        }
        if let Some(texts) = &mut texts {
            texts.append_array(batch.column(SEARCH_COLUMN).as_binary())?;
        }
        shredder.recycle(batch);
        start += length;
    }
    let columns = writers.into_iter().map(|writer| writer.close()).collect::<Result<_, _>>()?;
    let texts = texts.map(|mut texts| texts.finish());
    Ok(RowGroup { rows: documents.len(), columns, texts, shapes: shredder.take_shapes() })
}

/// Rows from `start` that make the next batch: few enough that the page writer, which looks at sizes only
/// between batches of values, ends document pages in time.
fn batch_rows(documents: &StringArray, start: usize) -> usize {
    let offsets = documents.value_offsets();
    let limit = offsets[start] as usize + 4 * DOCUMENT_PAGE_BYTES;
    let rows = offsets[start + 1..].partition_point(|end| (*end as usize) < limit) + 1;
    rows.min(BATCH_ROWS).min(documents.len() - start)
}
