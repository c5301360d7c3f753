//! The end marker of a node's rows, so that no truncated stream looks complete.
//!
//! HTTP/2 and gRPC report a stream that was cut on the way, but not one that a node itself ended too early: if the
//! thread that encodes its batches panics, the library ends the stream as any other. So the last row of a node says how
//! many rows were before it, in an additional column that is null in all other rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;

/// The column. It is the last one, and found by its place.
const ROWS_BEFORE: &str = "rows_before_end";

pub(super) fn with_end(rows: &Schema) -> SchemaRef {
    // In the last row, all others are null.
    let fields = rows.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let end = Field::new(ROWS_BEFORE, DataType::UInt64, true);
    Arc::new(Schema::new_with_metadata(fields.chain([end]).collect::<Vec<_>>(), rows.metadata().clone()))
}

pub(super) fn not_last(batch: &RecordBatch, with_end: &SchemaRef) -> Result<RecordBatch> {
    let no_end = new_null_array(&DataType::UInt64, batch.num_rows());
    let columns = batch.columns().iter().cloned().chain([no_end]).collect();
    Ok(RecordBatch::try_new(with_end.clone(), columns)?)
}

pub(super) fn last(rows: u64, with_end: &SchemaRef) -> Result<RecordBatch> {
    let end: ArrayRef = Arc::new(UInt64Array::from(vec![rows]));
    let others = with_end.fields().len().saturating_sub(1);
    let nulls = with_end.fields().iter().take(others).map(|field| new_null_array(field.data_type(), 1));
    Ok(RecordBatch::try_new(with_end.clone(), nulls.chain([end]).collect())?)
}

pub(super) struct Ending {
    schema: SchemaRef,
    pub(super) node: String,
    rows: u64,
    has_ended: bool,
}

impl Ending {
    pub(super) fn new(schema: SchemaRef, node: String) -> Ending {
        Ending { schema, node, rows: 0, has_ended: false }
    }

    /// The rows of a batch as they were made; `None` for the last row.
    pub(super) fn rows(&mut self, batch: &RecordBatch) -> Result<Option<RecordBatch>> {
        let Some((end, columns)) = batch.columns().split_last() else {
            return exec_err!("node {} returned rows without an end marker", self.node);
        };
        let end = end.as_primitive_opt::<UInt64Type>();
        match end {
            Some(end) if !self.has_ended && end.null_count() == end.len() => {
                self.rows += batch.num_rows() as u64;
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                Ok(Some(RecordBatch::try_new_with_options(self.schema.clone(), columns.to_vec(), &options)?))
            }
            Some(end) if !self.has_ended && end.len() == 1 && end.value(0) == self.rows => {
                self.has_ended = true;
                Ok(None)
            }
            _ => exec_err!("node {} returned the wrong number of rows: {}", self.node, self.rows),
        }
    }

    pub(super) fn end(&self) -> Result<()> {
        match self.has_ended {
            true => Ok(()),
            false => exec_err!("node {} stopped before it returned all rows; rows so far: {}", self.node, self.rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(positions: &[u64]) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("position", DataType::UInt64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(UInt64Array::from(positions.to_vec()))]).expect("a batch")
    }

    fn gathered(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
        let mut ending = Ending::new(rows(&[]).schema(), "n1".to_owned());
        let mut gathered = Vec::new();
        for batch in batches {
            gathered.extend(ending.rows(batch)?);
        }
        ending.end().map(|()| gathered)
    }

    #[test]
    fn rows_are_unchanged_and_missing_rows_are_an_error() {
        let schema = with_end(&rows(&[]).schema());
        let given = |positions: &[u64]| not_last(&rows(positions), &schema).expect("a batch");
        let end = |rows| last(rows, &schema).expect("a row");
        let whole = gathered(&[given(&[1, 2]), given(&[]), given(&[7]), end(3)]).expect("whole");
        assert_eq!(whole, [rows(&[1, 2]), rows(&[]), rows(&[7])]);
        assert_eq!(gathered(&[end(0)]).expect("whole"), []);
        let truncated = [
            vec![],
            vec![given(&[1, 2])],
            vec![given(&[1, 2]), given(&[7])],
            vec![given(&[1, 2]), end(3)],
            vec![given(&[1, 2, 7]), end(2)],
            vec![given(&[1]), end(1), given(&[2])],
            vec![end(0), end(0)],
            vec![rows(&[1, 2])],
            vec![RecordBatch::new_empty(Arc::new(Schema::empty()))],
        ];
        for batches in truncated {
            assert!(gathered(&batches).is_err(), "{batches:?}");
        }
    }
}
