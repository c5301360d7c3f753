//! The end marker of a node's rows, so that no truncated stream looks complete.
//!
//! HTTP/2 and gRPC report a stream that was interrupted on the way, but not a stream that a node itself ended too
//! early: if the thread that encodes batches panics, the library ends the stream normally. So the last row of a node
//! contains the number of rows before it, in an additional column that is null in all other rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::exec_err;
use datafusion::error::Result;

/// Column of the end marker. The column is always the last one, and is found by its position, not by its name.
const END_MARKER_COLUMN: &str = "rows_before_end";

pub(super) fn schema_with_marker(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let marker = Field::new(END_MARKER_COLUMN, DataType::UInt64, true);
    Arc::new(Schema::new_with_metadata(fields.chain([marker]).collect::<Vec<_>>(), schema.metadata().clone()))
}

pub(super) fn append_null_marker(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let null_marker = new_null_array(&DataType::UInt64, batch.num_rows());
    Ok(RecordBatch::try_new(schema.clone(), batch.columns().iter().cloned().chain([null_marker]).collect())?)
}

pub(super) fn marker_batch(rows: u64, schema: &SchemaRef) -> Result<RecordBatch> {
    let end: ArrayRef = Arc::new(UInt64Array::from(vec![rows]));
    let others = schema.fields().len().saturating_sub(1);
    let nulls = schema.fields().iter().take(others).map(|field| new_null_array(field.data_type(), 1));
    Ok(RecordBatch::try_new(schema.clone(), nulls.chain([end]).collect())?)
}

pub(super) struct EndMarkerChecker {
    schema: SchemaRef,
    pub(super) node: String,
    rows: u64,
    has_ended: bool,
}

impl EndMarkerChecker {
    pub(super) fn new(schema: SchemaRef, node: String) -> EndMarkerChecker {
        EndMarkerChecker { schema, node, rows: 0, has_ended: false }
    }

    pub(super) fn strip_marker(&mut self, batch: &RecordBatch) -> Result<Option<RecordBatch>> {
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

    pub(super) fn check_ended(&self) -> Result<()> {
        match self.has_ended {
            true => Ok(()),
            false => exec_err!("node {} stopped before it returned all rows; rows so far: {}", self.node, self.rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position_batch(positions: &[u64]) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("position", DataType::UInt64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(UInt64Array::from(positions.to_vec()))]).expect("a batch")
    }

    fn check_batches(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
        let mut checker = EndMarkerChecker::new(position_batch(&[]).schema(), "n1".to_owned());
        let mut gathered = Vec::new();
        for batch in batches {
            gathered.extend(checker.strip_marker(batch)?);
        }
        checker.check_ended().map(|()| gathered)
    }

    #[test]
    fn missing_rows_are_an_error() {
        let schema = schema_with_marker(&position_batch(&[]).schema());
        let batch = |positions: &[u64]| append_null_marker(&position_batch(positions), &schema).expect("a batch");
        let end = |rows| marker_batch(rows, &schema).expect("a row");
        let whole = check_batches(&[batch(&[1, 2]), batch(&[]), batch(&[7]), end(3)]).expect("complete");
        assert_eq!(whole, [position_batch(&[1, 2]), position_batch(&[]), position_batch(&[7])]);
        assert_eq!(check_batches(&[end(0)]).expect("complete"), []);
        let truncated = [
            vec![],
            vec![batch(&[1, 2])],
            vec![batch(&[1, 2]), batch(&[7])],
            vec![batch(&[1, 2]), end(3)],
            vec![batch(&[1, 2, 7]), end(2)],
            vec![batch(&[1]), end(1), batch(&[2])],
            vec![end(0), end(0)],
            vec![position_batch(&[1, 2])],
            vec![RecordBatch::new_empty(Arc::new(Schema::empty()))],
        ];
        for batches in truncated {
            assert!(check_batches(&batches).is_err(), "{batches:?}");
        }
    }
}
